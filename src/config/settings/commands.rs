//! Commands, the workspace, permissions and confinement.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::run::time_limit;
use crate::config::setting_value::words;
use crate::config::settings_reader::SettingsReader;
use crate::exec::HostPattern;
use crate::model::TimeSpan;

/// How commands run.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandsConfig {
    /// Whether they run at all.
    pub enabled: bool,
    /// The time limit of a command that names none.
    pub default_timeout: TimeSpan,
    /// Lines of output that the model gets.
    pub max_output_lines: u32,
    /// Commands that never run, as regular expressions.
    pub blocked_patterns: Vec<String>,
    /// Commands that need no confirmation, by how they begin.
    pub safe_commands: Vec<String>,
    /// Whether only safe commands, and those that a rule allows, run.
    pub allowed_only: bool,
    /// Variables of the list of those that are passed on which a command does not get; `*` stands for any text.
    pub env_exclude: Vec<String>,
    /// Variables that a command gets although they are not on that list; `*` stands for any text.
    pub env_include: Vec<String>,
}

impl CommandsConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self {
            enabled: from.value_or("enabled", true),
            default_timeout: time_limit(from, "default_timeout", TimeSpan::from_secs(120)),
            max_output_lines: from.in_range_or("max_output_lines", 200, 1..=1_000_000),
            blocked_patterns: from.value_or("blocked_patterns", Vec::new()),
            safe_commands: from.value_or("safe_commands", Vec::new()),
            allowed_only: from.value_or("allowed_only", false),
            env_exclude: from.value_or("env_exclude", Vec::new()),
            env_include: from.value_or("env_include", Vec::new()),
        }
    }
}

/// The folder that the agent works on.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkspaceConfig {
    /// Where it is; none is the current folder.
    pub root: Option<PathBuf>,
    /// Whether files may be deleted.
    pub allow_delete: bool,
}

impl WorkspaceConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self { root: from.path("root"), allow_delete: from.value_or("allow_delete", false) }
    }
}

/// Rules for tool calls; a denial goes before a question, and a question before a permission.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PermissionsConfig {
    /// Calls that need no confirmation.
    pub allow: Vec<String>,
    /// Calls that need one in every mode.
    pub ask: Vec<String>,
    /// Calls that never run.
    pub deny: Vec<String>,
    /// Whether a run in which a call was denied is never a success.
    pub fail_on_denied: bool,
    /// Calls, written like rules, and what has to be decided about them; `config check` sees to it that it is.
    pub examples: BTreeMap<String, ExpectedDecision>,
}

/// What is decided about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedDecision {
    /// It never runs.
    Deny,
    /// The user is asked.
    Ask,
    /// It runs.
    Allow,
}
words!(ExpectedDecision { "deny" => Deny, "ask" => Ask, "allow" => Allow });

impl PermissionsConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self {
            allow: from.value_or("allow", Vec::new()),
            ask: from.value_or("ask", Vec::new()),
            deny: from.value_or("deny", Vec::new()),
            fail_on_denied: from.value_or("fail_on_denied", false),
            examples: from.string_map("examples"),
        }
    }
}

/// How commands are confined.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxConfig {
    /// What they may write.
    pub mode: SandboxModeSetting,
    /// Whether they have a network.
    pub network: NetworkSetting,
    /// The hosts that they reach with a list.
    pub allowed_hosts: Vec<HostPattern>,
    /// Whether a run ends that cannot be confined as wanted.
    pub required: bool,
    /// Folders outside the workspace that they may write.
    pub writable: Vec<PathBuf>,
    /// What they may read although it is hidden otherwise, like the keys of SSH.
    pub readable: Vec<PathBuf>,
    /// Processes and threads that a command may have at the same time.
    pub max_processes: u64,
    /// Memory that all processes of a command may use together, in megabytes; none for three quarters of the machine's.
    pub max_memory_mb: Option<u64>,
}

/// What commands may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SandboxModeSetting {
    /// Nothing but a private temporary folder.
    ReadOnly,
    /// The workspace, a private temporary folder, and what is named.
    WorkspaceWrite,
    /// Whatever the user may.
    Off,
}
words!(SandboxModeSetting { "read-only" => ReadOnly, "workspace-write" => WorkspaceWrite, "off" => Off });

/// Whether commands have a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkSetting {
    /// They have none.
    Off,
    /// They reach the hosts of a list.
    List,
    /// They have that of the machine.
    On,
}
words!(NetworkSetting { "off" => Off, "list" => List, "on" => On });

impl SandboxConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self {
            mode: from.value_or("mode", SandboxModeSetting::WorkspaceWrite),
            network: from.value_or("network", NetworkSetting::On),
            allowed_hosts: from.value_or("allowed_hosts", Vec::new()),
            required: from.value_or("required", false),
            writable: from.paths("writable", &[]),
            readable: from.paths("readable", &[]),
            max_processes: from.in_range_or("max_processes", 4096, 16..=4_000_000),
            max_memory_mb: from.optional_in_range("max_memory_mb", 16..=100_000_000),
        }
    }
}
