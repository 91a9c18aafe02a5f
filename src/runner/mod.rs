//! Floor 5: the runner — it does what the machine wants done.
//!
//! The [`Driver`] is one loop: take an event in, write it down, fold it, do what follows. It knows the world through the
//! ports and its own hands ([`Executor`]): [`ThreadExecutor`] does the work on threads, against real clocks and sockets;
//! [`InlineExecutor`] does it on the spot, on a clock that exists only there. The loop is the same for both.
//!
//! A model call in flight has its thread, tools run on a pool of their own, and each has a token that ends it. The
//! driver alone touches state, journal and observer; everything else reaches it through one inbox.

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
pub use signals::{SignalError, add_run, install_handlers, set_idle_action};
pub use thread_executor::{DriverInputSender, ThreadExecutor, real_time_context};
