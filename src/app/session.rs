//! Where a run is written down, and where it begins.

use std::sync::Arc;
use std::time::SystemTime;

use super::error::AppError;
use super::process_env::ProcessEnv;
use crate::config::Config;
use crate::journal::{
    FileJournal, JournalError, NewSession, OpenedSession, ParentCall, ResumeOptions,
    ResumedSession, SessionId, SessionOutputs, SessionSetup, SessionStore, SteeringQueue,
};
use crate::machine::{Conversation, Machine, MachineOutput, State};
use crate::model::{ConversationItem, LimitBaseline, MessageOrigin, RunRules, RunTime, pluralize};
use crate::view::PriorUsage;

/// Where a run is written down, and where it begins.
#[derive(Debug)]
pub enum SessionTarget {
    /// It begins here, and is written down nowhere.
    Ephemeral,
    /// It is a new session of this store, with this id or a fresh one.
    New(SessionStore, Option<SessionId>),
    /// It is a new session of this store, sent by another one.
    Child(SessionStore, SessionId, ParentCall),
    /// A stored session goes on.
    Stored(SessionStore, Box<OpenedSession>),
}

/// Where a run stands before its first effects.
pub(super) struct RunSession {
    pub(super) machine: Machine,
    pub(super) output: MachineOutput,
    pub(super) stored: Option<StoredSession>,
}

/// What belongs to a run that is written down.
pub(super) struct StoredSession {
    pub(super) journal: FileJournal,
    pub(super) messages: SteeringQueue,
}

/// What a run begins with.
pub(super) struct SessionStart {
    /// What the user says; without it a stored session is told to go on.
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

    /// Returns where it is written down; none when it is not.
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

    /// Returns how many model calls of the session are over; a script or a recording goes on behind them.
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
                let bill = opened.history.costs;
                let llm_calls = run.model_calls + bill.subagent_calls;
                PriorUsage { costs: bill, steps: run.steps, llm_calls }
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

    /// Returns what was said in the session before.
    pub(super) fn conversation(&self) -> Option<&Conversation> {
        match self {
            Self::Ephemeral | Self::New(..) | Self::Child(..) => None,
            Self::Stored(_, opened) => Some(&opened.history.machine.conversation),
        }
    }

    /// Returns whether the session goes on.
    pub(super) fn is_resumed(&self) -> bool {
        matches!(self, Self::Stored(..))
    }

    /// Returns where the whole of long results is kept.
    pub(super) fn stored_outputs(&self, session: SessionId) -> Option<SessionOutputs> {
        match self {
            Self::Ephemeral => None,
            Self::New(store, _) | Self::Child(store, ..) | Self::Stored(store, _) => {
                Some(store.outputs(session))
            }
        }
    }

    /// Begins the run, or goes on with it. What was decided is durable when this returns.
    pub(super) fn begin(
        self,
        session: SessionId,
        first: SessionStart,
        setting: impl FnOnce() -> Result<SessionSetup, AppError>,
    ) -> Result<RunSession, AppError> {
        let SessionStart { task, rules, fixed_bytes: fixed } = first;
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
                let (fold, outcomes) = Machine::start(rules, Conversation::new(fixed), item(task));
                Ok(RunSession { machine: fold, output: outcomes, stored: None })
            }
            Self::New(store, _) | Self::Child(store, ..) => {
                let (history, task, setting) = (Vec::new(), item(task), setting()?);
                let begin = NewSession {
                    now,
                    dispatched_by,
                    setup: setting,
                    rules,
                    fixed_bytes: fixed,
                    history,
                    task,
                };
                let (journal, header) = store.create(session, begin)?;
                let (fold, outcomes) = header.start_machine();
                let written = Some(StoredSession { messages: journal.queue(), journal });
                Ok(RunSession { machine: fold, output: outcomes, stored: written })
            }
            Self::Stored(_, opened) => {
                let how = ResumeOptions { now, setup: setting()?, rules, prompt: task };
                let ResumedSession {
                    journal,
                    machine: fold,
                    output: outcomes,
                    workspace_changes: drift,
                    recovered: found,
                } = opened.resume(how)?;
                for drift in drift {
                    log::warn!("{drift}");
                }
                if !found.is_empty() {
                    let calls = pluralize(found.len(), "call", "calls");
                    log::warn!("under way when the session stopped: {calls}");
                }
                let written = Some(StoredSession { messages: journal.queue(), journal });
                Ok(RunSession { machine: fold, output: outcomes, stored: written })
            }
        }
    }
}
