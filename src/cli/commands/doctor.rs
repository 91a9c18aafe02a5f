//! `architect doctor`: diagnoses the installation and configuration.

use architect::app::{
    ProbeScope, ProcessEnv, ResolvedModel, Sandbox, ServerFinding, open_store, probe_model,
    probe_servers,
};
use architect::config::{Config, NoticeCause, TRUST_VARIABLE, VariableName};
use architect::llm::PROVIDERS;
use architect::llm::model_table::ModelTable;
use architect::model::pluralize;
use architect::policy::GuardedFiles;
use architect::view::sanitize;
use serde_json::json;

use crate::cli::args::DoctorArgs;
use crate::cli::config_options::{self, SavedOptions};
use crate::cli::error::CliError;
use crate::cli::output;

/// The result of one check.
struct Finding {
    check: &'static str,
    state: CheckStatus,
    message: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckStatus {
    Good,
    /// It works, but less well than it could.
    Warning,
    /// A run will not work.
    Bad,
}

pub(crate) fn run(args: &DoctorArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let (config, _) =
        config_options::load_config(&args.settings, None, world, &SavedOptions::default())?;
    let scope = if args.online { ProbeScope::Network } else { ProbeScope::Local };
    let findings = [
        check_model(&config, world, scope),
        check_keys(&config, world),
        check_trust(&config),
        check_mcp(&config, world, scope),
        check_sandbox(&config, world),
        check_git(world),
        check_sessions(&config, world),
        check_prices(&config),
    ];
    let text = if args.json {
        let found = |finding: &Finding| json!({ "what": finding.check, "state": finding.state.name(), "said": finding.message });
        json!(findings.iter().map(found).collect::<Vec<_>>()).to_string()
    } else {
        let line = |finding: &Finding| {
            format!("{} {:<9} {}\n", finding.state.mark(), finding.check, finding.message)
        };
        findings.iter().map(line).collect()
    };
    output::print(&text)?;
    Ok(u8::from(findings.iter().any(|finding| finding.state == CheckStatus::Bad)))
}

impl CheckStatus {
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

fn finding(what: &'static str, state: CheckStatus, message: impl Into<String>) -> Finding {
    Finding { check: what, state, message: message.into() }
}

fn check_model(config: &Config, world: &ProcessEnv, scope: ProbeScope) -> Finding {
    let chosen = match ResolvedModel::from_config(config, world) {
        Ok(chosen) => chosen,
        Err(error) => {
            let message = format!("{error}; name one with --model, or as `model` in [llm]");
            return finding("model", CheckStatus::Bad, message);
        }
    };
    let asked = match scope {
        ProbeScope::Local => chosen.check(config, world).map(Ok),
        ProbeScope::Network => probe_model(&chosen, config, world),
    };
    match asked {
        Err(error) => finding("model", CheckStatus::Bad, format!("{}: {error}", chosen.name())),
        Ok(Err(fault)) => {
            let message = sanitize::headline(&fault.message, MAX_MESSAGE_CHARS);
            finding("model", CheckStatus::Bad, format!("{}: {message}", chosen.name()))
        }
        Ok(Ok(())) if chosen.limits.price.is_none() => {
            let message =
                "its price is unknown, so --budget can't be used; add it to `costs.prices_file`";
            finding("model", CheckStatus::Warning, format!("{}: {message}", chosen.name()))
        }
        Ok(Ok(())) => {
            let tried = match scope {
                ProbeScope::Local => "not asked; --online tries it",
                ProbeScope::Network => "it answers",
            };
            finding("model", CheckStatus::Good, format!("{} ({tried})", chosen.name()))
        }
    }
}

/// The longest message that is shown, in characters.
const MAX_MESSAGE_CHARS: usize = 400;

fn check_keys(config: &Config, world: &ProcessEnv) -> Finding {
    let named = config.settings.llm.api_key_env.as_ref().map(VariableName::as_str);
    let is_set = |key: &&str| world.variable(key).is_some_and(|key| !key.trim().is_empty());
    let mut variables: Vec<&str> =
        PROVIDERS.iter().flat_map(|provider| provider.key_variables.iter().copied()).collect();
    variables.dedup();
    let set: Vec<&str> =
        named.into_iter().chain(variables.iter().copied()).filter(is_set).collect();
    match set.is_empty() {
        true => finding(
            "keys",
            CheckStatus::Warning,
            format!("none of these is set: {}", variables.join(", ")),
        ),
        false => finding("keys", CheckStatus::Good, format!("set: {}", set.join(", "))),
    }
}

fn check_trust(config: &Config) -> Finding {
    let is_untrusted = |cause| cause == NoticeCause::Untrusted;
    let ignored = config.notices.iter().filter(|notice| is_untrusted(notice.cause)).count();
    match (config.is_trusted, ignored) {
        (false, _) if !config.changed.is_empty() => {
            let changed: Vec<&str> = config.changed.iter().map(|file| file.path.as_str()).collect();
            let changed = sanitize::headline(&changed.join(", "), MAX_MESSAGE_CHARS);
            let message = format!(
                "this folder's own configuration has changed since you trusted it ({changed}): look at it, then `architect \
                 config trust`"
            );
            finding("trust", CheckStatus::Warning, message)
        }
        (true, _) => {
            finding("trust", CheckStatus::Good, "this folder's own configuration is trusted")
        }
        (false, 0) => finding(
            "trust",
            CheckStatus::Good,
            "this folder is not trusted, and nothing of it is ignored",
        ),
        (false, ignored) => {
            let settings = pluralize(ignored, "setting is", "settings are");
            let message = format!(
                "this folder is not trusted, and {settings} ignored: `architect config trust`, or --trust or {TRUST_VARIABLE}=1 for \
                 one run"
            );
            finding("trust", CheckStatus::Warning, message)
        }
    }
}

fn check_mcp(config: &Config, world: &ProcessEnv, scope: ProbeScope) -> Finding {
    if config.settings.mcp.servers.is_empty() {
        return finding("mcp", CheckStatus::Good, "no servers");
    }
    let sandbox = Sandbox::new(config, world, config.workspace.clone(), GuardedFiles::default());
    let Ok(sandbox) = sandbox else {
        return finding("mcp", CheckStatus::Bad, "servers can't be confined as configured");
    };
    let probed = probe_servers(config, world, &sandbox, scope);
    let mut worst = CheckStatus::Good;
    let servers: Vec<String> = probed
        .iter()
        .map(|server| {
            let message = match &server.finding {
                ServerFinding::Tools(tools) => pluralize(*tools, "tool", "tools"),
                ServerFinding::NotProbed => "not tried without --online".to_owned(),
                ServerFinding::Unavailable(why) => {
                    let required = server.is_required;
                    worst = if required || worst == CheckStatus::Bad {
                        CheckStatus::Bad
                    } else {
                        CheckStatus::Warning
                    };
                    sanitize::headline(why, MAX_MESSAGE_CHARS)
                }
            };
            format!("{}: {message}", server.name)
        })
        .collect();
    finding("mcp", worst, servers.join("; "))
}

fn check_sandbox(config: &Config, world: &ProcessEnv) -> Finding {
    let workspace = config.workspace.clone();
    let described = Sandbox::new(config, world, workspace, GuardedFiles::default())
        .and_then(|sandbox| sandbox.describe());
    match described {
        Ok(message) if message.contains("left open") || message.starts_with("not confined") => {
            finding("sandbox", CheckStatus::Warning, format!("commands are {message}"))
        }
        Ok(message) => finding("sandbox", CheckStatus::Good, format!("commands are {message}")),
        Err(error) => finding("sandbox", CheckStatus::Bad, error.to_string()),
    }
}

fn check_git(world: &ProcessEnv) -> Finding {
    let path = std::ffi::OsStr::new(world.variable("PATH").unwrap_or_default());
    match architect::app::context::Git::find(path) {
        Some(_) => finding("git", CheckStatus::Good, "found"),
        None => finding(
            "git",
            CheckStatus::Warning,
            "not found; --context-git-diff can't be used without it",
        ),
    }
}

fn check_sessions(config: &Config, world: &ProcessEnv) -> Finding {
    match open_store(config, world).and_then(|store| Ok(store.list()?.len())) {
        Ok(count) => finding("sessions", CheckStatus::Good, format!("{count} stored")),
        Err(error) => {
            let message = format!("{error}; --ephemeral runs without storing the session");
            finding("sessions", CheckStatus::Bad, message)
        }
    }
}

fn check_prices(config: &Config) -> Finding {
    let table = match config.settings.costs.prices_file.clone() {
        None => Ok(ModelTable::built_in()),
        Some(path) => ModelTable::built_in().with_file(path),
    };
    match table {
        Ok(table) => finding("prices", CheckStatus::Good, format!("as of {}", table.date())),
        Err(error) => finding("prices", CheckStatus::Bad, error.to_string()),
    }
}
