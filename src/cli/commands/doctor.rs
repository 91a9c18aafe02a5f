//! `architect doctor`: what is wrong with the set-up, and what to do about it.

use architect::app::{
    Chosen, Reach, Sandbox, ServerFinding, World, probe_model, probe_servers, store,
};
use architect::config::{Config, NoticeCause, TRUST, VariableName};
use architect::llm::models::Table;
use architect::model::count;
use architect::tools::permission::GuardedFiles;
use architect::view::clean;
use serde_json::json;

use crate::cli::args::DoctorArgs;
use crate::cli::error::Failure;
use crate::cli::output;
use crate::cli::settings::{self, Remembered};

/// The providers' variables for keys.
const KEYS: [&str; 9] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "OPENROUTER_API_KEY",
    "GROQ_API_KEY",
    "DEEPSEEK_API_KEY",
    "MISTRAL_API_KEY",
    "XAI_API_KEY",
];

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

pub(crate) fn run(args: &DoctorArgs, world: &World) -> Result<u8, Failure> {
    let (config, _) = settings::read(&args.settings, None, world, &Remembered::default())?;
    let reach = if args.online { Reach::Network } else { Reach::Local };
    let findings = [
        model(&config, world, reach),
        keys(&config, world),
        trust(&config),
        mcp(&config, world, reach),
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

fn model(config: &Config, world: &World, reach: Reach) -> Finding {
    let chosen = match Chosen::of(config, world) {
        Ok(chosen) => chosen,
        Err(error) => {
            let said = format!("{error}; name one with --model, or as `model` in [llm]");
            return found("model", State::Bad, said);
        }
    };
    let asked = match reach {
        Reach::Local => chosen.check(config, world).map(Ok),
        Reach::Network => probe_model(&chosen, config, world),
    };
    match asked {
        Err(error) => found("model", State::Bad, format!("{}: {error}", chosen.name())),
        Ok(Err(fault)) => {
            let said = clean::headline(&fault.message, SAID);
            found("model", State::Bad, format!("{}: {said}", chosen.name()))
        }
        Ok(Ok(())) if chosen.facts.price.is_none() => {
            let said =
                "nobody knows its price, so --budget can't be used; name it in `costs.prices_file`";
            found("model", State::Warning, format!("{}: {said}", chosen.name()))
        }
        Ok(Ok(())) => {
            let tried = match reach {
                Reach::Local => "not asked; --online tries it",
                Reach::Network => "it answers",
            };
            found("model", State::Good, format!("{} ({tried})", chosen.name()))
        }
    }
}

/// The most of what a provider says that is shown, in characters.
const SAID: usize = 400;

fn keys(config: &Config, world: &World) -> Finding {
    let named = config.settings.llm.api_key_env.as_ref().map(VariableName::as_str);
    let is_set = |key: &&str| world.variable(key).is_some_and(|key| !key.trim().is_empty());
    let set: Vec<&str> = named.into_iter().chain(KEYS).filter(is_set).collect();
    match set.is_empty() {
        true => found("keys", State::Warning, format!("none is set of {}", KEYS.join(", "))),
        false => found("keys", State::Good, format!("set: {}", set.join(", "))),
    }
}

fn trust(config: &Config) -> Finding {
    let is_untrusted = |cause| cause == NoticeCause::Untrusted;
    let ignored = config.notices.iter().filter(|notice| is_untrusted(notice.cause)).count();
    match (config.is_trusted, ignored) {
        (false, _) if !config.changed.is_empty() => {
            let changed: Vec<&str> = config.changed.iter().map(|file| file.path.as_str()).collect();
            let changed = clean::headline(&changed.join(", "), SAID);
            let said = format!(
                "this folder's own configuration has changed since you trusted it ({changed}): look at it, then `architect \
                 config trust`"
            );
            found("trust", State::Warning, said)
        }
        (true, _) => found("trust", State::Good, "this folder's own configuration is trusted"),
        (false, 0) => {
            found("trust", State::Good, "this folder is not trusted, and nothing of it is ignored")
        }
        (false, ignored) => {
            let settings = count(ignored, "setting is", "settings are");
            let said = format!(
                "this folder is not trusted, and {settings} ignored: `architect config trust`, or --trust or {TRUST}=1 for \
                 one run"
            );
            found("trust", State::Warning, said)
        }
    }
}

fn mcp(config: &Config, world: &World, reach: Reach) -> Finding {
    if config.settings.mcp.servers.is_empty() {
        return found("mcp", State::Good, "no servers");
    }
    let sandbox = Sandbox::new(config, world, config.workspace.clone(), GuardedFiles::default());
    let Ok(sandbox) = sandbox else {
        return found("mcp", State::Bad, "servers can't be confined as the configuration wants it");
    };
    let probed = probe_servers(config, world, &sandbox, reach);
    let mut worst = State::Good;
    let told: Vec<String> = probed
        .iter()
        .map(|server| {
            let said = match &server.found {
                ServerFinding::Tools(tools) => count(*tools, "tool", "tools"),
                ServerFinding::NotTried => "not tried without --online".to_owned(),
                ServerFinding::Missing(why) => {
                    let required = server.is_required;
                    worst =
                        if required || worst == State::Bad { State::Bad } else { State::Warning };
                    clean::headline(why, SAID)
                }
            };
            format!("{}: {said}", server.name)
        })
        .collect();
    found("mcp", worst, told.join("; "))
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
