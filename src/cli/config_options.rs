//! From options to a configuration.

use architect::app::{AppError, EffectMode, ProcessEnv};
use architect::config::{
    Config, ConfigSources, NoticeCause, OptionOverride, ProjectTrust, TRUST_VARIABLE,
    is_cumulative, load,
};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::approval;
use super::args::{LayerArgs, OutputArgs, SettingsArgs};
use super::error::CliError;

/// The agent that runs by default.
pub(crate) const DEFAULT_AGENT: &str = "build";

/// The options of a run that are stored in its session, so that a resume uses them too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SavedOptions {
    /// As `--set` takes them.
    pub(crate) sets: Vec<String>,
    pub(crate) agent: Option<String>,
    pub(crate) config: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) dry_run: bool,
    pub(crate) disable_mcp: bool,
}

/// Options that stand for keys of the configuration, with what is remembered of them.
#[derive(Default)]
struct OptionCollector {
    overrides: Vec<OptionOverride>,
    sets: Vec<String>,
}

impl OptionCollector {
    fn set(&mut self, key: &'static str, option: &str, value: Option<String>) {
        if let Some(value) = value {
            self.sets.push(format!("{key}={value}"));
            self.overrides.push(OptionOverride { key, value, option: option.to_owned() });
        }
    }

    fn set_workspace(&mut self, layers: &LayerArgs) {
        let workspace = layers.workspace.as_ref().map(|path| path.to_string_lossy().into_owned());
        self.set("workspace.root", "--workspace", workspace);
    }

    fn append(&mut self, key: &'static str, option: &str, values: &[String]) {
        for value in values {
            self.overrides.push(OptionOverride {
                key,
                value: value.clone(),
                option: option.to_owned(),
            });
        }
        if !values.is_empty() {
            self.sets.push(format!("{key}={}", json!(values)));
        }
    }
}

/// Returns the configuration of a run, and the options to store in its session.
///
/// # Errors
///
/// Fails with everything that is wrong with it.
pub(crate) fn load_config(
    args: &SettingsArgs,
    output: Option<&OutputArgs>,
    world: &ProcessEnv,
    before: &SavedOptions,
) -> Result<(Config, SavedOptions), CliError> {
    let flags = collect_options(args, output);
    let agent = args.agent.clone().or_else(|| before.agent.clone());
    let layers = &args.layers;
    let mut own = layers.set.clone();
    if let Some(mode) = args.mode {
        let name = agent.as_deref().unwrap_or(DEFAULT_AGENT);
        own.push(format!("agents.{name}.confirm_mode={}", value_name(mode)));
    }
    let remembered = SavedOptions {
        sets: drop_replaced([before.sets.clone(), own.clone(), flags.sets].concat()),
        agent,
        config: layers.config.as_ref().map_or(before.config.clone(), |path| {
            Some(world.cwd.join(path).to_string_lossy().into_owned())
        }),
        profile: layers.profile.clone().or_else(|| before.profile.clone()),
        dry_run: args.dry_run.unwrap_or(before.dry_run),
        disable_mcp: args.disable_mcp.unwrap_or(before.disable_mcp),
    };
    let sources = ConfigSources {
        trust: project_trust(layers),
        file: remembered.config.as_ref().map(Into::into),
        mcp_files: args.mcp_config.iter().cloned().collect(),
        profile: remembered.profile.clone(),
        sets: [before.sets.clone(), own].concat(),
        options: flags.overrides,
        ..base_sources(world)
    };
    let mut config = load(&sources).map_err(AppError::from)?;
    // Other commands only show the configuration.
    while output.is_some() && !config.changed.is_empty() {
        approval::ask(&config, world)?;
        config = load(&sources).map_err(AppError::from)?;
    }
    if remembered.disable_mcp {
        config.settings.mcp.servers.clear();
    }
    for notice in &config.notices {
        log::warn!("{notice}");
    }
    if config.notices.iter().any(|notice| notice.cause == NoticeCause::Untrusted) {
        log::warn!(
            "`architect config trust` trusts this folder, `--trust` or {TRUST_VARIABLE}=1 does for one run"
        );
    }
    Ok((config, remembered))
}

/// Returns the configuration of a command that needs no more than the store of sessions.
///
/// # Errors
///
/// Fails with everything that is wrong with it.
pub(crate) fn load_layers(layers: &LayerArgs, world: &ProcessEnv) -> Result<Config, CliError> {
    let mut flags = OptionCollector::default();
    flags.set_workspace(layers);
    let sources = ConfigSources {
        trust: project_trust(layers),
        file: layers.config.clone(),
        profile: layers.profile.clone(),
        sets: layers.set.clone(),
        options: flags.overrides,
        ..base_sources(world)
    };
    Ok(load(&sources).map_err(AppError::from)?)
}

fn base_sources(world: &ProcessEnv) -> ConfigSources {
    ConfigSources {
        folders: world.folders(),
        cwd: world.cwd.clone(),
        variables: world.text_variables().collect(),
        ..ConfigSources::default()
    }
}

fn project_trust(layers: &LayerArgs) -> ProjectTrust {
    if layers.trust { ProjectTrust::Granted } else { ProjectTrust::Stored }
}

fn collect_options(args: &SettingsArgs, output: Option<&OutputArgs>) -> OptionCollector {
    let mut flags = OptionCollector::default();
    let text = |number: Option<f64>| number.map(|number| number.to_string());
    let off = |is_set: bool| is_set.then(|| "false".to_owned());
    flags.set("llm.model", "--model", args.model.clone());
    flags.set("llm.api_base", "--api-base", args.api_base.clone());
    flags.set("llm.api_key_env", "--api-key-env", args.api_key_env.clone());
    flags.set_workspace(&args.layers);
    flags.set("limits.max_steps", "--max-steps", args.max_steps.map(|n| n.to_string()));
    flags.set("limits.budget_usd", "--budget", text(args.budget));
    flags.set("limits.max_tokens", "--max-tokens", args.max_tokens.map(|n| n.to_string()));
    flags.set("limits.timeout", "--timeout", text(args.timeout));
    flags.set("limits.step_timeout", "--step-timeout", text(args.step_timeout));
    flags.set("sandbox.mode", "--sandbox", args.sandbox.map(value_name));
    flags.set("sandbox.network", "--network", args.network.map(value_name));
    // A confinement that is asked for is required.
    let required = args.sandbox.is_some_and(|mode| value_name(mode) != "off");
    flags.set("sandbox.required", "--sandbox", required.then(|| "true".to_owned()));
    flags.append("permissions.allow", "--allow", &args.allow);
    flags.append("permissions.deny", "--deny", &args.deny);
    let fail_on_denied = args.fail_on_denied.then(|| "true".to_owned());
    flags.set("permissions.fail_on_denied", "--fail-on-denied", fail_on_denied);
    flags.set("commands.enabled", "--no-commands", off(args.no_commands));
    flags.set("evaluation.mode", "--self-eval", args.self_eval.map(value_name));
    if let Some(output) = output {
        flags.set("llm.stream", "--no-stream", off(output.no_stream));
        flags.set("language", "--lang", output.lang.map(value_name));
        let file = output.log_file.as_ref().map(|path| path.to_string_lossy().into_owned());
        flags.set("logging.file", "--log-file", file);
        flags.set("logging.level", "--log-level", output.log_level.map(value_name));
    }
    flags
}

/// Leaves out settings that a later one of the same key replaces, so that they don't accumulate in a session that is
/// resumed often. Items of cumulative lists all stay.
fn drop_replaced(sets: Vec<String>) -> Vec<String> {
    let key = |set: &str| set.split('=').next().map(|key| key.trim().to_owned());
    let mut kept: Vec<String> = Vec::new();
    for set in sets {
        let replaces = |other: &String| match key(&set) {
            Some(path) if is_cumulative(&path) => *other == set,
            path => key(other) == path,
        };
        kept.retain(|other| !replaces(other));
        kept.push(set);
    }
    kept
}

/// Returns the spelling of a value.
fn value_name<T: ValueEnum + Copy>(value: T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl SavedOptions {
    /// Returns whether effects are real.
    pub(crate) fn effect_mode(&self) -> EffectMode {
        if self.dry_run { EffectMode::DryRun } else { EffectMode::Real }
    }

    /// Returns the stored form.
    pub(crate) fn to_json(&self) -> Value {
        let Self { sets, agent, config, profile, dry_run, disable_mcp } = self;
        json!({
            "sets": sets,
            "agent": agent,
            "config": config,
            "profile": profile,
            "dry_run": dry_run,
            "disable_mcp": disable_mcp,
        })
    }

    /// Returns the names of the stored options.
    pub(crate) fn names(&self) -> Vec<String> {
        let keys = self.sets.iter().filter_map(|set| set.split('=').next().map(str::to_owned));
        let others = [
            ("--agent", self.agent.is_some()),
            ("--config", self.config.is_some()),
            ("--profile", self.profile.is_some()),
            ("--dry-run", self.dry_run),
            ("--disable-mcp", self.disable_mcp),
        ];
        let others = others.into_iter().filter(|(_, is_there)| *is_there);
        keys.chain(others.map(|(name, _)| name.to_owned())).collect()
    }

    /// Reads the stored form; missing options are not set.
    pub(crate) fn from_json(value: &Value) -> Self {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let sets = value["sets"].as_array().into_iter().flatten();
        Self {
            sets: sets.filter_map(|set| set.as_str().map(str::to_owned)).collect(),
            agent: text("agent"),
            config: text("config"),
            profile: text("profile"),
            dry_run: value["dry_run"].as_bool().unwrap_or(false),
            disable_mcp: value["disable_mcp"].as_bool().unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_set_twice_the_last_is_remembered() {
        let sets = ["a.b=1", "c=x=1", " a.b=2", "c=x=2"].map(str::to_owned);
        assert_eq!(drop_replaced(sets.into()), [" a.b=2", "c=x=2"]);
    }

    #[test]
    fn of_a_list_that_adds_up_everything_is_remembered_once() {
        let sets = ["permissions.deny=a", "permissions.deny=b", "permissions.deny=a"];
        let kept = drop_replaced(sets.map(str::to_owned).into());
        assert_eq!(kept, ["permissions.deny=b", "permissions.deny=a"]);
    }

    #[test]
    fn what_a_session_remembers_reads_back() {
        let remembered = SavedOptions {
            sets: vec!["limits.max_steps=3".into()],
            agent: Some("plan".into()),
            dry_run: true,
            ..SavedOptions::default()
        };
        assert_eq!(SavedOptions::from_json(&remembered.to_json()), remembered);
        assert_eq!(SavedOptions::from_json(&Value::Null), SavedOptions::default());
    }
}
