//! A prompt: one run of a session, from the client's message to the stop reason.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_client_protocol_schema::v1::{
    Error, FileSystemCapabilities, PromptResponse, SessionInfoUpdate, SessionUpdate,
    StopReason as ClientStopReason,
};
use serde_json::{Map, Value, json};

use super::call_content::{bounded, diff_block};
use super::client_connection::ClientConnection;
use super::client_files::ClientFiles;
use super::modes::ChosenMode;
use super::permission::PermissionRequests;
use super::prompt_commands::{PromptCommand, parse_command};
use super::prompt_content::PromptContent;
use super::run_updates::{RunUpdates, ShownCalls, chunk};
use super::session::OpenSession;
use super::session_host::{ConfiguredSession, SessionHost, app_error, with_message};
use crate::app::{
    AppError, CommitWatch, RecordedChanges, RunInterrupts, RunIo, RunRequest, RunSetup,
    SessionTarget, complete_pending_restore, open_store, restart_limits, start_telemetry,
};
use crate::journal::{DamagePolicy, JournalError};
use crate::machine::{CloseReason, LlmFailure, RunStatus, StopReason};
use crate::view::{CostSource, Reporter, RunResult, sanitize};
use crate::workspace::WorkspaceRoot;

/// Key of this program's own fields in a message.
const META_KEY: &str = "architect";

/// Length limit of a session's title, in characters.
const MAX_TITLE: usize = 80;

/// The client of a prompt.
#[derive(Clone)]
pub(super) struct PromptClient {
    pub(super) connection: ClientConnection,
    /// The file operations that the client offers.
    pub(super) files: FileSystemCapabilities,
    /// Whether it can show forms.
    pub(super) has_forms: bool,
}

/// Runs a prompt to its end.
///
/// # Errors
///
/// Fails if the run could not begin, or failed.
pub(super) fn run_prompt(
    host: &dyn SessionHost,
    client: &PromptClient,
    session: &OpenSession,
    interrupts: &RunInterrupts,
    content: PromptContent,
) -> Result<PromptResponse, Error> {
    let done = try_run(host, client, session, interrupts, content);
    // The client asked for the cancellation, so it takes precedence over the result of the run.
    if interrupts.signal().is_some() {
        let meta = done.ok().and_then(|response| response.meta);
        return Ok(PromptResponse::new(ClientStopReason::Cancelled).meta(meta));
    }
    done
}

fn try_run(
    host: &dyn SessionHost,
    client: &PromptClient,
    session: &OpenSession,
    interrupts: &RunInterrupts,
    content: PromptContent,
) -> Result<PromptResponse, Error> {
    let failed = |error: AppError| app_error(&error);
    let mut configured = session.configure(host)?;
    let PromptContent { text, images } = content;
    let command = parse_command(&configured.setup.config, host.default_agent(), &text);
    let text = match command {
        PromptCommand::Task(text) => text,
        PromptCommand::TaskFor(agent, text) => {
            let mode = ChosenMode { agent: Some(agent), mode: None };
            configured = session.configure_with(host, &mode)?;
            text
        }
        PromptCommand::Diff => return show_changes(client, session, &configured.setup),
    };
    let ConfiguredSession { mut setup, options, .. } = configured;
    setup.interrupts = Some(interrupts.clone());
    let (connection, id) = (&client.connection, &session.client_id);
    let files = ClientFiles::new(
        connection.clone(),
        id.clone(),
        client.files.clone(),
        interrupts.token().clone(),
    );
    if let Some(files) = files {
        setup = setup.with_buffers(Arc::new(files));
    }
    let root = WorkspaceRoot::open(&setup.config.workspace)
        .map_err(|error| with_message(Error::internal_error(), error.to_string()))?;
    let store = open_store(&setup.config, &setup.env).map_err(failed)?;
    complete_pending_restore(&store, root.path(), &setup.config, &setup.env).map_err(failed)?;
    let target = match store.reopen(session.id, DamagePolicy::Refuse) {
        Ok(mut opened) => {
            restart_limits(&mut opened, true);
            SessionTarget::Stored(store, Box::new(opened))
        }
        Err(JournalError::UnknownSession(_)) if !session.is_stored.load(Ordering::Relaxed) => {
            let title = sanitize::headline(text, MAX_TITLE);
            let update = SessionUpdate::SessionInfoUpdate(SessionInfoUpdate::new().title(title));
            // The run notices a client that is gone.
            let _ = connection.update(id, update);
            SessionTarget::New(store, Some(session.id))
        }
        Err(error) => return Err(failed(error.into())),
    };
    let request =
        RunRequest { images, options, ..RunRequest::new(text, target, CostSource::Agent) };
    let shown = ShownCalls::default();
    let updates = RunUpdates::new(
        connection.clone(),
        id.clone(),
        root,
        Arc::clone(&shown),
        Arc::clone(&session.has_plan),
    );
    let reporter = Reporter::new(vec![Box::new(updates)]);
    start_telemetry(&setup.env, &setup.run_info(&request), &reporter);
    let confirm = PermissionRequests {
        connection: connection.clone(),
        session: id.clone(),
        shown,
        approvals: Arc::clone(&session.approvals),
        has_forms: client.has_forms,
    };
    let io = RunIo { reporter: reporter.clone(), confirm: Arc::new(confirm), sandbox: None };
    let commits = CommitWatch::begin(&setup.sandbox);
    let done = setup.run(request, io).map_err(failed)?;
    session.is_stored.store(true, Ordering::Relaxed);
    if let Some(notice) = commits.and_then(|commits| commits.notice()) {
        log::warn!("{notice}");
    }
    let result = reporter.last_result();
    if let Err(error) = reporter.finish(&result, done.deadline.remaining()) {
        log::warn!("the output of the prompt is incomplete: {error}");
    }
    response(&result)
}

/// Shows the changes of a session, without calling a model or storing anything.
fn show_changes(
    client: &PromptClient,
    session: &OpenSession,
    setup: &RunSetup,
) -> Result<PromptResponse, Error> {
    let store = open_store(&setup.config, &setup.env).map_err(|error| app_error(&error))?;
    let patch = match RecordedChanges::load(&store, session.id, None) {
        Ok(changes) => changes.patches.iter().flat_map(|patch| patch.text.clone()).collect(),
        // The session has not begun, so it has no changes.
        Err(AppError::Journal(JournalError::UnknownSession(_))) => Vec::new(),
        Err(error) => return Err(app_error(&error)),
    };
    let text = match patch.is_empty() {
        true => "This session has changed nothing.".to_owned(),
        false => diff_block(&bounded(String::from_utf8_lossy(&patch).trim_end())),
    };
    let update = SessionUpdate::AgentMessageChunk(chunk(&text, None));
    // A client that is gone gets no answer either.
    let _ = client.connection.update(&session.client_id, update);
    Ok(PromptResponse::new(ClientStopReason::EndTurn))
}

/// Returns the answer to a prompt, from the result of its run.
fn response(result: &RunResult) -> Result<PromptResponse, Error> {
    let reason = result.stop_reason.unwrap_or(StopReason::InternalError);
    if result.status == RunStatus::Failed {
        let code = match reason {
            StopReason::LlmError(LlmFailure::Auth) => Error::auth_required(),
            _ => Error::internal_error(),
        };
        let message = result.error.as_deref().unwrap_or(&result.output);
        return Err(with_message(code, message));
    }
    Ok(PromptResponse::new(client_reason(reason)).meta(facts(result)))
}

/// Returns the protocol's stop reason for a stop reason of this program. [`facts`] has the exact one.
fn client_reason(reason: StopReason) -> ClientStopReason {
    match reason {
        StopReason::Closed(CloseReason::ContextFull) | StopReason::Truncated => {
            ClientStopReason::MaxTokens
        }
        StopReason::Closed(
            CloseReason::MaxSteps
            | CloseReason::Timeout
            | CloseReason::BudgetExceeded
            | CloseReason::LoopDetected,
        ) => ClientStopReason::MaxTurnRequests,
        StopReason::Refused => ClientStopReason::Refusal,
        // The user aborted the run at a request for permission.
        StopReason::UserInterrupt(_) => ClientStopReason::Cancelled,
        StopReason::LlmDone
        | StopReason::EmptyResponse
        | StopReason::InvalidToolCalls
        | StopReason::SchemaNotMet
        | StopReason::ChecksFailed
        | StopReason::EvaluationFailed
        | StopReason::LlmError(_)
        | StopReason::StoreError
        | StopReason::InternalError => ClientStopReason::EndTurn,
    }
}

/// Returns facts about a run that have no field in the protocol.
fn facts(result: &RunResult) -> Map<String, Value> {
    // Each of these fields can be serialized to JSON.
    let document = serde_json::to_value(result).unwrap_or_default();
    let names = ["status", "stop_reason", "steps", "llm_calls", "usage", "cost", "files_modified"];
    let facts = names.map(|name| (name.to_owned(), document[name].clone()));
    Map::from_iter([(META_KEY.to_owned(), json!(Map::from_iter(facts)))])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failed run is an error; every other run ends its prompt with a reason.
    #[test]
    fn each_stop_reason_is_a_reason_of_the_protocol_or_an_error() {
        for reason in StopReason::ALL {
            let (status, stop_reason) = (reason.status(), Some(reason));
            let result = RunResult { status, stop_reason, ..RunResult::not_started("why") };
            let answer = response(&result);
            assert_eq!(answer.is_err(), status == RunStatus::Failed, "{reason:?}");
        }
    }
}
