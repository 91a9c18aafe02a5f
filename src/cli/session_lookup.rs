//! Lookup of the stored session that a command names.

use std::path::{Path, PathBuf};

use architect::app::{ProcessEnv, collect_secrets, open_store};
use architect::config::{Config, LayerRank};
use architect::journal::{JournalError, SessionHistory, SessionId, SessionStore};
use architect::net::Secrets;
use architect::view::sanitize;
use architect::workspace::link_target;

use super::args::{LastArgs, LayerArgs};
use super::error::CliError;
use super::{config_options, output};

/// The store of the sessions, with the folder of the command.
pub(crate) struct SessionLookup {
    pub(crate) store: SessionStore,
    /// The keys to mask in stored texts.
    pub(crate) secrets: Secrets,
    /// The folder to which `last` applies.
    pub(crate) folder: PathBuf,
    any_folder: bool,
    /// Whether an option or the project, and not the user's own configuration, names the folder of the store.
    is_named: bool,
    pub(crate) config: Config,
}

/// The name of the session with the newest record.
const LAST: &str = "last";

const BEGIN_HINT: &str = "`architect run \"…\"` starts one";

impl SessionLookup {
    /// Opens the store of these options.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid, or the store can't be opened.
    pub(crate) fn open(
        layers: &LayerArgs,
        last: LastArgs,
        world: &ProcessEnv,
    ) -> Result<Self, CliError> {
        let config = config_options::load_layers(layers, world)?;
        let (store, secrets) = (open_store(&config, world)?, collect_secrets(&config, world));
        let dir = config.origin("sessions.dir").rank;
        let is_named = dir == LayerRank::Argument || dir == LayerRank::Project;
        let folder = config.real_workspace();
        Ok(Self { store, secrets, folder, any_folder: last.any_folder, is_named, config })
    }

    /// Checks the workspace of a session. Returns whether commands, or the author of the repository, could have written
    /// the sessions: they are in the session's workspace, in the current folder, or in a repository, without the user's
    /// own configuration placing them there.
    ///
    /// # Errors
    ///
    /// Unless `workspace` is given, fails if the workspace has become a link, and if such an exposed session names a
    /// workspace that is neither the current folder nor contains the store.
    pub(crate) fn check_workspace(
        &self,
        past: &SessionHistory,
        workspace: Option<&Path>,
    ) -> Result<bool, CliError> {
        let Ok(store) = self.store.root().canonicalize() else { return Ok(false) };
        let in_project = |folder: &Path| {
            [".git", ".architect"].iter().any(|name| folder.join(name).symlink_metadata().is_ok())
        };
        let root = &past.setup.workspace.root;
        let is_around = store.starts_with(root);
        if let (None, Some(real)) = (workspace, link_target(root)) {
            let [root, real] = [root, &real].map(|path| sanitize::path(path));
            return Err(CliError::usage(format!(
                "the workspace {root} of this session has become a link to {real}; a command may have made it"
            ))
            .hint(format!("`--workspace {real}` if that is right")));
        }
        let is_exposed = self.is_named
            && (is_around || store.starts_with(&self.folder) || store.ancestors().any(in_project));
        if is_exposed && !is_around && *root != self.folder && workspace.is_none() {
            let root = sanitize::path(root);
            return Err(CliError::usage(format!(
                "this session names the workspace {root}, but commands may have written where it is stored"
            ))
            .hint(format!("`--workspace {root}` if that is right")));
        }
        Ok(is_exposed)
    }

    /// Returns the session with this name.
    ///
    /// # Errors
    ///
    /// Fails if no session matches, or several do.
    pub(crate) fn find(&self, name: &str) -> Result<SessionId, CliError> {
        if name == LAST && self.store.list()?.is_empty() {
            return Err(CliError::usage("no session is stored").hint(BEGIN_HINT));
        }
        if name != LAST || self.any_folder {
            return Ok(self.store.resolve(name)?);
        }
        if let Some(session) = self.store.last_in_folder(&self.folder)? {
            return Ok(session);
        }
        let folder = sanitize::path(&self.folder);
        let failure = CliError::usage(format!("no session of this folder is stored: {folder}"));
        let hint = match self.store.resolve(LAST) {
            Ok(other) => format!("--any-folder takes the last one of any folder: {other}"),
            Err(_) => BEGIN_HINT.to_owned(),
        };
        Err(failure.hint(hint))
    }

    /// Returns the session with this name, and prints a note if its folder is not the current one.
    ///
    /// # Errors
    ///
    /// Fails if no session matches, or several do.
    pub(crate) fn find_and_report_folder(&self, name: &str) -> Result<SessionId, CliError> {
        let session = self.find(name)?;
        let past = self.store.load(session).ok();
        if let Some(note) = past.and_then(|(past, _)| self.other_folder_note(&past)) {
            output::print_stderr(&note);
        }
        Ok(session)
    }

    /// Checks that a session can be read as a whole.
    ///
    /// # Errors
    ///
    /// Fails if the session is damaged.
    pub(crate) fn check_whole(&self, session: SessionId) -> Result<(), CliError> {
        let damage = self.store.damage(session)?;
        damage.map_or(Ok(()), |reason| Err(JournalError::Damaged { session, reason }.into()))
    }

    /// Checks that a session can be read as a whole, or that the user accepts the intact part with `--partial`.
    ///
    /// # Errors
    ///
    /// Fails if the session is damaged and `partial` is false.
    pub(crate) fn check_damage(&self, session: SessionId, partial: bool) -> Result<(), CliError> {
        let Some(reason) = self.store.damage(session)? else { return Ok(()) };
        if !partial {
            let failure = CliError::from(JournalError::Damaged { session, reason });
            return Err(failure.hint("--partial uses what comes before the damage"));
        }
        log::warn!(
            "the journal of session {session} is damaged: {reason}; what follows is left out"
        );
        Ok(())
    }

    /// Returns a note about the folder of a session if it is not the current one. An imported session resumes in the
    /// current one.
    pub(crate) fn other_folder_note(&self, past: &SessionHistory) -> Option<String> {
        let root = &past.setup.workspace.root;
        let is_here = *root == self.folder || past.is_imported_setup();
        let root = sanitize::path(root);
        (!is_here).then(|| format!("Session {} works in {root}.", past.header.session))
    }
}
