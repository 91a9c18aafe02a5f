//! The hooks of a run, in order.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use thiserror::Error;

use super::answer::{Answer, Changes};
use super::hook::{Hook, HookError, OnFailure, Place};
use super::occasion::Occasion;
use crate::model::{Span, plain};
use crate::port::{HookOutcome, HookPoint, HookRun, Notice, Scope};

/// The hooks of a run, in the order in which they are asked. They don't change while it lasts.
#[derive(Clone, Default)]
pub struct Hooks {
    entries: Vec<Entry>,
    mask: Option<Mask>,
}

#[derive(Clone)]
struct Entry {
    place: Place,
    hook: Arc<dyn Hook>,
}

type Mask = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// What came of showing an occasion to its hooks.
#[derive(Clone, Debug, PartialEq)]
pub struct Passage {
    /// The occasion, with all changes.
    pub occasion: Occasion,
    /// What was heard of each hook that was asked, in order.
    pub heard: Vec<Heard>,
    /// The hook that said no. Those behind it were not asked.
    pub blocked: Option<Blocked>,
}

/// What was heard of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Its name.
    pub hook: Arc<str>,
    /// How it ended.
    pub outcome: HookOutcome,
    /// Whether it changed the occasion.
    pub changed: bool,
    /// What it said: for the model when it agreed, and otherwise why it did not.
    pub said: Option<String>,
}

/// A hook that said no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Its name.
    pub hook: Arc<str>,
    /// Why.
    pub reason: String,
}

/// This process was started by a hook of a process that was started by a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a hook has started architect, whose hook has started architect again; going on could never end"
)]
pub struct TooDeep;

/// The most hooks that may be around a process.
const DEEPEST: u32 = 2;

/// The longest text that is taken from a hook, in bytes.
const LONGEST: usize = 16 << 10;

impl Hooks {
    /// Returns no hooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks how many hooks are around this process.
    ///
    /// # Errors
    ///
    /// Fails when there are too many for a run to make sense.
    pub fn check_depth(depth: u32) -> Result<(), TooDeep> {
        if depth > DEEPEST { Err(TooDeep) } else { Ok(()) }
    }

    /// Returns these hooks, and behind them another one.
    pub fn with(mut self, place: Place, hook: impl Hook + 'static) -> Self {
        self.entries.push(Entry { place, hook: Arc::new(hook) });
        self
    }

    /// Returns these hooks with something that hides secrets in what they say.
    pub fn masking(self, mask: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self { mask: Some(Arc::new(mask)), ..self }
    }

    /// Returns whether there is a hook at a point.
    pub fn any_at(&self, point: HookPoint) -> bool {
        self.entries.iter().any(|entry| entry.place.point == point)
    }

    /// Returns whether there is a hook at a point that is asked about a tool.
    pub(super) fn any_about(&self, point: HookPoint, tool: &str) -> bool {
        self.at(point).any(|entry| entry.place.is_about_tool(tool))
    }

    /// Returns how long the hooks of a point may take together.
    pub fn limit(&self, point: HookPoint) -> Span {
        let limits = self.at(point).map(|entry| entry.hook.limit());
        limits.fold(Duration::ZERO, Duration::saturating_add).into()
    }

    fn at(&self, point: HookPoint) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.place.point == point)
    }

    /// Shows an occasion to its hooks, one after the other, each with what the one before it changed.
    pub fn pass(&self, occasion: Occasion, scope: &Scope) -> Passage {
        let mut passage = Passage { occasion, heard: Vec::new(), blocked: None };
        for entry in &self.entries {
            if scope.cancel.is_cancelled() || passage.blocked.is_some() {
                break;
            }
            if entry.place.is_about(&passage.occasion) {
                self.ask(entry, &mut passage, scope);
            }
        }
        passage
    }

    fn ask(&self, entry: &Entry, passage: &mut Passage, scope: &Scope) {
        let Entry { place, hook } = entry;
        let begun = Instant::now();
        let asked = catch_unwind(AssertUnwindSafe(|| hook.ask(&passage.occasion, scope)));
        let answer = asked.unwrap_or_else(|panic| Err(HookError::Panic(said(&*panic))));
        let (outcome, changed, said) = match answer {
            Ok(Answer::GoOn(mut changes)) => {
                let context = changes.context.take().map(|text| self.clean(&text));
                let context = context.filter(|text| !text.is_empty());
                (HookOutcome::Passed, apply(&mut passage.occasion, changes), context)
            }
            Ok(Answer::Block { reason }) => {
                let reason = match self.clean(&reason) {
                    empty if empty.is_empty() => "no reason was given".to_owned(),
                    reason => reason,
                };
                passage.block(place, reason.clone());
                (HookOutcome::Blocked, false, Some(reason))
            }
            // Nobody waits for it any more, so nothing has to be said.
            Err(_) if scope.cancel.is_cancelled() => return,
            Err(error) => {
                let why = self.clean(&error.to_string());
                if place.on_failure == OnFailure::Block {
                    passage.block(place, format!("the hook failed, and has to agree: {why}"));
                }
                (error.outcome(), false, Some(why))
            }
        };
        scope.tell(Notice::Hook(HookRun {
            name: Arc::clone(&place.name),
            point: place.point,
            outcome,
            took: begun.elapsed().into(),
            call: passage.occasion.call().cloned(),
            said: said.as_deref().map(Into::into),
        }));
        passage.heard.push(Heard { hook: Arc::clone(&place.name), outcome, changed, said });
    }

    /// Returns what a hook says as plain text, short enough and without secrets.
    fn clean(&self, text: &str) -> String {
        let text = plain(text);
        let text = match &self.mask {
            Some(mask) => mask(&text),
            None => text,
        };
        let text = text.trim();
        match text.char_indices().find(|(index, c)| index + c.len_utf8() > LONGEST) {
            Some((end, _)) => format!("{}\n[... cut off ...]", &text[..end]),
            None => text.to_owned(),
        }
    }
}

impl Passage {
    fn block(&mut self, place: &Place, reason: String) {
        self.blocked = Some(Blocked { hook: Arc::clone(&place.name), reason });
    }

    /// Returns what the hooks that agreed tell the model, each under its name.
    pub fn context(&self) -> Vec<String> {
        let agreed = self.heard.iter().filter(|heard| heard.outcome == HookOutcome::Passed);
        agreed
            .filter_map(|heard| Some(format!("[HOOK {}] {}", heard.hook, heard.said.as_ref()?)))
            .collect()
    }

    /// Returns the names of the hooks that changed something.
    pub fn changed_by(&self) -> Vec<&str> {
        let changed = self.heard.iter().filter(|heard| heard.changed);
        changed.map(|heard| &*heard.hook).collect()
    }
}

/// Applies what has a meaning at this point; returns whether the occasion is another one now.
fn apply(occasion: &mut Occasion, changes: Changes) -> bool {
    let before = occasion.clone();
    match occasion {
        Occasion::PreLlmCall { system, tools } => {
            if let Some(text) = changes.system {
                *system = text.into();
            }
            if let Some(kept) = changes.tools {
                tools.retain(|tool| kept.iter().any(|kept| **kept == **tool));
            }
        }
        Occasion::PreToolUse { input, .. } => {
            if let Some(new) = changes.input {
                *input = Value::Object(new);
            }
        }
        Occasion::PostToolUse { output, .. } => {
            if let Some(text) = changes.output {
                *output = plain(&text).into();
            }
        }
        Occasion::SessionStart { .. }
        | Occasion::PostLlmCall { .. }
        | Occasion::PostEdit { .. }
        | Occasion::PreCompact
        | Occasion::PostCompact
        | Occasion::Stop { .. }
        | Occasion::SessionEnd { .. }
        | Occasion::OnError { .. } => {}
    }
    *occasion != before
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = self.entries.iter().map(|entry| (entry.place.point, &entry.place.name));
        f.debug_list().entries(places).finish()
    }
}

/// Returns what a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;
    use crate::port::{Cancel, Sleep};

    struct NoSleep;

    impl Sleep for NoSleep {
        fn sleep(&self, _: Span, _: &Cancel) -> bool {
            false
        }
    }

    fn scope() -> Scope {
        Scope::new(Cancel::new(), Arc::new(NoSleep))
    }

    fn call(input: Value) -> Occasion {
        Occasion::PreToolUse { call: "c".into(), tool: "grep".into(), input }
    }

    fn place(name: &str) -> Place {
        Place::at(HookPoint::PreToolUse, name)
    }

    /// Adds a letter to the argument `a`.
    fn adds(letter: &'static str) -> impl Hook {
        move |occasion: &Occasion, _: &Scope| {
            let Occasion::PreToolUse { input, .. } = occasion else { panic!() };
            let text = format!("{}{letter}", input["a"].as_str().unwrap());
            let input = json!({ "a": text }).as_object().cloned();
            Ok(Answer::GoOn(Changes { input, ..Changes::default() }))
        }
    }

    #[allow(clippy::unnecessary_wraps)] // the shape of a hook
    fn says_no(_: &Occasion, _: &Scope) -> Result<Answer, HookError> {
        Ok(Answer::Block { reason: "\u{1b}[31mno canary\u{1b}[0m".to_owned() })
    }

    fn fails(_: &Occasion, _: &Scope) -> Result<Answer, HookError> {
        Err(HookError::Output("garbage".to_owned()))
    }

    fn breaks_down(_: &Occasion, _: &Scope) -> Result<Answer, HookError> {
        panic!("broken")
    }

    #[test]
    fn each_hook_sees_what_the_one_before_it_changed() {
        let hooks = Hooks::new().with(place("x"), adds("x")).with(place("y"), adds("y"));
        let passage = hooks.pass(call(json!({ "a": "" })), &scope());
        assert_eq!(passage.occasion, call(json!({ "a": "xy" })));
        assert_eq!(passage.changed_by(), ["x", "y"]);
    }

    #[test]
    fn after_a_no_nobody_is_asked_any_more() {
        let hooks = Hooks::new().with(place("guard"), says_no).with(place("late"), adds("x"));
        let passage = hooks.pass(call(json!({ "a": "" })), &scope());
        assert_eq!(passage.blocked.unwrap().reason, "no canary");
        assert_eq!(passage.heard.len(), 1);
    }

    /// Fault H1, H4: a hook without an answer is a warning, or a no where it has to agree.
    #[test]
    fn a_failure_is_a_warning_or_a_no() {
        let failing = |on_failure| Place { on_failure, ..place("f") };
        let hooks =
            Hooks::new().with(failing(OnFailure::Ignore), fails).with(place("y"), adds("y"));
        let passage = hooks.pass(call(json!({ "a": "" })), &scope());
        assert_eq!((passage.blocked, passage.heard.len()), (None, 2));
        let hooks = Hooks::new().with(failing(OnFailure::Block), fails);
        let blocked = hooks.pass(call(json!({})), &scope()).blocked.unwrap();
        assert_eq!(blocked.reason, "the hook failed, and has to agree: garbage");
    }

    #[test]
    fn a_hook_that_breaks_down_is_a_hook_that_fails() {
        let hooks = Hooks::new().with(place("b"), breaks_down).with(place("y"), adds("y"));
        let passage = hooks.pass(call(json!({ "a": "" })), &scope());
        assert_eq!(passage.heard[0].said.as_deref(), Some("it broke down: broken"));
        assert_eq!(passage.occasion, call(json!({ "a": "y" })));
    }

    /// Fault H5.
    #[test]
    fn what_a_hook_says_is_plain_short_and_without_secrets() {
        let hooks = Hooks::new()
            .with(place("guard"), says_no)
            .masking(|text| text.replace("canary", "***"));
        let blocked = hooks.pass(call(json!({})), &scope()).blocked.unwrap();
        assert_eq!(blocked.reason, "no ***");
        let long = |_: &Occasion, _: &Scope| Ok(Answer::context("ä".repeat(LONGEST)));
        let passage = Hooks::new().with(place("long"), long).pass(call(json!({})), &scope());
        let said = passage.heard[0].said.as_ref().unwrap();
        assert!(said.len() < LONGEST + 30 && said.ends_with("[... cut off ...]"));
    }

    #[test]
    fn every_hook_that_was_asked_is_told_of() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&told);
        let scope = scope().telling(Arc::new(move |notice| {
            if let Notice::Hook(run) = notice {
                ear.lock().unwrap().push((run.name.to_string(), run.outcome, run.call));
            }
        }));
        let hooks = Hooks::new().with(place("f"), fails).with(place("guard"), says_no);
        hooks.pass(call(json!({})), &scope);
        let call = Some("c".into());
        let expected = [
            ("f".to_owned(), HookOutcome::Failed, call.clone()),
            ("guard".to_owned(), HookOutcome::Blocked, call),
        ];
        assert_eq!(*told.lock().unwrap(), expected);
    }

    #[test]
    fn after_a_cancel_nobody_is_asked_or_told() {
        let scope = scope();
        scope.cancel.cancel();
        let passage = Hooks::new().with(place("guard"), says_no).pass(call(json!({})), &scope);
        assert_eq!((passage.heard.len(), passage.blocked), (0, None));
    }

    /// Fault H8.
    #[test]
    fn a_hook_of_a_hook_of_a_hook_does_not_begin() {
        assert_eq!(Hooks::check_depth(2), Ok(()));
        assert_eq!(Hooks::check_depth(3), Err(TooDeep));
    }
}
