//! The registry of tools.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::background::NeededWork;
use super::deferred::{self, CALL_TOOL, DeferredTool, DeferredToolsModel, SEARCH_TOOLS};
use super::output_store::{self, MemoryOutputStore, OutputStore};
use super::read_output::{self, read_output};
use super::rule_tools;
use super::settings::{ExecutionMode, ShownDiffs, ToolSettings};
use super::tool::{CallContext, CallPlan, Tool, ToolInvocation, ToolOutput, Truncation};
use crate::machine::{CallIntent, READS_ONLY};
use crate::net::Secrets;
use crate::policy::{
    CallKind, CallTarget, CallUsage, ConfirmMode, ConfirmationAnswer, ConfirmationRequest,
    Confirmer, GuardrailLimits, NoConfirmer, PermissionRule, PolicyEngine, Quota, QuotaUsage,
    command_findings,
};
use crate::port::{
    AuthorizationOutcome, CancellationToken, EffectContext, EffectMessage, EffectNotice, Model,
    PreparedCall, ToolSpec, Toolbox, lock,
};
use crate::types::{
    CallAccess, CallId, Decision, TimeSpan, ToolArguments, ToolCall, ToolResult, ToolStatus,
    matches_wildcard,
};
use crate::workspace::image::{AttachedImages, ImageLimits};

/// The tools that a model may call, and the policy for their use.
pub struct ToolRegistry {
    tools: Vec<Arc<dyn Tool>>,
    /// The tools that are not described in requests.
    deferred: Arc<[DeferredTool]>,
    specs: Arc<[ToolSpec]>,
    settings: ToolSettings,
    gate: Gate,
}

/// The dependencies for authorizing a call.
#[derive(Clone)]
struct Gate {
    policy: Arc<PolicyEngine>,
    confirmer: Arc<dyn Confirmer>,
    execution: ExecutionMode,
    diffs: ShownDiffs,
    quota: SharedQuota,
    results: ResultBuilder,
}

/// State shared by the registries of all agents of a run: the used quota, the rules that the user has added at
/// confirmations, and the calls that a dry run has skipped.
#[derive(Clone, Debug, Default)]
pub struct SharedQuota {
    quota: Arc<Quota>,
    added_rules: Arc<Mutex<Vec<PermissionRule>>>,
    planned: Arc<Mutex<Vec<PlannedCall>>>,
}

/// A call that a dry run skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCall {
    /// The name of the tool.
    pub tool: Arc<str>,
    /// A one-line summary of the call.
    pub summary: String,
}

impl ToolRegistry {
    /// Returns a registry of these tools and `read_output`, in this order. It has no confirmer, and stores long results
    /// in memory.
    pub fn new(tools: Vec<Box<dyn Tool>>, settings: ToolSettings) -> Self {
        let results: Arc<dyn OutputStore> = Arc::new(MemoryOutputStore::default());
        let gate = Gate {
            policy: Arc::new(settings.policy_engine()),
            confirmer: Arc::new(NoConfirmer),
            execution: settings.execution,
            diffs: ShownDiffs::default(),
            quota: SharedQuota::new(settings.guardrails.limits, QuotaUsage::default()),
            results: ResultBuilder {
                results: Arc::clone(&results),
                budget: output_store::bytes_for_tokens(settings.max_result_tokens.0),
                secrets: Secrets::default(),
                images: None,
            },
        };
        let tools = tools.into_iter().map(Arc::from).collect();
        let deferred = [].into();
        Self { tools, deferred, specs: [].into(), settings, gate }.with_results(results)
    }

    /// Returns the registry with a confirmer.
    pub fn with_confirmer(mut self, confirmer: Arc<dyn Confirmer>) -> Self {
        self.gate.confirmer = confirmer;
        self
    }

    /// Returns the registry with another store for long results.
    pub fn with_results(mut self, results: Arc<dyn OutputStore>) -> Self {
        let budget = self.gate.results.budget;
        self.tools.retain(|tool| &*tool.spec().name != read_output::NAME);
        self.tools.push(read_output(Arc::clone(&results), budget).into());
        self.gate.results.results = results;
        self.list_specs();
        self
    }

    /// Returns the registry with those of the named tools deferred that the agent may use. Requests describe
    /// `search_tools` and `call_tool` in their place.
    pub fn with_deferred(mut self, names: &[(Arc<str>, Arc<str>)]) -> Self {
        let specs = self.tools.iter().rev().map(|tool| (&tool.spec().name, tool.spec()));
        let specs: HashMap<&Arc<str>, &ToolSpec> = specs.collect();
        let deferred = names.iter().filter_map(|(server, name)| {
            let (server, spec) = (Arc::clone(server), (*specs.get(name)?).clone());
            self.settings.allows(name).then_some(DeferredTool { server, spec })
        });
        self.deferred = deferred.collect();
        if !self.deferred.is_empty() {
            self.tools.extend(deferred::tools(&self.deferred, self.gate.results.budget));
        }
        self.list_specs();
        self
    }

    /// Returns a model that calls the deferred tools by their names.
    pub fn with_deferred_calls(&self, model: Box<dyn Model>) -> Box<dyn Model> {
        if self.deferred.is_empty() {
            return model;
        }
        let names = self.deferred.iter().map(|tool| Arc::clone(&tool.spec.name));
        Box::new(DeferredToolsModel::new(model, names))
    }

    /// Returns whether the agent has a tool of this name, described in requests or deferred.
    pub fn has_tool(&self, name: &str) -> bool {
        self.allows(name) && self.tools.iter().any(|tool| *tool.spec().name == *name)
    }

    fn list_specs(&mut self) {
        let deferred = self.deferred.iter().map(|tool| &*tool.spec.name);
        let deferred: HashSet<&str> = deferred.collect();
        let is_deferred = |name: &str| deferred.contains(name);
        let specs = self.tools.iter().map(|tool| tool.spec());
        let specs = specs.filter(|spec| self.allows(&spec.name) && !is_deferred(&spec.name));
        self.specs = specs.cloned().collect();
    }

    /// Returns whether the agent may use a tool.
    fn allows(&self, name: &str) -> bool {
        let is_for_deferred =
            !self.deferred.is_empty() && [SEARCH_TOOLS, CALL_TOOL].contains(&name);
        is_for_deferred || self.settings.allows(name)
    }

    /// Returns the registry with a setting for the diffs that it shows.
    pub fn with_diffs(mut self, diffs: ShownDiffs) -> Self {
        self.gate.diffs = diffs;
        self
    }

    /// Returns the registry with state that is shared with other registries, or restored from a resumed session.
    pub fn with_shared_quota(mut self, quota: SharedQuota) -> Self {
        self.gate.quota = quota;
        self
    }

    /// Returns the registry with secrets that are masked in results.
    pub fn with_secrets(mut self, secrets: Secrets) -> Self {
        self.gate.results.secrets = secrets;
        self
    }

    /// Returns the registry for a model with these image limits; `None` for a model without image input.
    pub fn with_images(mut self, limits: Option<&'static ImageLimits>) -> Self {
        self.gate.results.images = limits;
        self
    }

    /// Returns the calls that a dry run skipped, oldest first.
    pub fn planned_calls(&self) -> Vec<PlannedCall> {
        lock(&self.gate.quota.planned).clone()
    }

    /// Waits for work that calls have left running and that has to end before the task is done, about as long as given
    /// at most, and until the token is cancelled. An end that no call has shown is returned once.
    pub fn wait_for_needed(&self, most: Duration, cancel: &CancellationToken) -> NeededWork {
        let mut all = NeededWork::default();
        for NeededWork { running, ended } in
            self.tools.iter().map(|tool| tool.wait_for_needed(most, cancel))
        {
            let mask = |text| self.gate.results.secrets.mask_cut(text);
            all.running.extend(running.into_iter().map(mask));
            all.ended.extend(ended.into_iter().map(mask));
        }
        all
    }

    /// Ends the work that calls have left running, since the run is over. Waits for its end about as long as given at
    /// most.
    pub fn finish(&self, most: Duration) {
        self.tools.iter().for_each(|tool| tool.finish(most));
    }

    /// Decides about a call by its arguments alone: no file is read, and the user is not asked. For a tool that is not
    /// in the registry, such as one of a server, the decision is based on its name.
    pub fn decide(&self, call: &ToolCall) -> Decision {
        match self.parse(call) {
            Ok((_, invocation)) => {
                self.gate.policy.decide(&call.name, invocation.kind(), &invocation.targets())
            }
            Err(result)
                if result.status == ToolStatus::Unknown && self.settings.allows(&call.name) =>
            {
                self.gate.policy.decide(&call.name, CallKind::External, &[])
            }
            Err(result) => Decision::deny(result.text),
        }
    }

    fn parse(&self, call: &ToolCall) -> Result<ParsedCall, ToolResult> {
        let result = |status, text: String| ToolResult::new(call.id.clone(), status, text);
        let available = || {
            let names: Vec<&str> = self.specs.iter().map(|spec| &*spec.name).collect();
            let more = match self.deferred.is_empty() {
                true => String::new(),
                false => format!(" {SEARCH_TOOLS} finds more, which {CALL_TOOL} calls."),
            };
            format!("Available tools: {}.{more}", names.join(", "))
        };
        let name = &call.name;
        let Some(tool) = self.tools.iter().find(|tool| tool.spec().name == *name) else {
            let text = format!("Tool '{name}' not found. {}", available());
            return Err(result(ToolStatus::Unknown, text));
        };
        if !self.allows(name) {
            let text = format!(
                "Denied: tool '{name}' is not among the tools of this agent (allowed_tools). {}",
                available()
            );
            return Err(result(ToolStatus::Denied, text));
        }
        match &call.arguments {
            ToolArguments::Complete { text } => {
                let invocation = tool.prepare(text);
                let invocation =
                    invocation.map_err(|error| result(ToolStatus::Malformed, error))?;
                Ok((Arc::clone(tool), invocation))
            }
            ToolArguments::Malformed { error, .. } => {
                let text = format!("Invalid arguments for {name}: {error}.");
                Err(result(ToolStatus::Malformed, text))
            }
            ToolArguments::Truncated { .. } => {
                let text = "Not run: the call was cut off by the output limit.";
                Err(result(ToolStatus::Truncated, text.to_owned()))
            }
        }
    }
}

impl SharedQuota {
    /// Returns the shared state of a run that has already used a part of its limits.
    pub fn new(limits: GuardrailLimits, used: QuotaUsage) -> Self {
        Self { quota: Arc::new(Quota::new(limits, used)), ..Self::default() }
    }
}

impl Toolbox for ToolRegistry {
    fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    fn prepare(&self, call: &ToolCall) -> Box<dyn PreparedCall> {
        match self.parse(call) {
            Ok((definition, invocation)) => Box::new(RegisteredCall {
                id: call.id.clone(),
                tool: Arc::clone(&call.name),
                definition,
                arguments: call.arguments.text().into(),
                invocation,
                decided: None,
                is_proved: false,
                gate: self.gate.clone(),
            }),
            Err(result) => <dyn PreparedCall>::rejected(result),
        }
    }
}

/// A call with its tool.
type ParsedCall = (Arc<dyn Tool>, Box<dyn ToolInvocation>);

/// A call of a tool in the registry.
struct RegisteredCall {
    id: CallId,
    tool: Arc<str>,
    definition: Arc<dyn Tool>,
    /// The arguments, the text of a JSON object.
    arguments: Arc<str>,
    invocation: Box<dyn ToolInvocation>,
    /// The decision, and the targets that it was made for.
    decided: Option<(Vec<CallTarget>, Decision)>,
    /// Whether the call is a command that provably only reads, so that it may run beside other reads.
    is_proved: bool,
    gate: Gate,
}

/// The approval of a call, with the manner in which it runs.
enum CallApproval {
    Run { intent: CallIntent, reason: Arc<str> },
    DryRun,
}

impl PreparedCall for RegisteredCall {
    fn access(&mut self) -> CallAccess {
        let access = self.invocation.access();
        if access == CallAccess::Exclusive {
            // The decision may depend on the effects of earlier calls, so it is made again after they have run.
            self.is_proved = self.invocation.kind() == CallKind::Command
                && PolicyEngine::is_read_only(&self.decide_with(&self.gate.policy, &[]));
            return if self.is_proved { CallAccess::read("") } else { access };
        }
        match self.decide() {
            Decision::Allow { .. } => access,
            // Only one confirmation is shown at a time.
            Decision::Ask { .. } => CallAccess::Exclusive,
            // A denied call will not run.
            Decision::Deny { .. } => CallAccess::Read([].into()),
        }
    }

    fn rejection(&mut self) -> Option<ToolResult> {
        match self.resolve() {
            Ok(Decision::Deny { reason }) => Some(self.denied(&reason)),
            Ok(Decision::Allow { .. } | Decision::Ask { .. }) => None,
            Err(result) => Some(result),
        }
    }

    fn authorize(mut self: Box<Self>, scope: &EffectContext) -> AuthorizationOutcome {
        let approval = self.approve(scope);
        let Self { id, tool, invocation, gate, .. } = *self;
        match approval {
            Ok(CallApproval::Run { intent, reason }) => AuthorizationOutcome::Approved {
                timeout: invocation.time_limit(),
                call: Box::new(move |scope| {
                    let diff = match gate.diffs {
                        ShownDiffs::DryRun => String::new(),
                        ShownDiffs::All => invocation.diff(),
                    };
                    let masked = (invocation.kind() == CallKind::Command)
                        .then(|| mask_output(scope, &gate.results.secrets));
                    let scope = masked.as_ref().unwrap_or(scope);
                    let output = invocation.run(&CallContext {
                        scope,
                        call: &id,
                        results: &gate.results.results,
                        secrets: &gate.results.secrets,
                    });
                    if output.status == ToolStatus::Ok {
                        notify_diff(&id, diff, scope);
                    }
                    gate.results.build(&id, output, &scope.cancel)
                }),
                intent,
                reason,
            },
            Ok(CallApproval::DryRun) => AuthorizationOutcome::Approved {
                call: Box::new(move |scope| {
                    notify_diff(&id, invocation.diff(), scope);
                    let summary = invocation.summary();
                    let text = format!(
                        "Dry run: {tool} was not run; it would have been: {summary}. Go on as if it had succeeded."
                    );
                    lock(&gate.quota.planned).push(PlannedCall { tool, summary });
                    ToolResult::new(id, ToolStatus::Ok, text)
                }),
                timeout: TimeSpan::from_secs(10),
                intent: CallIntent::ReadOnly,
                reason: "dry run".into(),
            },
            Err(outcome) => outcome,
        }
    }
}

impl RegisteredCall {
    /// Decides about the call, or returns the earlier decision for the same targets.
    fn decide(&mut self) -> Decision {
        let targets = self.invocation.targets();
        match &self.decided {
            Some((known, decision)) if *known == targets => decision.clone(),
            _ => {
                let kind = self.invocation.kind();
                let decision = self.gate.policy.decide(&self.tool, kind, &targets);
                self.decided = Some((targets, decision.clone()));
                decision
            }
        }
    }

    /// Resolves the targets against the existing files, and decides.
    fn resolve(&mut self) -> Result<Decision, ToolResult> {
        let malformed = |error| ToolResult::new(self.id.clone(), ToolStatus::Malformed, error);
        self.invocation.resolve().map_err(malformed)?;
        Ok(self.decide())
    }

    /// Decides whether the call may run, and asks the user if required.
    ///
    /// # Errors
    ///
    /// Fails with the outcome of a denied call.
    fn approve(&mut self, scope: &EffectContext) -> Result<CallApproval, AuthorizationOutcome> {
        let decision = self.resolve().map_err(AuthorizationOutcome::Rejected)?;
        self.check_denial(&decision)?;
        let CallPlan { intent, changes } = self.invocation.plan().map_err(|output| {
            let result = self.gate.results.build(&self.id, *output, &scope.cancel);
            AuthorizationOutcome::Rejected(result)
        })?;
        let kind = self.invocation.kind();
        let is_harmless = matches!(kind, CallKind::Reads | CallKind::Delegates)
            || PolicyEngine::is_read_only(&decision);
        let is_dry_run = self.gate.execution == ExecutionMode::DryRun && !is_harmless;
        // A symbolic link may point to a file with other rules.
        let real = self.invocation.real_targets();
        let decision = match real.is_empty() {
            true => decision,
            false => decision.stricter(self.gate.policy.decide(&self.tool, kind, &real)),
        };
        self.check_denial(&decision)?;
        if self.is_proved && !PolicyEngine::is_read_only(&decision) {
            let why =
                "it was known to only read, and an earlier call has changed that; call it again";
            return Err(AuthorizationOutcome::Rejected(self.denied(why)));
        }
        if is_dry_run {
            return Ok(CallApproval::DryRun);
        }
        let usage = CallUsage { changes: &changes, commands: u64::from(kind == CallKind::Command) };
        let quota = &self.gate.quota.quota;
        let denied = |reason: String| AuthorizationOutcome::Rejected(self.denied(&reason));
        quota.exceeded_reason(usage).map_or(Ok(()), |reason| Err(denied(reason)))?;
        let reason = match &decision {
            allowed if PolicyEngine::is_read_only(allowed) => READS_ONLY.to_owned(),
            Decision::Allow { reason } => format!("allowed: {reason}"),
            Decision::Ask { reason } | Decision::Deny { reason } => match self.added_rule(&real) {
                Some(reason) => reason,
                None => self.confirm(reason, &real, scope)?,
            },
        };
        quota.consume(usage).map_err(denied)?;
        Ok(CallApproval::Run { intent, reason: reason.into() })
    }

    /// Returns the reason for allowing the call by a rule that the user has added during the run.
    fn added_rule(&self, real: &[CallTarget]) -> Option<String> {
        let added = lock(&self.gate.quota.added_rules).clone();
        if added.is_empty() {
            return None;
        }
        let engine = self.gate.policy.with_allowed(&added);
        match self.decide_with(&engine, real) {
            Decision::Allow { reason } => {
                let rule = reason.trim_end_matches(" of permissions.allow");
                Some(format!("allowed: {rule}, added by the user during the run"))
            }
            Decision::Ask { .. } | Decision::Deny { .. } => None,
        }
    }

    /// Decides about the targets of the call, and about the real ones of its links.
    fn decide_with(&self, engine: &PolicyEngine, real: &[CallTarget]) -> Decision {
        let kind = self.invocation.kind();
        let decision = engine.decide(&self.tool, kind, &self.invocation.targets());
        match real.is_empty() {
            true => decision,
            false => decision.stricter(engine.decide(&self.tool, kind, real)),
        }
    }

    /// Returns the rule that would allow the call in future.
    fn suggested_rule(&self, real: &[CallTarget]) -> Option<PermissionRule> {
        let (kind, targets) = (self.invocation.kind(), self.invocation.targets());
        let policy = &self.gate.policy;
        let rule = policy.suggest_rule(&rule_tools(), &self.tool, kind, &targets)?;
        let engine = policy.with_allowed(std::slice::from_ref(&rule));
        matches!(self.decide_with(&engine, real), Decision::Allow { .. }).then_some(rule)
    }

    /// Returns the options that would allow the call without a confirmation.
    fn how_to_allow(&self, real: &[CallTarget]) -> String {
        let policy = &self.gate.policy;
        let allows = |engine: &PolicyEngine| {
            matches!(self.decide_with(engine, real), Decision::Allow { .. })
        };
        let example = example_rule(&self.tool, &*self.invocation);
        let rule = PermissionRule::parse(&rule_tools(), &example).ok();
        let by_rule = rule.is_some_and(|rule| allows(&policy.with_allowed(&[rule])));
        let rule = format!("a rule like --allow '{}'", example.replace('\'', r"'\''"));
        match (allows(&policy.with_mode(ConfirmMode::Yolo)), by_rule) {
            (true, true) => format!("The user can allow it with --mode yolo, or with {rule}"),
            (true, false) => "The user can allow it with --mode yolo".to_owned(),
            (false, true) => format!("The user can allow it with {rule}"),
            (false, false) => "No mode and no --allow rule lets it run without one".to_owned(),
        }
    }

    /// Asks the user. Returns the reason for which the call may run.
    fn confirm(
        &self,
        why: &str,
        real: &[CallTarget],
        scope: &EffectContext,
    ) -> Result<String, AuthorizationOutcome> {
        let denied = |reason: &str| Err(AuthorizationOutcome::Rejected(self.denied(reason)));
        let (summary, diff) = (self.invocation.summary(), self.invocation.diff());
        let findings = match self.invocation.targets().as_slice() {
            [CallTarget::Command(command)] => command_findings(command),
            _ => Vec::new(),
        };
        let rule = self.suggested_rule(real);
        let mut edit_error = None;
        loop {
            let request = ConfirmationRequest {
                call: &self.id,
                tool: &self.tool,
                summary: &summary,
                reason: why,
                diff: &diff,
                findings: &findings,
                arguments: &self.arguments,
                rule: rule.as_ref().map(PermissionRule::as_str),
                edit_error: edit_error.as_deref(),
            };
            let answer = self.gate.confirmer.confirm(&request, scope);
            let added = match answer {
                ConfirmationAnswer::YesForSession => "for the rest of the session",
                ConfirmationAnswer::YesAlways => "always",
                ConfirmationAnswer::Yes => return Ok("confirmed by the user".to_owned()),
                ConfirmationAnswer::No => {
                    return denied("the user rejected the call. Don't repeat it");
                }
                ConfirmationAnswer::NoBecause(reason) => {
                    return denied(&format!(
                        "the user rejected the call: {}",
                        reason.trim_end_matches('.')
                    ));
                }
                ConfirmationAnswer::Abort => return Err(AuthorizationOutcome::Abort),
                ConfirmationAnswer::Edit(arguments) => match self.definition.prepare(&arguments) {
                    Ok(_) => return Err(AuthorizationOutcome::Edited { arguments }),
                    Err(error) => {
                        edit_error = Some(error);
                        continue;
                    }
                },
                ConfirmationAnswer::Unavailable => {
                    return denied(&format!(
                        "{} needs a confirmation ({why}), and there is no terminal to ask on. {}",
                        self.tool,
                        self.how_to_allow(real)
                    ));
                }
            };
            let Some(rule) = rule else { return Ok("confirmed by the user".to_owned()) };
            let reason = format!("confirmed by the user, who allows {} {added}", rule.as_str());
            lock(&self.gate.quota.added_rules).push(rule);
            return Ok(reason);
        }
    }

    fn check_denial(&self, decision: &Decision) -> Result<(), AuthorizationOutcome> {
        let Decision::Deny { reason } = decision else { return Ok(()) };
        Err(AuthorizationOutcome::Rejected(self.denied(reason)))
    }

    fn denied(&self, reason: &str) -> ToolResult {
        let text = format!("Denied: {reason}.");
        ToolResult::new(self.id.clone(), ToolStatus::Denied, text)
    }
}

/// Sends a diff to the observers of the run.
fn notify_diff(call: &CallId, diff: String, scope: &EffectContext) {
    if !diff.is_empty() {
        scope.notify(EffectNotice::Diff { call: call.clone(), diff: diff.into() });
    }
}

/// Returns the scope of a command, with secrets masked in the output that is shown.
fn mask_output(scope: &EffectContext, secrets: &Secrets) -> EffectContext {
    let (outer, secrets) = (scope.clone(), secrets.clone());
    scope.clone().with_messages(move |message| {
        outer.send(match message {
            EffectMessage::Notice(EffectNotice::Output { call, text }) => {
                // The end may be the beginning of a secret.
                let shown = &text[..secrets.complete(&text)];
                let text = secrets.mask(shown.to_owned()).into();
                EffectMessage::Notice(EffectNotice::Output { call, text })
            }
            message => message,
        });
    })
}

/// Turns the output of a tool into its result.
#[derive(Clone)]
struct ResultBuilder {
    results: Arc<dyn OutputStore>,
    budget: Option<usize>,
    secrets: Secrets,
    /// The image limits of the model; `None` for a model without image input.
    images: Option<&'static ImageLimits>,
}

impl ResultBuilder {
    /// Masks secrets, and shortens a text that is too long; its full text is stored. Images are decoded only until
    /// `stop` is cancelled.
    fn build(&self, call: &CallId, output: ToolOutput, stop: &CancellationToken) -> ToolResult {
        let ToolOutput {
            status,
            text,
            full_text,
            spooled,
            omissions,
            changes,
            reads,
            images,
            truncation,
        } = output;
        let text = self.secrets.mask_cut(text);
        let short = match truncation {
            Truncation::Allowed => self
                .budget
                .and_then(|budget| output_store::truncate_text(&text, budget, &omissions)),
            Truncation::Done => None,
        };
        let is_part = full_text.is_some() || spooled.is_some() || short.is_some();
        let mut shown = short.unwrap_or_else(|| text.clone());
        let mut whole_output = None;
        if is_part {
            let mut missing = String::new();
            let stored = if let Some(spooled) = spooled {
                self.results.store_written(call, &mut |out| {
                    missing = spooled.write(&self.secrets, out)?;
                    Ok(())
                })
            } else {
                let masked = |whole: Arc<str>| self.secrets.mask(whole.as_ref().to_owned());
                self.results.store(call, full_text.map_or(text, masked).into())
            };
            if !shown.ends_with('\n') {
                shown.push('\n');
            }
            let _ = match (
                stored.map(|digest| whole_output = digest.map(Box::new)),
                missing.as_str(),
            ) {
                (Ok(()), "") => {
                    write!(
                        shown,
                        "[The full result is stored: {} with call_id \"{call}\".]",
                        read_output::NAME
                    )
                }
                (Ok(()), missing) => write!(
                    shown,
                    "[Part of the result is stored: {} with call_id \"{call}\".{missing}]",
                    read_output::NAME
                ),
                (Err(error), _) => {
                    log::warn!("the whole result of a call is lost: {error}");
                    write!(shown, "[The whole could not be stored: {error}.]")
                }
            };
        }
        let (attached, has_failed) = AttachedImages::prepare(&images, self.images, stop);
        // The status shows the model that it received nothing.
        let is_failure = has_failed && attached.images.is_empty() && shown.is_empty();
        let status = if is_failure { ToolStatus::Failed } else { status };
        attached.add_lines_to(&mut shown);
        let shown = if images.is_empty() { shown } else { self.secrets.mask(shown) };
        let result = ToolResult::new(call.clone(), status, shown).with_images(attached.images);
        ToolResult { changes, reads: reads.into(), whole_output, ..result }
    }
}

/// Returns a rule that would allow a call.
fn example_rule(tool: &str, prepared: &dyn ToolInvocation) -> String {
    let first = prepared.targets().into_iter().next().filter(|target| !target.is_input());
    let target = first.map(|target| match target {
        CallTarget::Read(text)
        | CallTarget::Write(text)
        | CallTarget::Search(text)
        | CallTarget::Name(text) => text,
        CallTarget::Command(command) => command.text().trim().to_owned(),
    });
    target.map_or_else(|| tool.to_owned(), |target| format!("{tool}({target})"))
}

impl ToolSettings {
    /// Returns whether the agent may use a tool.
    fn allows(&self, tool: &str) -> bool {
        let matches = |pattern: &String| matches_wildcard(pattern, tool);
        self.allowed_tools.as_ref().is_none_or(|allowed| allowed.iter().any(matches))
    }
}
