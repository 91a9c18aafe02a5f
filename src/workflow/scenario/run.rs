//! Plays scenarios, and checks what was recorded.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rayon::ThreadPoolBuilder;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::expectations::Expectations;
use super::parse::{Scenario, ScenarioError, expectations_toml};
use super::play;
use super::report::ScenarioResult;
use crate::app::ProcessEnv;

/// The outcome of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub enum ScenarioOutcome {
    /// Everything was as expected.
    Passed,
    /// Something was not.
    Differs {
        /// The difference, line by line: what was expected (`-`), and what was seen (`+`).
        difference: String,
        /// The expectations as they would hold.
        seen: Box<Expectations>,
    },
    /// It could not be played.
    Failed(String),
}

/// The ending of a scenario's name.
const FILE_EXTENSION: &str = "toml";

/// Returns the scenarios that paths name: files, and all of them below a folder, in order.
///
/// # Errors
///
/// Fails when a path can't be read.
pub fn find_scenarios(paths: &[PathBuf]) -> Result<Vec<PathBuf>, ScenarioError> {
    let mut found = Vec::new();
    for path in paths {
        let unreadable = |error: io::Error| ScenarioError::Unreadable {
            path: path.clone(),
            cause: error.to_string(),
        };
        if fs::metadata(path).map_err(unreadable)?.is_dir() {
            collect_scenarios(path, &mut found).map_err(unreadable)?;
        } else {
            found.push(path.clone());
        }
    }
    Ok(found)
}

fn collect_scenarios(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect_scenarios(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == FILE_EXTENSION) {
            found.push(path);
        }
    }
    Ok(())
}

/// Plays scenarios, as many at a time as there are processors, and returns what became of each, in their order.
pub fn run_all(scenarios: &[Scenario], world: &ProcessEnv) -> Vec<ScenarioResult> {
    let all = || scenarios.par_iter().map(|scenario| run_one(scenario, world)).collect();
    // A pool of its own: the global one belongs to the program that uses this library.
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
