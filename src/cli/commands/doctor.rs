//! `architect doctor`: what is wrong with the set-up, and what to do about it.

use architect::app::{Chosen, Sandbox, World, store};
use architect::config::Config;
use architect::llm::models::Table;
use architect::tools::permission::GuardedFiles;
use serde_json::json;

use crate::cli::args::ListArgs;
use crate::cli::error::Failure;
use crate::cli::output;
use crate::cli::settings::{self, Remembered};

/// The providers' variables for keys.
const KEYS: [&str; 4] =
    ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"];

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    state: State,
    said: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    /// It works, but less well than it could.
    Warning,
    /// A run will not work.
    Bad,
}

pub(crate) fn run(args: &ListArgs, world: &World) -> Result<u8, Failure> {
    let (config, _) = settings::read(&args.settings, None, world, &Remembered::default())?;
    let findings = [
        model(&config, world),
        keys(world),
        sandbox(&config, world),
        git(world),
        sessions(&config, world),
        prices(&config),
    ];
    let text = if args.json {
        let found = |finding: &Finding| json!({ "what": finding.what, "state": finding.state.name(), "said": finding.said });
        json!(findings.iter().map(found).collect::<Vec<_>>()).to_string()
    } else {
        let line = |finding: &Finding| {
            format!("{} {:<9} {}\n", finding.state.mark(), finding.what, finding.said)
        };
        findings.iter().map(line).collect()
    };
    output::print(&text)?;
    Ok(u8::from(findings.iter().any(|finding| finding.state == State::Bad)))
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }

    fn mark(self) -> char {
        match self {
            Self::Good => '✓',
            Self::Warning => '!',
            Self::Bad => '✗',
        }
    }
}

fn found(what: &'static str, state: State, said: impl Into<String>) -> Finding {
    Finding { what, state, said: said.into() }
}

fn model(config: &Config, world: &World) -> Finding {
    let chosen = match Chosen::of(config, world) {
        Ok(chosen) => chosen,
        Err(error) => {
            let said = format!("{error}; name one with --model, or as `model` in [llm]");
            return found("model", State::Bad, said);
        }
    };
    match chosen.check(config, world) {
        Err(error) => found("model", State::Bad, format!("{}: {error}", chosen.name())),
        Ok(()) if chosen.facts.price.is_none() => {
            let said =
                "nobody knows its price, so --budget can't be used; name it in `costs.prices_file`";
            found("model", State::Warning, format!("{}: {said}", chosen.name()))
        }
        Ok(()) => found("model", State::Good, chosen.name().to_string()),
    }
}

fn keys(world: &World) -> Finding {
    let set: Vec<&str> = KEYS.into_iter().filter(|key| world.variable(key).is_some()).collect();
    match set.is_empty() {
        true => found("keys", State::Warning, format!("none is set of {}", KEYS.join(", "))),
        false => found("keys", State::Good, format!("set: {}", set.join(", "))),
    }
}

fn sandbox(config: &Config, world: &World) -> Finding {
    let workspace = config.workspace.clone();
    let described = Sandbox::new(config, world, workspace, GuardedFiles::default())
        .and_then(|sandbox| sandbox.described());
    match described {
        Ok(said) if said.contains("left open") || said.starts_with("not confined") => {
            found("sandbox", State::Warning, format!("commands are {said}"))
        }
        Ok(said) => found("sandbox", State::Good, format!("commands are {said}")),
        Err(error) => found("sandbox", State::Bad, error.to_string()),
    }
}

fn git(world: &World) -> Finding {
    let path = std::ffi::OsStr::new(world.variable("PATH").unwrap_or_default());
    match architect::app::context::Git::find(path) {
        Some(_) => found("git", State::Good, "found"),
        None => {
            found("git", State::Warning, "not found; --context-git-diff can't be used without it")
        }
    }
}

fn sessions(config: &Config, world: &World) -> Finding {
    match store(config, world).and_then(|store| Ok(store.list()?.len())) {
        Ok(count) => found("sessions", State::Good, format!("{count} stored")),
        Err(error) => {
            let said = format!("{error}; --ephemeral runs without storing the session");
            found("sessions", State::Bad, said)
        }
    }
}

fn prices(config: &Config) -> Finding {
    let table = match config.settings.costs.prices_file.clone() {
        None => Ok(Table::built_in()),
        Some(path) => Table::built_in().with_file(path),
    };
    match table {
        Ok(table) => found("prices", State::Good, format!("as of {}", table.date())),
        Err(error) => found("prices", State::Bad, error.to_string()),
    }
}
