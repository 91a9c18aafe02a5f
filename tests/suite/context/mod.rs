//! What a model is told before its task.

mod diff;
mod prompt;
