//! A model whose calls are paid from the budget of a batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::coordinator::Coordinator;
use super::error::{CoordinationError, ReserveError};
use super::protocol::{Charge, ChargeLimits, Lease, ReservationId};
use crate::machine::CallPurpose;
use crate::port::{EffectContext, Model, ModelCall, ModelRequest, ReplyDelta, RequestDigest};
use crate::types::{Fault, FaultKind, MicroUsd, OutputLimits, Price, Reply, TimeSpan, Tokens};

/// A model whose calls are reserved in the budget of a batch before they are sent, and settled after.
///
/// A call that the budget doesn't cover fails with [`FaultKind::Budget`], which ends the run. If the missing part is
/// only reserved by other calls, the call waits for them.
pub struct BudgetedModel {
    model: Box<dyn Model>,
    payer: CellPayer,
}

/// Price and limits from which the worst-case cost of a call is computed.
#[derive(Clone, Debug)]
pub struct CallLimits {
    /// The provider. A pause that it requests applies to all workers.
    pub provider: Arc<str>,
    /// The price of the model. Without a price, only tokens are counted.
    pub price: Option<Price>,
    /// The price of the model that writes summaries, if it is another one.
    pub summary_price: Option<Price>,
    /// The limits of a reply's length, from the rules of the run.
    pub output: OutputLimits,
}

/// Pays the calls of a cell from the budget of its batch. Clones pay for the same cell.
#[derive(Clone)]
pub struct CellPayer {
    coordinator: Arc<Coordinator>,
    lease: Lease,
    limits: CallLimits,
    is_over_budget: Arc<AtomicBool>,
}

/// A model call that reserves its worst case, is sent, and is settled.
struct BudgetedCall {
    call: Box<dyn ModelCall>,
    payer: CellPayer,
    input: Tokens,
    output: Tokens,
    /// Whether the output limit of the request was lowered to fit the budget.
    is_altered: bool,
}

/// The interval at which a waiting call tries to reserve again.
const RESERVE_INTERVAL: TimeSpan = TimeSpan::from_millis(200);

/// The time within which a run whose lease was lost gets interrupted.
const LOSS_NOTICE_TIME: TimeSpan = TimeSpan::from_secs(10);

/// The pause after a rate limit if the provider names no duration.
const DEFAULT_PAUSE: TimeSpan = TimeSpan::from_secs(2);

/// The longest pause after one rate limit.
const MAX_PAUSE: TimeSpan = TimeSpan::from_secs(60);

/// The time over which workers resume after a pause, so that not all resume at once; a quarter of the pause, if longer.
const JITTER: TimeSpan = TimeSpan::from_millis(500);

impl BudgetedModel {
    /// Returns a model whose calls are paid by `payer`.
    pub fn new(model: Box<dyn Model>, payer: CellPayer) -> Self {
        Self { model, payer }
    }
}

impl Model for BudgetedModel {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let (input, mut payer) = (ask.input_bound, self.payer.clone());
        if ask.purpose == CallPurpose::Compaction {
            payer.limits.price =
                payer.limits.price.and(payer.limits.summary_price.or(payer.limits.price));
        }
        let wanted = ask.max_output.or(payer.limits.output.user_limit);
        let (limits, spent, reserved) = payer.coordinator.budget();
        let (max_output, output) = if limits == ChargeLimits::default() {
            (ask.max_output, wanted.unwrap_or(payer.limits.output.model_limit))
        } else {
            let wanted = wanted.unwrap_or(payer.limits.output.model_limit);
            let left = RemainingLimits {
                unspent: limits.less(spent),
                free: limits.less(spent + reserved),
            };
            let output =
                payer.output_limit(wanted, input, left).ok_or_else(|| payer.over_budget())?;
            (Some(output), output)
        };
        let call = self.model.prepare(&ModelRequest { max_output, ..*ask })?;
        let is_altered = max_output != ask.max_output;
        Ok(Box::new(BudgetedCall { call, payer, input, output, is_altered }))
    }

    fn request_settings(&self) -> Value {
        self.model.request_settings()
    }
}

/// The remaining limits of a batch.
#[derive(Clone, Copy)]
struct RemainingLimits {
    /// The limits less the spent charges.
    unspent: ChargeLimits,
    /// The limits less the spent and the reserved charges.
    free: ChargeLimits,
}

impl ModelCall for BudgetedCall {
    fn run(
        self: Box<Self>,
        scope: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        let Self { call, payer, input, output, .. } = *self;
        payer.wait_for_provider(scope)?;
        let id = payer.reserve(payer.worst_case(input, output), scope)?;
        let result = call.run(scope, sink);
        let charge = match &result {
            Ok(reply) => Charge {
                money: payer.limits.price.map(|price| price.cost(&reply.usage)).unwrap_or_default(),
                tokens: reply.usage.total(),
            },
            Err(fault) if fault.billed || scope.cancel.is_cancelled() => {
                // It is unknown how much of a reply was written if replies arrive only as a whole.
                let whole = payer.limits.output.is_whole.then_some(output);
                payer.worst_case(input, whole.unwrap_or(fault.received.min(output)))
            }
            Err(_) => Charge::default(),
        };
        if let Err(error) = payer.coordinator.settle(id, charge) {
            log::warn!("a reservation stays in the budget of the batch: {error}");
        }
        if let Err(fault) = &result
            && fault.kind == FaultKind::RateLimited
        {
            let pause = fault.retry_after.unwrap_or(DEFAULT_PAUSE).min(MAX_PAUSE);
            if let Err(error) = payer.coordinator.pause(&payer.limits.provider, pause) {
                log::warn!("other workers don't slow down: {error}");
            }
        }
        result
    }

    fn request_digest(&self) -> Option<RequestDigest> {
        let digest = self.call.request_digest()?;
        Some(RequestDigest { is_altered: digest.is_altered || self.is_altered, ..digest })
    }
}

impl CellPayer {
    /// Returns a payer for the cell of this lease.
    pub fn new(coordinator: Arc<Coordinator>, lease: Lease, limits: CallLimits) -> Self {
        Self { coordinator, lease, limits, is_over_budget: Arc::default() }
    }

    /// Returns a payer for the calls of another model, with the same budget.
    #[must_use]
    pub fn with_prices(mut self, price: Option<Price>, summary_price: Option<Price>) -> Self {
        (self.limits.price, self.limits.summary_price) = (price, summary_price);
        self
    }

    /// Returns whether the limits of the batch stopped a call.
    pub fn is_over_budget(&self) -> bool {
        self.is_over_budget.load(Ordering::Relaxed)
    }

    fn over_budget(&self) -> Fault {
        self.is_over_budget.store(true, Ordering::Relaxed);
        Fault::new(FaultKind::Budget, "the budget of the batch does not cover another model call")
    }

    /// Returns the output limit of a call, or `None` if the budget doesn't cover a minimal reply.
    ///
    /// The limit uses the free part of the budget, or half of the unspent part if that is more. In the latter case the
    /// call has to wait for others.
    fn output_limit(&self, wanted: Tokens, input: Tokens, left: RemainingLimits) -> Option<Tokens> {
        let covered = |limits: ChargeLimits| {
            let by_money = match limits.money.zip(self.limits.price) {
                Some((money, price)) => price.affordable_output(money, input)?,
                None => wanted,
            };
            let by_tokens = match limits.tokens {
                Some(tokens) => Tokens(tokens.0.checked_sub(input.0)?),
                None => wanted,
            };
            Some(by_money.min(by_tokens).min(wanted))
        };
        let minimum = self.limits.output.minimum.min(wanted);
        let best = covered(left.free).max(covered(left.unspent.half()));
        match best.filter(|output| *output >= minimum) {
            Some(output) => Some(output),
            None => covered(left.unspent).filter(|output| *output >= minimum).map(|_| minimum),
        }
    }

    fn worst_case(&self, input: Tokens, output: Tokens) -> Charge {
        let money = self.limits.price.map(|price| price.max_cost(input, output));
        Charge { money: money.unwrap_or_default(), tokens: input + output }
    }

    /// Waits until a pause requested by the provider is over.
    fn wait_for_provider(&self, scope: &EffectContext) -> Result<(), Fault> {
        loop {
            let pause = self.coordinator.pause_of(&self.limits.provider);
            if pause == TimeSpan::ZERO {
                return Ok(());
            }
            // The number of the lease spreads the waits.
            let part = self.lease.token.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
            let spread = JITTER.max(pause.fraction(1, 4));
            let wait = TimeSpan(pause.0 + spread.fraction(part, 1 << 10).0);
            // The provider may have asked another worker to slow down meanwhile, so the loop checks again.
            if scope.sleep(wait) {
                return Err(cancelled());
            }
        }
    }

    /// Reserves a charge. Waits while the missing part is only reserved by other calls.
    fn reserve(&self, charge: Charge, scope: &EffectContext) -> Result<ReservationId, Fault> {
        loop {
            match self.coordinator.reserve(&self.lease, charge) {
                Ok(id) => return Ok(id),
                Err(ReserveError::BudgetReached) => return Err(self.over_budget()),
                Err(ReserveError::Pending) => {
                    if scope.sleep(RESERVE_INTERVAL) {
                        return Err(cancelled());
                    }
                }
                // The keeper of the leases interrupts the run once it notices the loss.
                Err(ReserveError::Failed(CoordinationError::LeaseLost(_)))
                    if scope.sleep(LOSS_NOTICE_TIME) =>
                {
                    return Err(cancelled());
                }
                Err(ReserveError::Failed(error)) => return Err(not_reserved(&error)),
            }
        }
    }
}

impl ChargeLimits {
    fn half(self) -> Self {
        Self {
            money: self.money.map(|limit| MicroUsd(limit.0 / 2)),
            tokens: self.tokens.map(|limit| Tokens(limit.0 / 2)),
        }
    }
}

fn cancelled() -> Fault {
    Fault::new(FaultKind::Connect, "cancelled before the call was sent")
}

fn not_reserved(error: &CoordinationError) -> Fault {
    Fault::new(FaultKind::Blocked, format!("nothing could be reserved for the call: {error}"))
}
