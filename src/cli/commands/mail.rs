//! `architect steer` and `architect followup`: a message for a running session.

use architect::app::{World, masked};
use architect::journal::{Letter, LetterKind};

use crate::cli::args::MailArgs;
use crate::cli::error::Failure;
use crate::cli::stored::Stored;
use crate::cli::{output, prompt};

pub(crate) fn run(args: &MailArgs, kind: LetterKind, world: &World) -> Result<u8, Failure> {
    let stored = Stored::open(&args.layers, args.last, world)?;
    let session = stored.find_and_tell(&args.session)?;
    let text = masked(&prompt::read(Some(&args.message), false)?, &stored.secrets);
    stored.store.send(session, &Letter { kind, text: text.into() })?;
    let when = match kind {
        LetterKind::Steering => "before its next model call",
        _ => "when it would have ended",
    };
    output::complain(&format!("Session {session} reads it {when}."));
    Ok(0)
}
