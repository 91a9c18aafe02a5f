//! `architect steer` and `architect followup`: a message for a running session.

use architect::app::{World, masked, secrets, store};
use architect::journal::{Letter, LetterKind};

use crate::cli::args::MailArgs;
use crate::cli::error::Failure;
use crate::cli::{output, prompt, settings};

pub(crate) fn run(args: &MailArgs, kind: LetterKind, world: &World) -> Result<u8, Failure> {
    let config = settings::of_sets(&args.set, world)?;
    let store = store(&config, world)?;
    let session = store.resolve(&args.session)?;
    let text = masked(&prompt::read(Some(&args.message), false)?, &secrets(&config, world));
    store.send(session, &Letter { kind, text: text.into() })?;
    let when = match kind {
        LetterKind::Steering => "before its next model call",
        _ => "when it would have ended",
    };
    output::complain(&format!("Session {session} reads it {when}."));
    Ok(0)
}
