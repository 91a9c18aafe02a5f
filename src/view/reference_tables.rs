//! Reference tables for `docs/` and `--help`, generated from the types.

use std::fmt::Write as _;

use super::public_events::PublicEventKind;
use super::text_columns::in_columns;
use crate::machine::{CloseReason, LlmFailure, StopReason};
use crate::types::Signal;

/// A table of short texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextTable {
    header: &'static [&'static str],
    rows: Vec<Vec<String>>,
    /// The number of columns from the left that contain names, which are formatted as code.
    code_columns: usize,
}

/// Returns the table of the stop reasons, statuses and exit codes.
pub fn stop_reasons() -> TextTable {
    let mut rows: Vec<[String; 4]> = Vec::new();
    for reason in StopReason::ALL {
        let [name, status, when] = [reason.name(), reason.status().as_str(), describe(reason)];
        let exit = match exit_remark(reason) {
            "" => reason.exit_code().to_string(),
            remark => format!("{} ({remark})", reason.exit_code()),
        };
        match rows.last_mut().filter(|row| row[3] == when) {
            Some([names, _, exits, _]) => {
                push_item(names, name);
                push_item(exits, &exit);
            }
            None => rows.push([name.into(), status.into(), exit, when.into()]),
        }
    }
    let refused = "Configuration, usage, unknown session or agent: before any model call";
    rows.push(["—", "—", "3", refused].map(str::to_owned));
    let rows = rows.into_iter().map(Vec::from).collect();
    TextTable { header: &["stop_reason", "status", "exit", "when"], rows, code_columns: 2 }
}

/// Returns the table of the public events.
pub fn events() -> TextTable {
    let rows = PublicEventKind::ALL.iter().map(|(name, what)| vec![(*name).into(), (*what).into()]);
    TextTable { header: &["type", "what"], rows: rows.collect(), code_columns: 1 }
}

fn push_item(list: &mut String, item: &str) {
    if !list.split(", ").any(|known| known == item) {
        list.push_str(", ");
        list.push_str(item);
    }
}

/// Returns a remark on the exit code, for stop reasons with several exit codes.
fn exit_remark(reason: StopReason) -> &'static str {
    match reason {
        StopReason::UserInterrupt(Signal::Pipe) => "stdout closed",
        StopReason::UserInterrupt(signal) => signal.name(),
        StopReason::LlmError(LlmFailure::Auth) => "authentication",
        StopReason::LlmError(LlmFailure::Timeout) => "timed out",
        _ => "",
    }
}

/// Returns a description of a stop reason. Stop reasons with the same description share a row.
fn describe(reason: StopReason) -> &'static str {
    match reason {
        StopReason::LlmDone => "A complete, non-empty final text and no tool call",
        StopReason::Closed(
            CloseReason::MaxSteps
            | CloseReason::Timeout
            | CloseReason::ContextFull
            | CloseReason::BudgetExceeded,
        ) => {
            "A limit was reached (`budget_exceeded`: of money or tokens); the model is asked for a final summary, without tools, if the limits leave room for it"
        }
        StopReason::Closed(CloseReason::LoopDetected) => {
            "The same turn five times in a row (a steering message after three)"
        }
        StopReason::Truncated
        | StopReason::EmptyResponse
        | StopReason::Refused
        | StopReason::InvalidToolCalls => {
            "The model ended without an answer, after a bounded number of attempts"
        }
        StopReason::SchemaNotMet => {
            "The answer does not satisfy `--output-schema`, after a bounded number of attempts"
        }
        StopReason::ChecksFailed => {
            "A required quality gate or a stop hook rejected the answer repeatedly; a hook blocked the run or a model call; or a tool call was denied, with `--fail-on-denied`"
        }
        StopReason::EvaluationFailed => {
            "`--self-eval` rejected the answer, once with `basic`, repeatedly with `full`, or had no usable result"
        }
        StopReason::UserInterrupt(_) => "The run was interrupted; no further model call",
        StopReason::LlmError(_) => "The model could not be reached, or rejected the request",
        StopReason::StoreError => "The journal could not be written",
        StopReason::InternalError => "A bug in this program",
    }
}

impl TextTable {
    /// Returns the table in Markdown.
    pub fn to_markdown(&self) -> String {
        let cell = |(column, cell): (usize, &String)| match column < self.code_columns {
            true if cell != "—" => format!("`{}`", cell.replace(", ", "`, `")),
            _ => cell.clone(),
        };
        let mut text = format!("| {} |\n", self.header.join(" | "));
        let _ = writeln!(text, "|{}", "---|".repeat(self.header.len()));
        for row in &self.rows {
            let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        text
    }

    /// Returns the table as lines for a terminal. A cell with several items has a line for each, and the last column is
    /// wrapped.
    pub fn to_text(&self) -> String {
        let header: Vec<String> = self.header.iter().map(ToString::to_string).collect();
        let last = header.len() - 1;
        let items = |(column, cell): (usize, &String)| match column == last {
            true => wrap(cell, SENTENCE_WIDTH),
            false => cell.split(", ").map(str::to_owned).collect(),
        };
        let rows = [&header].into_iter().chain(&self.rows);
        let rows: Vec<Vec<Vec<String>>> =
            rows.map(|row| row.iter().enumerate().map(items).collect()).collect();
        let lines = rows.iter().flat_map(|row| {
            let cell = |items: &Vec<String>, line| items.get(line).cloned().unwrap_or_default();
            let count = row.iter().map(Vec::len).max().unwrap_or(0);
            (0..count).map(move |line| row.iter().map(|items| cell(items, line)).collect())
        });
        in_columns(&lines.collect::<Vec<Vec<String>>>(), |_| false)
    }
}

/// The width of the last column on a terminal.
const SENTENCE_WIDTH: usize = 28;

/// Wraps a sentence to this width.
fn wrap(sentence: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in sentence.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < width => {
                line.extend([" ", word]);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_stop_reasons_fits_a_terminal() {
        insta::assert_snapshot!(stop_reasons().to_text(), @r#"
    stop_reason         status   exit                 when
    llm_done            success  0                    A complete, non-empty final
                                                      text and no tool call
    max_steps           partial  2                    A limit was reached
    timeout                                           (`budget_exceeded`: of money
    context_full                                      or tokens); the model is
    budget_exceeded                                   asked for a final summary,
                                                      without tools, if the limits
                                                      leave room for it
    loop_detected       partial  2                    The same turn five times in
                                                      a row (a steering message
                                                      after three)
    truncated           partial  2                    The model ended without an
    empty_response                                    answer, after a bounded
    refused                                           number of attempts
    invalid_tool_calls
    schema_not_met      partial  2                    The answer does not satisfy
                                                      `--output-schema`, after a
                                                      bounded number of attempts
    checks_failed       partial  2                    A required quality gate or a
                                                      stop hook rejected the
                                                      answer repeatedly; a hook
                                                      blocked the run or a model
                                                      call; or a tool call was
                                                      denied, with
                                                      `--fail-on-denied`
    evaluation_failed   partial  2                    `--self-eval` rejected the
                                                      answer, once with `basic`,
                                                      repeatedly with `full`, or
                                                      had no usable result
    user_interrupt      partial  130 (SIGINT)         The run was interrupted; no
                                 143 (SIGTERM)        further model call
                                 129 (SIGHUP)
                                 141 (stdout closed)
    llm_error           failed   1                    The model could not be
                                 4 (authentication)   reached, or rejected the
                                 5 (timed out)        request
    store_error         failed   1                    The journal could not be
                                                      written
    internal_error      failed   1                    A bug in this program
    —                   —        3                    Configuration, usage,
                                                      unknown session or agent:
                                                      before any model call
    "#);
    }
}
