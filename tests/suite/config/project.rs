//! Rights of a project, before and after the user trusts its folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use architect::config::{ConfigFileState, ProjectTrust};
use architect::port::HookPoint;

use super::fixture::ConfigFixture;

/// A row for each key: the user's setting (empty if the default is loose enough), a value that a project must not be
/// able to set, and one that it may.
///
/// Fault K9, X3, X4.
#[rustfmt::skip]
const KEYS: &[(&str, &str, &str, &str)] = &[
    ("language", "", "", "'es'"),
    ("llm.model", "", "'openai/gpt-4o'", ""),
    ("llm.api_base", "", "'https://evil.example'", ""),
    ("llm.api_key_env", "", "'AWS_SECRET_ACCESS_KEY'", ""),
    ("llm.api_key_command", "", "'evil'", ""),
    ("llm.allow_http", "true", "", "false"),
    ("llm.allow_http", "", "true", ""),
    ("llm.timeout", "", "61", "59"),
    ("llm.idle_timeout", "", "121", "119"),
    ("llm.call_timeout", "", "601", "599"),
    ("llm.effort", "", "'max'", ""),
    ("llm.retries", "", "7", "2"),
    ("llm.retry_for", "", "'20m'", ""),
    ("llm.options", "", "{ temperature = 1 }", ""),
    ("llm.headers", "", "{ X-Team = 'x' }", ""),
    ("llm.stream", "", "", "false"),
    ("llm.prompt_caching", "", "false", "true"),
    ("llm.summary_model", "", "'openai/gpt-4o'", ""),
    ("llm.fallback", "", "['openai/gpt-4o']", ""),
    ("llm.max_output_tokens", "100", "101", "99"),
    ("llm.max_output_tokens", "", "", "100"),
    ("agents.build.description", "", "'x'", ""),
    ("agents.build.system_prompt", "", "'x'", ""),
    ("agents.build.allowed_tools", "", "", "['read_file', 'mcp_*']"),
    ("agents.plan.allowed_tools", "", "['read_file', 'run_command']", "['read_file']"),
    ("agents.plan.allowed_tools", "", "['*']", "[]"),
    ("agents.plan.allowed_tools", "['read_*']", "['read_file|run_command']", "['read_file|read_f*']"),
    ("agents.build.confirm_mode", "", "'yolo'", "'confirm-all'"),
    ("agents.build.isolation", "", "'none'", ""),
    ("agents.plan.max_steps", "", "31", "29"),
    ("agents.new.system_prompt", "", "'x'", ""),
    ("agents.new.max_steps", "", "1", ""),
    ("limits.max_steps", "", "51", "0"),
    ("limits.timeout", "10", "11", "9"),
    ("limits.step_timeout", "10", "11", "9"),
    ("limits.budget_usd", "1", "1.5", "0.5"),
    ("limits.budget_usd", "", "", "0.5"),
    ("limits.max_tokens", "10", "11", "9"),
    ("limits.warn_at_usd", "1", "2", "0.5"),
    ("context.max_tool_result_tokens", "", "0", ""),
    ("context.summarize_after_steps", "", "1", ""),
    ("context.keep_recent_steps", "", "1", ""),
    ("context.threshold", "", "0.9", ""),
    ("context.max_context_tokens", "5000", "5001", "4999"),
    ("context.parallel_tools", "false", "true", ""),
    ("context.parallel_tools", "", "", "false"),
    ("commands.enabled", "false", "true", ""),
    ("commands.enabled", "", "", "false"),
    ("commands.default_timeout", "", "121", "119"),
    ("commands.max_output_lines", "", "201", "199"),
    ("commands.max_stored_output_mb", "", "257", "255"),
    ("commands.blocked_patterns", "['a']", "", "['a', 'b']"),
    ("commands.safe_commands", "", "['rm']", ""),
    ("commands.allowed_only", "true", "false", ""),
    ("commands.allowed_only", "", "", "true"),
    ("commands.env_exclude", "", "", "['HOME']"),
    ("commands.env_include", "", "['OPENAI_API_KEY']", ""),
    ("workspace.root", "", "'/'", ""),
    ("workspace.allow_delete", "", "true", "false"),
    ("permissions.allow", "", "['run_command(*)']", ""),
    ("permissions.ask", "['a']", "", "['a', 'b']"),
    ("permissions.deny", "['a']", "", "['a', 'b']"),
    ("permissions.fail_on_denied", "true", "false", ""),
    ("permissions.fail_on_denied", "", "", "true"),
    ("permissions.examples", "", "{ 'read_file(.env)' = 'allow' }", ""),
    ("sandbox.mode", "", "'off'", "'read-only'"),
    ("sandbox.network", "'off'", "'on'", ""),
    ("sandbox.network", "", "", "'off'"),
    ("sandbox.network", "'list'", "'on'", ""),
    ("sandbox.network", "", "", "'list'"),
    ("sandbox.allowed_hosts", "", "['a.example']", ""),
    ("sandbox.allowed_hosts", "['a.example']", "['b.example']", ""),
    ("sandbox.allowed_hosts", "['*.a.example']", "['b.a.example']", "['*.a.example']"),
    ("sandbox.allowed_hosts", "['a.example', 'b.example']", "", "['b.example']"),
    ("sandbox.required", "true", "false", ""),
    ("sandbox.required", "", "", "true"),
    ("sandbox.writable", "", "['/']", ""),
    ("skills.folders", "", "['/evil']", ""),
    ("skills.include", "['pdf-*']", "['*']", "['pdf-a']"),
    ("skills.include", "['pdf-*']", "['pdf-a|b']", "['pdf-a|pdf-b*']"),
    ("skills.exclude", "", "", "['pdf-*']"),
    ("sandbox.readable", "", "['~/.ssh']", ""),
    ("sandbox.max_processes", "", "4097", "4095"),
    ("sandbox.max_memory_mb", "", "64", ""),
    ("guardrails.protected_files", "['a']", "", "['a', 'b']"),
    ("guardrails.sensitive_files", "['a']", "", "['a', 'b']"),
    ("guardrails.max_files_modified", "5", "6", "4"),
    ("guardrails.max_lines_changed", "5", "6", "4"),
    ("guardrails.max_commands_executed", "5", "6", "4"),
    ("guardrails.quality_gates", "", "[{ name = 'g', command = 'evil' }]", ""),
    ("indexer.enabled", "", "", "false"),
    ("indexer.max_file_size", "", "1000001", "999999"),
    ("indexer.exclude", "", "", "['a']"),
    ("indexer.cache_ttl", "", "301", "299"),
    ("mcp.servers", "", "[{ name = 'm', command = 'evil' }]", ""),
    ("hooks.session_start", "", "[{ name = 'h', command = 'evil' }]", ""),
    ("hooks.pre_llm_call", "", "[{ name = 'h', command = 'evil' }]", ""),
    ("hooks.post_llm_call", "", "[{ name = 'h', command = 'evil' }]", ""),
    ("hooks.pre_tool_use", "[{ name = 'h', command = 'x' }]", "[{ name = 'h', command = 'evil' }]", ""),
    ("hooks.post_tool_use", "", "[{ name = 'h', command = 'evil' }]", ""),
    ("hooks.post_edit", "", "[{ name = 'h', command = 'evil' }]", ""),
    ("hooks.pre_compact", "", "[{ name = 'h', command = 'evil' }]", ""),
    ("hooks.post_compact", "", "[{ name = 'h', command = 'evil' }]", ""),
    ("hooks.stop", "", "[{ name = 'h', command = 'evil' }]", ""),
    ("hooks.session_end", "", "[{ name = 'h', command = 'evil' }]", ""),
    ("hooks.on_error", "", "[{ name = 'h', command = 'evil' }]", ""),
    ("evaluation.mode", "", "'full'", ""),
    ("evaluation.model", "", "'openai/gpt-4o'", ""),
    ("evaluation.max_retries", "", "3", "1"),
    ("evaluation.confidence_threshold", "", "0.1", ""),
    ("costs.prices_file", "", "'free.toml'", ""),
    ("costs.unknown_price", "", "'warn'", "'refuse'"),
    ("costs.unknown_price", "'warn'", "", "'refuse'"),
    ("checkpoints.enabled", "", "false", ""),
    ("checkpoints.max_file_size", "", "1", ""),
    ("checkpoints.max_total", "", "1", ""),
    ("checkpoints.max_files", "", "1", ""),
    ("checkpoints.exclude", "", "['a']", ""),
    ("checkpoints.generated", "", "true", ""),
    ("sessions.dir", "", "'/tmp'", ""),
    ("sessions.durability", "", "'os'", "'full'"),
    ("sessions.cleanup_after_days", "", "0", ""),
    ("logging.level", "", "'off'", ""),
    ("logging.file", "", "'/etc/passwd'", ""),
];

/// An agent's key that the user has not set has the value that it inherits, also from a profile or an option.
#[test]
fn an_untrusted_project_loosens_no_value_that_an_agent_inherits() {
    for (user, sets, project, ignored) in [
        ("", "", "confirm_mode = 'yolo'", true),
        ("", "", "confirm_mode = 'confirm-sensitive'", false),
        ("", "agents.build.confirm_mode='confirm-all'", "confirm_mode = 'confirm-sensitive'", true),
        ("agents.build.confirm_mode = 'yolo'", "", "confirm_mode = 'yolo'", false),
        ("limits.max_steps = 5", "", "max_steps = 6", true),
        ("limits.max_steps = 5", "", "max_steps = 4", false),
        (
            "agents.build.allowed_tools = ['read_*']",
            "",
            "allowed_tools = ['read_file|run_command']",
            true,
        ),
        ("agents.build.allowed_tools = ['read_*']", "", "allowed_tools = ['read_file']", false),
        ("", "agents.build.allowed_tools=['read_file']", "allowed_tools = ['grep']", true),
    ] {
        let user = format!("{user}\n[agents.docs]\ndescription = 'x'\n");
        let setup = ConfigFixture::new().user(&user).project(&format!("[agents.docs]\n{project}"));
        let setup = if sets.is_empty() { setup } else { setup.set(sets) };
        assert_eq!(setup.notices().len(), usize::from(ignored), "{project}: {:?}", setup.notices());
    }
}

/// A profile takes precedence over files, but that of an untrusted project raises no other limit by that.
#[test]
fn a_profile_of_an_untrusted_project_raises_no_limit_of_steps() {
    for (user, project, expected) in [
        ("limits.max_steps = 5", "agents.build.max_steps = 100", 5),
        ("agents.build.max_steps = 5", "limits.max_steps = 40", 5),
        ("limits.max_steps = 5", "agents.plan.max_steps = 20", 5),
        ("limits.max_steps = 5", "agents.build.max_steps = 4", 4),
    ] {
        let setup = ConfigFixture::new()
            .user(&format!("{user}\n[profiles.ci]"))
            .project(&format!("[profiles.ci]\n{project}"))
            .profile("ci");
        let name = if project.contains("plan") { "plan" } else { "build" };
        assert_eq!(setup.load().agent(name).unwrap().max_steps, expected, "{project}");
    }
}

fn setup(key: &str, user: &str, project: &str) -> ConfigFixture {
    let line = |value: &str| match value {
        "" => String::new(),
        value => format!("{key} = {value}\n"),
    };
    ConfigFixture::new().user(&line(user)).project(&line(project))
}

/// Returns all values that are set, without their sources.
fn values(setup: &ConfigFixture) -> Vec<(String, Option<String>)> {
    setup.load().effective_values.iter().map(|shown| (shown.key.clone(), shown.value())).collect()
}

#[test]
fn an_untrusted_project_loosens_nothing() {
    for (key, user, loose, _) in KEYS.iter().filter(|(_, _, loose, _)| !loose.is_empty()) {
        let setup = setup(key, user, loose);
        assert_eq!(values(&setup), values(&self::setup(key, user, "")), "{key} = {loose}");
        let notices = setup.notices();
        let about = format!("`{key}` is ignored, because this folder is not trusted");
        assert!(notices.iter().any(|notice| notice.ends_with(&about)), "{key}: {notices:?}");
    }
}

#[test]
fn an_untrusted_project_can_tighten() {
    for (key, user, _, tight) in KEYS.iter().filter(|(.., tight)| !tight.is_empty()) {
        let setup = setup(key, user, tight);
        assert_eq!(setup.notices(), Vec::<String>::new(), "{key} = {tight}");
        let (value, origin) = setup.shown(key);
        assert_eq!(value, tight.replace('\'', "\""), "{key}");
        let from_project = origin.starts_with("project/.architect/config.toml:1:");
        assert!(from_project, "{key} comes from {origin}");
    }
}

#[test]
fn every_key_is_in_the_table() {
    let config = ConfigFixture::new().load();
    let known = |key: &str| KEYS.iter().any(|(known, ..)| *known == key);
    for shown in &config.effective_values {
        let agent = shown.key.strip_prefix("agents.").and_then(|rest| rest.split_once('.'));
        let is_there = match agent {
            Some((_, field)) => {
                known(&format!("agents.build.{field}")) || known(&format!("agents.plan.{field}"))
            }
            None => known(&shown.key),
        };
        assert!(is_there, "{} has no row", shown.key);
    }
}

#[test]
fn a_trusted_project_can_loosen() {
    let hook = "[[hooks.stop]]\nname = 'h'\ncommand = 'true'\n";
    let count =
        |setup: &ConfigFixture| setup.load().settings.hooks.enabled_at(HookPoint::Stop).count();
    let setup = ConfigFixture::new().project(hook);
    assert_eq!((count(&setup), setup.load().is_trusted), (0, false));
    let setup = setup.trusted();
    assert_eq!((count(&setup), setup.load().is_trusted), (1, true));
    assert_eq!(count(&setup.trust(ProjectTrust::Withheld)), 0);
    assert_eq!(count(&ConfigFixture::new().project(hook).trust(ProjectTrust::Granted)), 1);
}

/// The command would run unconfined, and the agent can change the files of a project.
#[test]
fn not_even_a_trusted_project_names_the_command_for_a_key() {
    let setup = ConfigFixture::new().project("llm.api_key_command = 'evil'").trusted();
    let problems = setup.problems();
    let expected = "only your own configuration can name a command for the key";
    assert!(problems[0].contains(expected), "{problems:?}");
    let own = ConfigFixture::new().project("models.m.api_key_command = 'evil'").trusted();
    assert!(own.problems()[0].contains(expected), "{:?}", own.problems());
    let setup = ConfigFixture::new().user("llm.api_key_command = 'good'").trusted();
    assert_eq!(setup.load().settings.llm.api_key_command.as_deref(), Some("good"));
}

/// A model that the user defines is sent the same keys.
#[test]
fn not_even_a_trusted_project_chooses_the_address_of_a_model_or_its_key() {
    for (text, expected) in [
        (
            "models.m.api_base = 'https://evil.example'",
            "an address that a file of the project chooses",
        ),
        ("models.m.api_key_env = 'AWS_SECRET_ACCESS_KEY'", "may hold a secret"),
    ] {
        let problems = ConfigFixture::new().project(text).trusted().problems();
        assert!(problems[0].contains(expected), "{problems:?}");
    }
}

/// An option with `[]` removes the items of files, but not a stored option, since a command could have written it.
#[test]
fn a_stored_option_removes_no_denial() {
    let mut setup = ConfigFixture::new().user("permissions.deny = ['run_command']");
    setup.sources.untrusted_sets.push("permissions.deny=[]".to_owned());
    assert_eq!(setup.load().settings.permissions.deny, ["run_command"]);
}

/// The agent can change the files of a project.
#[test]
fn not_even_a_trusted_project_lets_commands_out_of_the_confinement() {
    for (text, is_refused) in [
        ("sandbox.mode = 'off'", true),
        ("sandbox.readable = ['~/.ssh']", true),
        ("sandbox.writable = ['new/folder', '../elsewhere']", true),
        ("sandbox.writable = ['link']", true),
        ("sandbox.readable = ['folder']\nsandbox.writable = ['new/folder']", false),
    ] {
        let setup = ConfigFixture::new().project(text).trusted();
        std::os::unix::fs::symlink("/usr", setup.path("project/link")).unwrap();
        if is_refused {
            let problems = setup.problems();
            assert!(problems[0].contains("only your own configuration"), "{text}: {problems:?}");
        } else {
            setup.load();
        }
        ConfigFixture::new().user(text).load();
    }
    let setup = ConfigFixture::new().project("sandbox.mode = 'off'").trusted();
    setup.set("sandbox.mode='read-only'").load();
}

/// Fault X3: settings that would be ignored are not even read.
#[test]
fn agents_and_servers_of_an_untrusted_project_are_not_read() {
    let setup = ConfigFixture::new()
        .write("project/.mcp.json", "not json")
        .write("project/.architect/agents/build.md", "---\nnot front matter\n");
    let notices = setup.notices();
    assert!(notices[0].contains(".mcp.json is ignored"), "{notices:?}");
    assert!(notices[1].contains(".architect/agents is ignored"), "{notices:?}");
    let config = setup.load();
    let left_out = config.files.iter().filter(|file| file.state == ConfigFileState::Skipped);
    assert_eq!((left_out.count(), config.settings.mcp.servers.len()), (2, 0));
}

#[test]
fn a_profile_of_an_untrusted_project_only_tightens_too() {
    let setup = ConfigFixture::new()
        .project("[profiles.p.limits]\nmax_steps = 100\ntimeout = 5\n")
        .write("project/.architect/profiles/p.toml", "llm.api_base = 'https://evil.example'")
        .variable("ARCHITECT_LIMITS_MAX_STEPS", "20")
        .profile("p");
    let settings = setup.load().settings;
    assert_eq!((settings.limits.max_steps, settings.llm.api_base), (20, None));
    assert!(settings.limits.timeout.is_some());
}

/// Fault K7: trusting a folder is trusting everyone who can write it.
#[test]
fn a_project_file_that_everyone_can_write_is_not_trusted() {
    let setup = ConfigFixture::new().project("limits.max_steps = 100").trusted();
    assert_eq!(setup.shown("limits.max_steps").0, "100");
    let path = setup.path("project/.architect/config.toml");
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(setup.shown("limits.max_steps").0, "50");
    assert!(setup.notices()[0].contains("this folder counts as not trusted"));
}
