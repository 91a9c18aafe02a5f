//! The system prompt.

mod diff;
mod prompt;
