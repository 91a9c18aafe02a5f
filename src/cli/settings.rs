//! From options to a configuration.

use architect::app::{AppError, Effect, World};
use architect::config::{Config, Flag, NoticeCause, Sources, TRUST, Trust, adds_up, load};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::approval;
use super::args::{LayerArgs, OutputArgs, SettingsArgs};
use super::error::Failure;

/// The agent that works when nobody names another one.
pub(crate) const FIRST_AGENT: &str = "build";

/// What a session remembers of the options that it was begun with, so that it goes on in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remembered {
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
struct Flags {
    flags: Vec<Flag>,
    sets: Vec<String>,
}

impl Flags {
    fn one(&mut self, key: &'static str, option: &str, value: Option<String>) {
        if let Some(value) = value {
            self.sets.push(format!("{key}={value}"));
            self.flags.push(Flag { key, value, option: option.to_owned() });
        }
    }

    fn workspace(&mut self, layers: &LayerArgs) {
        let workspace = layers.workspace.as_ref().map(|path| path.to_string_lossy().into_owned());
        self.one("workspace.root", "--workspace", workspace);
    }

    fn each(&mut self, key: &'static str, option: &str, values: &[String]) {
        for value in values {
            self.flags.push(Flag { key, value: value.clone(), option: option.to_owned() });
        }
        if !values.is_empty() {
            self.sets.push(format!("{key}={}", json!(values)));
        }
    }
}

/// Returns the configuration of a run, and what its session has to remember.
///
/// # Errors
///
/// Fails with everything that is wrong with it.
pub(crate) fn read(
    args: &SettingsArgs,
    output: Option<&OutputArgs>,
    world: &World,
    before: &Remembered,
) -> Result<(Config, Remembered), Failure> {
    let flags = flags(args, output);
    let agent = args.agent.clone().or_else(|| before.agent.clone());
    let layers = &args.layers;
    let mut own = layers.set.clone();
    if let Some(mode) = args.mode {
        let name = agent.as_deref().unwrap_or(FIRST_AGENT);
        own.push(format!("agents.{name}.confirm_mode={}", word(mode)));
    }
    let remembered = Remembered {
        sets: effective([before.sets.clone(), own.clone(), flags.sets].concat()),
        agent,
        config: layers.config.as_ref().map_or(before.config.clone(), |path| {
            Some(world.cwd.join(path).to_string_lossy().into_owned())
        }),
        profile: layers.profile.clone().or_else(|| before.profile.clone()),
        dry_run: args.dry_run.unwrap_or(before.dry_run),
        disable_mcp: args.disable_mcp.unwrap_or(before.disable_mcp),
    };
    let sources = Sources {
        trust: trust(layers),
        file: remembered.config.as_ref().map(Into::into),
        mcp_files: args.mcp_config.iter().cloned().collect(),
        profile: remembered.profile.clone(),
        sets: [before.sets.clone(), own].concat(),
        flags: flags.flags,
        ..surroundings(world)
    };
    let mut config = load(&sources).map_err(AppError::from)?;
    // Other commands show what is, and run nothing of it.
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
            "`architect config trust` trusts this folder, `--trust` or {TRUST}=1 does for one run"
        );
    }
    Ok((config, remembered))
}

/// Returns the configuration of a command that needs no more than the store of sessions.
///
/// # Errors
///
/// Fails with everything that is wrong with it.
pub(crate) fn of_layers(layers: &LayerArgs, world: &World) -> Result<Config, Failure> {
    let mut flags = Flags::default();
    flags.workspace(layers);
    let sources = Sources {
        trust: trust(layers),
        file: layers.config.clone(),
        profile: layers.profile.clone(),
        sets: layers.set.clone(),
        flags: flags.flags,
        ..surroundings(world)
    };
    Ok(load(&sources).map_err(AppError::from)?)
}

fn surroundings(world: &World) -> Sources {
    Sources {
        folders: world.folders(),
        cwd: world.cwd.clone(),
        variables: world.texts().collect(),
        ..Sources::default()
    }
}

fn trust(layers: &LayerArgs) -> Trust {
    if layers.trust { Trust::Granted } else { Trust::Stored }
}

fn flags(args: &SettingsArgs, output: Option<&OutputArgs>) -> Flags {
    let mut flags = Flags::default();
    let text = |number: Option<f64>| number.map(|number| number.to_string());
    let off = |is_set: bool| is_set.then(|| "false".to_owned());
    flags.one("llm.model", "--model", args.model.clone());
    flags.one("llm.api_base", "--api-base", args.api_base.clone());
    flags.one("llm.api_key_env", "--api-key-env", args.api_key_env.clone());
    flags.workspace(&args.layers);
    flags.one("limits.max_steps", "--max-steps", args.max_steps.map(|n| n.to_string()));
    flags.one("limits.budget_usd", "--budget", text(args.budget));
    flags.one("limits.max_tokens", "--max-tokens", args.max_tokens.map(|n| n.to_string()));
    flags.one("limits.timeout", "--timeout", text(args.timeout));
    flags.one("limits.step_timeout", "--step-timeout", text(args.step_timeout));
    flags.one("sandbox.mode", "--sandbox", args.sandbox.map(word));
    flags.one("sandbox.network", "--network", args.network.map(word));
    // Who asks for a confinement wants to have it.
    let required = args.sandbox.is_some_and(|mode| word(mode) != "off");
    flags.one("sandbox.required", "--sandbox", required.then(|| "true".to_owned()));
    flags.each("permissions.allow", "--allow", &args.allow);
    flags.each("permissions.deny", "--deny", &args.deny);
    let fail_on_denied = args.fail_on_denied.then(|| "true".to_owned());
    flags.one("permissions.fail_on_denied", "--fail-on-denied", fail_on_denied);
    flags.one("commands.enabled", "--no-commands", off(args.no_commands));
    flags.one("evaluation.mode", "--self-eval", args.self_eval.map(word));
    if let Some(output) = output {
        flags.one("llm.stream", "--no-stream", off(output.no_stream));
        flags.one("language", "--lang", output.lang.map(word));
        let file = output.log_file.as_ref().map(|path| path.to_string_lossy().into_owned());
        flags.one("logging.file", "--log-file", file);
        flags.one("logging.level", "--log-level", output.log_level.map(word));
    }
    flags
}

/// Leaves out what a later setting of the same key replaces; otherwise a session that goes on often would remember the
/// same again and again. Of a list that adds up everything counts.
fn effective(sets: Vec<String>) -> Vec<String> {
    let key = |set: &str| set.split('=').next().map(|key| key.trim().to_owned());
    let mut kept: Vec<String> = Vec::new();
    for set in sets {
        let replaces = |other: &String| match key(&set) {
            Some(path) if adds_up(&path) => *other == set,
            path => key(other) == path,
        };
        kept.retain(|other| !replaces(other));
        kept.push(set);
    }
    kept
}

/// Returns how a value is typed.
fn word<T: ValueEnum + Copy>(value: T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl Remembered {
    /// Returns whether anything is to be changed.
    pub(crate) fn effect(&self) -> Effect {
        if self.dry_run { Effect::Described } else { Effect::Real }
    }

    /// Returns it as a session keeps it.
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

    /// Returns the names of what is remembered.
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

    /// Returns what a session kept; what it did not keep is not there.
    pub(crate) fn of_json(value: &Value) -> Self {
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
        assert_eq!(effective(sets.into()), [" a.b=2", "c=x=2"]);
    }

    #[test]
    fn of_a_list_that_adds_up_everything_is_remembered_once() {
        let sets = ["permissions.deny=a", "permissions.deny=b", "permissions.deny=a"];
        let kept = effective(sets.map(str::to_owned).into());
        assert_eq!(kept, ["permissions.deny=b", "permissions.deny=a"]);
    }

    #[test]
    fn what_a_session_remembers_reads_back() {
        let remembered = Remembered {
            sets: vec!["limits.max_steps=3".into()],
            agent: Some("plan".into()),
            dry_run: true,
            ..Remembered::default()
        };
        assert_eq!(Remembered::of_json(&remembered.to_json()), remembered);
        assert_eq!(Remembered::of_json(&Value::Null), Remembered::default());
    }
}
