//! A real terminal of a given size: tmux, with a server of its own.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::cli::CliFixture;
use super::system::wait_within;

/// The longest wait for something on the screen.
const SCREEN_TIMEOUT: Duration = Duration::from_secs(60);

/// A terminal in which one command runs; it stays when the command has ended.
pub(crate) struct TmuxTerminal {
    socket: PathBuf,
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl TmuxTerminal {
    /// Starts the program with these arguments in a terminal of this size. `None`, with a note, if there is no tmux.
    pub(crate) fn start(
        world: &CliFixture,
        (columns, rows): (u16, u16),
        env: &[(&str, &str)],
        args: &[&str],
    ) -> Option<Self> {
        let program = [env!("CARGO_BIN_EXE_architect")];
        let run: Vec<String> = program.iter().chain(args).map(|word| quote(word)).collect();
        // The shell that stays shows the exit code.
        let script = format!("trap : INT; {}; echo \"exit $?\"; exec sleep 600", run.join(" "));
        Self::start_command(world, (columns, rows), env, &format!("sh -c {}", quote(&script)))
    }

    /// Starts an interactive shell, which stops jobs and continues them.
    pub(crate) fn start_shell(world: &CliFixture, size: (u16, u16)) -> Option<Self> {
        let command = "PS1='> ' bash --norc --noprofile -i";
        Self::start_command(world, size, &[], command)
    }

    fn start_command(
        world: &CliFixture,
        (columns, rows): (u16, u16),
        env: &[(&str, &str)],
        command: &str,
    ) -> Option<Self> {
        if Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_err() {
            eprintln!("SKIPPED: tmux is not installed, so nothing was shown on a terminal");
            return None;
        }
        let terminal = Self { socket: world.home().join("tmux.sock") };
        let home = world.home().display().to_string();
        let mut line = format!(
            "cd {} && exec env -i HOME={}",
            quote(&world.path("").display().to_string()),
            quote(&home)
        );
        let path = std::env::var("PATH").unwrap_or_default();
        for (name, value) in [("PATH", &*path), ("TERM", "tmux-256color")].iter().chain(env) {
            line += &format!(" {name}={}", quote(value));
        }
        line += &format!(" {command}");
        let size = [columns.to_string(), rows.to_string()];
        let started = terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &size[0],
            "-y",
            &size[1],
            &line,
        ]);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        Some(terminal)
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&self, (columns, rows): (u16, u16)) {
        let size = [columns.to_string(), rows.to_string()];
        let done = self.tmux(&["resize-window", "-x", &size[0], "-y", &size[1]]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Returns `1` if the cursor is shown.
    pub(crate) fn cursor_is_visible(&self) -> String {
        let flag = self.tmux(&["display-message", "-p", "#{cursor_flag}"]);
        String::from_utf8(flag.stdout).unwrap().trim().to_owned()
    }

    fn tmux(&self, args: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8").arg("-u").arg("-S").arg(&self.socket);
        command.args(args).output().unwrap()
    }

    /// Returns the visible text, and the text that has scrolled away.
    pub(crate) fn text(&self) -> String {
        let shown = self.tmux(&["capture-pane", "-p", "-J", "-S", "-"]);
        String::from_utf8(shown.stdout).unwrap().trim_end().to_owned()
    }

    /// Returns the visible text, with its colours.
    pub(crate) fn visible_with_colors(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p", "-e"]).stdout).unwrap()
    }

    /// Returns the visible lines as they are drawn.
    pub(crate) fn visible(&self) -> String {
        let shown = self.tmux(&["capture-pane", "-p"]);
        String::from_utf8(shown.stdout).unwrap().trim_end().to_owned()
    }

    /// Waits until a text is shown, and returns everything.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait_until(text, |shown| shown.contains(text))
    }

    /// Waits until the shown text satisfies a condition, and returns it.
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let last = std::cell::RefCell::new(String::new());
        let check = || {
            *last.borrow_mut() = self.text();
            is_so(&last.borrow())
        };
        let begun = std::time::Instant::now();
        while !check() {
            assert!(begun.elapsed() < SCREEN_TIMEOUT, "not shown: {what}\n{}", last.borrow());
            std::thread::sleep(Duration::from_millis(20));
        }
        last.into_inner()
    }

    /// Types a text as it is.
    pub(crate) fn type_text(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Types a line.
    pub(crate) fn type_line(&self, text: &str) {
        if !text.is_empty() {
            self.type_text(text);
        }
        self.press("Enter");
    }

    /// Presses a key, by tmux's name for it.
    pub(crate) fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }
}

impl Drop for TmuxTerminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
        // Its processes have ended before the folder is removed.
        let socket = self.socket.clone();
        if !std::thread::panicking() {
            wait_within(SCREEN_TIMEOUT, "the end of tmux", || {
                let mut command = Command::new("tmux");
                command.arg("-S").arg(&socket).arg("list-sessions");
                !command.output().unwrap().status.success()
            });
        }
    }
}
