//! The results of scenarios, for people and for programs.

use std::path::Path;
use std::time::Duration;

use maud::html;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::run::{ScenarioOutcome, ScenarioResult};
use crate::view::sanitize::xml_text;

/// Returns a line for each scenario, the differences of failed scenarios, and the totals.
pub fn format_text(tested: &[ScenarioResult]) -> String {
    let mut text = String::new();
    for one in tested {
        let mark = if one.has_passed() { "✓" } else { "✗" };
        text.push_str(&format!("{mark} {} ({} ms)\n", one.path.display(), one.took.as_millis()));
        for line in one.failure_text().unwrap_or_default().lines() {
            text.push_str(&format!("    {line}\n"));
        }
    }
    let failed = tested.iter().filter(|one| !one.has_passed()).count();
    text + &format!("{} passed, {failed} failed\n", tested.len() - failed)
}

/// The document of `architect test --json`.
#[derive(Serialize, JsonSchema)]
pub struct TestDocument<'a> {
    /// The version of the document.
    schema: u32,
    /// The number of passed scenarios.
    passed: usize,
    /// The number of failed scenarios.
    failed: usize,
    /// All scenarios.
    scenarios: Vec<ScenarioDocument<'a>>,
}

/// A played scenario.
#[derive(Serialize, JsonSchema)]
struct ScenarioDocument<'a> {
    /// The path of its file.
    path: &'a Path,
    /// Its description.
    about: Option<&'a str>,
    /// Whether all expectations were met.
    passed: bool,
    /// The duration in milliseconds.
    duration_ms: u64,
    /// The difference to the expectations, or the reason why the scenario could not be played.
    difference: Option<&'a str>,
}

impl<'a> ScenarioDocument<'a> {
    fn new(one: &'a ScenarioResult) -> Self {
        Self {
            path: &one.path,
            about: one.about.as_deref(),
            passed: one.has_passed(),
            duration_ms: millis(one.took),
            difference: one.failure_text(),
        }
    }
}

/// Returns the results as JSON.
pub fn to_json(tested: &[ScenarioResult]) -> Value {
    let failed = tested.iter().filter(|one| !one.has_passed()).count();
    json!(TestDocument {
        schema: 1,
        passed: tested.len() - failed,
        failed,
        scenarios: tested.iter().map(ScenarioDocument::new).collect(),
    })
}

/// Returns the results as `JUnit` XML for build servers.
pub fn to_junit(tested: &[ScenarioResult]) -> String {
    let count =
        |of: fn(&ScenarioOutcome) -> bool| tested.iter().filter(|one| of(&one.outcome)).count();
    let failures = count(|outcome| matches!(outcome, ScenarioOutcome::Differs { .. }));
    let errors = count(|outcome| matches!(outcome, ScenarioOutcome::Failed(_)));
    let seconds: f64 = tested.iter().map(|one| one.took.as_secs_f64()).sum();
    let body = html! {
        testsuites {
            testsuite name="architect" tests=(tested.len()) failures=(failures)
                errors=(errors) time=(format!("{seconds:.3}")) {
                @for one in tested {
                    testcase classname="architect" name=(xml_text(&one.path.to_string_lossy()))
                        time=(format!("{:.3}", one.took.as_secs_f64())) {
                        @let what = xml_text(one.failure_text().unwrap_or_default());
                        @match &one.outcome {
                            ScenarioOutcome::Passed => {}
                            ScenarioOutcome::Differs { .. } => {
                                failure message="not as expected" { (what) }
                            }
                            ScenarioOutcome::Failed(_) => {
                                error message="could not be played" { (what) }
                            }
                        }
                    }
                }
            }
        }
    };
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", body.into_string())
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tested(outcome: ScenarioOutcome) -> ScenarioResult {
        ScenarioResult {
            path: "a<b>.toml".into(),
            about: None,
            outcome,
            took: Duration::from_millis(5),
        }
    }

    #[test]
    fn each_format_shows_what_failed_and_why() {
        let all = [
            tested(ScenarioOutcome::Passed),
            tested(ScenarioOutcome::Failed("no \u{1b} & more".into())),
        ];
        assert_eq!(
            format_text(&all),
            "✓ a<b>.toml (5 ms)\n✗ a<b>.toml (5 ms)\n    no \u{1b} & more\n1 passed, 1 failed\n"
        );
        assert_eq!(to_json(&all)["scenarios"][1]["difference"], "no \u{1b} & more");
        let xml = to_junit(&all);
        assert!(xml.contains("tests=\"2\" failures=\"0\" errors=\"1\""));
        assert!(xml.contains("name=\"a&lt;b&gt;.toml\""));
        assert!(xml.contains("no \u{fffd} &amp; more</error>"));
    }
}
