//! Which stored session a command is about.

use std::path::PathBuf;

use architect::app::{World, secrets, store};
use architect::journal::{Past, SessionId, Store};
use architect::net::Secrets;
use architect::view::clean;

use super::args::{LastArgs, LayerArgs};
use super::error::Failure;
use super::{output, settings};

/// The store of the sessions, as seen from a folder.
pub(crate) struct Stored {
    pub(crate) store: Store,
    /// The keys that are masked in what is stored.
    pub(crate) secrets: Secrets,
    /// The folder that `last` is about.
    folder: PathBuf,
    any_folder: bool,
}

/// The name of the session that was written to last.
const LAST: &str = "last";

const BEGIN: &str = "`architect run \"…\"` begins one";

impl Stored {
    /// Opens the store that the options name.
    ///
    /// # Errors
    ///
    /// Fails when the configuration is wrong, or the store can't be opened.
    pub(crate) fn open(layers: &LayerArgs, last: LastArgs, world: &World) -> Result<Self, Failure> {
        let config = settings::of_layers(layers, world)?;
        let (store, secrets) = (store(&config, world)?, secrets(&config, world));
        let folder = config.workspace.canonicalize().unwrap_or(config.workspace);
        Ok(Self { store, secrets, folder, any_folder: last.any_folder })
    }

    /// Returns the session that a name means.
    ///
    /// # Errors
    ///
    /// Fails when it means none, or several.
    pub(crate) fn find(&self, name: &str) -> Result<SessionId, Failure> {
        if name == LAST && self.store.list()?.is_empty() {
            return Err(Failure::usage("no session is stored").hint(BEGIN));
        }
        if name != LAST || self.any_folder {
            return Ok(self.store.resolve(name)?);
        }
        if let Some(session) = self.store.last_of(&self.folder)? {
            return Ok(session);
        }
        let folder = clean::line(&self.folder.to_string_lossy()).into_owned();
        let failure = Failure::usage(format!("no session of this folder is stored: {folder}"));
        let hint = match self.store.resolve(LAST) {
            Ok(other) => format!("--any-folder takes the last one of any folder: {other}"),
            Err(_) => BEGIN.to_owned(),
        };
        Err(failure.hint(hint))
    }

    /// Returns the session that a name means, after telling its folder where that is not the one that the command was
    /// typed in.
    ///
    /// # Errors
    ///
    /// Fails when it means none, or several.
    pub(crate) fn find_and_tell(&self, name: &str) -> Result<SessionId, Failure> {
        let session = self.find(name)?;
        let past = self.store.replay(session, |_, _, _| {}).ok();
        if let Some(told) = past.and_then(|(past, _)| self.elsewhere(&past)) {
            output::complain(&told);
        }
        Ok(session)
    }

    /// Returns where a session works, for people, when that is not this folder. An imported one goes on in this folder.
    pub(crate) fn elsewhere(&self, past: &Past) -> Option<String> {
        let root = &past.setting.workspace.root;
        let is_here = *root == self.folder || past.is_foreign();
        let root = clean::line(&root.to_string_lossy()).into_owned();
        (!is_here).then(|| format!("Session {} works in {root}.", past.header.session))
    }
}
