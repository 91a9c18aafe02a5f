//! The ports: the traits through which the runner uses everything else.
//!
//! Higher layers implement them, and the runner depends on nothing else. Each port is as narrow as its use, so that a
//! test can replace it with a few lines.

mod answer_checks;
mod cancellation;
mod checkpoints;
mod clock;
mod effect_context;
mod effect_notice;
mod journal;
mod message_source;
mod model;
mod observer;
mod pre_call_hooks;
mod toolbox;
mod unique_id;

pub use answer_checks::{AnswerChecks, NoAnswerChecks, rejection};
pub use cancellation::{CancelRegistration, CancellationToken};
pub(crate) use cancellation::{lock, panic_message};
pub use checkpoints::{Checkpoints, NoCheckpoints};
pub use clock::{Clock, WallClock};
pub use effect_context::{CommandLife, EffectContext, EffectMessage, Sleep};
pub use effect_notice::{EffectNotice, HookOutcome, HookPoint, HookRun, SubagentDenial};
pub use journal::{CallTiming, Journal, JournalRecord, NoJournal, StoreError};
pub use message_source::{MessageSource, NoMessages};
pub use model::{Model, ModelCall, ModelRequest, ReplyDelta, RequestDigest, ToolSpec};
pub use observer::{Disconnected, NoObserver, Observer, RunEvent};
pub use pre_call_hooks::{NoPreCallHooks, PreCallHooks};
#[cfg(feature = "cli")]
pub(crate) use toolbox::SHOWN_ARGUMENT_CHARS;
pub use toolbox::{ApprovedCall, AuthorizationOutcome, NoTools, PreparedCall, Toolbox};
pub use unique_id::unique_id;
