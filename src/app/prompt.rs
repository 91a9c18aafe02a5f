//! The system prompt of a run, as the settings have it.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use super::context::{self, Git, GitRef, Inputs, SystemPrompt, changes};
use super::error::AppError;
use super::session::Place;
use super::setup::Setup;
use crate::model::Span;
use crate::port::Cancel;
use crate::workspace::index::IndexSettings;

/// How long the first call waits for an index of the workspace.
const PATIENCE: Duration = Duration::from_millis(500);

impl Setup {
    /// Has the model told what changed in the workspace since this commit.
    ///
    /// # Errors
    ///
    /// Fails when there is no such commit, no repository, or no git.
    pub fn showing_changes(mut self, since: &str) -> Result<Self, AppError> {
        let since = GitRef::parse(since).map_err(|error| AppError::Changes(error.to_string()))?;
        let path = self.world.variable("PATH").unwrap_or_default();
        let git = Git::find(OsStr::new(path))
            .ok_or_else(|| AppError::Changes("there is no git".to_owned()))?;
        let changes = changes(&git, &self.sandbox.checks, &self.root, &since, &Cancel::new());
        self.changes = Some(changes.map_err(|error| AppError::Changes(error.to_string()))?);
        Ok(self)
    }

    /// Returns the system prompt. The same files make the same bytes. A run that is not stored leaves no cache behind.
    pub(super) fn system(&self, place: &Place) -> Arc<str> {
        let index = self.index(!matches!(place, Place::Nowhere));
        let SystemPrompt { text, notices } = context::system_prompt(&Inputs {
            agent: &self.agent.system_prompt,
            root: &self.root,
            index: index.as_ref(),
            date: None,
            changes: self.changes.as_ref(),
        });
        for notice in notices {
            log::warn!("{notice}");
        }
        text
    }

    fn index(&self, may_store: bool) -> Option<IndexSettings> {
        let indexer = &self.config.settings.indexer;
        let may_store = may_store && indexer.cache_ttl > Span::ZERO;
        indexer.enabled.then(|| IndexSettings {
            largest: indexer.max_file_size,
            exclude: indexer.exclude.iter().map(|pattern| pattern.as_str().to_owned()).collect(),
            ttl: indexer.cache_ttl.into(),
            patience: PATIENCE,
            // Not in a folder for caches: commands may write there, and this becomes a part of a prompt.
            cache: self
                .world
                .folders()
                .state
                .filter(|_| may_store)
                .map(|own| own.join("workspaces")),
            ..IndexSettings::default()
        })
    }
}
