//! The session of a run: new, stored, or not stored at all.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::error::AppError;
use super::process_env::ProcessEnv;
use crate::config::{Config, LimitsConfig};
use crate::exec::{resolve_path, resolve_within};
use crate::journal::{
    FileJournal, JournalError, OpenedSession, ParentCall, ResumeOptions, ResumedSession,
    SessionHeader, SessionHistory, SessionId, SessionOutputs, SessionSetup, SessionStore,
    WorkspaceChange,
};
use crate::machine::{Conversation, Machine, MachineOutput, ModelUsage, State, abandon};
use crate::tools::{OutputStore, TextWriter};
use crate::types::{
    CallId, ConversationItem, Image, LimitBaseline, MessageOrigin, RunRules, Sha256Digest,
    TimeSpan, UserMessage, pluralize,
};
use crate::view::PriorUsage;
use crate::workspace::{LinePage, LinePosition};

/// The session of a run.
#[derive(Debug)]
pub enum SessionTarget {
    /// A new session that is not stored.
    Ephemeral,
    /// A new session of this store, with this id or a generated one.
    New(SessionStore, Option<SessionId>),
    /// A new session of this store, for a sub-agent or an evaluation.
    Child(SessionStore, SessionId, ParentCall),
    /// A stored session to resume.
    Stored(SessionStore, Box<OpenedSession>),
}

/// An open session, before the first effects of the run.
pub(super) struct RunSession {
    pub(super) machine: Machine,
    pub(super) output: MachineOutput,
    /// The journal, if the session is stored.
    pub(super) journal: Option<FileJournal>,
}

/// Returns the store of the user's sessions.
///
/// # Errors
///
/// Fails if there is no folder for the sessions, or the folder can't be trusted.
pub fn open_store(config: &Config, world: &ProcessEnv) -> Result<SessionStore, AppError> {
    let sessions = &config.settings.sessions;
    let root = sessions
        .dir
        .clone()
        .or_else(|| world.folders().state)
        .ok_or(JournalError::NoStateFolder)?;
    let workspace: Vec<PathBuf> = resolve_path(&config.workspace).into_iter().collect();
    if resolve_within(&root, &workspace).is_none() {
        // The user has named the folder, but may not have made the link.
        let reason = "leads out of the workspace by a link, which may come from the repository";
        return Err(JournalError::UntrustedFolder { path: root, reason }.into());
    }
    Ok(SessionStore::open(&root, sessions.durability)?)
}

/// Resets the limits of steps, denied calls and time, for a session that has ended or gets another message. Returns
/// whether the limits were reset. Money and tokens keep counting.
pub fn restart_limits(opened: &mut OpenedSession, has_message: bool) -> bool {
    let state = &opened.history.machine.state;
    let restarts = has_message || matches!(state, State::Done(_));
    if restarts {
        let (run, time) = (state.run(), opened.history.at);
        opened.limit_baseline =
            LimitBaseline { steps: run.steps, denied_calls: run.denied_calls, time };
    }
    restarts
}

/// Subtracts the time that the runs of a session have used from its limit. The time of a killed process after its last
/// record is not known.
pub fn subtract_time_used(limits: &mut LimitsConfig, opened: &OpenedSession) {
    let used = opened.history.at.since(opened.limit_baseline.time);
    limits.timeout = limits.timeout.map(|most| TimeSpan(most.0.saturating_sub(used.0)));
}

/// Returns the usage of a stored session so far, in total and by model. A call that was lost with its process counts.
pub(crate) fn usage_before(history: &SessionHistory) -> (PriorUsage, Vec<ModelUsage>) {
    let state = &history.machine.state;
    let (run, costs, mut models) =
        (state.run(), history.costs_with_lost_call(), history.models.clone());
    let change = (state, None, &abandon(state.clone()));
    ModelUsage::add_between(&mut models, &history.setup.model, change);
    let llm_calls = run.model_calls + costs.subagent_calls;
    (PriorUsage { costs, steps: run.steps, llm_calls }, models)
}

impl SessionTarget {
    /// Returns the session ID.
    pub(super) fn session(&self) -> SessionId {
        match self {
            Self::Ephemeral | Self::New(_, None) => SessionId::generate(),
            Self::New(_, Some(session)) | Self::Child(_, session, _) => *session,
            Self::Stored(_, opened) => opened.history.header.session,
        }
    }

    /// Returns a new session, stored if there is a store.
    pub fn new(store: Option<SessionStore>) -> Self {
        store.map_or(Self::Ephemeral, |store| Self::New(store, None))
    }

    /// Returns the store, if the session is stored.
    pub fn store(&self) -> Option<&SessionStore> {
        match self {
            Self::Ephemeral => None,
            Self::New(store, _) | Self::Child(store, ..) | Self::Stored(store, _) => Some(store),
        }
    }

    /// Returns the opened session, if a stored one is resumed.
    pub(super) fn opened(&self) -> Option<&OpenedSession> {
        match self {
            Self::Ephemeral | Self::New(..) | Self::Child(..) => None,
            Self::Stored(_, opened) => Some(opened),
        }
    }

    /// Returns whether the session is a fork that has not run yet.
    pub(super) fn is_new_fork(&self) -> bool {
        let history = self.opened().map(|opened| &opened.history);
        history.is_some_and(|history| {
            history.header.ancestry.is_some_and(|ancestry| history.last_seq <= ancestry.seq)
        })
    }

    /// Returns the earlier usage of the session, in total and by model. A call that was lost with its process counts.
    pub(super) fn earlier_usage(&self) -> (PriorUsage, Vec<ModelUsage>) {
        self.opened().map_or_else(Default::default, |opened| usage_before(&opened.history))
    }

    /// Opens the session. The decisions are durable when this function returns. A stored session may resume without a
    /// task.
    pub(super) fn begin(
        self,
        session: SessionId,
        (task, images): (Option<Arc<str>>, Vec<Image>),
        rules: RunRules,
        fixed_bytes: u64,
        setup: impl FnOnce() -> Result<SessionSetup, AppError>,
    ) -> Result<RunSession, AppError> {
        let item = |task: Option<Arc<str>>, images: Vec<Image>| {
            let text = task.unwrap_or_default();
            ConversationItem::User(UserMessage { origin: MessageOrigin::Task, text, images })
        };
        let now = SystemTime::now();
        let (store, dispatched_by) = match self {
            Self::Ephemeral => {
                let conversation = Conversation::new(fixed_bytes);
                let (machine, output) = Machine::start(rules, conversation, item(task, images));
                return Ok(RunSession { machine, output, journal: None });
            }
            Self::New(store, _) => (store, None),
            Self::Child(store, _, dispatcher) => (store, Some(dispatcher)),
            Self::Stored(_, opened) => {
                let has_task = task.is_some();
                let resumed = opened.resume(ResumeOptions {
                    now,
                    setup: setup()?,
                    rules,
                    prompt: task,
                    images,
                })?;
                if let (State::Done(done), false) = (&resumed.machine.state, has_task) {
                    log::warn!(
                        "the session has ended ({}), so nothing is run: `architect resume {session} TASK` gives it another \
                         task",
                        done.outcome.reason
                    );
                }
                for change in resumed.workspace_changes {
                    let is_requested = matches!(change, WorkspaceChange::Forked { .. });
                    let level = if is_requested { log::Level::Info } else { log::Level::Warn };
                    log::log!(level, "{change}");
                }
                if !resumed.recovered.is_empty() {
                    let calls = pluralize(
                        resumed.recovered.len(),
                        "tool call was cut off",
                        "tool calls were cut off",
                    );
                    log::warn!("{calls} when the session stopped; the model gets a report of them");
                }
                let ResumedSession { journal, machine, output, .. } = resumed;
                return Ok(RunSession { machine, output, journal: Some(journal) });
            }
        };
        let header = SessionHeader::new(session, now, setup()?, rules, item(task, images));
        let header = SessionHeader { dispatched_by, fixed_bytes, ..header };
        let journal = store.create(&header)?;
        let (machine, output) = header.start_machine();
        Ok(RunSession { machine, output, journal: Some(journal) })
    }
}

/// Stores long results whole in a folder beside the journal of the session.
#[derive(Debug)]
pub(super) struct SessionResults(pub(super) SessionOutputs);

impl OutputStore for SessionResults {
    fn store(&self, call: &CallId, text: Arc<str>) -> io::Result<Option<Sha256Digest>> {
        self.0.store(call, &text).map(Some).map_err(io::Error::other)
    }

    fn store_written(
        &self,
        call: &CallId,
        write: TextWriter<'_>,
    ) -> io::Result<Option<Sha256Digest>> {
        self.0.store_written(call, write).map(Some).map_err(io::Error::other)
    }

    fn open_spool(&self) -> io::Result<File> {
        self.0.open_spool().map_err(io::Error::other)
    }

    fn page(&self, call: &CallId, first: LinePosition, lines: u64) -> Option<LinePage> {
        let page = self.0.page_from(call, first, lines);
        page.inspect_err(|error| log::warn!("{error}")).ok()?
    }
}
