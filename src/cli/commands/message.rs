//! `architect steer` and `architect followup`: a message for a running session.

use architect::app::{ProcessEnv, mask_message};
use architect::journal::{MessageKind, QueuedMessage};

use crate::cli::args::MessageArgs;
use crate::cli::error::CliError;
use crate::cli::session_lookup::SessionLookup;
use crate::cli::{output, task_text};

pub(crate) fn run(
    args: &MessageArgs,
    kind: MessageKind,
    world: &ProcessEnv,
) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.layers, args.last, world)?;
    let session = stored.find_and_report_folder(&args.session)?;
    let text = mask_message(&task_text::read_message(&args.message)?, &stored.secrets);
    stored.store.send(session, &QueuedMessage { kind, text: text.into() })?;
    let when = match kind {
        MessageKind::Steering => "before its next model call",
        _ => "when it would have ended",
    };
    output::print_stderr(&format!("Session {session} reads it {when}."));
    Ok(0)
}
