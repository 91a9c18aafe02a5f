//! Where the time of a stored session went.

use super::error::AppError;
use crate::journal::{Content, Past, SessionId, Store};
use crate::view::trace::{Step, Subject, Trace, Tracer, What};

/// Returns where the time of a stored session went.
///
/// # Errors
///
/// Fails when there is no such session, or it can't be read.
pub fn trace(store: &Store, session: SessionId) -> Result<Trace, AppError> {
    let mut tracer = None;
    let (past, _) = store.replay(session, |past, stored, replayed| {
        let what = match &stored.content {
            Content::Event(event) => What::Event(event),
            Content::Resumed(_) => What::Resumed,
            Content::Partial(partial) => What::Partial(&partial.text),
            Content::Header(_) | Content::Ended(_) | Content::Other => What::Nothing,
        };
        tracer.get_or_insert_with(|| begin(past)).add(&Step {
            seq: stored.seq,
            at: stored.at,
            what,
            met: replayed.met.state,
            call: stored.call,
            sync: stored.sync,
            fold: &past.fold,
            outcomes: &past.outcomes,
        });
    })?;
    Ok(tracer.unwrap_or_else(|| begin(&past)).finish(&past.fold))
}

fn begin(past: &Past) -> Tracer {
    let (fold, outcomes) = past.header.start();
    let subject = Subject {
        session_id: past.header.session.to_string(),
        created: past.header.created.to_string(),
        program: past.header.program.clone(),
        model: past.setting.model.to_string(),
        agent: past.setting.agent.to_string(),
        workspace: past.setting.workspace.root.display().to_string(),
    };
    Tracer::begin(subject, &fold, &outcomes)
}
