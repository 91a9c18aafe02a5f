//! The chart as a model for other checkers: Promela for Spin, and TLA+ for TLC.
//!
//! Guards become choices: every transition that the chart allows for an event may be taken. Limited resources are
//! counters ([`ChartTransition::counter`]), so that the model ends as the machine does. The clock is a separate
//! process; under fairness for it, every run ends.

use std::fmt::Write as _;

use super::labels::identifier;
use crate::machine::chart::{Chart, ChartCounter, ChartTransition};
use crate::machine::{EventKind, Guard, StateKind};

/// A transition from one leaf state to another.
struct ModelStep<'a> {
    from: &'a str,
    to: &'a str,
    arrow: &'a ChartTransition,
}

impl ModelStep<'_> {
    fn is_tick(&self) -> bool {
        self.arrow.event == EventKind::Tick.as_str()
    }

    /// Returns the event and the guard, for a comment.
    fn label(&self) -> String {
        let guard = self.arrow.guard.as_deref().unwrap_or("otherwise");
        format!("{} [{guard}]", self.arrow.event)
    }

    /// Returns the counter that must not be zero for this transition.
    fn counter(&self) -> Option<&'static str> {
        self.arrow.counter().map(|counter| match counter {
            ChartCounter::Steps => "steps",
            ChartCounter::Repeats => "repeats",
            ChartCounter::Models => "models",
            ChartCounter::Attempts => "attempts",
            ChartCounter::Calls => "calls",
            ChartCounter::Commands => "commands",
        })
    }

    /// Returns the counters that this transition resets, each with the constant of its initial value.
    fn resets(&self) -> Vec<(&'static str, &'static str)> {
        let (is_retry, stays) = (self.from.ends_with("Waiting"), self.from == self.to);
        let mut resets = Vec::new();
        if self.arrow.counter() == Some(ChartCounter::Steps) {
            resets.push(("repeats", "REPEATS"));
        }
        let sends = [StateKind::CallingSending, StateKind::CompactingSending];
        if sends.iter().any(|kind| kind.as_str() == self.to) && !is_retry && !stays {
            resets.push(("attempts", "RETRIES"));
        }
        if self.to == StateKind::Executing.as_str() && !stays {
            resets.push(("calls", "CALLS"));
        }
        if self.arrow.guard.as_deref() == Some(Guard::CallApproved.as_str()) {
            resets.push(("commands", "COMMANDS"));
        }
        resets
    }

    /// Returns the counter of an event that may only happen once.
    fn counts(&self) -> Option<&'static str> {
        if self.from == self.to {
            None
        } else if self.to == StateKind::ClosingPreparing.as_str() {
            Some("closings")
        } else if self.to == StateKind::ClosingSending.as_str() {
            Some("closing_calls")
        } else {
            None
        }
    }
}

/// Returns every transition from every leaf state.
fn model_steps(chart: &Chart) -> Vec<ModelStep<'_>> {
    let mut steps = Vec::new();
    for leaf in chart.leaf_states().filter(|node| !node.is_final) {
        for event in EventKind::ALL {
            let arrows = chart.transitions_for(&leaf.path, event.as_str());
            steps.extend(arrows.map(|arrow| {
                let to = chart.initial_leaf(&arrow.to);
                ModelStep { from: &leaf.path, to, arrow }
            }));
        }
    }
    steps
}

const PROMELA_HEADER: &str = r"/* The statechart of a run: its guards are choices, and what a transition uses up is a counter.
 *
 *     spin -a run.pml && cc -o pan pan.c
 *     ./pan -a -f -N ends          (-f: weak fairness; without it the clock may stand still)
 *     ./pan -a -N absorbing
 *     ./pan -a -N closes_once
 *     ./pan -a -N closing_leads_out
 *
 * Other bounds: spin -DSTEPS=5 -a run.pml */
#ifndef STEPS
#define STEPS 2     /* replies whose tool calls run */
#endif
#ifndef REPEATS
#define REPEATS 2   /* how often the model is asked again before the next step, or the context is compacted */
#endif
#ifndef MODELS
#define MODELS 2    /* that are called when the one before is out of reach */
#endif
#ifndef RETRIES
#define RETRIES 2   /* of a model call */
#endif
#ifndef CALLS
#define CALLS 3     /* events about the tool calls of a reply, before the last one */
#endif
#ifndef COMMANDS
#define COMMANDS 1  /* that run in the background, since the last call that may have started one */
#endif

";

/// Returns the chart as a Promela model.
pub(super) fn promela(chart: &Chart) -> String {
    let mut text = String::from(PROMELA_HEADER);
    let names: Vec<String> = chart.leaf_states().map(|node| identifier(&node.path)).collect();
    let _ = writeln!(text, "mtype = {{ {} }};", names.join(", "));
    let _ = writeln!(text, "mtype state = {};", identifier(chart.initial_leaf(&chart.initial)));
    text.push_str(
        "byte steps = STEPS, repeats = REPEATS, models = MODELS, attempts, calls, commands, closings, closing_calls;\n",
    );
    let done = identifier(StateKind::Done.as_str());
    let steps = model_steps(chart);
    for (process, ticks) in [("environment", false), ("clock", true)] {
        let _ = writeln!(text, "\nactive proctype {process}() {{\n    do");
        for step in steps.iter().filter(|step| step.is_tick() == ticks) {
            let mut condition = format!("state == {}", identifier(step.from));
            let mut updates = Vec::new();
            if let Some(counter) = step.counter() {
                let _ = write!(condition, " && {counter} > 0");
                updates.push(format!("{counter}--"));
            }
            updates
                .extend(step.resets().iter().map(|(counter, most)| format!("{counter} = {most}")));
            updates.extend(step.counts().map(|counter| format!("{counter}++")));
            updates.push(format!("state = {}", identifier(step.to)));
            let (label, updates) = (step.label(), updates.join("; "));
            let _ = writeln!(text, "    :: atomic {{ {condition} -> {updates} }} /* {label} */");
        }
        let _ = writeln!(text, "    :: state == {done} -> break\n    od\n}}");
    }
    let is_closing = "(state == Closing_Preparing || state == Closing_Sending)";
    let _ = writeln!(
        text,
        "\nltl ends {{ <> (state == {done}) }}\n\
         ltl absorbing {{ [] (state == {done} -> [] (state == {done})) }}\n\
         ltl closes_once {{ [] (closings <= 1 && closing_calls <= 1) }}\n\
         ltl closing_leads_out {{ [] ({is_closing} -> [] ({is_closing} || state == {done})) }}"
    );
    text
}

/// Returns the chart as a TLA+ module, with its specification and properties.
pub(super) fn tla(chart: &Chart) -> String {
    const VARIABLES: [&str; 9] = [
        "state",
        "steps",
        "repeats",
        "models",
        "attempts",
        "calls",
        "commands",
        "closings",
        "closing_calls",
    ];
    let mut text = String::from(
        "---------------------------- MODULE run ----------------------------\n\
         (* The statechart of a run: its guards are choices, and what a transition uses up is a counter. *)\n\
         EXTENDS Naturals\n\
         CONSTANTS STEPS, REPEATS, MODELS, RETRIES, CALLS, COMMANDS\n",
    );
    let all = VARIABLES.join(", ");
    let first = identifier(chart.initial_leaf(&chart.initial));
    let _ = writeln!(text, "VARIABLES {all}\nvars == <<{all}>>\n");
    let _ = writeln!(
        text,
        "Init == /\\ state = \"{first}\" /\\ steps = STEPS /\\ repeats = REPEATS\n        \
         /\\ models = MODELS /\\ attempts = 0 /\\ calls = 0 /\\ commands = 0 /\\ closings = 0 /\\ closing_calls = 0\n"
    );
    let steps = model_steps(chart);
    for (action, ticks) in [("Environment", false), ("Tick", true)] {
        let _ = writeln!(text, "{action} ==");
        for step in steps.iter().filter(|step| step.is_tick() == ticks) {
            let mut parts = vec![format!("state = \"{}\"", identifier(step.from))];
            let mut changed = vec!["state"];
            if let Some(counter) = step.counter() {
                parts.push(format!("{counter} > 0 /\\ {counter}' = {counter} - 1"));
                changed.push(counter);
            }
            for (counter, most) in step.resets() {
                parts.push(format!("{counter}' = {most}"));
                changed.push(counter);
            }
            if let Some(counter) = step.counts() {
                parts.push(format!("{counter}' = {counter} + 1"));
                changed.push(counter);
            }
            parts.push(format!("state' = \"{}\"", identifier(step.to)));
            let kept: Vec<&str> =
                VARIABLES.into_iter().filter(|name| !changed.contains(name)).collect();
            parts.push(format!("UNCHANGED <<{}>>", kept.join(", ")));
            let _ = writeln!(text, "    \\/ {} \\* {}", parts.join(" /\\ "), step.label());
        }
        text.push('\n');
    }
    text.push_str(
        "Spec == Init /\\ [][Environment \\/ Tick]_vars /\\ WF_vars(Tick)\n\
         Ends == <>(state = \"Done\")\n\
         Absorbing == [](state = \"Done\" => [](state = \"Done\"))\n\
         ClosesOnce == [](closings <= 1 /\\ closing_calls <= 1)\n\
         =====================================================================\n",
    );
    text
}
