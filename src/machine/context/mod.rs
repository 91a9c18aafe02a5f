//! The conversation, its size, and the record that replaces its compacted parts.

pub(crate) mod compaction_history;
pub(crate) mod context_usage;
pub(crate) mod conversation;
mod images;
pub(crate) mod instructions;
pub(crate) mod repeated_results;
pub(crate) mod shorten;
mod token_bound;
pub(crate) mod work_record;
