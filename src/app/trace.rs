//! The times of a stored session.

use std::collections::HashSet;

use super::error::AppError;
use super::undo::RecordedChanges;
use crate::journal::{ParentCall, SessionHistory, SessionId, SessionStore, StoredContent};
use crate::machine::{Authorization, CallIntent, Event};
use crate::types::{FilePath, RunTime};
use crate::view::trace::{
    RecordContent, StepChange, SubagentTrace, Trace, TraceStep, TraceSubject, Tracer,
};

/// Returns the times of a stored session, with the traces of its stored sub-agents.
///
/// # Errors
///
/// Fails if there is no such session, or it can't be read.
pub fn trace_session(store: &SessionStore, session: SessionId) -> Result<Trace, AppError> {
    Ok(trace_with_subagents(store, session, &mut HashSet::from([session]))?.0)
}

/// Returns a trace, and the call that dispatched its session, if any.
fn trace_with_subagents(
    store: &SessionStore,
    session: SessionId,
    seen: &mut HashSet<SessionId>,
) -> Result<(Trace, Option<ParentCall>), AppError> {
    let (mut tracer, mut dispatched) = (None, Vec::new());
    let (past, _) = store.replay(session, |past, stored, replayed| {
        if let StoredContent::Event(event) = &stored.content {
            dispatched.extend(dispatched_session(event));
        }
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
    let trace = tracer.unwrap_or_else(|| begin_tracer(&past)).finish(&past.machine);
    let (stop_reason, changes) = (past.stop_reason(), step_changes(store, &past));
    let mut trace = Trace { stop_reason, changes, ..trace };
    for child in dispatched {
        if !seen.insert(child) {
            continue;
        }
        // A removed session is left out.
        let Ok((found, parent)) = trace_with_subagents(store, child, seen) else { continue };
        if let Some(parent) = parent.filter(|parent| is_dispatcher(parent, &past)) {
            let tool = trace.tools.iter().rfind(|tool| tool.call == parent.call);
            let started_at = tool.and_then(|tool| tool.started_at).unwrap_or(RunTime::START);
            let subagent = SubagentTrace { call: Some(parent.call), started_at, trace: found };
            trace.subagent_traces.push(subagent);
        }
    }
    Ok((trace, past.header.dispatched_by))
}

/// Returns whether a call belongs to a session: its own calls, and those in records that a fork has copied.
pub(super) fn is_dispatcher(parent: &ParentCall, history: &SessionHistory) -> bool {
    let header = &history.header;
    parent.session == header.session || (header.ancestry.is_some() && !parent.is_evaluation())
}

/// Returns the session of a sub-agent that an event dispatches.
pub(super) fn dispatched_session(event: &Event) -> Option<SessionId> {
    let Event::Authorized { authorization: Authorization::Approved { intent, .. }, .. } = event
    else {
        return None;
    };
    let CallIntent::Delegated { session, .. } = intent else { return None };
    session.as_ref()?.parse().ok()
}

/// Returns the recorded changes of each step of a stored session.
///
/// # Errors
///
/// Fails if there is no such session, or it can't be read.
pub fn recorded_step_changes(
    store: &SessionStore,
    session: SessionId,
) -> Result<Vec<StepChange>, AppError> {
    let (history, _) = store.load(session)?;
    Ok(step_changes(store, &history))
}

/// The maximum size of a step's patches that are shown, in bytes.
const MAX_STEP_PATCH: usize = 256 << 10;

/// Returns the recorded changes of each step.
fn step_changes(store: &SessionStore, past: &SessionHistory) -> Vec<StepChange> {
    let steps = RecordedChanges::by_step(store, past, MAX_STEP_PATCH);
    let steps =
        steps.inspect_err(|error| log::warn!("the changes of the steps are not shown: {error}"));
    let changes = steps.unwrap_or_default().into_iter().flat_map(|(step, patches)| {
        patches.into_iter().map(move |patch| StepChange {
            step,
            path: FilePath::new(&patch.path),
            added: patch.added,
            removed: patch.removed,
            patch: String::from_utf8_lossy(&patch.text).into_owned(),
        })
    });
    changes.collect()
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
