//! `architect trace`: where the time of a session went.

use architect::app::{World, store, trace};
use architect::view::save;
use serde_json::json;

use crate::cli::args::TraceArgs;
use crate::cli::error::Failure;
use crate::cli::{damage, output, settings};

pub(crate) fn run(args: &TraceArgs, world: &World) -> Result<u8, Failure> {
    let store = store(&settings::of_sets(&args.set, world)?, world)?;
    let session = store.resolve(&args.session)?;
    damage::check(&store, session, args.partial)?;
    let trace = trace(&store, session)?;
    if let Some(path) = &args.html {
        save(path, trace.html().as_bytes())
            .map_err(|error| Failure::failed(output::chain(&error)))?;
        output::complain(&format!("The page is {}.", path.display()));
    }
    match (args.json, &args.html) {
        (true, _) => output::print(&json!(trace).to_string())?,
        (false, None) => output::print(&trace.table())?,
        (false, Some(_)) => {}
    }
    Ok(0)
}
