//! The loaded configuration.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::agents::{self, AgentDefinition};
use super::effective::EffectiveValue;
use super::layers::ConfigFile;
use super::origin::{LayerRank, OriginSource, ValueOrigin};
use super::problem::{ConfigNotice, ConfigProblem, ProblemKind};
use super::settings::{HookConfinement, McpServerConfig, Settings};
use super::text_types::{ConfigName, HttpUrl, VariableName};
use super::trust::ChangedFile;
use crate::exec::{SandboxMode, is_secret_variable};

/// The problem with sending a key to an address unencrypted.
pub(crate) const UNENCRYPTED_KEY: &str =
    "a key would go to another machine unencrypted; use https, or set `llm.allow_http = true`";

/// The loaded configuration: the settings of all layers with their origins.
#[derive(Clone, Debug)]
pub struct Config {
    /// The merged settings.
    pub settings: Settings,
    /// Information for the user about things that are not problems.
    pub notices: Vec<ConfigNotice>,
    /// The folder that the agent works in.
    pub workspace: PathBuf,
    /// Whether the project's folder is trusted.
    pub is_trusted: bool,
    /// Whether the agent may have written all values, as in a scenario.
    pub is_all_of_project: bool,
    /// Whether the configuration is for a stored session, with the options stored in it.
    pub is_resumed: bool,
    /// The project's files that have changed since the user trusted the folder. If there are any, the folder is not
    /// trusted.
    pub changed: Vec<ChangedFile>,
    /// The configuration files, present or not, in the order of the layers.
    pub files: Vec<ConfigFile>,
    /// Every key with its value and the origin of the value, in the order of the sections.
    pub effective_values: Vec<EffectiveValue>,
}

impl Config {
    /// Returns the workspace with links resolved; unresolved if that fails.
    pub fn real_workspace(&self) -> PathBuf {
        self.workspace.canonicalize().unwrap_or_else(|_| self.workspace.clone())
    }

    /// Returns the origin of a key's value; the default for an unknown key.
    pub fn origin(&self, key: &str) -> ValueOrigin {
        let shown = self.effective_values.iter().find(|shown| shown.key == key);
        shown.map_or(ValueOrigin::DEFAULT, |shown| shown.origin.clone())
    }

    /// Returns a problem with the value of a key, for values that are checked elsewhere: rules, models, patterns.
    pub fn problem_with(&self, key: &str, what: impl Into<String>) -> ConfigProblem {
        let kind = ProblemKind::Other(format!("`{key}`: {}", what.into()));
        ConfigProblem { origin: self.origin(key), kind }
    }

    /// Returns the agents by name.
    pub fn agents(&self) -> impl Iterator<Item = AgentDefinition> {
        self.settings.agents.keys().filter_map(|name| self.agent(name.as_str()).ok())
    }

    /// Returns an agent.
    ///
    /// # Errors
    ///
    /// Fails if there is no such agent, and suggests the one with the nearest name.
    pub fn agent(&self, name: &str) -> Result<AgentDefinition, ConfigProblem> {
        let agents = &self.settings.agents;
        let known = ConfigName::parse(name).and_then(|name| agents.get_key_value(&name));
        let first = ConfigName::parse(agents::DEFAULT_AGENT).and_then(|name| agents.get(&name));
        let (Some((name, own)), Some(first)) = (known, first) else {
            return Err(self.unknown_agent(ValueOrigin::DEFAULT, name));
        };
        Ok(AgentDefinition::new(name.clone(), own, first, self.max_steps(name, own.max_steps)))
    }

    fn unknown_agent(&self, origin: ValueOrigin, name: &str) -> ConfigProblem {
        let agents = self.settings.agents.keys().map(ToString::to_string);
        let known = agents.filter(|other| other != name).collect();
        ConfigProblem { origin, kind: ProblemKind::unknown_of("agent", name, known) }
    }

    /// Returns a problem for each agent that options limit but nothing defines, since its name must be a mistake.
    /// `in_files` are the agents that files define.
    pub(super) fn undefined_agents(&self, in_files: &BTreeSet<&str>) -> Vec<ConfigProblem> {
        let names = self.settings.agents.keys().map(ConfigName::as_str);
        let undefined = names.filter(|name| !in_files.contains(name)).filter_map(|name| {
            let path = format!("agents.{name}.");
            let is_set =
                |shown: &&EffectiveValue| shown.key.starts_with(&path) && shown.value.is_some();
            let set: Vec<&EffectiveValue> = self.effective_values.iter().filter(is_set).collect();
            let only_bounds = |shown: &&EffectiveValue| {
                ["confirm_mode", "max_steps"].contains(&&shown.key[path.len()..])
            };
            let first = set.first()?;
            set.iter().all(only_bounds).then(|| self.unknown_agent(first.origin.clone(), name))
        });
        undefined.collect()
    }

    /// Returns the lower of the agent's limit and the general one. A limit that was given for this run alone, however,
    /// overrides one from a file.
    fn max_steps(&self, agent: &ConfigName, own: Option<u32>) -> u32 {
        let general = self.settings.limits.max_steps;
        let Some(own) = own else { return general };
        let own_rank = self.origin(&format!("agents.{agent}.max_steps")).rank;
        let general_rank = self.origin("limits.max_steps").rank;
        if own_rank.max(general_rank) < LayerRank::Variable || own_rank == general_rank {
            own.min(general)
        } else if own_rank > general_rank {
            own
        } else {
            general
        }
    }

    /// Returns whether the origin is a file of the project, or a manifest that the agent may have written. A configuration
    /// file that the user names does not count.
    pub(crate) fn is_of_project(&self, origin: &ValueOrigin) -> bool {
        self.is_all_of_project && origin.rank != LayerRank::Default
            || matches!(origin.source, OriginSource::Manifest(_))
            || origin.rank == LayerRank::Project
            || origin.rank == LayerRank::Profile && self.is_in_workspace(origin)
    }

    /// Returns whether a value is from a file in the workspace.
    fn is_in_workspace(&self, origin: &ValueOrigin) -> bool {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        origin.path().is_some_and(|path| {
            path.starts_with(&self.workspace) || real(path).starts_with(real(&self.workspace))
        })
    }

    /// Returns the access to the models of `llm` and of each model definition, by the section of its keys.
    fn model_access(&self) -> Vec<(String, ModelAccess<'_>)> {
        let Settings { llm, models, .. } = &self.settings;
        let common = ModelAccess {
            base: llm.api_base.as_ref(),
            key_env: llm.api_key_env.as_ref(),
            key_command: llm.api_key_command.as_deref(),
        };
        let defined = models.iter().map(|(name, model)| {
            let access = ModelAccess {
                base: model.api_base.as_ref(),
                key_env: model.api_key_env.as_ref(),
                key_command: model.api_key_command.as_deref(),
            };
            (format!("models.{name}"), access)
        });
        [("llm".to_owned(), common)].into_iter().chain(defined).collect()
    }

    /// Returns the contradictions between values that are valid each by itself.
    pub(super) fn check_consistency(&self) -> Vec<ConfigProblem> {
        let Settings { sandbox, llm, mcp, hooks, .. } = &self.settings;
        let access = self.model_access();
        let mut problems = Vec::new();
        let mut problem = |key: &str, what: &str| problems.push(self.problem_with(key, what));
        if sandbox.required && sandbox.mode == SandboxMode::Off {
            let required = self.origin("sandbox.required");
            let what = format!("\"off\" contradicts `sandbox.required = true` ({required})");
            problem("sandbox.mode", &what);
        }
        let hooks = hooks.0.iter();
        let can_be_written = |origin: &ValueOrigin| {
            self.is_of_project(origin)
                || origin.rank == LayerRank::File && self.is_in_workspace(origin)
        };
        for (point, hook) in
            hooks.flat_map(|(point, hooks)| hooks.iter().map(move |hook| (point, hook)))
        {
            let key = format!("hooks.{}.{}.sandbox", point.as_str(), hook.name);
            let origin = self.origin(&key);
            if hook.sandbox == HookConfinement::Off && can_be_written(&origin) {
                let what = "only your own configuration can let a hook run unconfined, because the agent can change \
                            the files of a project";
                problem(&key, what);
            }
        }
        let oauth =
            || mcp.servers.iter().filter_map(|server| Some((server, server.oauth.as_ref()?)));
        let of_models = access.iter().map(|(section, access)| {
            (format!("{section}.api_key_command"), access.key_command.is_some())
        });
        let of_servers = oauth().map(|(server, oauth)| {
            let key = server_key(server, "oauth.client_secret_command");
            (key, oauth.client_secret_command.is_some())
        });
        for (key, is_set) in of_models.chain(of_servers) {
            if is_set && can_be_written(&self.origin(&key)) {
                let what = "only your own configuration can name a command for the key, because it runs unconfined, and \
                            the agent can change the files of a project";
                problem(&key, what);
            }
        }
        let variables = access
            .iter()
            .map(|(section, access)| (format!("{section}.api_key_env"), access.key_env));
        let tokens = mcp.servers.iter();
        let tokens =
            tokens.map(|server| (server_key(server, "token_env"), server.token_env.as_ref()));
        let secrets = oauth().map(|(server, oauth)| {
            (server_key(server, "oauth.client_secret_env"), oauth.client_secret_env.as_ref())
        });
        for (key, name) in variables.chain(tokens).chain(secrets) {
            let name = name.filter(|name| is_secret_variable(name.as_str()));
            if let Some(name) = name.filter(|_| self.is_of_project(&self.origin(&key))) {
                let what = format!(
                    "{name} may hold a secret, and a file of the project gets none; set it in your own configuration, \
                     or with `--set {key}={name}`"
                );
                problem(&key, &what);
            }
        }
        let bases = access.iter();
        let bases: Vec<(String, Option<&HttpUrl>)> =
            bases.map(|(section, access)| (format!("{section}.api_base"), access.base)).collect();
        // Even addresses of this machine are rejected: a server of the project may listen there.
        for (key, url) in &bases {
            if url.is_some() && self.is_of_project(&self.origin(key)) {
                let what = "the provider's key would go to an address that a file of the project chooses; set it in your \
                            own configuration, or with --api-base";
                problem(key, what);
            }
        }
        let bases = bases.into_iter();
        let bases = bases.filter(|(_, url)| url.is_some_and(HttpUrl::is_unencrypted_remote));
        let servers = mcp.servers.iter().filter(|server| server.sends_key_unencrypted());
        let urls = servers.map(|server| server_key(server, "url"));
        for key in bases.map(|(key, _)| key).chain(urls).filter(|_| !llm.allow_http) {
            problem(&key, UNENCRYPTED_KEY);
        }
        problems.extend(self.check_confinement());
        problems
    }

    /// Returns a problem for each setting by a file of the project that would let commands out of the confinement.
    fn check_confinement(&self) -> Vec<ConfigProblem> {
        let sandbox = &self.settings.sandbox;
        let workspace = self.real_workspace();
        let leads_out = |paths: &[PathBuf]| paths.iter().any(|path| !is_inside(&workspace, path));
        let outside = "only your own configuration can name a folder outside the workspace, because the agent can \
                       change the files of a project";
        let prices = &self.settings.costs.prices_file;
        let loosened = [
            (
                "logging.file",
                self.settings.logging.file.is_some(),
                "only your own configuration, or --log-file, can name the log file, because the model's text is appended \
                 to it, and the agent can change the files of a project",
            ),
            ("costs.prices_file", leads_out(prices.as_slice()), outside),
            (
                "sandbox.mode",
                sandbox.mode == SandboxMode::Off,
                "only your own configuration, or --sandbox off, can let commands run unconfined, because the agent can \
                 change the files of a project",
            ),
            ("sandbox.readable", leads_out(&sandbox.readable), outside),
            ("sandbox.writable", leads_out(&sandbox.writable), outside),
        ];
        let loosened = loosened.into_iter().filter(|(_, is_loose, _)| *is_loose);
        loosened
            .filter(|(key, ..)| self.is_of_project(&self.origin(key)))
            .map(|(key, _, what)| self.problem_with(key, what))
            .collect()
    }
}

/// Returns whether a path is in a folder, even if the path does not exist yet. The folder must be free of links.
fn is_inside(folder: &Path, path: &Path) -> bool {
    let existing = path.ancestors().find(|path| path.symlink_metadata().is_ok());
    let real = existing.and_then(|path| path.canonicalize().ok());
    let has_parent = path.components().any(|part| part == Component::ParentDir);
    !has_parent && real.is_some_and(|real| real.starts_with(folder))
}

/// The address of a model and the source of its key.
#[allow(clippy::struct_field_names)] // as in the configuration
struct ModelAccess<'a> {
    base: Option<&'a HttpUrl>,
    key_env: Option<&'a VariableName>,
    key_command: Option<&'a str>,
}

fn server_key(server: &McpServerConfig, key: &str) -> String {
    format!("mcp.servers.{}.{key}", server.name)
}
