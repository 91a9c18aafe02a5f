//! Loading the configuration according to the options.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use architect::app::{
    AppError, ExecutionMode, ProcessEnv, ResolvedModel, RunSetup, collect_secrets,
};
use architect::config::{
    Config, ConfigSources, NoticeCause, OptionOverride, ProjectTrust, TRUST_VARIABLE,
    is_cumulative, is_list, load, may_set_secret,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::args::{LayerArgs, OutputArgs, SettingsArgs};
use super::error::CliError;
use super::{approval, logging};

/// The agent that runs by default.
pub(crate) const DEFAULT_AGENT: &str = "build";

/// The options of a run that are stored in its session, so that a resume uses them too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SavedOptions {
    /// Values in the form of `--set` from a session that others could have written. Only those that tighten apply.
    #[serde(skip)]
    pub(crate) untrusted_sets: Vec<String>,
    /// Values in the form of `--set`.
    pub(crate) sets: Vec<String>,
    /// The keys of options that are not stored, since their values may be secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) omitted: Vec<String>,
    pub(crate) agent: Option<String>,
    pub(crate) config: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) dry_run: bool,
    pub(crate) disable_mcp: bool,
}

/// Returns the configuration of a run, and the options to store in its session. `saved` are the stored options of a
/// resumed session.
///
/// # Errors
///
/// Fails with all problems of the configuration.
pub(crate) fn load_config(
    args: &SettingsArgs,
    output: Option<&OutputArgs>,
    world: &ProcessEnv,
    saved: Option<&SavedOptions>,
) -> Result<(Config, SavedOptions), CliError> {
    let new = SavedOptions::default();
    let before = saved.unwrap_or(&new);
    let overrides = collect_options(args, output);
    let given = split_tables(&args.layers.set);
    before.report_omitted(&[given.clone(), as_sets(&overrides)].concat())?;
    let agent = args.agent.clone().or_else(|| before.agent.clone());
    let layers = &args.layers;
    let mode = args.mode.map(|mode| {
        let name = agent.as_deref().unwrap_or(DEFAULT_AGENT);
        format!("agents.{name}.confirm_mode={mode}")
    });
    let own: Vec<String> = layers.set.iter().cloned().chain(mode.clone()).collect();
    let stored: Vec<String> = given.into_iter().chain(mode).collect();
    let remembered = SavedOptions {
        untrusted_sets: Vec::new(),
        omitted: before.omitted.clone(),
        sets: drop_replaced(
            [before.untrusted_sets.clone(), before.sets.clone(), stored, as_sets(&overrides)]
                .concat(),
        ),
        agent,
        config: layers.config.as_ref().map_or(before.config.clone(), |path| {
            Some(world.cwd.join(path).to_string_lossy().into_owned())
        }),
        profile: layers.profile.clone().or_else(|| before.profile.clone()),
        dry_run: args.dry_run.unwrap_or(before.dry_run),
        disable_mcp: args.disable_mcp.unwrap_or(before.disable_mcp),
    };
    let sources = ConfigSources {
        file: remembered.config.as_ref().map(Into::into),
        mcp_files: args.mcp_config.iter().cloned().collect(),
        profile: remembered.profile.clone(),
        untrusted_sets: before.untrusted_sets.clone(),
        saved_sets: saved.map(|saved| saved.sets.clone()),
        sets: own,
        options: overrides,
        ..layer_sources(layers, world)
    };
    let mut config = load(&sources).map_err(AppError::from)?;
    // Only a run needs the approval; other commands just show the configuration.
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
    if let Some(output) = output {
        let secrets = collect_secrets(&config, world);
        logging::configure(output.verbose, config.settings.logging.level, secrets);
    }
    Ok((config, remembered))
}

/// Returns the configuration of a run with these options.
///
/// # Errors
///
/// Fails with all problems of the configuration.
pub(crate) fn load_settings(args: &SettingsArgs, world: &ProcessEnv) -> Result<Config, CliError> {
    load_config(args, None, world, None).map(|(config, _)| config)
}

/// Returns the configuration of a stored session with changed settings.
///
/// # Errors
///
/// Fails with all problems of the configuration.
pub(crate) fn load_changed(
    layers: &LayerArgs,
    saved: &SavedOptions,
    changes: &[String],
    world: &ProcessEnv,
) -> Result<Config, CliError> {
    let own = layer_sources(layers, world);
    let sources = ConfigSources {
        file: own.file.or_else(|| saved.config.as_ref().map(Into::into)),
        profile: own.profile.or_else(|| saved.profile.clone()),
        untrusted_sets: saved.untrusted_sets.clone(),
        saved_sets: Some(saved.sets.clone()),
        sets: changes.to_vec(),
        ..own
    };
    Ok(load(&sources).map_err(AppError::from)?)
}

/// Returns the configuration for a command that only needs the store of sessions.
///
/// # Errors
///
/// Fails with all problems of the configuration.
pub(crate) fn load_layers(layers: &LayerArgs, world: &ProcessEnv) -> Result<Config, CliError> {
    Ok(load(&layer_sources(layers, world)).map_err(AppError::from)?)
}

/// Returns the sources of the configuration from the process and these options.
pub(crate) fn layer_sources(layers: &LayerArgs, world: &ProcessEnv) -> ConfigSources {
    ConfigSources {
        folders: world.folders(),
        cwd: world.cwd.clone(),
        variables: world.text_variables().collect(),
        trust: if layers.trust { ProjectTrust::Granted } else { ProjectTrust::Stored },
        file: layers.config.clone(),
        profile: layers.profile.clone(),
        sets: layers.set.clone(),
        options: workspace(layers).into_iter().collect(),
        ..ConfigSources::default()
    }
}

/// Returns the values that options set.
fn collect_options(args: &SettingsArgs, output: Option<&OutputArgs>) -> Vec<OptionOverride> {
    let mut overrides: Vec<OptionOverride> = workspace(&args.layers).into_iter().collect();
    overrides.extend_from_slice(&args.keys.overrides);
    let required =
        overrides.iter().find(|set| asks_for_confinement(set)).map(|set| OptionOverride {
            key: "sandbox.required",
            value: "true".to_owned(),
            option: set.option.clone(),
        });
    overrides.extend(required);
    overrides.extend(output.into_iter().flat_map(|output| output.keys.overrides.iter().cloned()));
    overrides
}

/// Returns whether an option requests a confinement, which is then required.
pub(crate) fn asks_for_confinement(set: &OptionOverride) -> bool {
    match set.key {
        "sandbox.mode" => set.value != "off",
        "sandbox.network" => set.value != "on",
        _ => false,
    }
}

fn workspace(layers: &LayerArgs) -> Option<OptionOverride> {
    let path = layers.workspace.as_ref()?;
    let value = path.to_string_lossy().into_owned();
    Some(OptionOverride { key: "workspace.root", value, option: "--workspace".to_owned() })
}

/// Returns the mode of execution: a dry run changes nothing.
pub(crate) fn execution_mode(is_dry_run: bool) -> ExecutionMode {
    if is_dry_run { ExecutionMode::DryRun } else { ExecutionMode::Real }
}

/// Returns values in the form of `--set`.
pub(crate) fn as_sets(overrides: &[OptionOverride]) -> Vec<String> {
    let mut sets = Vec::new();
    for (index, OptionOverride { key, value, .. }) in overrides.iter().enumerate() {
        if !is_list(key) {
            sets.push(format!("{key}={value}"));
        } else if overrides[..index].iter().all(|earlier| earlier.key != *key) {
            let items = overrides.iter().filter(|other| other.key == *key);
            let items: Vec<&String> = items.map(|item| &item.value).collect();
            sets.push(format!("{key}={}", json!(items)));
        }
    }
    sets
}

/// Removes settings that a later setting of the same key replaces, so that they don't accumulate in a session that is
/// resumed often. All items of cumulative lists are kept.
fn drop_replaced(sets: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for set in sets {
        let replaces = |other: &String| match set_key(&set) {
            path if is_cumulative(path) => *other == set,
            path => set_key(other) == path,
        };
        kept.retain(|other| !replaces(other));
        kept.push(set);
    }
    kept
}

/// Tables with free names, whose entries are checked for secrets one by one.
const SPLIT_TABLES: [&str; 2] = ["llm.headers", "llm.options"];

/// Splits settings of headers and options into one setting for each entry, so that entries without secrets can be
/// stored. Such tables are merged, so the meaning stays the same.
fn split_tables(sets: &[String]) -> Vec<String> {
    let split = |set: &String| {
        let (key, value) = set.split_once('=')?;
        let key = SPLIT_TABLES.iter().find(|table| **table == key.trim())?;
        let table: toml::Table = toml::from_str(&format!("table = {}", value.trim())).ok()?;
        let entries = table.get("table")?.as_table()?;
        let is_plain = |name: &String| !name.contains(['=', '"']) && name.trim() == name;
        let entry = |(name, value): (&String, &toml::Value)| {
            is_plain(name).then(|| format!("{key}.{name}={value}"))
        };
        entries.iter().map(entry).collect::<Option<Vec<_>>>()
    };
    sets.iter().flat_map(|set| split(set).unwrap_or_else(|| vec![set.clone()])).collect()
}

/// Returns the key of a setting in the form of `--set`.
pub(crate) fn set_key(set: &str) -> &str {
    set.split('=').next().unwrap_or_default().trim()
}

impl SavedOptions {
    /// Returns the setup of a run with these options.
    ///
    /// # Errors
    ///
    /// Fails if a run is not possible with this configuration.
    pub(crate) fn new_setup(&self, config: Config, env: ProcessEnv) -> Result<RunSetup, CliError> {
        let model = ResolvedModel::from_config(&config, &env)?;
        let agent = self.agent.as_deref().unwrap_or(DEFAULT_AGENT);
        let mut setup = RunSetup::new(config, env, agent, model)?;
        setup.execution = execution_mode(self.dry_run);
        Ok(setup)
    }

    /// Returns the names of the stored options.
    pub(crate) fn names(&self) -> Vec<String> {
        let keys = self.sets.iter().map(|set| set_key(set).to_owned());
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

    /// Returns the options that are used from a session that others could have written: no program, address or file.
    pub(crate) fn of_exposed_session(self) -> Self {
        let (sets, untrusted_sets) =
            self.sets.into_iter().partition(|set| set.starts_with("llm.model="));
        let (agent, disable_mcp) = (self.agent, self.disable_mcp);
        Self { untrusted_sets, sets, agent, disable_mcp, dry_run: self.dry_run, ..Self::default() }
    }

    /// Returns the stored form. Of a value that may be a secret, it contains only the key.
    pub(crate) fn to_json(&self) -> Value {
        let (secret, sets): (Vec<String>, Vec<String>) =
            self.sets.iter().cloned().partition(|set| may_set_secret(set));
        let mut omitted: Vec<String> = secret.iter().map(|set| set_key(set).to_owned()).collect();
        omitted.extend(self.omitted.clone());
        omitted.retain(|key| !sets.iter().any(|set| set_key(set) == *key));
        omitted.sort();
        omitted.dedup();
        json!(Self { sets, omitted, ..self.clone() })
    }

    /// Warns, once in a process, about values of the session that are not stored and missing in the given settings.
    ///
    /// # Errors
    ///
    /// Fails if an address is missing: another server would get the conversation and the key.
    fn report_omitted(&self, own: &[String]) -> Result<(), CliError> {
        static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let is_missing = |key: &&String| !own.iter().any(|set| set_key(set) == **key);
        for key in self.omitted.iter().filter(is_missing) {
            if key.ends_with("api_base") {
                let text = "is not stored in the session, since it may contain a secret";
                return Err(CliError::usage(format!("{key} {text}"))
                    .hint(format!("give the address again: --set {key}=URL")));
            }
            let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
            if !reported.insert(key.clone()) {
                continue;
            }
            log::warn!(
                "{key} is not stored in the session, since its value may be a secret: give it again with --set, or set it in \
                 your configuration"
            );
        }
        Ok(())
    }

    /// Reads the stored form; missing options are not set.
    pub(crate) fn from_json(value: &Value) -> Self {
        Self::deserialize(value).unwrap_or_default()
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
    fn a_value_that_may_be_a_secret_is_not_stored() {
        let sets = ["llm.headers.X-Gateway=canary", "llm.options.user=a1b2c3d4e5f6g7h8", "a.b=1"];
        let saved =
            SavedOptions { sets: sets.map(str::to_owned).into(), ..SavedOptions::default() };
        let stored = saved.to_json();
        assert_eq!(stored["sets"], json!(["a.b=1"]));
        assert_eq!(stored["omitted"], json!(["llm.headers.X-Gateway", "llm.options.user"]));
        // The key stays omitted until a storable value replaces it.
        let mut again = SavedOptions::from_json(&stored);
        again.sets.push("llm.options.user=me".to_owned());
        assert_eq!(again.to_json()["omitted"], json!(["llm.headers.X-Gateway"]));
    }

    #[test]
    fn each_header_of_a_table_is_stored_or_named() {
        let sets = split_tables(&[
            "llm.headers={ X-Team = 'a b', X-Own = 'canary' }".to_owned(),
            "llm.options = { seed = 7, text = { verbosity = 'low' } }".to_owned(),
            "permissions.allow=['a=b']".to_owned(),
        ]);
        let saved = SavedOptions { sets, ..SavedOptions::default() }.to_json();
        let stored = json!([
            "llm.headers.X-Team=\"a b\"",
            "llm.options.seed=7",
            "llm.options.text={ verbosity = \"low\" }",
            "permissions.allow=['a=b']",
        ]);
        assert_eq!(saved["sets"], stored);
        assert_eq!(saved["omitted"], json!(["llm.headers.X-Own"]));
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
