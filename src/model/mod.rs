//! Floor 0: the words that every other floor speaks.
//!
//! Plain values without behaviour that could fail: messages and tool calls, faults, time, tokens, money, and the
//! rules of a run. Nothing here knows the machine, a clock, a file or a socket. What is built once and then only read
//! is shared (`Arc`), so that no transcript is ever copied.

mod access;
mod call;
mod count;
mod digest;
mod fault;
mod ids;
mod item;
mod money;
mod nearest;
mod plain;
mod reply;
mod result;
mod rules;
mod signal;
mod strict;
mod time;
mod tokens;
mod wildcard;

pub use access::Access;
pub use call::{Arguments, ToolCall};
pub use count::count;
pub use digest::Digest;
pub use fault::{Fault, FaultClass, FaultKind, RetryAdvice};
pub use ids::{CallId, EffectId};
pub use item::{Exchange, Item, Mismatch, Origin, UserMessage};
pub use money::{LongPrice, Micros, Price};
pub use nearest::{did_you_mean, nearest, nearest_within};
pub use plain::plain;
pub use reply::{Finish, Opaque, Part, Reply};
pub use result::{FileAction, FileChange, ToolResult, ToolStatus};
pub use rules::{
    Backoff, Bounds, ContextRules, LimitBase, Limits, LoopRules, OutputRules, Rules, UnknownFinish,
    Watch,
};
pub use signal::Signal;
pub use time::{Span, Time};
pub use tokens::{Tokens, Usage};
pub use wildcard::wildcard;
