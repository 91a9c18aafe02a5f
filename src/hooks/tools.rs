//! Hooks around tool calls.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;

use super::list::{Hooks, Passage};
use super::occasion::Occasion;
use crate::model::{Access, Arguments, FileAction, Span, ToolCall, ToolResult, ToolStatus};
use crate::port::{HookOutcome, HookPoint, Job, Scope, ToolSpec, Toolbox, Vetted};

/// A toolbox with hooks around its calls.
///
/// A call that cannot run is refused before any hook is asked. What a hook made of the input is judged by the toolbox
/// as if the model had asked for it, so that no hook can loosen a rule.
pub struct HookedTools {
    tools: Arc<dyn Toolbox>,
    hooks: Arc<Hooks>,
}

impl HookedTools {
    /// Returns these tools with these hooks around their calls.
    pub fn new(tools: Arc<dyn Toolbox>, hooks: Arc<Hooks>) -> Self {
        Self { tools, hooks }
    }

    /// Returns how long the hooks behind a call may take.
    fn after(&self) -> Span {
        let Span(edit) = self.hooks.limit(HookPoint::PostEdit);
        let Span(used) = self.hooks.limit(HookPoint::PostToolUse);
        // A call may change several files, each with its hooks.
        Span(edit.saturating_mul(FILES).saturating_add(used))
    }

    fn vet_with_hooks(&self, call: &ToolCall, input: Value, scope: &Scope) -> Vetted {
        let occasion =
            Occasion::PreToolUse { call: call.id.clone(), tool: Arc::clone(&call.name), input };
        let passage = self.hooks.pass(occasion, scope);
        if let Some(blocked) = &passage.blocked {
            let text = format!("Denied by hook {}: {}", blocked.hook, blocked.reason);
            return Vetted::Refused(ToolResult::new(call.id.clone(), ToolStatus::Denied, text));
        }
        let remarks = remarks(&passage);
        let changed = match &passage.occasion {
            Occasion::PreToolUse { input, .. } if !passage.changed_by().is_empty() => {
                ToolCall::new(call.id.clone(), &call.name, &input.to_string())
            }
            _ => call.clone(),
        };
        self.around(&changed, self.tools.vet(&changed, scope), remarks)
    }

    /// Puts the hooks behind a call around its job.
    fn around(&self, call: &ToolCall, vetted: Vetted, remarks: Vec<String>) -> Vetted {
        match vetted {
            Vetted::Cleared { job, limit, intent, grounds } => Vetted::Cleared {
                job: Box::new(HookedJob {
                    job,
                    call: call.clone(),
                    remarks,
                    hooks: Arc::clone(&self.hooks),
                }),
                limit: Span(limit.0.saturating_add(self.after().0)),
                intent,
                grounds,
            },
            Vetted::Refused(result) => Vetted::Refused(with_remarks(result, &remarks)),
            Vetted::Abort => Vetted::Abort,
        }
    }
}

/// Files of one call whose hooks there is time for.
const FILES: u64 = 4;

impl Toolbox for HookedTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        self.tools.specs()
    }

    fn access(&self, call: &ToolCall) -> Access {
        // What a hook makes of a call may touch something else.
        match self.hooks.any_about(HookPoint::PreToolUse, &call.name) {
            true => Access::Exclusive,
            false => self.tools.access(call),
        }
    }

    fn refusal(&self, call: &ToolCall) -> Option<ToolResult> {
        self.tools.refusal(call)
    }

    fn vet(&self, call: &ToolCall, scope: &Scope) -> Vetted {
        let is_asked = self.hooks.any_about(HookPoint::PreToolUse, &call.name);
        let Some(input) = input(call).filter(|_| is_asked) else {
            return self.around(call, self.tools.vet(call, scope), Vec::new());
        };
        match self.tools.refusal(call) {
            Some(result) => Vetted::Refused(result),
            None => self.vet_with_hooks(call, input, scope),
        }
    }

    fn vets_visibly(&self) -> bool {
        self.hooks.any_at(HookPoint::PreToolUse) || self.tools.vets_visibly()
    }
}

/// A cleared call with the hooks behind it.
struct HookedJob {
    job: Box<dyn Job>,
    call: ToolCall,
    /// What the hooks before it have to tell the model.
    remarks: Vec<String>,
    hooks: Arc<Hooks>,
}

impl Job for HookedJob {
    fn run(self: Box<Self>, scope: &Scope) -> ToolResult {
        let Self { job, call, remarks, hooks } = *self;
        let mut result = job.run(scope);
        if scope.cancel.is_cancelled() {
            return result;
        }
        if result.is_ok() {
            result = after_edit(result, &call, &hooks, scope);
        }
        result = after_use(result, &call, &hooks, scope);
        with_remarks(result, &remarks)
    }
}

/// Asks the hooks of each file that a call has changed.
fn after_edit(result: ToolResult, call: &ToolCall, hooks: &Hooks, scope: &Scope) -> ToolResult {
    let there = result.changes.iter().filter(|change| change.action != FileAction::Deleted);
    let files: Vec<Arc<str>> = there.map(|change| Arc::clone(&change.path)).collect();
    let (mut text, mut status) = (result.text.to_string(), result.status);
    for file in &files {
        let (id, tool) = (call.id.clone(), Arc::clone(&call.name));
        let occasion = Occasion::PostEdit { call: id, tool, file: Arc::clone(file) };
        let passage = hooks.pass(occasion, scope);
        for heard in &passage.heard {
            let mark = if heard.outcome == HookOutcome::Passed { "✓" } else { "✗" };
            let about = if files.len() > 1 { format!(" ({file})") } else { String::new() };
            end_line(&mut text);
            let _ = write!(text, "Hook {}{about}: {mark}", heard.hook);
            if let Some(said) = &heard.said {
                let _ = write!(text, "\n{said}");
            }
        }
        if passage.blocked.is_some() {
            status = ToolStatus::Failed;
        }
    }
    renewed(result, status, text)
}

fn after_use(result: ToolResult, call: &ToolCall, hooks: &Hooks, scope: &Scope) -> ToolResult {
    if !hooks.any_about(HookPoint::PostToolUse, &call.name) {
        return result;
    }
    let passage = hooks.pass(
        Occasion::PostToolUse {
            call: call.id.clone(),
            tool: Arc::clone(&call.name),
            input: input(call).unwrap_or_default(),
            status: result.status,
            output: Arc::clone(&result.text),
        },
        scope,
    );
    let mut text = match &passage.occasion {
        Occasion::PostToolUse { output, .. } => output.to_string(),
        _ => result.text.to_string(),
    };
    let mut status = result.status;
    if let Some(blocked) = &passage.blocked {
        end_line(&mut text);
        let _ = write!(text, "Refused by hook {}: {}", blocked.hook, blocked.reason);
        status = ToolStatus::Failed;
    }
    let result = renewed(result, status, text);
    with_remarks(result, &passage.context())
}

/// Returns the arguments of a call, if they can be used.
fn input(call: &ToolCall) -> Option<Value> {
    match &call.arguments {
        Arguments::Complete { text } => serde_json::from_str(text).ok(),
        Arguments::Malformed { .. } | Arguments::Cut { .. } => None,
    }
}

/// Returns what hooks before a call have to tell the model: that the input is another one, and what they added.
fn remarks(passage: &Passage) -> Vec<String> {
    let mut remarks = Vec::new();
    let changed_by = passage.changed_by();
    if let (false, Occasion::PreToolUse { input, .. }) = (changed_by.is_empty(), &passage.occasion)
    {
        let input = input.to_string();
        let shown: String = input.chars().take(SHOWN).collect();
        let more = if shown.len() < input.len() { "…" } else { "" };
        remarks
            .push(format!("[HOOK {}] changed the input to {shown}{more}", changed_by.join(", ")));
    }
    remarks.extend(passage.context());
    remarks
}

/// Characters of a changed input that the model is shown.
const SHOWN: usize = 1_000;

fn with_remarks(result: ToolResult, remarks: &[String]) -> ToolResult {
    if remarks.is_empty() {
        return result;
    }
    let mut text = result.text.to_string();
    for remark in remarks {
        end_line(&mut text);
        text.push_str(remark);
    }
    let status = result.status;
    renewed(result, status, text)
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// Returns a result that says something else; what it took and changed stays.
fn renewed(result: ToolResult, status: ToolStatus, text: String) -> ToolResult {
    let ToolResult { call, took, changes, .. } = result;
    ToolResult { took, changes, ..ToolResult::new(call, status, text) }
}
