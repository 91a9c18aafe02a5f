//! `architect test`: runs scenarios, and turns sessions into scenarios.

use std::fs;
use std::path::Path;

use architect::app::ProcessEnv;
use architect::journal::SessionId;
use architect::types::pluralize;
use architect::view::{sanitize, save};
use architect::workflow::scenario::{
    self, NoScenarioReason, Scenario, ScenarioOutcome, ScenarioResult, ScenarioSuite,
    WrittenScenario,
};

use crate::cli::args::TestArgs;
use crate::cli::config_options::load_layers;
use crate::cli::error::CliError;
use crate::cli::output;
use crate::cli::session_lookup::SessionLookup;

pub(crate) fn run(args: &TestArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    if let Some(session) = &args.from {
        let stored = SessionLookup::open(&args.layers, args.last, world)?;
        let session = stored.find_and_report_folder(session)?;
        stored.check_damage(session, args.partial)?;
        check_single_run(&stored, session, args.partial)?;
        let text = scenario::scenario_from_session(&stored.store, session)?;
        return output::print(&stored.secrets.mask_for_export(&text));
    }
    if let Some(text) = &args.from_all {
        return write_suite(args, text, world);
    }
    let mut scenarios = load_scenarios(args)?;
    let own = load_layers(&args.layers, world)?;
    for scenario in &mut scenarios {
        scenario.is_trusted = args.layers.trust;
        scenario.own_sandbox = Some(own.settings.sandbox.clone());
    }
    let mut tested = scenario::run_all(&scenarios, world);
    if args.update {
        for (scenario, tested) in scenarios.iter().zip(&mut tested) {
            update_expectations(scenario, tested)?;
        }
    }
    if let Some(path) = &args.junit {
        let junit = scenario::to_junit(&tested);
        save(Path::new("."), path, junit.as_bytes()).map_err(CliError::failed)?;
    }
    output::print(&match args.json {
        true => scenario::to_json(&tested).to_string(),
        false => scenario::format_text(&tested),
    })?;
    Ok(u8::from(!tested.iter().all(ScenarioResult::has_passed)))
}

/// Checks that a session is a single run that has ended. With `partial`, it need not have ended.
fn check_single_run(
    stored: &SessionLookup,
    session: SessionId,
    partial: bool,
) -> Result<(), CliError> {
    let reason = scenario::no_scenario_reason(&stored.store, session)?;
    match reason.filter(|reason| !partial || *reason != NoScenarioReason::Unfinished) {
        None => Ok(()),
        Some(reason) => Err(CliError::usage(format!("session {session} {reason}"))
            .hint("a scenario repeats a single run to its end; `architect test --from-all` lists what it leaves out")),
    }
}

/// Writes the scenarios of a suite, each into a file named by its session.
fn write_suite(args: &TestArgs, text: &str, world: &ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.layers, args.last, world)?;
    let suite = scenario::choose_sessions(&stored.store, text)?;
    if suite.scenarios.is_empty() {
        let left_out = left_out(&suite);
        let found = match (text, left_out.is_empty()) {
            ("", true) => "no stored session has ended".to_owned(),
            (text, true) => format!("no stored session that has ended matches '{text}'"),
            ("", false) => format!("no stored session can become a scenario: {left_out}"),
            (text, false) => {
                format!("no session that matches '{text}' can become a scenario: {left_out}")
            }
        };
        return Err(CliError::usage(found).hint("`architect sessions` lists the stored sessions"));
    }
    fs::create_dir_all(&args.out).map_err(|error| {
        CliError::failed(format!("could not create {}: {error}", args.out.display()))
    })?;
    for WrittenScenario { file, session_id, .. } in &suite.scenarios {
        let text = scenario::scenario_from_session(&stored.store, *session_id)?;
        let file = args.out.join(file);
        save(Path::new("."), &file, stored.secrets.mask_for_export(&text).as_bytes())
            .map_err(CliError::failed)?;
    }
    let printed = match args.json {
        true => output::to_json(&suite),
        false => format_suite(&suite),
    };
    output::print(&stored.secrets.mask_all(&printed))
}

fn format_suite(suite: &ScenarioSuite) -> String {
    let mut text = String::new();
    for scenario in &suite.scenarios {
        let prompt = sanitize::headline(&scenario.prompt, 40);
        let WrittenScenario { file, transitions, added, .. } = scenario;
        text.push_str(&format!("{file}  {added:>3} of {transitions:>3}  {prompt}\n"));
    }
    text.push_str(&format!(
        "{} from {} with {}: all {} that they took\n",
        pluralize(suite.scenarios.len(), "scenario", "scenarios"),
        pluralize(suite.sessions, "session", "sessions"),
        pluralize(suite.paths, "path", "paths"),
        pluralize(suite.transitions, "transition", "transitions"),
    ));
    let left_out = left_out(suite);
    if !left_out.is_empty() {
        text.push_str(&format!("left out: {left_out}\n"));
    }
    text
}

/// Returns the numbers of omitted sessions with the reasons; empty if there are none.
fn left_out(suite: &ScenarioSuite) -> String {
    let left_out = [
        (suite.resumed, "resumed or forked"),
        (suite.unfinished, "not ended"),
        (suite.unreadable, "damaged or unreadable"),
    ];
    let left_out = left_out.into_iter().filter(|(count, _)| *count > 0);
    let left_out: Vec<String> = left_out.map(|(count, why)| format!("{count} {why}")).collect();
    left_out.join(", ")
}

/// Reads all scenarios before one is played, and reports all errors at once.
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

/// Replaces the expectations of a scenario by the observed results.
fn update_expectations(scenario: &Scenario, tested: &mut ScenarioResult) -> Result<(), CliError> {
    if let ScenarioOutcome::Differs { seen, .. } = &tested.outcome {
        let text = scenario.with_expectations(seen);
        save(Path::new("."), &scenario.path, text.as_bytes()).map_err(CliError::failed)?;
        tested.outcome = ScenarioOutcome::Passed;
    }
    Ok(())
}
