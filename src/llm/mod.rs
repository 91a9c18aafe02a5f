//! Floor 4: models behind wires, from scripts, and from recordings.
//!
//! [`connect`](connect()) makes a model of a name ([`ModelSpec`]) and [`ModelConnectionSettings`]. What the wire formats share is written once: how
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
#[cfg(test)]
mod corruption_tests;
mod decode;
mod encode;
mod exchange;
mod fault;
#[cfg(test)]
mod fixtures;
mod gemini;
mod model_spec;
pub mod model_table;
mod provider;
mod responses;
mod schema;
pub mod scripted;
mod wire;

pub use cassette::{OnMismatch, RecordError, Recorder, Recording, RecordingError};
pub use connect::{ConnectError, EnvLookup, ModelConnectionSettings, connect};
pub use model_spec::{ModelSpec, ModelSpecError};
pub use provider::Provider;
