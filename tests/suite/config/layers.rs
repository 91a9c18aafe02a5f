//! Precedence of the layers, and the sources of values.

use architect::config::{ConfigFileState, EffectiveValue};
use architect::port::HookPoint;
use architect::types::{ConfirmMode, MicroUsd, TimeSpan};

use super::fixture::ConfigFixture;

/// Fault K10: each layer overrides the ones before it, and the winner is named.
#[test]
fn each_layer_overrides_the_ones_below_it_and_is_named() {
    let key = "limits.max_steps";
    let steps = |steps: u32| format!("[limits]\nmax_steps = {steps}\n");
    let setup = ConfigFixture::new();
    assert_eq!(setup.shown(key), ("50".into(), "default".into()));
    let setup = setup.user(&steps(1));
    let user = "home/.config/architect/config.toml:2:13";
    assert_eq!(setup.shown(key), ("1".into(), user.into()));
    let setup = setup.project(&steps(2)).trusted();
    assert_eq!(setup.shown(key), ("2".into(), "project/.architect/config.toml:2:13".into()));
    let setup = setup.variable("ARCHITECT_LIMITS_MAX_STEPS", "3");
    assert_eq!(setup.shown(key), ("3".into(), "ARCHITECT_LIMITS_MAX_STEPS".into()));
    let setup = setup.write("ci.toml", &steps(4)).file("ci.toml");
    assert_eq!(setup.shown(key), ("4".into(), "ci.toml:2:13".into()));
    let setup =
        setup.user(&format!("{}[profiles.p.limits]\nmax_steps = 5\n", steps(1))).profile("p");
    let profile = "home/.config/architect/config.toml:4:13";
    assert_eq!(setup.shown(key), ("5".into(), profile.into()));
    let setup = setup.set("limits.max_steps=6");
    assert_eq!(setup.shown(key), ("6".into(), "--set limits.max_steps".into()));
    let setup = setup.flag(key, "7", "--max-steps");
    assert_eq!(setup.shown(key), ("7".into(), "--max-steps".into()));
}

#[test]
fn a_profile_is_a_table_a_file_or_both() {
    let setup = ConfigFixture::new()
        .user("[profiles.p.limits]\nmax_steps = 5\ntimeout = 6\n")
        .write("home/.config/architect/profiles/p.toml", "limits.timeout = 7\n")
        .profile("p");
    let limits = setup.load().settings.limits;
    assert_eq!((limits.max_steps, limits.timeout), (5, Some(TimeSpan::from_secs(7))));
}

#[test]
fn the_profile_and_the_file_can_be_named_by_variables() {
    let setup = ConfigFixture::new().user("[profiles.p.limits]\nmax_steps = 5\n");
    let file = setup.path("ci.toml").display().to_string();
    let setup = setup
        .write("ci.toml", "language = 'es'\n")
        .variable("ARCHITECT_PROFILE", "p")
        .variable("ARCHITECT_CONFIG", &file);
    assert_eq!(setup.shown("limits.max_steps").0, "5");
    assert_eq!(setup.shown("language").0, "\"es\"");
}

#[test]
fn variables_and_options_are_parsed_by_the_type_of_their_key() {
    let setup = ConfigFixture::new()
        .variable("ARCHITECT_LLM_STREAM", "false")
        .variable("ARCHITECT_LIMITS_BUDGET_USD", "0.5")
        .variable("ARCHITECT_PERMISSIONS_DENY", "a, b")
        .set("llm.timeout=1.5")
        .set("llm.model=5")
        .set("mcp.servers=[{ name = 'm', command = 'x' }]")
        .flag("permissions.deny", "c(d, e)", "--deny");
    let settings = setup.load().settings;
    assert!(!settings.llm.stream);
    assert_eq!(settings.limits.budget_usd, Some(MicroUsd(500_000)));
    assert_eq!(settings.llm.timeout, TimeSpan::from_millis(1_500));
    assert_eq!(settings.llm.model.unwrap().as_str(), "5");
    assert_eq!(settings.mcp.servers[0].name.as_str(), "m");
    assert_eq!(settings.permissions.deny, ["a", "b", "c(d, e)"]);
}

#[test]
fn hooks_and_servers_of_all_layers_add_up() {
    let hook = |name: &str| format!("[[hooks.stop]]\nname = '{name}'\ncommand = 'true'\n");
    let server = "[[mcp.servers]]\nname = 'm'\ncommand = 'theirs'\n";
    let setup = ConfigFixture::new()
        .user(&format!("{}{}", hook("a"), server.replace("theirs", "mine")))
        .project(&format!("{}{server}", hook("b")))
        .write("project/.mcp.json", r#"{"mcpServers": {"n": {"command": "x"}}}"#)
        .trusted();
    let settings = setup.load().settings;
    let hooks: Vec<&str> =
        settings.hooks.enabled_at(HookPoint::Stop).map(|h| h.name.as_str()).collect();
    assert_eq!(hooks, ["a", "b"]);
    let servers: Vec<&str> = settings.mcp.servers.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(servers, ["m", "n"]);
    assert_eq!(settings.mcp.servers[0].command.as_deref(), Some("theirs"));
}

#[test]
fn secrets_of_servers_are_masked() {
    let setup = ConfigFixture::new()
        .write("mcp.json", r#"{"mcpServers": {"n": {"command": "x", "env": {"T": "${T}"}}}}"#)
        .variable("T", "canary");
    let mut sources = setup.sources.clone();
    sources.mcp_files.push(setup.path("mcp.json"));
    let config = architect::config::load(&sources).unwrap();
    assert_eq!(config.settings.mcp.servers[0].env["T"].reveal(), "canary");
    let shown: String = config.effective_values.iter().filter_map(EffectiveValue::value).collect();
    assert!(!shown.contains("canary") && !format!("{config:?}").contains("canary"));
}

#[test]
fn agents_come_from_files_and_tables_and_default_to_build() {
    let setup = ConfigFixture::new()
        .write(
            "home/.config/architect/agents/docs.md",
            "---\nallowed_tools: [grep]\nmax_steps: 7\n---\nWrite.\n",
        )
        .user("[agents.docs]\nconfirm_mode = 'yolo'\n[agents.plan]\nmax_steps = 3\n");
    let config = setup.load();
    let docs = config.agent("docs").unwrap();
    assert_eq!((&*docs.system_prompt, docs.max_steps), ("Write.", 7));
    assert_eq!((docs.allowed_tools, docs.confirm_mode), (vec!["grep".into()], ConfirmMode::Yolo));
    assert_eq!(config.agent("plan").unwrap().max_steps, 3);
    let build = config.agent("build").unwrap();
    assert_eq!((build.max_steps, build.confirm_mode), (50, ConfirmMode::ConfirmSensitive));
    let names: Vec<String> = config.agents().map(|agent| agent.name.to_string()).collect();
    assert_eq!(names, ["build", "docs", "plan", "resume", "review"]);
    let error = config.agent("biuld").unwrap_err().to_string();
    // The agent is in no file, so the message names none.
    assert_eq!(error, "unknown agent `biuld`, did you mean `build`?");
}

#[test]
fn the_lower_step_limit_wins_unless_it_is_set_for_this_run() {
    let setup = ConfigFixture::new().user("limits.max_steps = 10");
    assert_eq!(setup.load().agent("plan").unwrap().max_steps, 10);
    let setup = ConfigFixture::new().user("limits.max_steps = 100");
    assert_eq!(setup.load().agent("plan").unwrap().max_steps, 30);
    let setup = setup.flag("limits.max_steps", "60", "--max-steps");
    assert_eq!(setup.load().agent("plan").unwrap().max_steps, 60);
}

#[test]
fn the_workspace_determines_the_project() {
    let setup = ConfigFixture::new()
        .write("elsewhere/.architect/config.toml", "limits.max_steps = 9")
        .flag("workspace.root", "../elsewhere", "--workspace");
    assert_eq!(setup.shown("limits.max_steps").0, "9");
    assert!(setup.load().workspace.ends_with("elsewhere"));
}

#[test]
fn the_configuration_files_are_listed() {
    let setup = ConfigFixture::new().user("").project("");
    let config = setup.load();
    let states: Vec<ConfigFileState> = config.files.iter().map(|file| file.state).collect();
    assert_eq!(states, [ConfigFileState::Read, ConfigFileState::OnlyTightens]);
    let state = ConfigFixture::new().load().files[0].state;
    assert_eq!(state, ConfigFileState::Absent);
}

/// Fault K11.
#[test]
fn without_a_home_the_defaults_and_the_project_remain() {
    let mut setup = ConfigFixture::new().project("limits.max_steps = 9");
    setup.sources.folders = architect::config::Folders::default();
    assert_eq!(setup.shown("limits.max_steps").0, "9");
}
