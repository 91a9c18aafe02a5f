//! `architect doctor`: diagnoses the installation and configuration.

use architect::app::{
    AppError, ProbeScope, ProcessEnv, ResolvedModel, Sandbox, ServerFinding, SkillSources,
    foreign_workspace_warning, model_table, open_store, probe_model, probe_servers,
};
use architect::config::{Config, NoticeCause, TRUST_VARIABLE, VariableName};
use architect::llm::PROVIDERS;
use architect::policy::GuardedFiles;
use architect::types::pluralize;
use architect::view::sanitize;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::args::DoctorArgs;
use crate::cli::error::CliError;
use crate::cli::{config_options, output};

/// The result of a check, with a message.
type Finding = (CheckStatus, String);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CheckStatus {
    Good,
    /// A run works, but less well than it could.
    Warning,
    /// A run will not work.
    Bad,
}

use CheckStatus::{Bad, Good, Warning};

/// A check, as `architect doctor --json` lists it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CheckDocument<'a> {
    /// The checked item.
    what: &'a str,
    /// Whether a run works with the item: `good`, `warning` or `bad`.
    state: &'a str,
    /// The finding.
    #[serde(rename = "said")]
    message: &'a str,
}

/// The maximum length of a displayed message, in characters.
const MAX_MESSAGE_CHARS: usize = 400;

pub(crate) fn run(args: &DoctorArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let config = match config_options::load_settings(&args.settings, world) {
        Ok(config) => config,
        Err(error) => {
            report(args.json, &[("config", (Bad, error.text()))])?;
            return Ok(error.code());
        }
    };
    let scope = if args.online { ProbeScope::Network } else { ProbeScope::Local };
    let findings = [
        ("model", check_model(&config, world, scope)),
        ("keys", check_keys(&config, world)),
        ("trust", check_trust(&config)),
        ("mcp", check_mcp(&config, world, scope)),
        ("sandbox", check_sandbox(&config, world)),
        ("git", check_git(world)),
        ("sessions", check_sessions(&config, world)),
        ("prices", check_prices(&config)),
    ];
    report(args.json, &findings)?;
    Ok(u8::from(findings.iter().any(|(_, (status, _))| *status == Bad)))
}

/// Prints the findings.
fn report(json: bool, findings: &[(&str, Finding)]) -> Result<u8, CliError> {
    let (mut text, mut documents) = (String::new(), Vec::new());
    for (check, (status, message)) in findings {
        let (name, mark) = match status {
            Good => ("good", '✓'),
            Warning => ("warning", '!'),
            Bad => ("bad", '✗'),
        };
        text.push_str(&format!("{mark} {check:<9} {message}\n"));
        documents.push(CheckDocument { what: check, state: name, message });
    }
    output::print(&if json { output::to_json(&documents) } else { text })
}

fn check_model(config: &Config, world: &ProcessEnv, scope: ProbeScope) -> Finding {
    let model = match ResolvedModel::from_config(config, world) {
        Ok(model) => model,
        Err(error) => {
            return (Bad, format!("{error}; name one with --model, or as `model` in [llm]"));
        }
    };
    let probed = match scope {
        ProbeScope::Local => model.check(config, world).map(Ok),
        ProbeScope::Network => probe_model(&model, config, world),
    };
    let name = model.name();
    match (probed, scope) {
        (Err(error), _) => (Bad, format!("{name}: {error}")),
        (Ok(Err(fault)), _) => {
            (Bad, format!("{name}: {}", sanitize::headline(&fault.message, MAX_MESSAGE_CHARS)))
        }
        (Ok(Ok(())), _) if model.limits.price.is_none() => (
            Warning,
            format!(
                "{name}: its price is unknown, so --budget can't be used; add it to `costs.prices_file`"
            ),
        ),
        (Ok(Ok(())), ProbeScope::Local) => (Good, format!("{name} (not asked; --online tries it)")),
        (Ok(Ok(())), ProbeScope::Network) => (Good, format!("{name} (it answers)")),
    }
}

fn check_keys(config: &Config, world: &ProcessEnv) -> Finding {
    let named = config.settings.llm.api_key_env.as_ref().map(VariableName::as_str);
    let is_set = |key: &&str| world.variable(key).is_some_and(|key| !key.trim().is_empty());
    let mut variables: Vec<&str> =
        PROVIDERS.iter().flat_map(|provider| provider.key_variables.iter().copied()).collect();
    variables.dedup();
    let set: Vec<&str> =
        named.into_iter().chain(variables.iter().copied()).filter(is_set).collect();
    if named.is_none() && config.settings.llm.api_key_command.is_some() {
        return (Good, "llm.api_key_command prints the key".to_owned());
    }
    match set.is_empty() {
        true => (Warning, format!("none of these is set: {}", variables.join(", "))),
        false => (Good, format!("set: {}", set.join(", "))),
    }
}

fn check_trust(config: &Config) -> Finding {
    let is_untrusted = |cause| cause == NoticeCause::Untrusted;
    let ignored = config.notices.iter().filter(|notice| is_untrusted(notice.cause)).count();
    if config.is_trusted {
        return (Good, "this folder's own configuration is trusted".to_owned());
    }
    if !config.changed.is_empty() {
        let changed: Vec<&str> = config.changed.iter().map(|file| file.path.as_str()).collect();
        let changed = sanitize::headline(&changed.join(", "), MAX_MESSAGE_CHARS);
        let message = format!(
            "this folder's own configuration has changed since you trusted it ({changed}): look at it, then `architect \
             config trust`"
        );
        return (Warning, message);
    }
    if ignored == 0 {
        return (Good, "not needed: no setting of this folder is ignored".to_owned());
    }
    let settings = pluralize(ignored, "setting is", "settings are");
    let message = format!(
        "this folder is not trusted, and {settings} ignored: `architect config trust`, or --trust or {TRUST_VARIABLE}=1 for \
         one run"
    );
    (Warning, message)
}

fn check_mcp(config: &Config, world: &ProcessEnv, scope: ProbeScope) -> Finding {
    if config.settings.mcp.servers.is_empty() {
        return (Good, "no servers".to_owned());
    }
    let Ok(sandbox) = new_sandbox(config, world) else {
        return (Bad, "servers can't be confined as configured".to_owned());
    };
    let (mut worst, mut servers) = (Good, Vec::new());
    for server in probe_servers(config, world, &sandbox, scope) {
        let message = match &server.finding {
            ServerFinding::Tools(tools) => pluralize(*tools, "tool", "tools"),
            ServerFinding::NotProbed => "not tried without --online".to_owned(),
            ServerFinding::Unavailable(why) => {
                worst = worst.max(if server.is_required { Bad } else { Warning });
                sanitize::headline(why, MAX_MESSAGE_CHARS)
            }
        };
        servers.push(format!("{}: {message}", server.name));
    }
    (worst, servers.join("; "))
}

fn check_sandbox(config: &Config, world: &ProcessEnv) -> Finding {
    if let Some(warning) = foreign_workspace_warning(config, &config.workspace) {
        return (Warning, warning);
    }
    let described = new_sandbox(config, world).and_then(|sandbox| sandbox.describe());
    match described {
        Ok(message) if message.contains("left open") || message.starts_with("not confined") => {
            (Warning, format!("commands are {message}"))
        }
        Ok(message) => (Good, format!("commands are {message}")),
        Err(error) => (Bad, error.to_string()),
    }
}

fn new_sandbox(config: &Config, world: &ProcessEnv) -> Result<Sandbox, AppError> {
    let skills = SkillSources::new(config, world).read();
    Sandbox::new(config, world, config.workspace.clone(), GuardedFiles::default(), &skills)
}

fn check_git(world: &ProcessEnv) -> Finding {
    let path = std::ffi::OsStr::new(world.variable("PATH").unwrap_or_default());
    match architect::app::context::find_git(path) {
        Some(_) => (Good, "found".to_owned()),
        None => (Warning, "not found; --context-git-diff can't be used without it".to_owned()),
    }
}

fn check_sessions(config: &Config, world: &ProcessEnv) -> Finding {
    match open_store(config, world).and_then(|store| Ok(store.list()?.len())) {
        Ok(count) => (Good, format!("{count} stored")),
        Err(error) => (Bad, format!("{error}; --ephemeral runs without storing the session")),
    }
}

fn check_prices(config: &Config) -> Finding {
    match model_table(config) {
        Ok(table) => (Good, format!("as of {}", table.date())),
        Err(error) => (Bad, error.to_string()),
    }
}
