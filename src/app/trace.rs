//! Where a stored session spent its time.

use super::error::AppError;
use crate::journal::{SessionHistory, SessionId, SessionStore, StoredContent};
use crate::view::trace::{RecordContent, Trace, TraceStep, TraceSubject, Tracer};

/// Returns where the time of a stored session went.
///
/// # Errors
///
/// Fails when there is no such session, or it can't be read.
pub fn trace_session(store: &SessionStore, session: SessionId) -> Result<Trace, AppError> {
    let mut tracer = None;
    let (past, _) = store.replay(session, |past, stored, replayed| {
        let what = match &stored.content {
            StoredContent::Event(event) => RecordContent::Event(event),
            StoredContent::Resumed(_) => RecordContent::Resumed,
            StoredContent::Partial(partial) => RecordContent::Partial(&partial.text),
            StoredContent::Header(_)
            | StoredContent::Checkpoint(_)
            | StoredContent::Ended(_)
            | StoredContent::Other => RecordContent::Other,
        };
        tracer.get_or_insert_with(|| begin_tracer(past)).add(&TraceStep {
            seq: stored.seq,
            at: stored.at,
            content: what,
            state_before: replayed.fingerprint.state,
            call: stored.timing,
            sync: stored.sync_time,
            machine: &past.machine,
            output: &past.output,
        });
    })?;
    Ok(tracer.unwrap_or_else(|| begin_tracer(&past)).finish(&past.machine))
}

fn begin_tracer(past: &SessionHistory) -> Tracer {
    let (machine, output) = past.header.start_machine();
    let subject = TraceSubject {
        session_id: past.header.session.to_string(),
        created: past.header.created.to_string(),
        program: past.header.program.clone(),
        model: past.setup.model.to_string(),
        agent: past.setup.agent.to_string(),
        workspace: past.setup.workspace.root.display().to_string(),
    };
    Tracer::begin(subject, &machine, &output)
}
