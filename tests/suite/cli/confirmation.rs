//! The user decides about calls on a real terminal.

use std::fs;
use std::path::Path;

use crate::kit::cli::CliFixture;
use crate::kit::terminal::TmuxTerminal;

const WIDE: (u16, u16) = (120, 50);

/// A model that edits a file, runs a command, and then ends.
const SCRIPT: &str = r#"
[[turn]]
calls = [{ name = "edit_file", arguments = { path = "src/a.txt", old_str = "two", new_str = "2" } }]
[[turn]]
calls = [{ name = "run_command", arguments = { command = "cargo --version > out.txt" } }]
[[turn]]
text = "Done."
"#;

fn world() -> CliFixture {
    let world = CliFixture::new();
    world.write("src/a.txt", "one\ntwo\nthree\n");
    world
}

fn start(world: &CliFixture, script: &str, env: &[(&str, &str)]) -> Option<TmuxTerminal> {
    let model = world.script_model(script);
    let args =
        ["run", "Do it.", "--model", &model, "--mode", "confirm-sensitive", "--sandbox", "off"];
    TmuxTerminal::start(world, WIDE, env, &args)
}

/// Returns the records of the only session.
fn journal(world: &CliFixture) -> String {
    let folder = world.home().join(".local/state/architect/sessions");
    let find = |folder: &Path| -> Vec<_> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let mut files = find(&folder);
    while let Some(file) = files.pop() {
        if file.is_dir() {
            files.extend(find(&file));
        } else if file.extension().is_some_and(|end| end == "jsonl") {
            return fs::read_to_string(file).unwrap();
        }
    }
    panic!("no journal")
}

#[test]
fn a_change_is_shown_as_a_diff_and_a_command_with_what_it_does() {
    let world = world();
    let Some(terminal) = start(&world, SCRIPT, &[]) else { return };
    let shown = terminal.wait_for("run it?");
    for line in ["edit_file → src/a.txt", "  -two", "  +2", "@@ -1,3 +1,3 @@"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(shown.contains("s and S allow from now on: edit_file(src/**)"), "{shown}");
    let colors = terminal.visible_with_colors();
    assert!(colors.contains("\u{1b}[32m+2") || colors.contains("\u{1b}[32m+"), "{colors:?}");
    terminal.type_line("?");
    terminal.wait_for("a reason can be given to the model");
    terminal.type_line("y");
    let shown = terminal.wait_for("$ cargo --version > out.txt");
    let shown = if shown.contains("it writes out.txt") {
        shown
    } else {
        terminal.wait_for("it writes out.txt")
    };
    assert!(shown.contains("asked, because:"), "{shown}");
    terminal.type_line("n");
    terminal.wait_for("why not?");
    terminal.type_line("use the lock file");
    let shown = terminal.wait_for("exit 0");
    assert!(shown.contains("⛔"), "{shown}");
    assert_eq!(world.read("src/a.txt"), "one\n2\nthree\n");
    assert!(!world.path("out.txt").exists());
    assert!(journal(&world).contains("the user rejected the call: use the lock file"));
}

#[test]
fn a_rule_for_the_session_or_for_ever_ends_the_questions() {
    let script = r#"
[[turn]]
calls = [{ name = "write_file", arguments = { path = "src/b.txt", content = "b\n" } }]
[[turn]]
calls = [
    { name = "write_file", arguments = { path = "src/c.txt", content = "c\n" } },
    { name = "write_file", arguments = { path = "d.txt", content = "d\n" } },
]
[[turn]]
text = "Done."
"#;
    let world = world();
    let Some(terminal) = start(&world, script, &[]) else { return };
    terminal.wait_for("write_file(src/**)");
    terminal.type_line("s");
    // Files in the same folder are not asked about.
    terminal.wait_for("write_file(d.txt)");
    assert_eq!(world.read("src/c.txt"), "c\n");
    terminal.type_line("S");
    terminal.wait_for("exit 0");
    let config = world.home().join(".config/architect/config.toml");
    assert_eq!(
        fs::read_to_string(config).unwrap(),
        "[permissions]\nallow = [\"write_file(d.txt)\"]\n"
    );
    assert!(!world.path(".architect").exists());
    let journal = journal(&world);
    assert!(journal.contains("who allows write_file(src/**) for the rest of the session"));
    assert!(journal.contains("rule write_file(src/**), added by the user during the run"));
    drop(terminal);
    // The next run has the kept rule, and not the other one.
    let Some(terminal) = start(&world, script, &[]) else { return };
    let shown = terminal.wait_for("write_file(src/**)");
    assert!(!shown.contains("d.txt"), "{shown}");
    terminal.type_line("a");
    let shown = terminal.wait_for("exit 130");
    assert!(shown.contains("architect resume "), "{shown}");
}

/// The user's arguments run. The question is asked again with them, and the model is notified of the change.
#[test]
fn arguments_are_edited_in_an_editor_or_one_by_one() {
    let script = "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"touch wrong\" } }]\n[[turn]]\ntext = \"Done.\"\n";
    for editor in [Some("sed -i s/wrong/right/"), None] {
        let world = world();
        let env: Vec<(&str, &str)> = editor.iter().map(|editor| ("EDITOR", *editor)).collect();
        let Some(terminal) = start(&world, script, &env) else { return };
        terminal.wait_for("run it?");
        terminal.type_line("e");
        if editor.is_none() {
            terminal.wait_for("command [touch wrong]:");
            terminal.type_line("touch right");
        }
        terminal.wait_for("$ touch right");
        terminal.type_line("y");
        terminal.wait_for("exit 0");
        assert!(world.path("right").exists() && !world.path("wrong").exists());
        let journal = journal(&world);
        assert!(journal.contains("The user changed the arguments of this call to"), "{journal}");
        assert!(journal.contains("confirmed by the user, after changing the arguments"));
    }
}

#[test]
fn interrupts_and_the_end_of_the_input_abort_the_run() {
    for (key, echo) in [("C-c", "^C"), ("C-d", "")] {
        let world = world();
        let Some(terminal) = start(&world, SCRIPT, &[]) else { return };
        terminal.wait_for("run it?");
        terminal.type_line("?");
        terminal.wait_for("\n  y  run it\n  n  don't run it");
        terminal.press(key);
        let shown = terminal.wait_for("exit 130");
        assert!(shown.contains("architect resume "), "{shown}");
        // Later output does not follow on the line of the question.
        let question = format!("[?]help: {echo}");
        let ends = |line: &str| line.trim_end().ends_with(question.trim_end());
        assert!(shown.lines().any(ends), "{shown}");
        assert_eq!(world.read("src/a.txt"), "one\ntwo\nthree\n");
    }
}

/// A resumed run asks again about a call that was not decided.
#[test]
fn an_aborted_run_asks_again_when_it_is_resumed() {
    let world = world();
    let Some(terminal) = start(&world, SCRIPT, &[]) else { return };
    terminal.wait_for("run it?");
    terminal.type_line("a");
    terminal.wait_for("exit 130");
    drop(terminal);
    let ran = world.run(&["resume", "last"]);
    assert!(ran.code == 0 || ran.code == 2, "{} {}", ran.code, ran.err);
    let shown = world.run(&["replay", "last", "--verify"]);
    assert_eq!(shown.code, 0, "{}{}", shown.out, shown.err);
}

#[test]
fn a_dry_run_shows_what_would_change_and_a_verbose_one_what_has() {
    let script = SCRIPT
        .replace("run_command", "list_files")
        .replace(r#"command = "cargo --version > out.txt""#, r#"path = ".""#);
    for (option, expected) in [("--dry-run", true), ("-v", true), ("--no-stream", false)] {
        let world = world();
        let ran = world.run_script(&script, &[option, "--mode", "yolo"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let is_shown = ran.err.contains("-two") && ran.err.contains("+2");
        assert_eq!(is_shown, expected, "{option}: {}", ran.err);
    }
}

/// A configuration on a full disk stays unchanged, and the question is asked again.
#[test]
fn a_rule_that_cannot_be_kept_is_reported_and_changes_nothing() {
    let world = world();
    let model = world.script_model(SCRIPT);
    let program = env!("CARGO_BIN_EXE_architect");
    let script = format!(
        "mkdir -p ~/.config/architect
        mount -t tmpfs -o size=4k none ~/.config/architect 2> /dev/null || {{ echo skipped; exit; }}
        head -c 4090 /dev/zero | tr '\\0' '#' > ~/.config/architect/config.toml
        {program} run 'Do it.' --model {model} --mode confirm-sensitive --sandbox off
        echo \"exit $?\"; wc -c < ~/.config/architect/config.toml; ls -A ~/.config/architect | wc -l"
    );
    world.write("full.sh", &script);
    let Some(terminal) = TmuxTerminal::start_shell(&world, WIDE) else { return };
    terminal.type_line("unshare -rm sh full.sh");
    let shown = terminal.wait_until("the question", |shown| {
        ["run it?", "skipped", "failed"].iter().any(|text| shown.contains(text))
    });
    if !shown.contains("run it?") {
        eprintln!("SKIPPED: no file system can be mounted here: {shown}");
        return;
    }
    terminal.type_line("S");
    let shown = terminal.wait_for("config.toml: No space left on device");
    assert!(!shown.contains("added to"), "{shown}");
    terminal.type_line("a");
    terminal.wait_for("exit 130\n4090\n1");
}

/// Text that was typed before the stop is not part of the answer: the terminal drops it.
#[test]
fn a_question_is_shown_again_after_a_stop() {
    let world = world();
    let model = world.script_model(SCRIPT);
    let program = env!("CARGO_BIN_EXE_architect");
    let run =
        format!("{program} run 'Do it.' --model {model} --mode confirm-sensitive --sandbox off");
    world.write("run.sh", &format!("{run}; echo \"exit $?\""));
    let Some(terminal) = TmuxTerminal::start_shell(&world, WIDE) else { return };
    terminal.type_line("sh run.sh");
    terminal.wait_for("run it?");
    terminal.type_line("?");
    terminal
        .wait_until("the question after the help", |shown| shown.matches("run it?").count() == 2);
    terminal.type_text("no");
    terminal.press("C-z");
    terminal.wait_for("Stopped");
    terminal.type_line("fg");
    let shown =
        terminal.wait_until("everything again", |shown| shown.matches("run it?").count() == 4);
    assert_eq!(shown.matches("asked, because:").count(), 2, "{shown}");
    terminal.type_line("a");
    terminal.wait_for("exit 130");
}
