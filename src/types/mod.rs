//! The data types that all layers share.
//!
//! Plain values: messages and tool calls, faults, time, tokens, money, and the rules of a run. Nothing here knows the
//! machine, a clock, a file or a socket. Values that are built once and then only read are shared (`Arc`), so that no
//! transcript is ever copied.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod call_access;
mod checkpoint;
mod conversation_item;
mod decision;
mod digest;
mod fault;
mod file_path;
mod ids;
mod image;
mod money;
mod nearest;
mod options;
mod reply;
mod rules;
mod signal;
mod strict_json;
mod terminal_codes;
mod text;
mod time;
mod tokens;
mod tool_call;
mod tool_result;
mod wildcard;
mod words;

pub use call_access::CallAccess;
pub use checkpoint::{
    CheckpointKind, CheckpointOutcome, CheckpointRecord, RecordedState, RunActivity,
};
pub use conversation_item::{
    ConversationItem, MessageOrigin, ResultMismatch, ToolExchange, UserMessage,
};
pub use decision::Decision;
pub(crate) use digest::DigestPiece;
pub use digest::{Digest, InvalidDigest, Sha256Digest, hex};
pub use fault::{Fault, FaultClass, FaultKind, RetryAdvice};
pub use file_path::{FilePath, escape_name};
pub use ids::{CallId, EffectId};
pub use image::{Image, ImageBudget, ImageType};
pub use money::{LongInputPrice, MicroUsd, Price};
pub use nearest::{did_you_mean, edit_distance, nearest, nearest_within};
pub use options::{
    ConfirmMode, Durability, Effort, HookFailurePolicy, Isolation, Language, OutputField,
};
pub use reply::{OpaqueBlock, Reply, ReplyFinish, ReplyPart};
pub use rules::{
    ContextLimits, CountLimits, EffectTimeouts, LimitBaseline, LoopDetection, ModelRules,
    OutputLimits, RetryBackoff, RunLimits, RunRules, UnknownFinishPolicy,
};
pub use signal::Signal;
pub use terminal_codes::strip_terminal_codes;
pub(crate) use text::first_line;
pub use text::pluralize;
#[cfg(feature = "runner")]
pub(crate) use text::shorten;
pub use time::{RunTime, TimeSpan};
pub use tokens::{Tokens, Usage};
pub use tool_call::{ToolArguments, ToolCall};
pub use tool_result::{FileAction, FileChange, ToolResult, ToolStatus};
pub use wildcard::{matches_pattern, matches_wildcard};
pub use words::WordEnum;
pub(crate) use words::word_enum;
