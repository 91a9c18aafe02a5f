//! The registry: every call goes through it, whatever the tool.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use super::permission::{
    Answer, Confirm, Decision, Judge, Limits, Nobody, Question, Quota, Use, Used,
};
use super::read_output::{self, ReadOutput};
use super::results::{self, InMemory, Results};
use super::settings::{Effect, Settings};
use super::tool::{Context, Kind, Length, Output, Plan, Prepared, Target, Tool};
use crate::machine::Intent;
use crate::model::{Access, Arguments, CallId, Span, ToolCall, ToolResult, ToolStatus, wildcard};
use crate::net::Secrets;
use crate::port::{Job, Scope, ToolSpec, Toolbox, Vetted};

/// The tools that a model may call, with the rules for their use.
pub struct Registry {
    tools: Vec<Box<dyn Tool>>,
    specs: Arc<[ToolSpec]>,
    judge: Judge,
    confirm: Box<dyn Confirm>,
    results: Arc<dyn Results>,
    settings: Settings,
    common: Common,
    secrets: Secrets,
}

/// What the registries of one task have in common, when several agents work on it: how much of its limits is used, and
/// what was only described.
#[derive(Clone, Debug, Default)]
pub struct Common {
    quota: Arc<Quota>,
    planned: Arc<Mutex<Vec<Planned>>>,
}

/// A call that was described instead of made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The tool.
    pub tool: Arc<str>,
    /// The call in one line.
    pub summary: String,
}

/// A call that may run, as far as arguments and rules go.
pub struct Judged {
    prepared: Box<dyn Prepared>,
    /// What was decided; never a refusal.
    pub decision: Decision,
}

impl Registry {
    /// Returns a registry of these tools and `read_output`; their order is the one that the model sees. Nobody can be
    /// asked, and long results are kept in memory.
    pub fn new(tools: Vec<Box<dyn Tool>>, settings: Settings) -> Self {
        let judge = settings.judge();
        let registry = Self {
            tools,
            specs: [].into(),
            judge,
            confirm: Box::new(Nobody),
            results: Arc::new(InMemory::default()),
            common: Common::new(settings.guardrails.limits, Used::default()),
            settings,
            secrets: Secrets::default(),
        };
        registry.keeping(Arc::new(InMemory::default()))
    }

    /// Returns the registry with somebody who can be asked.
    pub fn asking(self, confirm: impl Confirm + 'static) -> Self {
        Self { confirm: Box::new(confirm), ..self }
    }

    /// Returns the registry with another place for long results, from which `read_output` reads.
    pub fn keeping(mut self, results: Arc<dyn Results>) -> Self {
        let budget = results::bytes(self.settings.max_result_tokens.0);
        self.tools.retain(|tool| &*tool.spec().name != read_output::NAME);
        self.tools.push(Box::new(ReadOutput::new(Arc::clone(&results), budget)));
        let specs = self.tools.iter().map(|tool| tool.spec());
        self.specs = specs.filter(|spec| self.settings.allows(&spec.name)).cloned().collect();
        Self { results, ..self }
    }

    /// Returns the registry of a run whose account is shared with others, or was begun before.
    pub fn sharing(self, common: Common) -> Self {
        Self { common, ..self }
    }

    /// Returns the registry with values that no result may contain.
    pub fn hiding(self, secrets: Secrets) -> Self {
        Self { secrets, ..self }
    }

    /// Returns the calls that were described instead of made, oldest first.
    pub fn planned(&self) -> Vec<Planned> {
        self.common.planned.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Judges a call by its arguments and the rules, without asking anybody and without doing anything.
    ///
    /// Whoever changes the arguments of a call, a hook say, has the changed call judged again.
    ///
    /// # Errors
    ///
    /// Fails with the answer to a call that cannot run.
    pub fn judge(&self, call: &ToolCall) -> Result<Judged, ToolResult> {
        let prepared = self.prepare(call)?;
        match self.judge.decide(&call.name, &*prepared) {
            Decision::Deny(why) => Err(denied(call, &why)),
            decision @ (Decision::Allow(_) | Decision::Ask(_)) => Ok(Judged { prepared, decision }),
        }
    }

    fn prepare(&self, call: &ToolCall) -> Result<Box<dyn Prepared>, ToolResult> {
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
            Arguments::Complete { text } => tool.prepare(text).map_err(malformed),
            Arguments::Malformed { error, .. } => {
                Err(malformed(format!("Invalid arguments for {}: {error}.", call.name)))
            }
            Arguments::Cut { .. } => {
                let text = "Not run: the call was cut off by the output limit.";
                Err(answer(ToolStatus::Cut, text.to_owned()))
            }
        }
    }

    fn clear(&self, call: &ToolCall, judged: Judged, scope: &Scope) -> Vetted {
        let Judged { mut prepared, decision } = judged;
        let plan = match prepared.plan() {
            Ok(plan) => plan,
            Err(output) => return Vetted::Refused(self.answer(&call.id, output)),
        };
        let is_harmless =
            matches!(prepared.kind(), Kind::Reads | Kind::Delegates) || decision.is_for_reading();
        let is_described = self.settings.effect == Effect::Described && !is_harmless;
        let decision = match self.decide_really(call, &*prepared, decision) {
            Ok(decision) => decision,
            Err(why) => return Vetted::Refused(denied(call, &why)),
        };
        let commands = u64::from(prepared.kind() == Kind::Command);
        let using = Use { changes: &plan.changes, commands };
        if let Some(why) = self.common.quota.exceeded(using).filter(|_| !is_described) {
            return Vetted::Refused(denied(call, &why));
        }
        let grounds = match decision {
            _ if is_described => "dry run".to_owned(),
            Decision::Allow(grounds) => format!("allowed: {grounds}"),
            Decision::Ask(why) | Decision::Deny(why) => {
                match self.ask(call, &*prepared, &why, scope) {
                    Ok(grounds) => grounds,
                    Err(vetted) => return vetted,
                }
            }
        };
        if is_described {
            return Vetted::Cleared {
                job: self.described(call, &*prepared),
                limit: Span::secs(10),
                intent: Intent::Pure,
                grounds: grounds.into(),
            };
        }
        if let Err(why) = self.common.quota.take(using) {
            return Vetted::Refused(denied(call, &why));
        }
        let Plan { intent, .. } = plan;
        let limit = prepared.limit();
        let job = Box::new(Cleared { call: call.id.clone(), prepared, finish: self.finish() });
        Vetted::Cleared { job, limit, intent, grounds: grounds.into() }
    }

    /// Decides again when a call touches something by another name than it says.
    fn decide_really(
        &self,
        call: &ToolCall,
        prepared: &dyn Prepared,
        decision: Decision,
    ) -> Result<Decision, String> {
        let targets = prepared.real_targets();
        if targets.is_empty() {
            return Ok(decision);
        }
        match (decision, self.judge.decide_about(&call.name, prepared.kind(), &targets)) {
            (_, Decision::Deny(why)) | (Decision::Deny(why), _) => Err(why),
            (Decision::Ask(why), _) | (_, Decision::Ask(why)) => Ok(Decision::Ask(why)),
            (allow @ Decision::Allow(_), Decision::Allow(_)) => Ok(allow),
        }
    }

    /// Asks the user; returns on what grounds the call may run.
    fn ask(
        &self,
        call: &ToolCall,
        prepared: &dyn Prepared,
        why: &str,
        scope: &Scope,
    ) -> Result<String, Vetted> {
        let denied = |text: String| {
            Err(Vetted::Refused(ToolResult::new(call.id.clone(), ToolStatus::Denied, text)))
        };
        let summary = prepared.summary();
        match self.confirm.ask(&Question { tool: &call.name, summary: &summary, why }, scope) {
            Answer::Yes => Ok("confirmed by the user".to_owned()),
            Answer::No => denied("Denied: the user said no. Don't try the same again.".to_owned()),
            Answer::Abort => Err(Vetted::Abort),
            Answer::Nobody => denied(format!(
                "Denied: {} needs a confirmation ({why}), and there is no terminal to ask on. The user can allow it \
                 with --mode yolo, or with a rule like --allow {}.",
                call.name,
                example(&call.name, prepared)
            )),
        }
    }

    fn described(&self, call: &ToolCall, prepared: &dyn Prepared) -> Box<dyn Job> {
        let planned = Planned { tool: Arc::clone(&call.name), summary: prepared.summary() };
        let text = format!(
            "Dry run: {} was not run; it would have been: {}. Go on as if it had succeeded.",
            call.name, planned.summary
        );
        Box::new(Described {
            planned,
            list: Arc::clone(&self.common.planned),
            result: ToolResult::new(call.id.clone(), ToolStatus::Ok, text),
        })
    }

    fn answer(&self, call: &CallId, output: Output) -> ToolResult {
        self.finish().result(call, output)
    }

    fn finish(&self) -> Finish {
        Finish {
            results: Arc::clone(&self.results),
            budget: results::bytes(self.settings.max_result_tokens.0),
            secrets: self.secrets.clone(),
        }
    }
}

impl Common {
    /// Returns the account of a task of which something is done already; that counts against its limits.
    pub fn new(limits: Limits, used: Used) -> Self {
        Self { quota: Arc::new(Quota::new(limits, used)), planned: Arc::default() }
    }
}

impl Toolbox for Registry {
    fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    fn access(&self, call: &ToolCall) -> Access {
        match self.judge(call) {
            Ok(Judged { prepared, decision: Decision::Allow(_) }) => prepared.access(),
            // Two questions at a time would confuse everybody.
            Ok(_) => Access::Exclusive,
            // It will not run at all.
            Err(_) => Access::Read([].into()),
        }
    }

    fn refusal(&self, call: &ToolCall) -> Option<ToolResult> {
        self.judge(call).err()
    }

    fn vet(&self, call: &ToolCall, scope: &Scope) -> Vetted {
        match self.judge(call) {
            Ok(judged) => self.clear(call, judged, scope),
            Err(result) => Vetted::Refused(result),
        }
    }
}

/// A call that was cleared.
struct Cleared {
    call: CallId,
    prepared: Box<dyn Prepared>,
    finish: Finish,
}

impl Job for Cleared {
    fn run(self: Box<Self>, scope: &Scope) -> ToolResult {
        let output = self.prepared.run(&Context { scope, call: &self.call });
        self.finish.result(&self.call, output)
    }
}

/// A call that is only described.
struct Described {
    planned: Planned,
    list: Arc<Mutex<Vec<Planned>>>,
    result: ToolResult,
}

impl Job for Described {
    fn run(self: Box<Self>, _: &Scope) -> ToolResult {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push(self.planned);
        self.result
    }
}

/// What is done with an output before anybody sees it.
struct Finish {
    results: Arc<dyn Results>,
    budget: Option<usize>,
    secrets: Secrets,
}

impl Finish {
    /// Makes the result of an output: secrets are masked, what is too long is shortened, and its whole is kept.
    fn result(&self, call: &CallId, output: Output) -> ToolResult {
        let Output { status, text, whole, changes, length } = output;
        let text = self.secrets.mask(text);
        let short = match length {
            Length::Any => self.budget.and_then(|budget| results::shorten(&text, budget)),
            Length::Fitted => None,
        };
        let is_part = whole.is_some() || short.is_some();
        let mut shown = short.unwrap_or_else(|| text.clone());
        if is_part {
            let whole = whole.map_or(text, |whole| self.secrets.mask(whole.as_ref().to_owned()));
            self.results.keep(call, whole.into());
            if !shown.ends_with('\n') {
                shown.push('\n');
            }
            let _ = write!(shown, "[The whole is stored: read_output with call_id \"{call}\".]");
        }
        ToolResult { changes, ..ToolResult::new(call.clone(), status, shown) }
    }
}

/// Returns the answer to a call that may not run.
fn denied(call: &ToolCall, why: &str) -> ToolResult {
    let text = format!("Denied: {why}.");
    ToolResult::new(call.id.clone(), ToolStatus::Denied, text)
}

/// Returns a rule that would allow a call, for a shell.
fn example(tool: &str, prepared: &dyn Prepared) -> String {
    let target = prepared.targets().into_iter().next().map(|target| match target {
        Target::Read(path) | Target::Write(path) | Target::Search(path) => path,
        Target::Command(command) => command.line.trim().to_owned(),
    });
    let rule = target.map_or_else(|| tool.to_owned(), |target| format!("{tool}({target})"));
    format!("'{}'", rule.replace('\'', r"'\''"))
}

impl Settings {
    /// Returns whether the agent may use a tool.
    fn allows(&self, tool: &str) -> bool {
        let matches = |pattern: &String| wildcard(pattern, tool);
        self.allowed_tools.as_ref().is_none_or(|allowed| allowed.iter().any(matches))
    }
}
