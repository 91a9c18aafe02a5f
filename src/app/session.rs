//! Where a run is written down, and where it begins.

use std::sync::Arc;
use std::time::SystemTime;

use super::error::AppError;
use super::world::World;
use crate::config::{self, Config};
use crate::journal::{
    Begin, Dispatcher, Durability, FileJournal, GoOn, Going, JournalError, Mail, Opened, Outputs,
    SessionId, Setting, Store,
};
use crate::machine::{Conversation, Fold, Outcomes};
use crate::model::{Item, LimitBase, Origin, Rules, Time, count};
use crate::view::Earlier;

/// Where a run is written down, and where it begins.
#[derive(Debug)]
pub enum Place {
    /// It begins here, and is written down nowhere.
    Nowhere,
    /// It is a new session of this store, with this id or a fresh one.
    New(Store, Option<SessionId>),
    /// It is a new session of this store, sent by another one.
    Dispatched(Store, SessionId, Dispatcher),
    /// A stored session goes on.
    Stored(Store, Box<Opened>),
}

/// Where a run stands before its first effects.
pub(super) struct Start {
    pub(super) fold: Fold,
    pub(super) outcomes: Outcomes,
    pub(super) written: Option<Written>,
}

/// What belongs to a run that is written down.
pub(super) struct Written {
    pub(super) journal: FileJournal,
    pub(super) mail: Mail,
}

/// What a run begins with.
pub(super) struct First {
    /// What the user says; without it a stored session is told to go on.
    pub(super) task: Option<Arc<str>>,
    pub(super) rules: Rules,
    pub(super) fixed: u64,
}

/// Returns the store of the user's sessions.
///
/// # Errors
///
/// Fails when there is no folder for it, or it can't be trusted.
pub fn store(config: &Config, world: &World) -> Result<Store, AppError> {
    let sessions = &config.settings.sessions;
    let root =
        sessions.dir.clone().or_else(|| world.folders().state).ok_or(JournalError::NoHome)?;
    let durability = match sessions.durability {
        config::Durability::Full => Durability::Full,
        config::Durability::Os => Durability::Os,
    };
    Ok(Store::open(&root, durability)?)
}

impl Place {
    /// Returns the session that the run is part of.
    pub(super) fn session(&self) -> SessionId {
        match self {
            Self::Nowhere | Self::New(_, None) => SessionId::fresh(),
            Self::New(_, Some(session)) | Self::Dispatched(_, session, _) => *session,
            Self::Stored(_, opened) => opened.past.header.session,
        }
    }

    /// Returns where it is written down; none when it is not.
    pub(super) fn store(&self) -> Option<&Store> {
        match self {
            Self::Nowhere => None,
            Self::New(store, _) | Self::Dispatched(store, ..) | Self::Stored(store, _) => {
                Some(store)
            }
        }
    }

    /// Returns the time of the session at which the run begins.
    pub(super) fn at(&self) -> Time {
        match self {
            Self::Nowhere | Self::New(..) | Self::Dispatched(..) => Time::START,
            Self::Stored(_, opened) => opened.past.at,
        }
    }

    /// Returns how many model calls of the session are over; a script or a recording goes on behind them.
    pub(super) fn calls(&self) -> u32 {
        match self {
            Self::Nowhere | Self::New(..) | Self::Dispatched(..) => 0,
            Self::Stored(_, opened) => opened.past.calls_over,
        }
    }

    /// Returns what the session has used and done before.
    pub(super) fn earlier(&self) -> Earlier {
        match self {
            Self::Nowhere | Self::New(..) | Self::Dispatched(..) => Earlier::default(),
            Self::Stored(_, opened) => {
                let run = opened.past.fold.state.run();
                let bill = opened.past.bill;
                let llm_calls = run.calls + bill.subagent_calls;
                Earlier { bill, steps: run.steps, llm_calls }
            }
        }
    }

    /// Returns what the limits of the run count from.
    pub(super) fn limits_from(&self) -> LimitBase {
        match self {
            Self::Nowhere | Self::New(..) | Self::Dispatched(..) => LimitBase::default(),
            Self::Stored(_, opened) => opened.from,
        }
    }

    /// Returns what was said in the session before.
    pub(super) fn conversation(&self) -> Option<&Conversation> {
        match self {
            Self::Nowhere | Self::New(..) | Self::Dispatched(..) => None,
            Self::Stored(_, opened) => Some(&opened.past.fold.conversation),
        }
    }

    /// Returns whether the session goes on.
    pub(super) fn is_stored(&self) -> bool {
        matches!(self, Self::Stored(..))
    }

    /// Returns where the whole of long results is kept.
    pub(super) fn outputs(&self, session: SessionId) -> Option<Outputs> {
        match self {
            Self::Nowhere => None,
            Self::New(store, _) | Self::Dispatched(store, ..) | Self::Stored(store, _) => {
                Some(store.outputs(session))
            }
        }
    }

    /// Begins the run, or goes on with it. What was decided is durable when this returns.
    pub(super) fn begin(
        self,
        session: SessionId,
        first: First,
        setting: impl FnOnce() -> Result<Setting, AppError>,
    ) -> Result<Start, AppError> {
        let First { task, rules, fixed } = first;
        let item = |task: Option<Arc<str>>| Item::user(Origin::Task, task.unwrap_or_default());
        let now = SystemTime::now();
        let dispatched_by = match &self {
            Self::Dispatched(_, _, dispatcher) => Some(dispatcher.clone()),
            Self::Nowhere | Self::New(..) | Self::Stored(..) => None,
        };
        match self {
            Self::Nowhere => {
                let (fold, outcomes) = Fold::start(rules, Conversation::new(fixed), item(task));
                Ok(Start { fold, outcomes, written: None })
            }
            Self::New(store, _) | Self::Dispatched(store, ..) => {
                let (history, task, setting) = (Vec::new(), item(task), setting()?);
                let begin = Begin { now, dispatched_by, setting, rules, fixed, history, task };
                let (journal, header) = store.create(session, begin)?;
                let (fold, outcomes) = header.start();
                let written = Some(Written { mail: journal.mail(), journal });
                Ok(Start { fold, outcomes, written })
            }
            Self::Stored(_, opened) => {
                let how = GoOn { now, setting: setting()?, rules, prompt: task };
                let Going { journal, fold, outcomes, drift, found } = opened.go_on(how)?;
                for drift in drift {
                    log::warn!("{drift}");
                }
                if !found.is_empty() {
                    let calls = count(found.len(), "call", "calls");
                    log::warn!("under way when the session stopped: {calls}");
                }
                let written = Some(Written { mail: journal.mail(), journal });
                Ok(Start { fold, outcomes, written })
            }
        }
    }
}
