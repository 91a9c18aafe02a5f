//! What a run may change, and what its result has to pass.

use super::run::time_limit;
use crate::config::settings_reader::SettingsReader;
use crate::config::text_types::{ConfigName, PathPattern};
use crate::model::TimeSpan;

/// What a run may change, and what its result has to pass.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardrailsConfig {
    /// Files that are never changed.
    pub protected_files: Vec<PathPattern>,
    /// Files that are neither read nor changed.
    pub sensitive_files: Vec<PathPattern>,
    /// How many files a run may change with its tools; what its commands change is not counted.
    pub max_files_modified: Option<u32>,
    /// How many lines a run may change with its tools.
    pub max_lines_changed: Option<u64>,
    /// How many commands a run may start.
    pub max_commands_executed: Option<u32>,
    /// Commands that have to succeed before an answer counts.
    pub quality_gates: Vec<QualityGate>,
}

/// A command that has to succeed before an answer counts.
#[derive(Clone, Debug, PartialEq)]
pub struct QualityGate {
    /// Its name.
    pub name: ConfigName,
    /// The command, for a shell.
    pub command: String,
    /// Whether its failure sends the answer back; otherwise it is only told.
    pub required: bool,
    /// How long it may take.
    pub timeout: TimeSpan,
}

impl GuardrailsConfig {
    pub(super) fn read(from: &mut SettingsReader<'_>) -> Self {
        Self {
            protected_files: from.value_or("protected_files", Vec::new()),
            sensitive_files: from.value_or("sensitive_files", Vec::new()),
            max_files_modified: from.optional_in_range("max_files_modified", 0..=1_000_000),
            max_lines_changed: from.optional_in_range("max_lines_changed", 0..=1_000_000_000),
            max_commands_executed: from.optional_in_range("max_commands_executed", 0..=1_000_000),
            quality_gates: from.table_list("quality_gates", QualityGate::read),
        }
    }
}

impl QualityGate {
    fn read(name: ConfigName, from: &mut SettingsReader<'_>) -> Option<Self> {
        let command = from.required("command");
        let required = from.value_or("required", true);
        let timeout = time_limit(from, "timeout", TimeSpan::from_secs(60));
        Some(Self { name, command: command?, required, timeout })
    }
}
