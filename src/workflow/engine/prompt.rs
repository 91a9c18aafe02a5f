//! The message of an iteration: the task, and the results of earlier iterations.

use super::history::{CheckReport, IterationRecord, WorkflowHistory};
use super::machine::MetricDirection;
use super::{Metric, StepDefinition};
use crate::view::report::code_fence;
use crate::view::sanitize;

/// Length limit of an earlier iteration's answer in a message, in characters.
const MAX_NOTES: usize = 8_000;

/// Returns the message for the present iteration, or for the next one.
pub(super) fn iteration_message(
    step: &StepDefinition,
    task: &str,
    history: &WorkflowHistory,
    max_iterations: u32,
) -> String {
    let place = &history.state.place;
    // Items are independent of each other.
    let is_repeated = step.items.is_none();
    let before: Vec<&IterationRecord> = history
        .iterations
        .iter()
        .filter(|it| is_repeated && it.step == place.step && it.number < place.iteration)
        .collect();
    if step.checks.is_empty() && step.metric.is_none() && before.is_empty() {
        return task.to_owned();
    }
    let mut text = format!("{}\n", task.trim_end());
    let number = place.iteration;
    if is_repeated && (step.iterations > 1 || number > 1) {
        text.push_str(&format!(
            "\n## Iteration {number} of at most {max_iterations}\n\nEach iteration begins with a new context in the same folder, \
             with the files as the earlier ones left them.\n"
        ));
    }
    let failed: Vec<&CheckReport> = match before.last() {
        Some(last) if !last.checks.is_empty() => &last.checks,
        _ => &history.checks,
    }
    .iter()
    .filter(|check| !check.passed)
    .collect();
    if !step.checks.is_empty() {
        text.push_str("\n## Checks\n\nThe task is done when these commands succeed:\n");
        step.checks.iter().for_each(|check| text.push_str(&format!("- `{check}`\n")));
        for check in failed {
            text.push_str(&format!(
                "\nNow `{}` fails:\n\n{}\n",
                check.name,
                fenced(&check.message)
            ));
        }
    }
    if let Some(metric) = &step.metric {
        text.push_str(&metric_section(metric, history, &before));
    }
    if let Some(last) = before.last() {
        let notes = last.report.as_ref().map(|report| report.output.trim()).unwrap_or_default();
        let undone = if last.is_undone { ", whose changes were undone" } else { "" };
        text.push_str(&format!("\n## Notes of the last iteration{undone}\n\n"));
        match notes {
            "" => text.push_str("It left no answer.\n"),
            notes => text.push_str(&format!("{}\n", sanitize::truncate(notes, MAX_NOTES))),
        }
    }
    if is_repeated && max_iterations > 1 {
        text.push_str(
        "\nEnd with notes for the next iteration: what you did, what you found out, and what is left.\n",
    );
    }
    text
}

fn metric_section(
    metric: &Metric,
    history: &WorkflowHistory,
    before: &[&IterationRecord],
) -> String {
    let goal = match metric.direction {
        MetricDirection::Maximize => "larger",
        MetricDirection::Minimize => "smaller",
    };
    let mut text = format!(
        "\n## Number to improve\n\nThe last line of the output of `{}` is a number, which has to become {goal}. An iteration that \
         does not improve it is undone.\n",
        metric.command
    );
    if let Some(best) = history.state.place.best {
        text.push_str(&format!("\nThe best so far is {}.\n", best.number()));
    }
    for iteration in before {
        let result = match (&iteration.measured, iteration.is_undone) {
            (Some(Ok(number)), false) => format!("{}, kept", number.number()),
            (Some(Ok(number)), true) => format!("{}, undone", number.number()),
            (Some(Err(why)), _) => {
                format!("no number ({}), undone", sanitize::headline(why, 200))
            }
            (None, _) => "no change".to_owned(),
        };
        text.push_str(&format!("- iteration {}: {result}\n", iteration.number));
    }
    text
}

/// Returns a text as a fenced code block.
fn fenced(text: &str) -> String {
    let fence = code_fence(text);
    format!("{fence}\n{text}\n{fence}")
}
