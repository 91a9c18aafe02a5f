//! `architect trace`: where the time of a session went.

use std::path::Path;

use architect::app::{World, trace};
use architect::view::save;
use serde_json::json;

use crate::cli::args::TraceArgs;
use crate::cli::error::Failure;
use crate::cli::stored::Stored;
use crate::cli::{damage, output};

pub(crate) fn run(args: &TraceArgs, world: &World) -> Result<u8, Failure> {
    let stored = Stored::open(&args.layers, args.last, world)?;
    let session = stored.find_and_tell(&args.session)?;
    damage::check(&stored.store, session, args.partial)?;
    let trace = trace(&stored.store, session)?;
    if let Some(path) = &args.html {
        save(Path::new("."), path, trace.html().as_bytes())
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
