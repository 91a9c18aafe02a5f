//! The registry: every call goes through it, whatever the tool.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use super::output_store::{self, MemoryOutputStore, OutputStore};
use super::read_output::{self, ReadOutput};
use super::settings::{ExecutionMode, ToolSettings};
use super::tool::{CallContext, CallPlan, Tool, ToolInvocation, ToolOutput, Truncation};
use crate::machine::CallIntent;
use crate::model::{
    CallAccess, CallId, TimeSpan, ToolArguments, ToolCall, ToolResult, ToolStatus, matches_wildcard,
};
use crate::net::Secrets;
use crate::policy::{
    CallKind, CallTarget, CallUsage, ConfirmationAnswer, ConfirmationRequest, Confirmer, Decision,
    GuardrailLimits, NoConfirmer, PolicyEngine, Quota, QuotaUsage,
};
use crate::port::{ApprovedCall, AuthorizationOutcome, EffectContext, ToolSpec, Toolbox};

/// The tools that a model may call, with the rules for their use.
pub struct ToolRegistry {
    tools: Vec<Box<dyn Tool>>,
    specs: Arc<[ToolSpec]>,
    judge: PolicyEngine,
    confirm: Box<dyn Confirmer>,
    results: Arc<dyn OutputStore>,
    settings: ToolSettings,
    common: SharedQuota,
    secrets: Secrets,
}

/// What the registries of one task have in common, when several agents work on it: how much of its limits is used, and
/// what was only described.
#[derive(Clone, Debug, Default)]
pub struct SharedQuota {
    quota: Arc<Quota>,
    planned: Arc<Mutex<Vec<PlannedCall>>>,
}

/// A call that was described instead of made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCall {
    /// The tool.
    pub tool: Arc<str>,
    /// The call in one line.
    pub summary: String,
}

/// A call that may run, as far as arguments and rules go.
pub struct AuthorizedCall {
    prepared: Box<dyn ToolInvocation>,
    /// What was decided; never a refusal.
    pub decision: Decision,
}

impl ToolRegistry {
    /// Returns a registry of these tools and `read_output`; their order is the one that the model sees. Nobody can be
    /// asked, and long results are kept in memory.
    pub fn new(tools: Vec<Box<dyn Tool>>, settings: ToolSettings) -> Self {
        let judge = settings.policy_engine();
        let registry = Self {
            tools,
            specs: [].into(),
            judge,
            confirm: Box::new(NoConfirmer),
            results: Arc::new(MemoryOutputStore::default()),
            common: SharedQuota::new(settings.guardrails.limits, QuotaUsage::default()),
            settings,
            secrets: Secrets::default(),
        };
        registry.with_results(Arc::new(MemoryOutputStore::default()))
    }

    /// Returns the registry with somebody who can be asked.
    pub fn with_confirmer(self, confirm: impl Confirmer + 'static) -> Self {
        Self { confirm: Box::new(confirm), ..self }
    }

    /// Returns the registry with another place for long results, from which `read_output` reads.
    pub fn with_results(mut self, results: Arc<dyn OutputStore>) -> Self {
        let budget = output_store::bytes_for_tokens(self.settings.max_result_tokens.0);
        self.tools.retain(|tool| &*tool.spec().name != read_output::NAME);
        self.tools.push(Box::new(ReadOutput::new(Arc::clone(&results), budget)));
        let specs = self.tools.iter().map(|tool| tool.spec());
        self.specs = specs.filter(|spec| self.settings.allows(&spec.name)).cloned().collect();
        Self { results, ..self }
    }

    /// Returns the registry of a run whose account is shared with others, or was begun before.
    pub fn with_shared_quota(self, common: SharedQuota) -> Self {
        Self { common, ..self }
    }

    /// Returns the registry with values that no result may contain.
    pub fn with_secrets(self, secrets: Secrets) -> Self {
        Self { secrets, ..self }
    }

    /// Returns the calls that were described instead of made, oldest first.
    pub fn planned_calls(&self) -> Vec<PlannedCall> {
        self.common.planned.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Judges a call by its arguments and the rules, without asking anybody and without doing anything.
    ///
    /// Whoever changes the arguments of a call, a hook say, has the changed call judged again.
    ///
    /// # Errors
    ///
    /// Fails with the answer to a call that cannot run.
    pub fn judge(&self, call: &ToolCall) -> Result<AuthorizedCall, ToolResult> {
        let prepared = self.prepare(call)?;
        match self.judge.decide(&call.name, prepared.kind(), &prepared.targets()) {
            Decision::Deny(why) => Err(denied_result(call, &why)),
            decision @ (Decision::Allow(_) | Decision::Ask(_)) => {
                Ok(AuthorizedCall { prepared, decision })
            }
        }
    }

    fn prepare(&self, call: &ToolCall) -> Result<Box<dyn ToolInvocation>, ToolResult> {
        let answer = |status, text: String| ToolResult::new(call.id.clone(), status, text);
        let available = || {
            let names: Vec<&str> = self.specs.iter().map(|spec| &*spec.name).collect();
            names.join(", ")
        };
        let Some(tool) = self.tools.iter().find(|tool| tool.spec().name == call.name) else {
            let text = format!("Tool '{}' not found. Available tools: {}.", call.name, available());
            return Err(answer(ToolStatus::Unknown, text));
        };
        if !self.settings.allows(&call.name) {
            let text = format!(
                "Denied: tool '{}' is not among the tools of this agent (allowed_tools). Available tools: {}.",
                call.name,
                available()
            );
            return Err(answer(ToolStatus::Denied, text));
        }
        let malformed = |error| answer(ToolStatus::Malformed, error);
        match &call.arguments {
            ToolArguments::Complete { text } => tool.prepare(text).map_err(malformed),
            ToolArguments::Malformed { error, .. } => {
                Err(malformed(format!("Invalid arguments for {}: {error}.", call.name)))
            }
            ToolArguments::Truncated { .. } => {
                let text = "Not run: the call was cut off by the output limit.";
                Err(answer(ToolStatus::Truncated, text.to_owned()))
            }
        }
    }

    fn approve(
        &self,
        call: &ToolCall,
        judged: AuthorizedCall,
        scope: &EffectContext,
    ) -> AuthorizationOutcome {
        let AuthorizedCall { mut prepared, decision } = judged;
        let plan = match prepared.plan() {
            Ok(plan) => plan,
            Err(output) => return AuthorizationOutcome::Rejected(self.to_result(&call.id, output)),
        };
        let is_harmless = matches!(prepared.kind(), CallKind::Reads | CallKind::Delegates)
            || decision.is_read_only();
        let is_described = self.settings.execution == ExecutionMode::DryRun && !is_harmless;
        let decision = match self.decide_by_real_targets(call, &*prepared, decision) {
            Ok(decision) => decision,
            Err(why) => return AuthorizationOutcome::Rejected(denied_result(call, &why)),
        };
        let commands = u64::from(prepared.kind() == CallKind::Command);
        let using = CallUsage { changes: &plan.changes, commands };
        if let Some(why) = self.common.quota.exceeded_reason(using).filter(|_| !is_described) {
            return AuthorizationOutcome::Rejected(denied_result(call, &why));
        }
        let grounds = match decision {
            _ if is_described => "dry run".to_owned(),
            Decision::Allow(grounds) => format!("allowed: {grounds}"),
            Decision::Ask(why) | Decision::Deny(why) => {
                match self.confirm_call(call, &*prepared, &why, scope) {
                    Ok(grounds) => grounds,
                    Err(vetted) => return vetted,
                }
            }
        };
        if is_described {
            return AuthorizationOutcome::Approved {
                call: self.dry_run(call, &*prepared),
                timeout: TimeSpan::from_secs(10),
                intent: CallIntent::ReadOnly,
                reason: grounds.into(),
            };
        }
        if let Err(why) = self.common.quota.consume(using) {
            return AuthorizationOutcome::Rejected(denied_result(call, &why));
        }
        let CallPlan { intent, .. } = plan;
        let limit = prepared.time_limit();
        let job =
            Box::new(ToolJob { call: call.id.clone(), prepared, results: self.result_builder() });
        AuthorizationOutcome::Approved { call: job, timeout: limit, intent, reason: grounds.into() }
    }

    /// Decides again when a call touches something by another name than it says.
    fn decide_by_real_targets(
        &self,
        call: &ToolCall,
        prepared: &dyn ToolInvocation,
        decision: Decision,
    ) -> Result<Decision, String> {
        let targets = prepared.real_targets();
        if targets.is_empty() {
            return Ok(decision);
        }
        match (decision, self.judge.decide(&call.name, prepared.kind(), &targets)) {
            (_, Decision::Deny(why)) | (Decision::Deny(why), _) => Err(why),
            (Decision::Ask(why), _) | (_, Decision::Ask(why)) => Ok(Decision::Ask(why)),
            (allow @ Decision::Allow(_), Decision::Allow(_)) => Ok(allow),
        }
    }

    /// Asks the user; returns on what grounds the call may run.
    fn confirm_call(
        &self,
        call: &ToolCall,
        prepared: &dyn ToolInvocation,
        why: &str,
        scope: &EffectContext,
    ) -> Result<String, AuthorizationOutcome> {
        let denied = |text: String| {
            Err(AuthorizationOutcome::Rejected(ToolResult::new(
                call.id.clone(),
                ToolStatus::Denied,
                text,
            )))
        };
        let summary = prepared.summary();
        match self.confirm.confirm(
            &ConfirmationRequest { tool: &call.name, summary: &summary, reason: why },
            scope,
        ) {
            ConfirmationAnswer::Yes => Ok("confirmed by the user".to_owned()),
            ConfirmationAnswer::No => {
                denied("Denied: the user said no. Don't try the same again.".to_owned())
            }
            ConfirmationAnswer::Abort => Err(AuthorizationOutcome::Abort),
            ConfirmationAnswer::Unavailable => denied(format!(
                "Denied: {} needs a confirmation ({why}), and there is no terminal to ask on. The user can allow it \
                 with --mode yolo, or with a rule like --allow {}.",
                call.name,
                example_rule(&call.name, prepared)
            )),
        }
    }

    fn dry_run(&self, call: &ToolCall, prepared: &dyn ToolInvocation) -> Box<dyn ApprovedCall> {
        let planned = PlannedCall { tool: Arc::clone(&call.name), summary: prepared.summary() };
        let text = format!(
            "Dry run: {} was not run; it would have been: {}. Go on as if it had succeeded.",
            call.name, planned.summary
        );
        Box::new(DryRunJob {
            planned,
            planned_calls: Arc::clone(&self.common.planned),
            result: ToolResult::new(call.id.clone(), ToolStatus::Ok, text),
        })
    }

    fn to_result(&self, call: &CallId, output: ToolOutput) -> ToolResult {
        self.result_builder().build(call, output)
    }

    fn result_builder(&self) -> ResultBuilder {
        ResultBuilder {
            results: Arc::clone(&self.results),
            budget: output_store::bytes_for_tokens(self.settings.max_result_tokens.0),
            secrets: self.secrets.clone(),
        }
    }
}

impl SharedQuota {
    /// Returns the account of a task of which something is done already; that counts against its limits.
    pub fn new(limits: GuardrailLimits, used: QuotaUsage) -> Self {
        Self { quota: Arc::new(Quota::new(limits, used)), planned: Arc::default() }
    }
}

impl Toolbox for ToolRegistry {
    fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    fn access(&self, call: &ToolCall) -> CallAccess {
        match self.judge(call) {
            Ok(AuthorizedCall { prepared, decision: Decision::Allow(_) }) => prepared.access(),
            // Two questions at a time would confuse everybody.
            Ok(_) => CallAccess::Exclusive,
            // It will not run at all.
            Err(_) => CallAccess::Read([].into()),
        }
    }

    fn invalid_call_result(&self, call: &ToolCall) -> Option<ToolResult> {
        self.judge(call).err()
    }

    fn authorize(&self, call: &ToolCall, scope: &EffectContext) -> AuthorizationOutcome {
        match self.judge(call) {
            Ok(judged) => self.approve(call, judged, scope),
            Err(result) => AuthorizationOutcome::Rejected(result),
        }
    }
}

/// A call that was cleared.
struct ToolJob {
    call: CallId,
    prepared: Box<dyn ToolInvocation>,
    results: ResultBuilder,
}

impl ApprovedCall for ToolJob {
    fn run(self: Box<Self>, scope: &EffectContext) -> ToolResult {
        let output = self.prepared.run(&CallContext { scope, call: &self.call });
        self.results.build(&self.call, output)
    }
}

/// A call that is only described.
struct DryRunJob {
    planned: PlannedCall,
    planned_calls: Arc<Mutex<Vec<PlannedCall>>>,
    result: ToolResult,
}

impl ApprovedCall for DryRunJob {
    fn run(self: Box<Self>, _: &EffectContext) -> ToolResult {
        self.planned_calls.lock().unwrap_or_else(PoisonError::into_inner).push(self.planned);
        self.result
    }
}

/// What is done with an output before anybody sees it.
struct ResultBuilder {
    results: Arc<dyn OutputStore>,
    budget: Option<usize>,
    secrets: Secrets,
}

impl ResultBuilder {
    /// Makes the result of an output: secrets are masked, what is too long is shortened, and its whole is kept.
    fn build(&self, call: &CallId, output: ToolOutput) -> ToolResult {
        let ToolOutput { status, text, full_text: whole, changes, truncation: length } = output;
        let text = self.secrets.mask(text);
        let short = match length {
            Truncation::Allowed => {
                self.budget.and_then(|budget| output_store::truncate_text(&text, budget))
            }
            Truncation::Done => None,
        };
        let is_part = whole.is_some() || short.is_some();
        let mut shown = short.unwrap_or_else(|| text.clone());
        if is_part {
            let whole = whole.map_or(text, |whole| self.secrets.mask(whole.as_ref().to_owned()));
            self.results.store(call, whole.into());
            if !shown.ends_with('\n') {
                shown.push('\n');
            }
            let _ = write!(shown, "[The whole is stored: read_output with call_id \"{call}\".]");
        }
        ToolResult { changes, ..ToolResult::new(call.clone(), status, shown) }
    }
}

/// Returns the answer to a call that may not run.
fn denied_result(call: &ToolCall, why: &str) -> ToolResult {
    let text = format!("Denied: {why}.");
    ToolResult::new(call.id.clone(), ToolStatus::Denied, text)
}

/// Returns a rule that would allow a call, for a shell.
fn example_rule(tool: &str, prepared: &dyn ToolInvocation) -> String {
    let target = prepared.targets().into_iter().next().map(|target| match target {
        CallTarget::Read(path) | CallTarget::Write(path) | CallTarget::Search(path) => path,
        CallTarget::Command(command) => command.line.trim().to_owned(),
    });
    let rule = target.map_or_else(|| tool.to_owned(), |target| format!("{tool}({target})"));
    format!("'{}'", rule.replace('\'', r"'\''"))
}

impl ToolSettings {
    /// Returns whether the agent may use a tool.
    fn allows(&self, tool: &str) -> bool {
        let matches = |pattern: &String| matches_wildcard(pattern, tool);
        self.allowed_tools.as_ref().is_none_or(|allowed| allowed.iter().any(matches))
    }
}
