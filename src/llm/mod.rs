//! Floor 4: models behind wires, from scripts, and from recordings.
//!
//! [`connect`](connect()) makes a model of a name ([`ModelSpec`]) and [`WireSettings`]. What the wire formats share is written once: how
//! requests are put together (`encode`), carried (`exchange`), how replies become what the machine knows (`decode`), and what
//! went wrong (`fault`). A wire format itself is a folder of its own and does nothing else than write and read.
//!
//! [`Recorder`] writes down what a model is asked and answers, and `replay/FILE` plays it (`cassette`).
//!
//! A reply counts only when its terminal event came, and one call is one attempt: when it is tried again is the machine's
//! decision. No key is ever part of an error, a log or a recording.

mod anthropic;
mod cassette;
mod chat;
mod connect;
mod decode;
mod encode;
mod exchange;
mod fault;
mod gemini;
#[cfg(test)]
mod mangled;
pub mod models;
mod provider;
mod responses;
mod schema;
pub mod scripted;
mod spec;
#[cfg(test)]
mod specimen;
mod wire;

pub use cassette::{BadRecording, OnDifference, RecordError, Recorder, Recording};
pub use connect::{ConnectError, Env, WireSettings, connect};
pub use provider::Provider;
pub use spec::{BadModel, ModelSpec};
