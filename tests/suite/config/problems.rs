//! Problems and their positions.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use architect::config::{ConfigProblem, DeferMode, load};

use super::fixture::ConfigFixture;

/// Fault K1: the position is reported, and nothing of the file is used.
#[test]
fn a_syntax_error_has_its_line_and_a_caret() {
    let setup = ConfigFixture::new().user("[limits]\nmax_steps = = 5\n");
    let error = load(&setup.sources).unwrap_err();
    let problem = &error.problems[0];
    assert!(setup.problems()[0].starts_with("home/.config/architect/config.toml:2:13: "));
    let excerpt = problem.excerpt().unwrap();
    assert_eq!((excerpt.line.as_str(), excerpt.column), ("max_steps = = 5", 13));
}

/// Fault K2, K3: all of it at once, also where a higher layer covers it.
#[test]
fn every_problem_in_every_layer_is_reported() {
    let setup = ConfigFixture::new()
        .user("[llm]\ntimeout = -1\n[sandbx]\nmode = 'off'\n[profiles.p.llm]\nretries = 'x'\n")
        .project("language = 'fr'\n")
        .variable("ARCHITECT_LLM_TIMEOUT", "soon")
        .set("llm.timeout=5")
        .flag("limits.max_steps", "-3", "--max-steps");
    let user = "home/.config/architect/config.toml";
    let expected = [
        format!("{user}:3:2: unknown key `sandbx`, did you mean `sandbox`?"),
        format!("{user}:2:11: `llm.timeout` must be a number of seconds, or a time like \"10m\", found -1"),
        format!(
            "{user}:6:11: `profiles.p.llm.retries` must be a whole number, not negative, found \"x\""
        ),
        "ARCHITECT_LLM_TIMEOUT: `llm.timeout` must be a number of seconds, or a time like \"10m\", found \
         \"soon\""
            .to_owned(),
        "--max-steps: `limits.max_steps` must be a whole number, not negative, found -3".to_owned(),
        "project/.architect/config.toml:1:12: `language` must be \"en\" or \"es\", found \"fr\""
            .to_owned(),
    ];
    let mut problems = setup.problems();
    let mut expected = expected.to_vec();
    problems.sort();
    expected.sort();
    assert_eq!(problems, expected);
}

/// Fault K6, K7.
#[test]
fn an_unsafe_file_is_rejected() {
    let setup = ConfigFixture::new().user("");
    let path = setup.path("home/.config/architect/config.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let writable =
        "home/.config/architect/config.toml can be written by every user of this machine";
    assert_eq!(setup.problems(), [writable]);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let folder = "home/.config/architect/config.toml is not a regular file";
    assert_eq!(setup.problems(), [folder]);
    fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink("gone", &path).unwrap();
    let dangling = "home/.config/architect/config.toml is a link to a file that does not exist";
    assert_eq!(setup.problems(), [dangling]);
    let setup = ConfigFixture::new().file("missing.toml");
    assert_eq!(setup.problems(), ["could not find missing.toml"]);
}

/// Fault K15.
#[test]
fn two_servers_or_two_hooks_of_one_name_are_a_mistake() {
    let server = "[[mcp.servers]]\nname = 'm'\ncommand = 'x'\n";
    let hook = "[[hooks.stop]]\nname = 'h'\ncommand = 'x'\n";
    let setup = ConfigFixture::new().user(&format!("{server}{server}{hook}{hook}"));
    let expected = [
        "home/.config/architect/config.toml:4:1: `mcp.servers` has two entries with the name `m`",
        "home/.config/architect/config.toml:10:1: `hooks.stop` has two entries with the name `h`",
    ];
    assert_eq!(setup.problems(), expected);
}

/// Fault L7.
#[test]
fn a_key_is_not_sent_unencrypted_unless_that_is_allowed() {
    let setup = ConfigFixture::new().set("llm.api_base=http://10.0.0.1/v1");
    assert!(setup.problems()[0].starts_with("--set llm.api_base: `llm.api_base`: a key would go"));
    let setup = setup.set("llm.allow_http=true");
    assert!(setup.load().settings.llm.allow_http);
    let setup = ConfigFixture::new().set("llm.api_base=http://localhost:8000/v1");
    assert!(setup.load().settings.llm.api_base.is_some());
    for key in ["token_env = 'T'", "oauth = { client_id = 'c', client_secret_env = 'T' }"] {
        let server = format!("{{ name = 'm', url = 'http://10.0.0.1/', {key} }}");
        let setup = ConfigFixture::new().set(&format!("mcp.servers=[{server}]"));
        assert!(setup.problems()[0].contains("`mcp.servers.m.url`: a key would go"), "{key}");
    }
}

#[test]
fn client_credentials_are_complete_and_alone() {
    let problems = |keys: &str| {
        ConfigFixture::new().set(&format!("mcp.servers=[{{ name = 'm', {keys} }}]")).problems()
    };
    let url = "url = 'https://h.example/'";
    for (keys, expected) in [
        (
            format!("{url}, oauth = {{ client_id = 'c' }}"),
            "`mcp.servers.m.oauth.client_secret_env` is missing",
        ),
        (
            format!("{url}, oauth = {{ client_secret_env = 'T' }}"),
            "`mcp.servers.m.oauth.client_id` is missing",
        ),
        (
            format!(
                "{url}, oauth = {{ client_id = 'c', client_secret_env = 'T', client_secret_command = 'x' }}"
            ),
            "must be omitted beside `client_secret_env`",
        ),
        (
            format!(
                "{url}, token_env = 'T', oauth = {{ client_id = 'c', client_secret_env = 'T' }}"
            ),
            "must be omitted beside `oauth`",
        ),
        (
            "command = 'x', oauth = { client_id = 'c' }".to_owned(),
            "unknown key `mcp.servers.m.oauth`",
        ),
        ("command = 'x', defer = 'always'".to_owned(), "must be true or false or \"auto\""),
    ] {
        let found = problems(&keys);
        assert!(found.len() == 1 && found[0].contains(expected), "{keys}: {found:?}");
    }
    let servers = "mcp.servers=[{ name = 'm', command = 'x', defer = true }, { name = 'n', command = 'x', defer = 'auto' }]";
    let servers = ConfigFixture::new().set(servers).load().settings.mcp.servers;
    assert_eq!([servers[0].defer, servers[1].defer], [DeferMode::Always, DeferMode::Auto]);
}

#[test]
fn required_confinement_cannot_be_turned_off() {
    let setup = ConfigFixture::new().user("sandbox.required = true").flag(
        "sandbox.mode",
        "off",
        "--sandbox",
    );
    let expected = "--sandbox: `sandbox.mode`: \"off\" contradicts `sandbox.required = true` \
                    (home/.config/architect/config.toml:1:20)";
    assert_eq!(setup.problems(), [expected]);
}

#[test]
fn an_unknown_profile_is_a_mistake() {
    let setup = ConfigFixture::new().user("[profiles.fast]\n").profile("fats");
    let expected = "--profile: unknown profile `fats`, did you mean `fast`?";
    assert_eq!(setup.problems(), [expected]);
}

/// Fault K5, X12: a key in the wrong place is rejected, and not repeated.
#[test]
fn a_key_in_a_file_is_never_shown() {
    for text in
        ["[llm]\napi_key_env = 'sk-canary'", "[llm]\napi_key = 'sk-canary'", "api_key = sk-canary"]
    {
        let setup = ConfigFixture::new().user(text);
        let error = load(&setup.sources).unwrap_err();
        let excerpts: String =
            error.problems.iter().filter_map(ConfigProblem::excerpt).map(|e| e.line).collect();
        assert!(!format!("{error} {excerpts}").contains("canary"), "{error} {excerpts}");
    }
}
