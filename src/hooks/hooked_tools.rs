//! Hooks around tool calls.

use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::hook_input::HookInput;
use super::hook_list::{HookChainResult, Hooks};
use crate::port::{
    AuthorizationOutcome, EffectContext, HookOutcome, HookPoint, PreparedCall,
    SHOWN_ARGUMENT_CHARS, ToolSpec, Toolbox, lock,
};
use crate::types::{
    CallAccess, FileAction, FilePath, TimeSpan, ToolArguments, ToolCall, ToolResult, ToolStatus,
    shorten,
};

/// A toolbox with hooks around its calls.
///
/// A call that cannot run is rejected before any hook runs. If a hook changes a call, the call is prepared and
/// authorized as if the model had made it, so a hook can't loosen a rule.
#[derive(Clone)]
pub struct HookedTools {
    tools: Arc<dyn Toolbox>,
    hooks: Arc<Hooks>,
    offered: OfferedTools,
}

impl HookedTools {
    /// Returns a toolbox with hooks around its calls. Calls of tools that a hook has removed from the request are denied.
    pub(super) fn new(tools: Arc<dyn Toolbox>, hooks: Arc<Hooks>, offered: OfferedTools) -> Self {
        Self { tools, hooks, offered }
    }
}

/// The tools of a run, and those that the hooks before the last model call have left.
#[derive(Clone)]
pub(super) struct OfferedTools {
    all: Arc<[ToolSpec]>,
    left: Arc<Mutex<Option<Arc<[ToolSpec]>>>>,
}

impl OfferedTools {
    /// Returns all tools, of which hooks have removed none.
    pub(super) fn new(all: Arc<[ToolSpec]>) -> Self {
        Self { all, left: Arc::default() }
    }

    /// Returns all tools of the run.
    pub(super) fn all(&self) -> &[ToolSpec] {
        &self.all
    }

    /// Removes the tools without these names from the next call.
    pub(super) fn limit_to(&self, names: &[Arc<str>]) {
        let left = || self.all.iter().filter(|tool| names.contains(&tool.name)).cloned();
        *lock(&self.left) = (names.len() != self.all.len()).then(|| left().collect());
    }

    /// Returns the remaining tools; `None` if hooks have removed none.
    pub(super) fn left(&self) -> Option<Arc<[ToolSpec]>> {
        lock(&self.left).clone()
    }

    /// Returns whether hooks have removed a tool.
    fn lacks(&self, tool: &str) -> bool {
        let has_tool = |tools: &[ToolSpec]| tools.iter().any(|spec| *spec.name == *tool);
        self.left().is_some_and(|left| !has_tool(&left) && has_tool(&self.all))
    }
}

impl Toolbox for HookedTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        self.tools.specs()
    }

    fn prepare(&self, call: &ToolCall) -> Box<dyn PreparedCall> {
        let has_hooks = self.hooks.has_hooks_for_tool(HookPoint::PreToolUse, &call.name);
        Box::new(HookedCall {
            input: call_input(call).filter(|_| has_hooks),
            prepared: self.tools.prepare(call),
            call: call.clone(),
            has_hooks,
            tools: self.clone(),
        })
    }

    fn is_authorization_visible(&self) -> bool {
        self.hooks.has_hooks_at(HookPoint::PreToolUse) || self.tools.is_authorization_visible()
    }
}

/// The number of changed files per call that are allowed for in the call's timeout.
const TIMED_FILES: u64 = 4;

/// A prepared call with the hooks that run before it.
struct HookedCall {
    prepared: Box<dyn PreparedCall>,
    call: ToolCall,
    /// The arguments; `None` if no hooks run before the call.
    input: Option<Value>,
    has_hooks: bool,
    tools: HookedTools,
}

impl PreparedCall for HookedCall {
    fn access(&mut self) -> CallAccess {
        // A hook may change the files that the call accesses.
        if self.has_hooks { CallAccess::Exclusive } else { self.prepared.access() }
    }

    fn rejection(&mut self) -> Option<ToolResult> {
        if self.tools.offered.lacks(&self.call.name) {
            let (id, name) = (self.call.id.clone(), &self.call.name);
            let text = format!("Denied by a hook: it has removed the tool {name} from the request");
            return Some(ToolResult::new(id, ToolStatus::Denied, text));
        }
        self.prepared.rejection()
    }

    fn authorize(mut self: Box<Self>, scope: &EffectContext) -> AuthorizationOutcome {
        if let Some(result) = self.rejection() {
            return AuthorizationOutcome::Rejected(result);
        }
        let Some(input) = self.input.take() else {
            let hooks = self.tools.hooks;
            let after = HooksAfterCall { call: self.call, remarks: Vec::new(), hooks };
            return after.wrap(self.prepared.authorize(scope));
        };
        let Self { prepared, call, tools: HookedTools { tools, hooks, .. }, .. } = *self;
        let (id, tool) = (call.id.clone(), Arc::clone(&call.name));
        let chain = hooks.run(HookInput::PreToolUse { call: id, tool, input }, scope);
        if let Some(blocked) = &chain.blocked {
            let text = format!("Denied by hook {}: {}", blocked.hook, blocked.reason);
            let result = ToolResult::new(call.id, ToolStatus::Denied, text);
            return AuthorizationOutcome::Rejected(result);
        }
        let remarks = collect_remarks(&chain);
        let (call, prepared) = match &chain.input {
            HookInput::PreToolUse { input, .. } if !chain.changed_by.is_empty() => {
                let changed = ToolCall::new(call.id, &call.name, &input.to_string());
                let prepared = tools.prepare(&changed);
                (changed, prepared)
            }
            _ => (call, prepared),
        };
        HooksAfterCall { call, remarks, hooks }.wrap(prepared.authorize(scope))
    }
}

/// The hooks that run after a call.
struct HooksAfterCall {
    call: ToolCall,
    /// Texts for the model from the hooks before the call.
    remarks: Vec<String>,
    hooks: Arc<Hooks>,
}

impl HooksAfterCall {
    /// Returns an outcome of the authorization, with hooks around the approved call.
    fn wrap(self, outcome: AuthorizationOutcome) -> AuthorizationOutcome {
        match outcome {
            AuthorizationOutcome::Approved { call: inner, timeout, intent, reason } => {
                let TimeSpan(edit) = self.hooks.timeout(HookPoint::PostEdit);
                let TimeSpan(used) = self.hooks.timeout(HookPoint::PostToolUse);
                // A call may change several files, each with its hooks.
                let after = edit.saturating_mul(TIMED_FILES).saturating_add(used);
                let timeout = TimeSpan(timeout.0.saturating_add(after));
                let call = Box::new(move |scope: &EffectContext| self.run(inner(scope), scope));
                AuthorizationOutcome::Approved { call, timeout, intent, reason }
            }
            AuthorizationOutcome::Rejected(result) => {
                AuthorizationOutcome::Rejected(with_remarks(result, &self.remarks))
            }
            outcome @ (AuthorizationOutcome::Edited { .. } | AuthorizationOutcome::Abort) => {
                outcome
            }
        }
    }

    /// Runs the hooks after a call that had this result.
    fn run(&self, mut result: ToolResult, scope: &EffectContext) -> ToolResult {
        if scope.cancel.is_cancelled() {
            return result;
        }
        if result.is_ok() {
            result = self.run_for_edits(result, scope);
        }
        result = self.run_for_use(result, scope);
        with_remarks(result, &self.remarks)
    }

    /// Runs the hooks for each file that the call has changed.
    fn run_for_edits(&self, result: ToolResult, scope: &EffectContext) -> ToolResult {
        let Self { call, hooks, .. } = self;
        let there = result.changes.iter().filter(|change| change.action != FileAction::Deleted);
        let files: Vec<FilePath> = there.map(|change| change.path.clone()).collect();
        let (mut remarks, mut status) = (Vec::new(), result.status);
        for file in &files {
            let (id, tool) = (call.id.clone(), Arc::clone(&call.name));
            let input = HookInput::PostEdit { call: id, tool, file: file.clone() };
            let chain = hooks.run(input, scope);
            for run in &chain.runs {
                let mark = if run.outcome == HookOutcome::Passed { "✓" } else { "✗" };
                let about = if files.len() > 1 { format!(" ({file})") } else { String::new() };
                remarks.push(format!("Hook {}{about}: {mark}", run.name));
                remarks.extend(run.message.as_deref().map(str::to_owned));
            }
            if chain.blocked.is_some() {
                status = ToolStatus::Failed;
            }
        }
        with_remarks(ToolResult { status, ..result }, &remarks)
    }

    /// Runs the hooks for a tool's use.
    fn run_for_use(&self, mut result: ToolResult, scope: &EffectContext) -> ToolResult {
        let Self { call, hooks, .. } = self;
        if !hooks.has_hooks_for_tool(HookPoint::PostToolUse, &call.name) {
            return result;
        }
        let input = HookInput::PostToolUse {
            call: call.id.clone(),
            tool: Arc::clone(&call.name),
            input: call_input(call).unwrap_or_default(),
            status: result.status,
            output: Arc::clone(&result.text),
        };
        let chain = hooks.run(input, scope);
        let mut remarks = chain.context();
        if let Some(blocked) = &chain.blocked {
            result.status = ToolStatus::Failed;
            remarks.insert(0, format!("Refused by hook {}: {}", blocked.hook, blocked.reason));
        }
        if let HookInput::PostToolUse { output, .. } = chain.input {
            result.text = output;
        }
        with_remarks(result, &remarks)
    }
}

/// Returns the arguments of a call; `None` if they are invalid.
fn call_input(call: &ToolCall) -> Option<Value> {
    match &call.arguments {
        ToolArguments::Complete { text } => serde_json::from_str(text).ok(),
        ToolArguments::Malformed { .. } | ToolArguments::Truncated { .. } => None,
    }
}

/// Returns the texts for the model from hooks before a call: a note if the input has changed, and the texts that they
/// added.
fn collect_remarks(chain: &HookChainResult) -> Vec<String> {
    let mut remarks = Vec::new();
    if let (false, HookInput::PreToolUse { input, .. }) =
        (chain.changed_by.is_empty(), &chain.input)
    {
        let shown = shorten(&input.to_string(), SHOWN_ARGUMENT_CHARS);
        let by = chain.changed_by.join(", ");
        remarks.push(format!("[HOOK {by}] changed the input to {shown}"));
    }
    remarks.extend(chain.context());
    remarks
}

/// Returns a result with additional lines of text, and with the digest of its new status and text.
fn with_remarks(result: ToolResult, remarks: &[String]) -> ToolResult {
    let mut text = result.text.to_string();
    for remark in remarks {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(remark);
    }
    result.with_text(text)
}
