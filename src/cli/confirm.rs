//! Asking the user on the terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use architect::port::Scope;
use architect::tools::permission::{Answer, Confirm, Nobody, Question};
use architect::view::clean;
use architect::view::human::Hush;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Asks on the terminal that the program was started from.
struct Terminal {
    hush: Option<Hush>,
}

/// How often it is looked whether anybody still waits for the answer.
const PULSE: Duration = Duration::from_millis(100);

/// Returns who can be asked: the user, when there is a terminal.
pub(crate) fn asker(hush: Option<Hush>, may_ask: bool) -> Arc<dyn Confirm> {
    if may_ask && open().is_some() { Arc::new(Terminal { hush }) } else { Arc::new(Nobody) }
}

/// Opens the terminal; also when standard input is a pipe.
fn open() -> Option<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty").ok()
}

impl Confirm for Terminal {
    fn ask(&self, question: &Question<'_>, scope: &Scope) -> Answer {
        let Some(terminal) = open() else { return Answer::Nobody };
        match &self.hush {
            Some(hush) => hush.during(|| ask(terminal, question, scope)),
            None => ask(terminal, question, scope),
        }
    }
}

fn ask(mut terminal: File, question: &Question<'_>, scope: &Scope) -> Answer {
    let text = format!(
        "\n{} → {}\n  ({})\n  run it? [y]es, [n]o, [a]bort the run: ",
        question.tool,
        clean::line(question.summary),
        clean::line(question.why)
    );
    loop {
        if terminal.write_all(text.as_bytes()).is_err() {
            return Answer::Nobody;
        }
        let Some(line) = line(&mut terminal, scope) else { return Answer::Abort };
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" | "s" | "sí" | "si" => return Answer::Yes,
            "n" | "no" => return Answer::No,
            "a" | "abort" => return Answer::Abort,
            _ => {}
        }
    }
}

/// Reads a line; none at the end of the input, or when nobody waits any more.
fn line(terminal: &mut File, scope: &Scope) -> Option<String> {
    let mut bytes = Vec::new();
    let pulse = Timespec::try_from(PULSE).ok();
    loop {
        if scope.cancel.is_cancelled() {
            return None;
        }
        let ready = poll(&mut [PollFd::new(&*terminal, PollFlags::IN)], pulse.as_ref());
        if !matches!(ready, Ok(count) if count > 0) {
            continue;
        }
        let mut byte = [0];
        match terminal.read(&mut byte) {
            Ok(0) | Err(_) => return None,
            Ok(_) if byte[0] == b'\n' => return Some(String::from_utf8_lossy(&bytes).into_owned()),
            Ok(_) => bytes.push(byte[0]),
        }
    }
}
