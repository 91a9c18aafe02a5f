//! The session of a run: new, stored, or not stored at all.

use std::sync::Arc;
use std::time::SystemTime;

use super::error::AppError;
use super::process_env::ProcessEnv;
use crate::config::Config;
use crate::journal::{
    FileJournal, JournalError, OpenedSession, ParentCall, ResumeOptions, ResumedSession,
    SessionHeader, SessionId, SessionOutputs, SessionSetup, SessionStore, SteeringQueue,
};
use crate::machine::{Conversation, Machine, MachineOutput, State};
use crate::model::{
    CallId, ConversationItem, LimitBaseline, MessageOrigin, RunRules, RunTime, pluralize,
};
use crate::tools::{OutputStore, ResultPage};
use crate::view::PriorUsage;

/// The session that a run is part of.
#[derive(Debug)]
pub enum SessionTarget {
    /// A new session that is not stored.
    Ephemeral,
    /// A new session of this store, with this id or a generated one.
    New(SessionStore, Option<SessionId>),
    /// A new session of this store, of a sub-agent or an evaluation.
    Child(SessionStore, SessionId, ParentCall),
    /// A stored session to resume.
    Stored(SessionStore, Box<OpenedSession>),
}

/// An open session, before the first effects of the run.
pub(super) struct RunSession {
    pub(super) machine: Machine,
    pub(super) output: MachineOutput,
    pub(super) stored: Option<StoredSession>,
}

/// The ports of a stored session.
pub(super) struct StoredSession {
    pub(super) journal: FileJournal,
    pub(super) messages: SteeringQueue,
}

/// What a run starts with.
pub(super) struct SessionStart {
    /// The user's message; a stored session resumes without it.
    pub(super) task: Option<Arc<str>>,
    pub(super) rules: RunRules,
    pub(super) fixed_bytes: u64,
}

/// Returns the store of the user's sessions.
///
/// # Errors
///
/// Fails when there is no folder for it, or it can't be trusted.
pub fn open_store(config: &Config, world: &ProcessEnv) -> Result<SessionStore, AppError> {
    let sessions = &config.settings.sessions;
    let root = sessions
        .dir
        .clone()
        .or_else(|| world.folders().state)
        .ok_or(JournalError::NoStateFolder)?;
    Ok(SessionStore::open(&root, sessions.durability)?)
}

/// Lets the limits of steps and denied calls begin again, for a session that has ended or gets another message.
/// Returns whether they do. Money and tokens count on.
pub fn restart_limits(opened: &mut OpenedSession, has_message: bool) -> bool {
    let state = &opened.history.machine.state;
    let restarts = has_message || matches!(state, State::Done(_));
    if restarts {
        let run = state.run();
        opened.limit_baseline = LimitBaseline { steps: run.steps, denied_calls: run.denied_calls };
    }
    restarts
}

impl SessionTarget {
    /// Returns the session that the run is part of.
    pub(super) fn session(&self) -> SessionId {
        match self {
            Self::Ephemeral | Self::New(_, None) => SessionId::generate(),
            Self::New(_, Some(session)) | Self::Child(_, session, _) => *session,
            Self::Stored(_, opened) => opened.history.header.session,
        }
    }

    /// Returns the store, if the session is stored.
    pub(super) fn store(&self) -> Option<&SessionStore> {
        match self {
            Self::Ephemeral => None,
            Self::New(store, _) | Self::Child(store, ..) | Self::Stored(store, _) => Some(store),
        }
    }

    /// Returns the time of the session at which the run begins.
    pub(super) fn start_time(&self) -> RunTime {
        match self {
            Self::Ephemeral | Self::New(..) | Self::Child(..) => RunTime::START,
            Self::Stored(_, opened) => opened.history.at,
        }
    }

    /// Returns how many model calls of the session are over; a script or a recording continues after them.
    pub(super) fn finished_calls(&self) -> u32 {
        match self {
            Self::Ephemeral | Self::New(..) | Self::Child(..) => 0,
            Self::Stored(_, opened) => opened.history.finished_calls,
        }
    }

    /// Returns what the session has used and done before.
    pub(super) fn earlier_usage(&self) -> PriorUsage {
        match self {
            Self::Ephemeral | Self::New(..) | Self::Child(..) => PriorUsage::default(),
            Self::Stored(_, opened) => {
                let run = opened.history.machine.state.run();
                let costs = opened.history.costs;
                let llm_calls = run.model_calls + costs.subagent_calls;
                PriorUsage { costs, steps: run.steps, llm_calls }
            }
        }
    }

    /// Returns what the limits of the run count from.
    pub(super) fn limit_base(&self) -> LimitBaseline {
        match self {
            Self::Ephemeral | Self::New(..) | Self::Child(..) => LimitBaseline::default(),
            Self::Stored(_, opened) => opened.limit_baseline,
        }
    }

    /// Returns the stored conversation.
    pub(super) fn conversation(&self) -> Option<&Conversation> {
        match self {
            Self::Ephemeral | Self::New(..) | Self::Child(..) => None,
            Self::Stored(_, opened) => Some(&opened.history.machine.conversation),
        }
    }

    /// Returns whether a stored session is resumed.
    pub(super) fn is_resumed(&self) -> bool {
        matches!(self, Self::Stored(..))
    }

    /// Returns where long results are stored whole.
    pub(super) fn stored_outputs(&self, session: SessionId) -> Option<SessionOutputs> {
        match self {
            Self::Ephemeral => None,
            Self::New(store, _) | Self::Child(store, ..) | Self::Stored(store, _) => {
                Some(store.outputs(session))
            }
        }
    }

    /// Opens the session. What was decided is durable when this returns.
    pub(super) fn begin(
        self,
        session: SessionId,
        start: SessionStart,
        setup: impl FnOnce() -> Result<SessionSetup, AppError>,
    ) -> Result<RunSession, AppError> {
        let SessionStart { task, rules, fixed_bytes: fixed } = start;
        let item = |task: Option<Arc<str>>| {
            ConversationItem::user(MessageOrigin::Task, task.unwrap_or_default())
        };
        let now = SystemTime::now();
        let dispatched_by = match &self {
            Self::Child(_, _, dispatcher) => Some(dispatcher.clone()),
            Self::Ephemeral | Self::New(..) | Self::Stored(..) => None,
        };
        match self {
            Self::Ephemeral => {
                let (machine, output) = Machine::start(rules, Conversation::new(fixed), item(task));
                Ok(RunSession { machine, output, stored: None })
            }
            Self::New(store, _) | Self::Child(store, ..) => {
                let header = SessionHeader::new(session, now, setup()?, rules, item(task));
                let header = SessionHeader { dispatched_by, fixed_bytes: fixed, ..header };
                let journal = store.create(&header)?;
                let (machine, output) = header.start_machine();
                let stored = Some(StoredSession { messages: journal.queue(), journal });
                Ok(RunSession { machine, output, stored })
            }
            Self::Stored(_, opened) => {
                let options = ResumeOptions { now, setup: setup()?, rules, prompt: task };
                let ResumedSession {
                    journal,
                    machine,
                    output,
                    workspace_changes: changes,
                    recovered,
                } = opened.resume(options)?;
                for changes in changes {
                    log::warn!("{changes}");
                }
                if !recovered.is_empty() {
                    let calls = pluralize(recovered.len(), "call", "calls");
                    log::warn!("under way when the session stopped: {calls}");
                }
                let stored = Some(StoredSession { messages: journal.queue(), journal });
                Ok(RunSession { machine, output, stored })
            }
        }
    }
}

/// Stores long results whole beside the journal of their session.
#[derive(Debug)]
pub(super) struct SessionResults(pub(super) SessionOutputs);

impl OutputStore for SessionResults {
    fn store(&self, call: &CallId, text: Arc<str>) {
        // The model can have it again by asking the tool again.
        if let Err(error) = self.0.store(call, &text) {
            log::warn!("the whole result of a call is lost: {error}");
        }
    }

    fn page(&self, call: &CallId, first: u64, lines: u64) -> Option<ResultPage> {
        let page = self.0.page(call, first, lines);
        let page = page.inspect_err(|error| log::warn!("{error}")).ok()??;
        Some(ResultPage { text: page.text, total_lines: page.lines })
    }
}
