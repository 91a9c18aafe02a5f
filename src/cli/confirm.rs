//! Asking the user on the terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use architect::policy::{ConfirmationAnswer, ConfirmationRequest, Confirmer, NoConfirmer};
use architect::port::EffectContext;
use architect::view::human::PauseDrawing;
use architect::view::sanitize;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Asks on the terminal that the program was started from.
struct TerminalPrompt {
    pause_drawing: Option<PauseDrawing>,
}

/// How often the prompt checks whether the run still waits for the answer.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns a prompt on the terminal, if there is one.
pub(crate) fn confirmation_port(
    pause_drawing: Option<PauseDrawing>,
    may_ask: bool,
) -> Arc<dyn Confirmer> {
    if may_ask && open_terminal().is_some() {
        Arc::new(TerminalPrompt { pause_drawing })
    } else {
        Arc::new(NoConfirmer)
    }
}

/// Opens the terminal; also when standard input is a pipe.
fn open_terminal() -> Option<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty").ok()
}

impl Confirmer for TerminalPrompt {
    fn confirm(
        &self,
        question: &ConfirmationRequest<'_>,
        scope: &EffectContext,
    ) -> ConfirmationAnswer {
        let Some(terminal) = open_terminal() else { return ConfirmationAnswer::Unavailable };
        let ask = || prompt_user(terminal, question, scope);
        match &self.pause_drawing {
            Some(pause_drawing) => pause_drawing.during(ask),
            None => ask(),
        }
    }
}

fn prompt_user(
    mut terminal: File,
    question: &ConfirmationRequest<'_>,
    scope: &EffectContext,
) -> ConfirmationAnswer {
    let [summary, reason] = [question.summary, question.reason].map(sanitize::line);
    let tool = question.tool;
    let text =
        format!("\n{tool} → {summary}\n  ({reason})\n  run it? [y]es, [n]o, [a]bort the run: ");
    loop {
        if terminal.write_all(text.as_bytes()).is_err() {
            return ConfirmationAnswer::Unavailable;
        }
        let Some(line) = read_line(&mut terminal, scope) else { return ConfirmationAnswer::Abort };
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" | "s" | "sí" | "si" => return ConfirmationAnswer::Yes,
            "n" | "no" => return ConfirmationAnswer::No,
            "a" | "abort" => return ConfirmationAnswer::Abort,
            _ => {}
        }
    }
}

/// Reads a line; `None` at the end of the input, or if the run no longer waits.
fn read_line(terminal: &mut File, scope: &EffectContext) -> Option<String> {
    let mut bytes = Vec::new();
    let pulse = Timespec::try_from(POLL_INTERVAL).ok();
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
