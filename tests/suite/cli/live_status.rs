//! What a user sees of a run on a real terminal, while it works and in the end.

use std::time::Duration;

use crate::kit::cli::CliFixture;
use crate::kit::terminal::TmuxTerminal;

/// A run with everything that takes time.
const SCRIPT: &str = r#"
window = 20000
price = { input = 1.0, output = 10.0 }
[[turn]]
error = { kind = "rate_limited", message = "slow down", wait_ms = 2500 }
[[turn]]
reasoning = "First I look.\nThen I change the line.\n"
text = "I build it first."
pace_ms = 1200
chunks = 2
calls = [{ name = "run_command", arguments = { command = "for i in 1 2 3; do echo building $i; done; sleep 1.2; echo linking; sleep 1.2" } }]
usage = { input = 4200, output = 90, cached_input = 2000 }
[[turn]]
calls = [{ name = "edit_file", arguments = { path = "src/a.txt", old_str = "two", new_str = "2" } }]
usage = { input = 5200, output = 40, cached_input = 4000 }
[[turn]]
calls = [{ name = "run_command", arguments = { command = "echo no such file >&2; exit 3" } }]
usage = { input = 5600, output = 40, cached_input = 4000 }
[[turn]]
text = "It is done: the second line of `src/a.txt` is a number now, as you have asked."
chunks = 8
pace_ms = 150
usage = { input = 6000, output = 60, cached_input = 4000 }
"#;

fn start(
    world: &CliFixture,
    size: (u16, u16),
    env: &[(&str, &str)],
    options: &[&str],
) -> Option<TmuxTerminal> {
    world.write("src/a.txt", "one\ntwo\nthree\n");
    let model = world.script_model(SCRIPT);
    let args = ["run", "Do it.", "--model", &model, "--mode", "confirm-sensitive"];
    let allow = ["--allow", "run_command", "--sandbox", "off", "--budget", "2", "--timeout", "600"];
    TmuxTerminal::start(world, size, env, &[&args[..], &allow, options].concat())
}

/// Returns a screen without what differs from run to run.
fn stable(screen: &str) -> String {
    let session =
        screen.split_whitespace().find(|word| word.len() == 36 && word.matches('-').count() == 4);
    let screen = session.map_or(screen.to_owned(), |session| screen.replace(session, "SESSION"));
    let mut lines: Vec<String> = Vec::new();
    let model = screen.split_whitespace().find(|word| word.starts_with("scripted/")).unwrap_or("-");
    let screen = screen.replace(model, "MODEL");
    for line in screen.lines() {
        // Elapsed times stand at the end.
        let is_time =
            |word: &str| word.chars().all(|c| c.is_ascii_digit() || c == '.') && !word.is_empty();
        let line = match line.trim_end().rsplit_once("  ") {
            Some((rest, time))
                if time
                    .split_once(' ')
                    .is_some_and(|(n, unit)| is_time(n) && matches!(unit, "s" | "ms" | "µs")) =>
            {
                format!("{rest}  TIME")
            }
            _ => line.trim_end().to_owned(),
        };
        lines.push(line);
    }
    lines.join("\n")
}

/// Every line of the status area fits, whatever the size is: none has wrapped.
fn check_area(terminal: &TmuxTerminal, columns: u16) {
    for line in terminal.visible().lines() {
        assert!(line.chars().count() <= usize::from(columns), "{line}");
    }
}

#[test]
fn a_run_is_shown_while_it_works_at_each_size() {
    for (columns, rows) in [(120, 40), (80, 24), (40, 30)] {
        let world = CliFixture::new();
        let Some(terminal) = start(&world, (columns, rows), &[], &[]) else { return };
        let shown = terminal.wait_for("retrying in 2 s: rate limited");
        assert!(shown.contains("step 1/50"), "{shown}");
        check_area(&terminal, columns);
        let shown = terminal.wait_for("the LLM is thinking");
        assert!(shown.contains("Then I change the line."), "{shown}");
        terminal.wait_for("the LLM is writing");
        let shown = terminal.wait_for("  building 3");
        assert!(shown.contains("$0.01/$2.00") || columns == 40, "{shown}");
        let shown = terminal.wait_for("  linking");
        assert!(shown.contains("ctx █") || columns == 40, "{shown}");
        check_area(&terminal, columns);
        let shown = terminal.wait_for("run it?");
        assert!(shown.contains("  -two") && shown.contains("  +2"), "{shown}");
        // Nothing is drawn below the question.
        std::thread::sleep(Duration::from_millis(300));
        assert!(terminal.text().trim_end().ends_with("[?]help:"), "{}", terminal.text());
        terminal.type_line("y");
        terminal.wait_for("exit code 3: no such file");
        terminal.wait_for("the LLM is writing");
        let shown = terminal.wait_for("exit 0");
        // The area is gone.
        for gone in ["the LLM is", "step 5/50", "⠋", "\n  building"] {
            assert!(!shown.contains(gone), "{gone}: {shown}");
        }
        insta::assert_snapshot!(format!("run_at_{columns}_columns"), stable(&shown));
    }
}

#[test]
fn an_interrupt_leaves_a_clean_screen_and_the_command_to_go_on() {
    let world = CliFixture::new();
    let Some(terminal) = start(&world, (80, 24), &[], &[]) else { return };
    terminal.wait_for("  building 3");
    terminal.press("C-c");
    let shown = terminal.wait_for("exit 130");
    assert!(shown.contains("Interrupted by the user"), "{shown}");
    assert!(shown.contains("Continue with: architect resume "), "{shown}");
    assert!(!shown.contains("building 3") && !shown.contains("step 1/50"), "{shown}");
}

#[test]
fn nothing_is_drawn_where_the_terminal_cannot_or_the_user_does_not_want_it() {
    for (env, options) in [(("TERM", "dumb"), &[][..]), (("X", "1"), &["--quiet"])] {
        let world = CliFixture::new();
        let Some(terminal) = start(&world, (80, 24), &[env], options) else { return };
        terminal.wait_for("run it?");
        assert!(!terminal.text().contains("step 2/50"), "{}", terminal.text());
        terminal.type_line("y");
        let shown = terminal.wait_for("exit 0");
        assert!(shown.contains("It is done"), "{shown}");
    }
    let world = CliFixture::new();
    let Some(terminal) = start(&world, (80, 24), &[("NO_COLOR", "1")], &[]) else { return };
    terminal.wait_for("  building 3");
    assert!(!terminal.visible_with_colors().contains("\u{1b}["), "no colour");
}

/// Warnings of the technical log stand above the area, and are not erased with it.
#[test]
fn servers_are_shown_while_they_start() {
    let world = CliFixture::new();
    world.write("slow.sh", "sleep 2; exit 1\n");
    let config = "[[mcp.servers]]\nname = 'slow'\ncommand = 'sh'\nargs = ['slow.sh']\n";
    world.write("own.toml", config);
    let Some(terminal) = start(&world, (80, 24), &[], &["-c", "own.toml"]) else { return };
    terminal.wait_for("MCP server slow: starting");
    let shown = terminal.wait_for("retrying in");
    assert!(!shown.contains("MCP server slow: starting"), "{shown}");
    assert!(shown.contains("warn: "), "{shown}");
}

/// Drawing takes less than a hundredth of a core.
#[test]
fn drawing_takes_hardly_any_time() {
    let world = CliFixture::new();
    let script = "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"sleep 4\" } }]\n[[turn]]\ntext = \"Done.\"\n";
    let model = world.script_model(script);
    let args = ["run", "Do it.", "--model", &model, "--mode", "yolo", "--sandbox", "off"];
    let Some(terminal) = TmuxTerminal::start(&world, (80, 24), &[], &args) else { return };
    terminal.wait_for("sleep 4 1 s");
    let ticks = || -> u64 {
        // The process of the run is the one whose model this is.
        let mut total = 0;
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let path = entry.path();
            let Ok(line) = std::fs::read_to_string(path.join("cmdline")) else { continue };
            if line.contains(&model) && line.contains("--mode\0yolo") {
                let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
                let fields: Vec<&str> =
                    stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
                let time = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
                total += time(11).unwrap_or(0) + time(12).unwrap_or(0);
            }
        }
        total
    };
    let before = ticks();
    terminal.wait_for("sleep 4 3 s");
    // A tick of the clock is a hundredth of a second; two seconds have passed.
    assert!(ticks() - before <= 3, "{} ticks", ticks() - before);
}
