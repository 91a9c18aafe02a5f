//! The context in which an effect runs.

use std::sync::Arc;

use architect::port::{CancellationToken, EffectContext, Sleep};
use architect::types::TimeSpan;

struct RealSleep;

impl Sleep for RealSleep {
    fn sleep(&self, span: TimeSpan, cancel: &CancellationToken) -> bool {
        cancel.wait_for(span.into())
    }
}

struct NoSleep;

impl Sleep for NoSleep {
    fn sleep(&self, _: TimeSpan, cancel: &CancellationToken) -> bool {
        cancel.is_cancelled()
    }
}

/// Returns a context that is never cancelled.
pub(crate) fn scope() -> EffectContext {
    scope_with(&CancellationToken::new())
}

/// Returns a context with this token.
pub(crate) fn scope_with(cancel: &CancellationToken) -> EffectContext {
    EffectContext::new(cancel.clone(), Arc::new(RealSleep))
}

/// Returns a context with this token, in which sleeping takes no time.
pub(crate) fn scope_without_sleep(cancel: &CancellationToken) -> EffectContext {
    EffectContext::new(cancel.clone(), Arc::new(NoSleep))
}
