//! `architect trace`: shows where a session spent its time.

use std::path::Path;

use architect::app::{ProcessEnv, trace_session};
use architect::view::save;
use serde_json::json;

use crate::cli::args::TraceArgs;
use crate::cli::error::CliError;
use crate::cli::output;
use crate::cli::session_lookup::SessionLookup;

pub(crate) fn run(args: &TraceArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.layers, args.last, world)?;
    let session = stored.find_and_report_folder(&args.session)?;
    stored.check_damage(session, args.partial)?;
    let trace = trace_session(&stored.store, session)?;
    if let Some(path) = &args.html {
        let html = trace.html();
        save(Path::new("."), path, html.as_bytes()).map_err(|error| CliError::from_save(&error))?;
        output::print_stderr(&format!("The page is {}.", path.display()));
    }
    match (args.json, &args.html) {
        (true, _) => output::print(&json!(trace).to_string()),
        (false, None) => output::print(&trace.table()),
        (false, Some(_)) => Ok(0),
    }
}
