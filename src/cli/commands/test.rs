//! `architect test`: scenarios, and sessions made into scenarios.

use std::fs;
use std::path::Path;

use architect::app::World;
use architect::view::save;
use architect::workflow::scenario::{self, NoScenario, Scenario, Tested, Verdict};

use crate::cli::args::TestArgs;
use crate::cli::error::Failure;
use crate::cli::stored::Stored;
use crate::cli::{damage, output};

pub(crate) fn run(args: &TestArgs, world: &World) -> Result<u8, Failure> {
    if let Some(session) = &args.from {
        let stored = Stored::open(&args.layers, args.last, world)?;
        let session = stored.find_and_tell(session)?;
        damage::check(&stored.store, session, args.partial)?;
        output::print(&scenario::from_session(&stored.store, session)?)?;
        return Ok(0);
    }
    let scenarios = read(args)?;
    let mut tested = scenario::test_all(&scenarios, world);
    if args.update {
        for (scenario, tested) in scenarios.iter().zip(&mut tested) {
            update(scenario, tested)?;
        }
    }
    if let Some(path) = &args.junit {
        let failed = |error| Failure::failed(output::chain(&error));
        save(Path::new("."), path, scenario::junit(&tested).as_bytes()).map_err(failed)?;
    }
    match args.json {
        true => output::print(&scenario::json(&tested).to_string())?,
        false => output::print(&scenario::text(&tested))?,
    }
    Ok(u8::from(!tested.iter().all(Tested::passed)))
}

/// Reads all of them before one is played; everything that is wrong is told at once.
fn read(args: &TestArgs) -> Result<Vec<Scenario>, Failure> {
    let paths = scenario::find(&args.paths).map_err(|error| Failure::usage(error.to_string()))?;
    if paths.is_empty() {
        return Err(Failure::usage("there are no scenarios there"));
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
    let told: Vec<String> = wrong.iter().map(NoScenario::to_string).collect();
    Err(Failure::usage(told.join("\n  ")))
}

/// Writes the expectations of a scenario as they hold.
fn update(scenario: &Scenario, tested: &mut Tested) -> Result<(), Failure> {
    if let Verdict::Differs { seen, .. } = &tested.verdict {
        fs::write(&scenario.path, scenario.expecting(seen)).map_err(|error| {
            Failure::failed(format!("could not write {}: {error}", scenario.path.display()))
        })?;
        tested.verdict = Verdict::Passed;
    }
    Ok(())
}
