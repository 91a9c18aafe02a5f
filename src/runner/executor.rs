//! The executor, which runs effects and returns their results.

use std::sync::Arc;

use crate::machine::{Deadline, Event};
use crate::port::{
    AuthorizationOutcome, CancellationToken, Clock, EffectContext, EffectMessage, EffectNotice,
    PreparedCall, ReplyDelta,
};
use crate::types::{
    CallAccess, CallId, CheckpointRecord, EffectId, Reply, Signal, TimeSpan, ToolResult,
    UserMessage,
};

/// Runs tasks and returns their results.
pub trait Executor {
    /// Returns the clock of the run.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Starts a task. Its result arrives later as an input.
    fn start(&mut self, work: EffectTask);

    /// Returns the next input, or `None` if the deadline passes first.
    fn wait_input(&mut self, deadline: Option<Deadline>) -> Option<DriverInput>;

    /// Returns an input that is available now.
    fn try_input(&mut self) -> Option<DriverInput>;

    /// Waits at most this time for all tasks to end. Returns whether they have ended.
    fn wait_idle(&mut self, grace: TimeSpan) -> bool;
}

/// An input of the driver.
pub enum DriverInput {
    /// An event for the machine.
    Event(Event),
    /// The model replied; its tool calls are prepared.
    Replied {
        /// The model call.
        id: EffectId,
        /// The reply.
        reply: Reply,
        /// The files that each call touches, in call order.
        access: Arc<[CallAccess]>,
        /// The prepared calls, in call order.
        calls: Vec<Box<dyn PreparedCall>>,
    },
    /// The authorization of a tool call is complete.
    Authorized {
        /// The effect.
        id: EffectId,
        /// The call.
        call: CallId,
        /// The outcome.
        outcome: AuthorizationOutcome,
    },
    /// The task of a tool call could not be started, or panicked.
    ToolLost {
        /// The effect.
        id: EffectId,
        /// The result.
        result: ToolResult,
        /// The command of the call, if it was not started and never will be.
        command: Option<EffectId>,
    },
    /// The hooks before a model call have run.
    PreCallHooksRun {
        /// The preparation that they belong to.
        id: EffectId,
        /// Their messages for the model.
        messages: Vec<UserMessage>,
    },
    /// The recording of the workspace's state has ended; `None` if it was cancelled.
    CheckpointTaken(Option<CheckpointRecord>),
    /// A part of a reply has arrived.
    ReplyDelta {
        /// The model call.
        id: EffectId,
        /// The part.
        delta: ReplyDelta,
    },
    /// A running effect has sent a notice.
    Notice {
        /// The effect.
        id: EffectId,
        /// The notice.
        notice: EffectNotice,
    },
}

impl DriverInput {
    /// Returns the input for a message of a running effect.
    pub(super) fn from_message(id: EffectId, message: EffectMessage) -> Self {
        match message {
            EffectMessage::Notice(notice) => Self::Notice { id, notice },
            EffectMessage::UsageReported(usage, cost) => {
                Self::Event(Event::UsageReported { id, usage, cost })
            }
            EffectMessage::CommandEnded(id) => Self::Event(Event::CommandEnded { id }),
            EffectMessage::Abort => Self::Event(Event::Interrupt { signal: Signal::Interrupt }),
        }
    }
}

/// A task, which performs one effect.
pub struct EffectTask {
    /// The effect.
    pub id: EffectId,
    /// The thread on which the task runs.
    pub thread: TaskThread,
    /// The token that cancels the task.
    pub cancel: CancellationToken,
    /// The body of the task.
    pub run: TaskBody,
    /// Returns the input for a task that could not be started or panicked.
    pub on_failure: Box<dyn FnOnce(&str) -> DriverInput + Send>,
}

/// The body of a task. Inputs before its end are sent through the sink.
pub type TaskBody = Box<dyn FnOnce(&EffectContext, &InputSink<'_>) -> DriverInput + Send>;

/// Sends inputs to the driver while the task runs.
pub type InputSink<'a> = dyn Fn(DriverInput) + 'a;

/// The thread on which a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskThread {
    /// The thread for model calls and checks.
    Dedicated,
    /// The thread pool for tools.
    Pool,
}
