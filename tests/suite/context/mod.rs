//! What a model is told before its task.

mod changes;
mod prompt;
