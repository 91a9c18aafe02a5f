//! Floor 4: what people and programs get to see of a run.
//!
//! ```text
//!  Seen ──▶ Projector ──▶ PublicEvent ─┬─▶ human log, JSON stream, log file, traces
//!           (public)                   └─▶ Tally (result) ──▶ RunResult ──▶ JSON, text, reports
//! ```
//!
//! [`Show`] ties them together: its [`Watcher`] is the observer of a run, and whoever keeps the show can end it on every
//! way out of the program. Everything here is made of the public events; there is no second truth. Nothing opens a
//! file, a socket or a terminal: what is written goes through writers that are given, but for [`save`], which replaces
//! a file whole.

mod about;
mod failure;
mod file;
mod json;
mod markup;
mod output;
mod show;
mod stream_json;
mod text;
mod writer;

pub mod catalogue;
pub mod chart;
pub mod clean;
pub mod human;
pub mod jsonl;
pub mod otel;
pub mod public;
pub mod report;
pub mod result;
pub mod tables;
pub mod trace;
pub mod workflow;

pub use about::{About, Earlier, Source};
pub use catalogue::{Lang, UnknownLang};
pub use file::{SaveError, append, save};
pub use json::Json;
pub use output::{Optional, Output};
pub use result::RunResult;
pub use show::{Show, Watcher};
pub use stream_json::StreamJson;
pub use text::{Place, Text};
pub use writer::{Lost, Patience};
