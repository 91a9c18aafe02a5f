//! `architect test`: runs scenarios, and turns sessions into scenarios.

use std::fs;
use std::path::Path;

use architect::app::ProcessEnv;
use architect::view::save;
use architect::workflow::scenario::{
    self, Scenario, ScenarioError, ScenarioOutcome, ScenarioResult,
};

use crate::cli::args::TestArgs;
use crate::cli::error::CliError;
use crate::cli::session_lookup::SessionLookup;
use crate::cli::{journal_damage, output};

pub(crate) fn run(args: &TestArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    if let Some(session) = &args.from {
        let stored = SessionLookup::open(&args.layers, args.last, world)?;
        let session = stored.find_and_report_folder(session)?;
        journal_damage::check_damage(&stored.store, session, args.partial)?;
        output::print(&scenario::scenario_from_session(&stored.store, session)?)?;
        return Ok(0);
    }
    let scenarios = load_scenarios(args)?;
    let mut tested = scenario::run_all(&scenarios, world);
    if args.update {
        for (scenario, tested) in scenarios.iter().zip(&mut tested) {
            update_expectations(scenario, tested)?;
        }
    }
    if let Some(path) = &args.junit {
        let failed = |error| CliError::failed(output::error_chain(&error));
        save(Path::new("."), path, scenario::to_junit(&tested).as_bytes()).map_err(failed)?;
    }
    match args.json {
        true => output::print(&scenario::to_json(&tested).to_string())?,
        false => output::print(&scenario::format_text(&tested))?,
    }
    Ok(u8::from(!tested.iter().all(ScenarioResult::has_passed)))
}

/// Reads all of them before one is played; everything that is wrong is reported at once.
fn load_scenarios(args: &TestArgs) -> Result<Vec<Scenario>, CliError> {
    let paths = scenario::find_scenarios(&args.paths)
        .map_err(|error| CliError::usage(error.to_string()))?;
    if paths.is_empty() {
        return Err(CliError::usage("there are no scenarios there")
            .hint("a scenario is a file whose name ends in .toml"));
    }
    let (mut scenarios, mut wrong) = (Vec::new(), Vec::new());
    for path in paths {
        match Scenario::load(&path) {
            Ok(scenario) => scenarios.push(scenario),
            Err(error) => wrong.push(error),
        }
    }
    if wrong.is_empty() {
        return Ok(scenarios);
    }
    let errors: Vec<String> = wrong.iter().map(ScenarioError::to_string).collect();
    Err(CliError::usage(errors.join("\n  ")))
}

/// Writes the expectations of a scenario as they hold.
fn update_expectations(scenario: &Scenario, tested: &mut ScenarioResult) -> Result<(), CliError> {
    if let ScenarioOutcome::Differs { seen, .. } = &tested.outcome {
        fs::write(&scenario.path, scenario.with_expectations(seen)).map_err(|error| {
            CliError::failed(format!("could not write {}: {error}", scenario.path.display()))
        })?;
        tested.outcome = ScenarioOutcome::Passed;
    }
    Ok(())
}
