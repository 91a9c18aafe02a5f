//! The hooks of a run, in order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use thiserror::Error;

use super::error::HookError;
use super::hook::{Hook, HookMatcher};
use super::hook_input::HookInput;
use super::hook_output::{HookChanges, HookOutput};
use crate::port::{EffectContext, EffectNotice, HookOutcome, HookPoint, HookRun, panic_message};
use crate::types::{HookFailurePolicy, TimeSpan, strip_terminal_codes};

/// The hooks of a run, in the order in which they are called. Fixed for the run.
#[derive(Clone, Default)]
pub struct Hooks {
    entries: Vec<RegisteredHook>,
    mask: Option<SecretMask>,
}

type RegisteredHook = (HookMatcher, Arc<dyn Hook>);
type SecretMask = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The result of running the hooks for an input.
#[derive(Clone, Debug, PartialEq)]
pub struct HookChainResult {
    /// The input, with all changes.
    pub input: HookInput,
    /// The hooks that ran, in order.
    pub runs: Vec<HookRun>,
    /// The names of the hooks that changed the input.
    pub changed_by: Vec<Arc<str>>,
    /// The hook that blocked; `None` if no hook did. Later hooks were not called.
    pub blocked: Option<HookBlock>,
}

/// A hook that blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookBlock {
    /// The name of the hook.
    pub hook: Arc<str>,
    /// The reason that the hook gave.
    pub reason: String,
}

/// The error for a process that was started by a hook of a process that was itself started by a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a hook started architect, and a hook of that run started it again; it was not started, since this could never end"
)]
pub struct HooksTooDeep;

/// The maximum nesting of hooks.
const MAX_DEPTH: u32 = 2;

/// The maximum length of a text from a hook, in bytes.
const MAX_TEXT_BYTES: usize = 16 << 10;

impl Hooks {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks how deep this process is nested in hooks.
    ///
    /// # Errors
    ///
    /// Fails when it is nested too deeply.
    pub fn check_depth(depth: u32) -> Result<(), HooksTooDeep> {
        if depth > MAX_DEPTH { Err(HooksTooDeep) } else { Ok(()) }
    }

    /// Appends a hook.
    pub fn with(mut self, matcher: HookMatcher, hook: impl Hook + 'static) -> Self {
        self.entries.push((matcher, Arc::new(hook)));
        self
    }

    /// Sets a function that masks secrets in texts of hooks.
    pub fn with_mask(self, mask: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self { mask: Some(Arc::new(mask)), ..self }
    }

    /// Returns whether there is a hook for a point.
    pub fn has_hooks_at(&self, point: HookPoint) -> bool {
        self.at(point).next().is_some()
    }

    /// Returns whether there is a hook for a point and a tool.
    pub(super) fn has_hooks_for_tool(&self, point: HookPoint, tool: &str) -> bool {
        self.at(point).any(|(matcher, _)| matcher.matches_tool(tool))
    }

    /// Returns the total time limit of all hooks at a point.
    pub fn timeout(&self, point: HookPoint) -> TimeSpan {
        let limits = self.at(point).map(|(_, hook)| hook.timeout());
        limits.fold(Duration::ZERO, Duration::saturating_add).into()
    }

    fn at(&self, point: HookPoint) -> impl Iterator<Item = &RegisteredHook> {
        self.entries.iter().filter(move |(matcher, _)| matcher.point == point)
    }

    /// Calls the hooks for an input, each with the changes of the previous ones.
    pub fn run(&self, input: HookInput, scope: &EffectContext) -> HookChainResult {
        let (runs, changed_by) = (Vec::new(), Vec::new());
        let mut chain = HookChainResult { input, runs, changed_by, blocked: None };
        for entry in &self.entries {
            if scope.cancel.is_cancelled() || chain.blocked.is_some() {
                break;
            }
            if entry.0.matches(&chain.input) {
                self.run_hook(entry, &mut chain, scope);
            }
        }
        chain
    }

    fn run_hook(&self, entry: &RegisteredHook, chain: &mut HookChainResult, scope: &EffectContext) {
        let (matcher, hook) = entry;
        let begun = Instant::now();
        let answer = catch_unwind(AssertUnwindSafe(|| hook.run(&chain.input, scope)));
        let answer =
            answer.unwrap_or_else(|panic| Err(HookError::Panic(panic_message(&*panic).to_owned())));
        let hook = Arc::clone(&matcher.name);
        let (outcome, message) = match answer {
            Ok(HookOutput::Continue(mut changes)) => {
                let context = changes.context.take().map(|text| self.clean_text(&text));
                if apply_changes(&mut chain.input, changes) {
                    chain.changed_by.push(Arc::clone(&hook));
                }
                (HookOutcome::Passed, context.filter(|text| !text.is_empty()))
            }
            Ok(HookOutput::Block { reason }) => {
                let mut reason = self.clean_text(&reason);
                if reason.is_empty() {
                    reason.push_str("no reason was given");
                }
                chain.blocked = Some(HookBlock { hook, reason: reason.clone() });
                (HookOutcome::Blocked, Some(reason))
            }
            // The call was cancelled, so there is nothing to report.
            Err(_) if scope.cancel.is_cancelled() => return,
            Err(error) => {
                let why = self.clean_text(&error.to_string());
                if matcher.on_failure == HookFailurePolicy::Block {
                    let reason = format!("the hook failed, and has to agree: {why}");
                    chain.blocked = Some(HookBlock { hook, reason });
                }
                let is_late = matches!(error, HookError::TimedOut(_));
                (if is_late { HookOutcome::TimedOut } else { HookOutcome::Failed }, Some(why))
            }
        };
        let run = HookRun {
            name: Arc::clone(&matcher.name),
            point: matcher.point,
            outcome,
            duration: begun.elapsed().into(),
            call: chain.input.tool_call().map(|(call, _)| call.clone()),
            message: message.map(Into::into),
        };
        scope.notify(EffectNotice::Hook(run.clone()));
        chain.runs.push(run);
    }

    /// Returns a text of a hook without control codes and secrets, truncated if it is too long.
    fn clean_text(&self, text: &str) -> String {
        let text = strip_terminal_codes(text);
        let text = self.mask.as_ref().map_or_else(|| text.clone(), |mask| mask(&text));
        let text = text.trim();
        match text.char_indices().find(|(index, c)| index + c.len_utf8() > MAX_TEXT_BYTES) {
            Some((end, _)) => format!("{}\n[... cut off ...]", &text[..end]),
            None => text.to_owned(),
        }
    }
}

impl HookChainResult {
    /// Returns the texts for the model from hooks that let the run continue, with the names of the hooks.
    pub fn context(&self) -> Vec<String> {
        let passed = self.runs.iter().filter(|run| run.outcome == HookOutcome::Passed);
        let text = |run: &HookRun| Some(format!("[HOOK {}] {}", run.name, run.message.as_ref()?));
        passed.filter_map(text).collect()
    }
}

/// Applies the changes that have a meaning at this point, and returns whether the input changed.
fn apply_changes(input: &mut HookInput, changes: HookChanges) -> bool {
    let before = input.clone();
    match input {
        HookInput::PreLlmCall { system, tools } => {
            if let Some(text) = changes.system {
                *system = text.into();
            }
            if let Some(kept) = changes.tools {
                tools.retain(|tool| kept.iter().any(|kept| **kept == **tool));
            }
        }
        HookInput::PreToolUse { input, .. } => {
            if let Some(new) = changes.input {
                *input = Value::Object(new);
            }
        }
        HookInput::PostToolUse { output, .. } => {
            if let Some(text) = changes.output {
                *output = strip_terminal_codes(&text).into();
            }
        }
        _ => {}
    }
    *input != before
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|(matcher, _)| matcher)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;
    use crate::port::{CancellationToken, EffectMessage, Sleep};

    struct NoSleep;

    impl Sleep for NoSleep {
        fn sleep(&self, _: TimeSpan, _: &CancellationToken) -> bool {
            false
        }
    }

    fn scope() -> EffectContext {
        EffectContext::new(CancellationToken::new(), Arc::new(NoSleep))
    }

    fn call(input: Value) -> HookInput {
        HookInput::PreToolUse { call: "c".into(), tool: "grep".into(), input }
    }

    fn place(name: &str) -> HookMatcher {
        HookMatcher::for_point(HookPoint::PreToolUse, name)
    }

    /// Appends a suffix to the argument `a`.
    fn adds(suffix: &'static str) -> impl Hook {
        move |occasion: &HookInput, _: &EffectContext| {
            let HookInput::PreToolUse { input, .. } = occasion else { panic!() };
            let text = format!("{}{suffix}", input["a"].as_str().unwrap());
            let input = json!({ "a": text }).as_object().cloned();
            Ok(HookOutput::Continue(HookChanges { input, ..HookChanges::default() }))
        }
    }

    #[allow(clippy::unnecessary_wraps)] // the signature of a hook
    fn says_no(_: &HookInput, _: &EffectContext) -> Result<HookOutput, HookError> {
        Ok(HookOutput::Block { reason: "\u{1b}[31mno canary\u{1b}[0m".to_owned() })
    }

    fn fails(_: &HookInput, _: &EffectContext) -> Result<HookOutput, HookError> {
        Err(HookError::Output("garbage".to_owned()))
    }

    fn breaks_down(_: &HookInput, _: &EffectContext) -> Result<HookOutput, HookError> {
        panic!("broken")
    }

    #[test]
    fn each_hook_sees_what_the_one_before_it_changed() {
        let hooks = Hooks::new().with(place("x"), adds("x")).with(place("y"), adds("y"));
        let passage = hooks.run(call(json!({ "a": "" })), &scope());
        assert_eq!(passage.input, call(json!({ "a": "xy" })));
        assert_eq!(passage.changed_by.join(" "), "x y");
    }

    #[test]
    fn hooks_after_a_block_do_not_run() {
        let hooks = Hooks::new().with(place("guard"), says_no).with(place("late"), adds("x"));
        let passage = hooks.run(call(json!({ "a": "" })), &scope());
        assert_eq!(passage.blocked.unwrap().reason, "no canary");
        assert_eq!(passage.runs.len(), 1);
    }

    /// Faults H1, H4: a failed hook is a warning, or blocks if its policy demands it.
    #[test]
    fn a_failure_warns_or_blocks() {
        let failing = |on_failure| HookMatcher { on_failure, ..place("f") };
        let hooks = Hooks::new()
            .with(failing(HookFailurePolicy::Ignore), fails)
            .with(place("y"), adds("y"));
        let passage = hooks.run(call(json!({ "a": "" })), &scope());
        assert_eq!((passage.blocked, passage.runs.len()), (None, 2));
        let hooks = Hooks::new().with(failing(HookFailurePolicy::Block), fails);
        let blocked = hooks.run(call(json!({})), &scope()).blocked.unwrap();
        assert_eq!(blocked.reason, "the hook failed, and has to agree: garbage");
    }

    #[test]
    fn a_hook_that_panics_fails() {
        let hooks = Hooks::new().with(place("b"), breaks_down).with(place("y"), adds("y"));
        let passage = hooks.run(call(json!({ "a": "" })), &scope());
        assert_eq!(passage.runs[0].message.as_deref(), Some("it failed unexpectedly: broken"));
        assert_eq!(passage.input, call(json!({ "a": "y" })));
    }

    /// Fault H5.
    #[test]
    fn texts_of_hooks_are_plain_short_and_without_secrets() {
        let hooks = Hooks::new()
            .with(place("guard"), says_no)
            .with_mask(|text| text.replace("canary", "***"));
        let blocked = hooks.run(call(json!({})), &scope()).blocked.unwrap();
        assert_eq!(blocked.reason, "no ***");
        let long =
            |_: &HookInput, _: &EffectContext| Ok(HookOutput::context("ä".repeat(MAX_TEXT_BYTES)));
        let passage = Hooks::new().with(place("long"), long).run(call(json!({})), &scope());
        let text = passage.runs[0].message.as_ref().unwrap();
        assert!(text.len() < MAX_TEXT_BYTES + 30 && text.ends_with("[... cut off ...]"));
    }

    #[test]
    fn every_hook_that_ran_is_reported() {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&reported);
        let scope = scope().with_messages(move |message| {
            if let EffectMessage::Notice(EffectNotice::Hook(run)) = message {
                listener.lock().unwrap().push((run.name.to_string(), run.outcome, run.call));
            }
        });
        let hooks = Hooks::new().with(place("f"), fails).with(place("guard"), says_no);
        hooks.run(call(json!({})), &scope);
        let call = Some("c".into());
        let expected = [
            ("f".to_owned(), HookOutcome::Failed, call.clone()),
            ("guard".to_owned(), HookOutcome::Blocked, call),
        ];
        assert_eq!(*reported.lock().unwrap(), expected);
    }

    #[test]
    fn after_a_cancel_no_hook_runs() {
        let scope = scope();
        scope.cancel.cancel();
        let passage = Hooks::new().with(place("guard"), says_no).run(call(json!({})), &scope);
        assert_eq!((passage.runs.len(), passage.blocked), (0, None));
    }

    /// Fault H8.
    #[test]
    fn a_third_level_of_hooks_is_refused() {
        assert_eq!(Hooks::check_depth(2), Ok(()));
        assert_eq!(Hooks::check_depth(3), Err(HooksTooDeep));
    }
}
