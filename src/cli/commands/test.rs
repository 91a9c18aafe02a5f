//! `architect test`: runs scenarios, and turns sessions into scenarios.

use std::fs;
use std::path::Path;

use architect::app::ProcessEnv;
use architect::view::save;
use architect::workflow::scenario::{self, Scenario, ScenarioOutcome, ScenarioResult};

use crate::cli::args::TestArgs;
use crate::cli::error::CliError;
use crate::cli::output;
use crate::cli::session_lookup::SessionLookup;

pub(crate) fn run(args: &TestArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    if let Some(session) = &args.from {
        let stored = SessionLookup::open(&args.layers, args.last, world)?;
        let session = stored.find_and_report_folder(session)?;
        stored.check_damage(session, args.partial)?;
        return output::print(&scenario::scenario_from_session(&stored.store, session)?);
    }
    let scenarios = load_scenarios(args)?;
    let mut tested = scenario::run_all(&scenarios, world);
    if args.update {
        for (scenario, tested) in scenarios.iter().zip(&mut tested) {
            update_expectations(scenario, tested)?;
        }
    }
    if let Some(path) = &args.junit {
        let junit = scenario::to_junit(&tested);
        save(Path::new("."), path, junit.as_bytes())
            .map_err(|error| CliError::from_save(&error))?;
    }
    output::print(&match args.json {
        true => scenario::to_json(&tested).to_string(),
        false => scenario::format_text(&tested),
    })?;
    Ok(u8::from(!tested.iter().all(ScenarioResult::has_passed)))
}

/// Reads all of them before one is played; everything that is wrong is reported at once.
fn load_scenarios(args: &TestArgs) -> Result<Vec<Scenario>, CliError> {
    let paths = scenario::find_scenarios(&args.paths).map_err(CliError::usage)?;
    if paths.is_empty() {
        return Err(CliError::usage("no scenarios were found")
            .hint("a scenario is a file whose name ends in .toml"));
    }
    let (scenarios, wrong): (Vec<_>, Vec<_>) =
        paths.into_iter().map(|path| Scenario::load(&path)).partition(Result::is_ok);
    if wrong.is_empty() {
        return Ok(scenarios.into_iter().flatten().collect());
    }
    let errors = wrong.into_iter().filter_map(Result::err).map(|error| error.to_string());
    Err(CliError::usage(errors.collect::<Vec<_>>().join("\n  ")))
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
