//! Running scenarios, and comparing their records with the expectations.

use std::error::Error;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ignore::WalkBuilder;
use rayon::ThreadPoolBuilder;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::expectations::Expectations;
use super::parse::{Scenario, ScenarioError, expectations_toml};
use super::play;
use crate::app::ProcessEnv;

/// The outcome of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub enum ScenarioOutcome {
    /// All expectations were met.
    Passed,
    /// Some expectations were not met.
    Differs {
        /// The difference, line by line: expected (`-`) and recorded (`+`) values.
        difference: String,
        /// The expectations with the recorded values.
        seen: Box<Expectations>,
    },
    /// The scenario could not be run, for this reason.
    Failed(String),
}

/// The result of a scenario.
#[derive(Clone, Debug)]
pub struct ScenarioResult {
    /// The path of its file.
    pub path: PathBuf,
    /// The description.
    pub about: Option<String>,
    /// The outcome.
    pub outcome: ScenarioOutcome,
    /// The duration by the system's clock.
    pub took: Duration,
}

impl ScenarioResult {
    /// Returns whether all expectations were met.
    pub fn has_passed(&self) -> bool {
        self.outcome == ScenarioOutcome::Passed
    }

    /// Returns the difference to the expectations, or the reason why the scenario could not be run.
    pub(super) fn failure_text(&self) -> Option<&str> {
        match &self.outcome {
            ScenarioOutcome::Passed => None,
            ScenarioOutcome::Differs { difference, .. } => Some(difference),
            ScenarioOutcome::Failed(why) => Some(why),
        }
    }
}

/// The extension of scenario files.
const FILE_EXTENSION: &str = "toml";

/// Returns the scenarios at these paths, in order: files, and all scenario files below folders.
///
/// # Errors
///
/// Fails if a path can't be read.
pub fn find_scenarios(paths: &[PathBuf]) -> Result<Vec<PathBuf>, ScenarioError> {
    let mut found = Vec::new();
    for path in paths {
        let mut files = WalkBuilder::new(path);
        files.standard_filters(false).follow_links(true).sort_by_file_path(Path::cmp);
        for entry in files.build() {
            let entry = entry.map_err(|error| {
                let path = failed_path(&error).unwrap_or(path).to_owned();
                let cause = system_error(&error).map(ToString::to_string);
                ScenarioError::Unreadable {
                    path,
                    cause: cause.unwrap_or_else(|| error.to_string()),
                }
            })?;
            let is_named = entry.depth() == 0
                || entry.path().extension().is_some_and(|ending| ending == FILE_EXTENSION);
            if is_named && !entry.file_type().is_some_and(|kind| kind.is_dir()) {
                found.push(entry.into_path());
            }
        }
    }
    Ok(found)
}

/// Returns the path that could not be read, if it is known.
fn failed_path(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } => failed_path(err),
        _ => None,
    }
}

/// Returns the system's error without the text around it, which repeats the path.
fn system_error(error: &ignore::Error) -> Option<&io::Error> {
    let mut cause: &(dyn Error + 'static) = error.io_error()?;
    loop {
        let io = cause.downcast_ref::<io::Error>();
        if let Some(found) = io.filter(|io| io.raw_os_error().is_some()) {
            return Some(found);
        }
        // The source of an `io::Error` is the source of its inner error, so the inner error itself is taken.
        cause = match io.and_then(io::Error::get_ref) {
            Some(inner) => inner,
            None => cause.source()?,
        };
    }
}

/// Runs scenarios in parallel, and returns their results in order.
pub fn run_all(scenarios: &[Scenario], world: &ProcessEnv) -> Vec<ScenarioResult> {
    let all = || scenarios.par_iter().map(|scenario| run_one(scenario, world)).collect();
    // A separate pool, since the global one belongs to the program that uses this library.
    match ThreadPoolBuilder::new().thread_name(|index| format!("scenario-{index}")).build() {
        Ok(pool) => pool.install(all),
        Err(_) => scenarios.iter().map(|scenario| run_one(scenario, world)).collect(),
    }
}

fn run_one(scenario: &Scenario, world: &ProcessEnv) -> ScenarioResult {
    let (content, begun) = (&scenario.content, Instant::now());
    let played = catch_unwind(AssertUnwindSafe(|| play::play(scenario, world)));
    let outcome = match played {
        Ok(Ok(seen)) => compare(&content.expect, content.expect.update_from(&seen)),
        Ok(Err(error)) => ScenarioOutcome::Failed(error.to_string()),
        Err(_) => ScenarioOutcome::Failed("internal error: the run broke down".to_owned()),
    };
    let took: Duration = begun.elapsed();
    ScenarioResult { path: scenario.path.clone(), about: content.about.clone(), outcome, took }
}

fn compare(expected: &Expectations, seen: Expectations) -> ScenarioOutcome {
    if *expected == seen {
        return ScenarioOutcome::Passed;
    }
    let patch = flickzeug::create_patch(&expectations_toml(expected), &expectations_toml(&seen))
        .to_string();
    let lines = patch.lines().filter(|line| !line.starts_with("---") && !line.starts_with("+++"));
    let lines = lines.filter(|line| !line.starts_with("\\ No newline"));
    let difference = lines.map(|line| format!("{line}\n")).collect();
    ScenarioOutcome::Differs { difference, seen: Box::new(seen) }
}
