//! Floor 5: the runner — it does what the machine wants done.
//!
//! The [`Driver`] is one loop: take an event in, write it down, fold it, do what follows. It knows the world through the
//! ports and its own hands ([`Hands`]): [`Threads`] does the work on threads, against real clocks and sockets;
//! [`Inline`] does it on the spot, on a clock that exists only there. The loop is the same for both.
//!
//! A model call in flight has its thread, tools run on a pool of their own, and each has a token that ends it. The
//! driver alone touches state, journal and observer; everything else reaches it through one inbox.

mod clock;
mod driver;
mod effects;
mod hands;
mod inline;
mod signals;
mod threads;

pub use clock::SystemClock;
pub use driver::{Brief, Driver, Ports};
pub use hands::{Arrival, Hands, Lane, Post, Run, Work};
pub use inline::{Inline, VirtualClock};
pub use signals::{SignalError, before_runs, catch, listen};
pub use threads::{Inbox, Threads, scope};
