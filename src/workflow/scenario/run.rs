//! Playing scenarios, and judging what was seen.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rayon::ThreadPoolBuilder;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::expect::Expect;
use super::file::{NoScenario, Scenario, section};
use super::report::Tested;
use super::stage;
use crate::app::World;

/// What became of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Everything was as expected.
    Passed,
    /// Something was not.
    Differs {
        /// The difference, line by line: what was expected (`-`), and what was seen (`+`).
        difference: String,
        /// The expectations as they would hold.
        seen: Box<Expect>,
    },
    /// It could not be played.
    Broken(String),
}

/// The ending of a scenario's name.
const ENDING: &str = "toml";

/// Returns the scenarios that paths name: files, and all of them below a folder, in order.
///
/// # Errors
///
/// Fails when a path can't be read.
pub fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>, NoScenario> {
    let mut found = Vec::new();
    for path in paths {
        let unreadable = |error: io::Error| NoScenario::Unreadable {
            path: path.clone(),
            cause: error.to_string(),
        };
        if fs::metadata(path).map_err(unreadable)?.is_dir() {
            below(path, &mut found).map_err(unreadable)?;
        } else {
            found.push(path.clone());
        }
    }
    Ok(found)
}

fn below(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            below(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == ENDING) {
            found.push(path);
        }
    }
    Ok(())
}

/// Plays scenarios, as many at a time as there are processors, and returns what became of each, in their order.
pub fn test_all(scenarios: &[Scenario], world: &World) -> Vec<Tested> {
    let all = || scenarios.par_iter().map(|scenario| test(scenario, world)).collect();
    // A pool of its own: the global one belongs to whoever uses this as a library.
    match ThreadPoolBuilder::new().thread_name(|index| format!("scenario-{index}")).build() {
        Ok(pool) => pool.install(all),
        Err(_) => scenarios.iter().map(|scenario| test(scenario, world)).collect(),
    }
}

fn test(scenario: &Scenario, world: &World) -> Tested {
    let begun = Instant::now();
    let played = catch_unwind(AssertUnwindSafe(|| stage::play(scenario, world)));
    let verdict = match played {
        Ok(Ok(seen)) => judge(&scenario.expect, scenario.expect.settle(&seen)),
        Ok(Err(error)) => Verdict::Broken(error.to_string()),
        Err(_) => Verdict::Broken("internal error: the run broke down".to_owned()),
    };
    let took: Duration = begun.elapsed();
    Tested { path: scenario.path.clone(), about: scenario.about.clone(), verdict, took }
}

fn judge(expected: &Expect, seen: Expect) -> Verdict {
    if *expected == seen {
        return Verdict::Passed;
    }
    let patch = flickzeug::create_patch(&section(expected), &section(&seen)).to_string();
    let lines = patch.lines().filter(|line| !line.starts_with("---") && !line.starts_with("+++"));
    let lines = lines.filter(|line| !line.starts_with("\\ No newline"));
    let difference = lines.map(|line| format!("{line}\n")).collect();
    Verdict::Differs { difference, seen: Box::new(seen) }
}
