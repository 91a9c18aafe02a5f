//! The command with prompts, limits and environments of all kinds.

use serde_json::json;

use crate::kit::cli::CliFixture;

const DONE: &str = "[[turn]]\ntext = \"Fertig – ça va 🎉.\"\n";

/// Runs the command with a prompt, options, and a model that answers at once.
fn run(world: &CliFixture, prompt: &[&str], args: &[&str]) -> crate::kit::cli::CommandResult {
    let model = world.script_model(DONE);
    world.run(&[&["run", "--model", &model], args, prompt].concat())
}

/// Fault K8: files can't include others, so no file can include itself.
#[test]
fn a_file_cannot_include_another() {
    let world = CliFixture::new();
    world.write(".architect/config.toml", "include = [\"config.toml\"]\n");
    let ran = run(&world, &["Do it."], &[]);
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("include") && ran.err.contains("config.toml:1:1"), "{}", ran.err);
}

/// Fault K12.
#[test]
fn an_empty_or_huge_prompt_is_rejected() {
    let world = CliFixture::new();
    for nothing in ["", " \n"] {
        let ran = run(&world, &[nothing], &[]);
        assert_eq!(ran.code, 3, "{nothing:?}");
        assert!(ran.err.contains("prompt") || ran.err.contains("task"), "{}", ran.err);
    }
    world.write("long.txt", &"x".repeat(11 << 20));
    let ran = run(&world, &["@long.txt"], &[]);
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("long.txt"), "{}", ran.err);
    let ran = run(&world, &["--", "--explain this option"], &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

/// Fault K13.
#[test]
fn a_model_without_a_price_can_have_a_token_budget() {
    let world = CliFixture::new();
    let ran = run(&world, &["Do it."], &["--max-tokens", "1000000", "--json"]);
    assert_eq!(
        (ran.code, &ran.json()["costs"]["total_cost_usd"]),
        (0, &json!(null)),
        "{}",
        ran.out
    );
    let ran = run(&world, &["Do it."], &["--budget", "1"]);
    assert_eq!(ran.code, 3);
}

/// Fault K14.
#[test]
fn a_limit_of_zero_is_a_limit() {
    let world = CliFixture::new();
    for (limit, reason) in [("--max-steps", "max_steps"), ("--max-tokens", "budget_exceeded")] {
        let ran = run(&world, &["Do it."], &[limit, "0", "--json"]);
        assert_eq!((ran.code, &ran.json()["stop_reason"]), (2, &json!(reason)), "{}", ran.err);
    }
}

/// Fault K16.
#[test]
fn text_is_utf_8_in_any_locale() {
    let world = CliFixture::new();
    let model = world.script_model(DONE);
    for locale in ["C", "POSIX", "xx_XX.latin-1"] {
        let mut command = world.command(&["run", "Überall – 東京", "--model", &model]);
        command.env("LC_ALL", locale).env("LANG", locale);
        let ran = crate::kit::cli::wait_for_exit(command.spawn().unwrap());
        assert_eq!((ran.code, ran.out.trim()), (0, "Fertig – ça va 🎉."), "{locale}");
    }
}

/// A rule with a meaning that its author did not intend is found before a run depends on it.
#[test]
fn examples_are_checked_against_the_rules() {
    let world = CliFixture::new();
    let folder = world.home().join(".config/architect");
    std::fs::create_dir_all(&folder).unwrap();
    let rules = "[permissions]\nallow = ['run_command(git *)', 'write_file(src/**)']\ndeny = ['run_command(git push *)']\n";
    let check = |examples: &str| {
        let text = format!("{rules}[permissions.examples]\n{examples}");
        std::fs::write(folder.join("config.toml"), text).unwrap();
        world.run(&["config", "check"])
    };
    let ran = check(
        "'run_command(git log; git push -f)' = 'deny'\n'run_command(git status)' = 'allow'\n\
         'run_command(make)' = 'ask'\n'write_file(src/a.rs)' = 'allow'\n'mcp_git_log' = 'ask'\n",
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = check("'run_command(git status; make)' = 'allow'\n'write_file' = 'ask'\n");
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("config.toml:5:"), "{}", ran.err);
    assert!(ran.err.contains("expected allow, but it is ask: "), "{}", ran.err);
    assert!(ran.err.contains("not a call; write it"), "{}", ran.err);
    let ran = check("'run_command(x)' = 'maybe'\n");
    assert!(ran.err.contains("\"deny\" or \"ask\" or \"allow\""), "{}", ran.err);
}
