//! `architect steer` and `architect followup`: a message for a running session.

use architect::app::{World, store};
use architect::journal::{Letter, LetterKind};

use crate::cli::args::MailArgs;
use crate::cli::error::Failure;
use crate::cli::{output, prompt, settings};

pub(crate) fn run(args: &MailArgs, kind: LetterKind, world: &World) -> Result<u8, Failure> {
    let store = store(&settings::of_sets(&args.set, world)?, world)?;
    let session = store.resolve(&args.session)?;
    let text = prompt::read(Some(&args.message), false)?;
    store.send(session, &Letter { kind, text: text.into() })?;
    let when = match kind {
        LetterKind::Steering => "before its next model call",
        _ => "when it would have ended",
    };
    output::complain(&format!("Session {session} reads it {when}."));
    Ok(0)
}
