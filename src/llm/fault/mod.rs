//! From what happened to what it means: one taxonomy of faults for every provider.

mod answer;
mod network;
mod said;
mod words;

pub(super) use answer::{Answer, judge, judge_event};
pub(super) use network::explain;
pub(super) use said::{Masks, glimpse, readable};
pub(super) use words::{ApiError, is_empty, is_error};
