//! Display of a run on a real terminal, during the run and at its end.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::kit::cli::{CliFixture, wait_until};
use crate::kit::terminal::TmuxTerminal;

/// A run with every kind of activity that takes time.
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

/// Returns a screen without the parts that differ between runs.
fn stable(screen: &str) -> String {
    let session =
        screen.split_whitespace().find(|word| word.len() == 36 && word.matches('-').count() == 4);
    let screen = session.map_or(screen.to_owned(), |session| screen.replace(session, "SESSION"));
    let mut lines: Vec<String> = Vec::new();
    let model = screen.split_whitespace().find(|word| word.starts_with("scripted/")).unwrap_or("-");
    let mut screen = screen.replace(model, "MODEL");
    if let Some((before, rest)) = screen.split_once("Journal: ") {
        let after = rest.split_once("\nexit").map_or("", |(_, after)| after);
        screen = format!("{before}Journal: HASH\nexit{after}");
    }
    for line in screen.lines() {
        // Elapsed times are at the end of a line.
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

/// Checks that every line of the status area fits the width: none has wrapped.
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
        // The area is removed.
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

/// Warnings of the technical log are printed above the area, and are not erased with it.
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

/// Drawing takes less than a fiftieth of a core.
#[test]
fn drawing_takes_hardly_any_time() {
    let world = CliFixture::new();
    let script = "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"sleep 4\" } }]\n[[turn]]\ntext = \"Done.\"\n";
    let model = world.script_model(script);
    let args = ["run", "Do it.", "--model", &model, "--mode", "yolo", "--sandbox", "off"];
    let Some(terminal) = TmuxTerminal::start(&world, (80, 24), &[], &args) else { return };
    terminal.wait_for("sleep 4 1 s");
    let ticks = || -> u64 {
        // The process of the run is found by its model.
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
    let (before, begun) = (ticks(), Instant::now());
    terminal.wait_for("sleep 4 3 s");
    let (drawn, passed) = (ticks() - before, begun.elapsed());
    // A tick of the clock is a hundredth of a second.
    assert!(u128::from(drawn) <= passed.as_millis() / 500, "{drawn} ticks in {passed:?}");
}

/// Returns the process in which the run takes place.
fn run_process(model: &str) -> String {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let is_run = |entry: &std::fs::DirEntry| {
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&str> = line.split('\0').collect();
        words[0].ends_with("architect") && words.contains(&model)
    };
    let found: Vec<_> = processes.filter(is_run).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].file_name().into_string().unwrap()
}

/// A model whose command runs until it is stopped.
fn endless(world: &CliFixture) -> String {
    world.script_model(
        "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"echo begun; sleep 60\" } }]\n",
    )
}

fn start_endless(world: &CliFixture, model: &str, size: (u16, u16)) -> Option<TmuxTerminal> {
    let args = ["run", "Do it.", "--model", model, "--mode", "yolo", "--sandbox", "off"];
    let terminal = TmuxTerminal::start(world, size, &[], &args)?;
    terminal.wait_for("  begun");
    Some(terminal)
}

/// After any end of the process, the shell reads keys and echoes them. Only a run that was killed outright leaves its
/// status area.
#[test]
fn the_terminal_is_as_before_on_every_way_out() {
    for (signal, exit) in [("INT", 130), ("TERM", 143), ("HUP", 129), ("KILL", 137)] {
        let world = CliFixture::new();
        let model = endless(&world);
        let Some(terminal) = start_endless(&world, &model, (80, 24)) else { return };
        Command::new("kill").args(["-s", signal, &run_process(&model)]).status().unwrap();
        let shown = terminal.wait_for(&format!("exit {exit}"));
        if signal != "KILL" {
            assert!(!shown.contains("step 1/50"), "{signal}: {shown}");
            assert!(shown.contains("architect resume "), "{signal}: {shown}");
        }
        terminal.type_text("typed");
        terminal.wait_for("typed");
        assert_eq!(terminal.cursor_is_visible(), "1", "{signal}");
        assert!(!terminal.visible().contains("⠋") || signal == "KILL", "{signal}: {shown}");
    }
}

/// The second interrupt ends the process at once, and the area is removed all the same.
#[test]
fn a_second_interrupt_leaves_a_clean_screen() {
    let world = CliFixture::new();
    // The command ignores requests to end.
    let model = world.script_model(
        "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"trap 'touch asked' TERM; trap '' INT; echo begun; while :; do sleep 0.1; done\" } }]\n",
    );
    let Some(terminal) = start_endless(&world, &model, (80, 24)) else { return };
    terminal.press("C-c");
    wait_until("the command is to end", || world.path("asked").exists());
    // An immediate repetition would be ignored.
    std::thread::sleep(Duration::from_millis(200));
    terminal.press("C-c");
    let shown = terminal.wait_for("exit 130");
    assert!(!shown.contains("step 1/50") && !shown.contains("  begun"), "{shown}");
}

/// Output of the shell while the run is stopped is not erased when the run continues.
#[test]
fn a_stopped_run_goes_on_below_what_the_shell_has_written() {
    let world = CliFixture::new();
    let model = endless(&world);
    let program = env!("CARGO_BIN_EXE_architect");
    let run = format!(
        "{program} run 'Do it.' --model {model} --mode yolo --sandbox off; echo \"exit $?\""
    );
    world.write("run.sh", &run);
    let Some(terminal) = TmuxTerminal::start_shell(&world, (80, 24)) else { return };
    terminal.type_line("sh run.sh");
    terminal.wait_for("  begun");
    terminal.press("C-z");
    terminal.wait_for("Stopped");
    terminal.type_line("echo in between");
    terminal.wait_for("\nin between");
    terminal.type_line("fg");
    let area = |shown: &str| shown.matches("step 1/50").count();
    // The earlier area stays, and a new one is drawn below.
    terminal.wait_until("a second area", |shown| area(shown) == 2);
    std::thread::sleep(Duration::from_millis(400));
    let shown = terminal.text();
    assert!(shown.contains("Stopped") && shown.contains("\nin between"), "{shown}");
    assert_eq!(area(&shown), 2, "{shown}");
    terminal.press("C-c");
    let shown = terminal.wait_for("Interrupted by the user");
    assert!(shown.contains("\nin between") && area(&shown) == 1, "{shown}");
}

/// A terminal wraps its lines before it reports that it is narrower, so rows of an area may be left; but no line of the
/// log is lost, and nothing is drawn outside of the width.
#[test]
fn a_terminal_that_changes_its_size_loses_nothing() {
    let world = CliFixture::new();
    let model = endless(&world);
    let Some(terminal) = start_endless(&world, &model, (100, 24)) else { return };
    let is_drawn = || {
        let before = terminal.visible();
        std::thread::sleep(Duration::from_millis(400));
        before != terminal.visible()
    };
    for columns in [40, 10, 60, 20, 10, 100] {
        terminal.resize((columns, 24));
        std::thread::sleep(Duration::from_millis(600));
        wait_until("it is drawn where it fits", || is_drawn() == (columns != 10));
        check_area(&terminal, columns);
    }
    terminal.press("C-c");
    let shown = terminal.wait_for("exit 130");
    for line in ["▶ Session ", "🔄 Step 1 → LLM call (1 message)", "   🔧 run_command → echo begun"]
    {
        assert_eq!(shown.matches(line).count(), 1, "{line}: {shown}");
    }
    assert!(shown.matches("begun").count() <= 5, "{shown}");
    assert!(!shown.contains("ctx") && shown.ends_with("exit 130"), "{shown}");
}

/// Neither the area nor the log passes on control sequences, and no line is wider than the terminal.
#[test]
fn output_of_any_kind_is_shown_in_lines_that_fit() {
    let world = CliFixture::new();
    let printed = [
        r"printf 'escapes\033[2J\033[?25l\033[?1049h\033]0;title\007\n'; sleep 1",
        r"printf '日本語%.0s' $(seq 50); echo; sleep 1",
        r"printf '👩‍👩‍👧‍👦%.0s' $(seq 50); echo; sleep 1",
        r"head -c 1000000 /dev/zero | tr '\0' x; echo; sleep 1",
        r"printf 'a\rb\tc\010d\n\302\n'; sleep 1; echo last; sleep 60",
    ];
    world.write("print.sh", &printed.join("\n"));
    let model = world.script_model(
        "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \"sh print.sh\" } }]\n",
    );
    let args = ["run", "Do it.", "--model", &model, "--mode", "yolo", "--sandbox", "off"];
    let Some(terminal) = TmuxTerminal::start(&world, (60, 24), &[], &args) else { return };
    for text in ["escapes", "日本語", "[a long line]", "  last"] {
        let shown = terminal.wait_for(text);
        assert!(shown.contains("run_command → sh print.sh"), "{shown}");
        // The lines that were printed and the totals, each on one line.
        let visible = terminal.visible();
        let area = visible.rsplit_once("⠋").map_or(&*visible, |(_, area)| area);
        assert!(area.lines().count() <= 5 + 8, "{visible}");
        assert_eq!(terminal.cursor_is_visible(), "1", "{visible}");
    }
    terminal.press("C-c");
    let shown = terminal.wait_for("exit 130");
    assert!(!shown.contains("xxxx") && !shown.contains("日本"), "{shown}");
}

#[test]
fn nothing_is_drawn_into_a_pipe() {
    let world = CliFixture::new();
    world.write("src/a.txt", "one\ntwo\nthree\n");
    for options in [&[][..], &["-v"], &["--quiet"]] {
        let ran = world.run_script(SCRIPT, &[&["--mode", "yolo"], options].concat());
        world.write("src/a.txt", "one\ntwo\nthree\n");
        assert_eq!(ran.code, 0, "{}", ran.err);
        for text in [&ran.out, &ran.err] {
            assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text:?}");
            assert!(!text.contains("step 1/50") && !text.contains("⠋"), "{text}");
        }
    }
}
