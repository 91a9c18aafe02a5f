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
/// A call that the budget doesn't cover fails with [`FaultKind::Budget`], which ends the run. If
/// only the calls of others are in the way, it waits for them.
pub struct BudgetedModel {
    model: Box<dyn Model>,
    payer: CellPayer,
}

/// What bounds the cost of a call.
#[derive(Clone, Debug)]
pub struct CallLimits {
    /// The provider, whose request to slow down holds for all workers.
    pub provider: Arc<str>,
    /// The price of the model. Without one, only tokens are counted.
    pub price: Option<Price>,
    /// The price of summaries, if another model writes them.
    pub summary_price: Option<Price>,
    /// The limits of a reply, by the rules of the run.
    pub output: OutputLimits,
}

/// Pays the calls of a cell from the budget of its batch. Clones belong to the same cell.
#[derive(Clone)]
pub struct CellPayer {
    coordinator: Arc<Coordinator>,
    lease: Lease,
    limits: CallLimits,
    is_over_budget: Arc<AtomicBool>,
}

/// A request that is reserved, sent and settled.
struct BudgetedCall {
    call: Box<dyn ModelCall>,
    payer: CellPayer,
    input: Tokens,
    output: Tokens,
    /// Whether the budget has changed the output limit of the request.
    is_altered: bool,
}

/// How often a call looks whether others have left something for it.
const RESERVE_INTERVAL: TimeSpan = TimeSpan::from_millis(200);

/// How long the keeper of the leases may take to interrupt a run whose lease is over.
const LOSS_NOTICE_TIME: TimeSpan = TimeSpan::from_secs(10);

/// The pause after a rate limit whose length the provider doesn't name.
const DEFAULT_PAUSE: TimeSpan = TimeSpan::from_secs(2);

/// The longest pause that one reply of a provider causes.
const MAX_PAUSE: TimeSpan = TimeSpan::from_secs(60);

/// After a pause, the workers go on over this time, or over a quarter of the pause if that is longer; not all at once.
const JITTER: TimeSpan = TimeSpan::from_millis(500);

impl BudgetedModel {
    /// Returns a model whose calls this payer pays.
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

/// What is left of the limits of a batch.
#[derive(Clone, Copy)]
struct RemainingLimits {
    /// Without what is spent.
    unspent: ChargeLimits,
    /// Without what is spent or reserved.
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
                // How much of a reply was written that would have arrived whole is not known.
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
    /// Returns what pays from the batch of this lease.
    pub fn new(coordinator: Arc<Coordinator>, lease: Lease, limits: CallLimits) -> Self {
        Self { coordinator, lease, limits, is_over_budget: Arc::default() }
    }

    /// Returns what pays the calls of another model from the same budget.
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
    /// That is what is free, or half of what is unspent if that is more: then the call waits for others.
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

    /// Waits until the provider may be asked again, if it has asked a worker to slow down.
    fn wait_for_provider(&self, scope: &EffectContext) -> Result<(), Fault> {
        loop {
            let pause = self.coordinator.pause_of(&self.limits.provider);
            if pause == TimeSpan::ZERO {
                return Ok(());
            }
            // Leases have different numbers, so that the waits spread.
            let part = self.lease.token.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
            let spread = JITTER.max(pause.fraction(1, 4));
            let wait = TimeSpan(pause.0 + spread.fraction(part, 1 << 10).0);
            // Meanwhile, another worker may have been asked again.
            if scope.sleep(wait) {
                return Err(cancelled());
            }
        }
    }

    /// Reserves a charge; waits while only calls of others are in the way.
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
                // The run is interrupted as soon as the loss is noticed.
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
