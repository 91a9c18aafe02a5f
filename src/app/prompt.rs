//! The system prompt of a run, as the settings have it.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use super::context::{DiffError, SystemPrompt, build_system_prompt, diff_since, find_git};
use super::error::AppError;
use super::run_setup::RunSetup;
use super::session::SessionTarget;
use crate::model::TimeSpan;
use crate::port::CancellationToken;
use crate::workspace::index::IndexSettings;

/// How long the first call waits for an index of the workspace.
const INDEX_TIMEOUT: Duration = Duration::from_millis(500);

impl RunSetup {
    /// Adds what changed in the workspace since this commit to the system prompt.
    ///
    /// # Errors
    ///
    /// Fails when there is no such commit, no repository, or no git.
    pub fn with_diff_since(mut self, since: &str) -> Result<Self, AppError> {
        let git = find_git(OsStr::new(self.env.variable("PATH").unwrap_or_default()));
        let git = git.ok_or(DiffError::NoGit)?;
        let cancel = CancellationToken::new();
        self.diff = Some(diff_since(&git, &self.sandbox.checks, &self.root, since, &cancel)?);
        Ok(self)
    }

    /// Returns the system prompt. The same files make the same bytes. A run that is not stored leaves no cache behind.
    pub(super) fn system_prompt(&self, place: &SessionTarget) -> Arc<str> {
        let index = self.index_settings(!matches!(place, SessionTarget::Ephemeral));
        let diff = self.diff.as_ref();
        let SystemPrompt { text, notices } =
            build_system_prompt(&self.agent.system_prompt, &self.root, index.as_ref(), diff);
        for notice in notices {
            log::warn!("{notice}");
        }
        text
    }

    fn index_settings(&self, may_store: bool) -> Option<IndexSettings> {
        let indexer = &self.config.settings.indexer;
        let may_store = may_store && indexer.cache_ttl > TimeSpan::ZERO;
        indexer.enabled.then(|| IndexSettings {
            max_file_size: indexer.max_file_size,
            exclude: indexer.exclude.iter().map(|pattern| pattern.as_str().to_owned()).collect(),
            ttl: indexer.cache_ttl.into(),
            max_wait: INDEX_TIMEOUT,
            // Not in a folder for caches: commands may write there, and this becomes a part of a prompt.
            cache: self.env.folders().state.filter(|_| may_store).map(|own| own.join("workspaces")),
            ..IndexSettings::default()
        })
    }
}
