//! `architect fork`: a copy of a session goes on; the original stays as it is.

use std::fs;
use std::time::SystemTime;

use architect::app::World;
use architect::journal::{Fork, Instead, Repair};
use architect::model::ToolStatus;

use super::resume::{How, go_on};
use super::run::with_document;
use crate::cli::args::ForkArgs;
use crate::cli::error::Failure;
use crate::cli::stored::Stored;
use crate::cli::{damage, output, prompt, show};

pub(crate) fn run(args: &ForkArgs, world: World) -> Result<u8, Failure> {
    with_document(show::format(&args.output), || begin(args, world))
}

fn begin(args: &ForkArgs, world: World) -> Result<u8, Failure> {
    let stored = Stored::open(&args.settings.layers, args.last, &world)?;
    let (name, after) = match args.session.split_once('@') {
        None => (args.session.as_str(), None),
        Some((name, seq)) => {
            let seq = seq.parse::<u64>().map_err(|_| {
                Failure::usage(format!("'{seq}' is no number of a record"))
                    .hint("`architect sessions export ID` shows the records with their `seq`")
            })?;
            (name, Some(seq))
        }
    };
    let parent = stored.find(name)?;
    let after = match after {
        None if args.partial => {
            damage::check(&stored.store, parent, true)?;
            let (_, end) = stored.store.replay(parent, |_, _, _| {})?;
            Some(end.position.seq.saturating_sub(1))
        }
        after => after,
    };
    let prompt = args.prompt.as_deref().map(|text| prompt::read(Some(text), false)).transpose()?;
    let instead = match &args.tool_result {
        None => None,
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
            Some(Instead { status: ToolStatus::Ok, text: text.into() })
        }
    };
    let session = stored.store.fork(parent, &Fork { after, instead, now: SystemTime::now() })?;
    if args.only {
        output::print(&session.to_string())?;
        return Ok(0);
    }
    let how =
        How { repair: Repair::Refuse, prompt, settings: &args.settings, output: &args.output };
    go_on(&stored, session, how, world)
}
