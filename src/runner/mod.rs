//! The runner, which performs the effects of the machine.
//!
//! The [`Driver`] is one loop: receive an event, write it to the journal, let the machine handle it, start the effects.
//! It uses the ports and an [`Executor`]. [`ThreadExecutor`] uses threads, real clocks and sockets; [`InlineExecutor`]
//! runs tasks immediately on a simulated clock. The loop is the same for both.
//!
//! A model call has a thread of its own, tools run on a pool, and each has a token that cancels it. Only the driver uses
//! the machine, the journal and the observer; everything else sends it inputs through one channel.

mod checkpoints;
mod clock;
mod driver;
mod effects;
mod executor;
mod inline_executor;
mod signals;
mod thread_executor;

pub use clock::SystemClock;
pub use driver::{Driver, Ports, RequestContext};
pub use executor::{DriverInput, EffectTask, Executor, InputSink, TaskBody, TaskThread};
pub use inline_executor::{InlineExecutor, VirtualClock};
pub use signals::{
    SignalError, add_receiver, add_run, install_handlers, set_ending, set_idle_action,
};
pub use thread_executor::{DriverInputSender, ThreadExecutor, real_time_context};
