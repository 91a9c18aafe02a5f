//! Changes as a patch for `git apply`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::content_store::ContentStore;
use super::error::CheckpointError;
use super::git_binary::{git_blob_id, quote, write_literal};
use super::tree::{PathChange, PathState};
use crate::workspace::text_diff;

/// A change of one file in a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangePatch {
    /// The file.
    pub path: PathBuf,
    /// The text; empty if git has no form for the change.
    pub text: Vec<u8>,
    /// The number of added lines; zero for binary contents.
    pub added: u64,
    /// The number of removed lines; zero for binary contents.
    pub removed: u64,
    /// The part of the change that a patch can't express.
    pub note: Option<String>,
}

/// A side of a patch.
struct Side {
    mode: &'static str,
    content: Vec<u8>,
}

impl ContentStore {
    /// Returns the patch of a change.
    ///
    /// # Errors
    ///
    /// Fails if a content is missing or damaged.
    pub fn patch(&self, change: &PathChange) -> Result<ChangePatch, CheckpointError> {
        let PathChange { path, before, after } = change;
        let mut patch = ChangePatch {
            path: path.clone(),
            text: Vec::new(),
            added: 0,
            removed: 0,
            note: note(before.as_ref(), after.as_ref()),
        };
        let (old, new) = (self.side(before.as_ref())?, self.side(after.as_ref())?);
        let is_left_out = |state: &Option<PathState>| matches!(state, Some(PathState::LeftOut(_)));
        let parts = match (&old, &new) {
            // The file exists or existed, but its content is unknown.
            _ if is_left_out(before) || is_left_out(after) => Vec::new(),
            // A link and a file in one place are two changes for git.
            (Some(a), Some(b)) if (a.mode == LINK) != (b.mode == LINK) => {
                vec![(old.as_ref(), None), (None, new.as_ref())]
            }
            (Some(a), Some(b)) if a.mode == b.mode && a.content == b.content => Vec::new(),
            (None, None) => Vec::new(),
            _ => vec![(old.as_ref(), new.as_ref())],
        };
        for (old, new) in parts {
            write_part(path, old, new, &mut patch);
        }
        Ok(patch)
    }

    fn side(&self, state: Option<&PathState>) -> Result<Option<Side>, CheckpointError> {
        Ok(match state {
            Some(PathState::File { mode, hash, .. }) => {
                let mode = if mode & 0o100 == 0 { "100644" } else { "100755" };
                Some(Side { mode, content: self.get(hash)? })
            }
            Some(PathState::Link { target }) => {
                Some(Side { mode: LINK, content: target.as_bytes().to_vec() })
            }
            Some(PathState::Folder { .. } | PathState::LeftOut(_)) | None => None,
        })
    }
}

const LINK: &str = "120000";

/// Returns the part of a change that a patch can't express.
fn note(before: Option<&PathState>, after: Option<&PathState>) -> Option<String> {
    match (before, after) {
        (Some(PathState::LeftOut(skipped)), _) | (_, Some(PathState::LeftOut(skipped))) => {
            Some(format!("not recorded: {skipped}"))
        }
        (None, Some(PathState::Folder { .. })) => Some("the folder is new".to_owned()),
        (Some(PathState::Folder { .. }), None) => Some("the folder is removed".to_owned()),
        (
            Some(PathState::File { mode: was, .. } | PathState::Folder { mode: was }),
            Some(PathState::File { mode, .. } | PathState::Folder { mode }),
        ) if was != mode => Some(format!("permissions {was:04o} → {mode:04o}")),
        _ => None,
    }
}

fn write_part(path: &Path, old: Option<&Side>, new: Option<&Side>, patch: &mut ChangePatch) {
    let name = path.as_os_str().as_bytes();
    let (a, b) = (quote(&[b"a/", name].concat()), quote(&[b"b/", name].concat()));
    let mut head = format!("diff --git {a} {b}\n");
    match (old, new) {
        (None, Some(new)) => head.push_str(&format!("new file mode {}\n", new.mode)),
        (Some(old), None) => head.push_str(&format!("deleted file mode {}\n", old.mode)),
        (Some(old), Some(new)) if old.mode != new.mode => {
            head.push_str(&format!("old mode {}\nnew mode {}\n", old.mode, new.mode));
        }
        _ => {}
    }
    let content = |side: Option<&Side>| side.map_or(Vec::new(), |side| side.content.clone());
    let (was, is) = (content(old), content(new));
    patch.text.extend_from_slice(head.as_bytes());
    let id = |side: Option<&Side>| {
        side.map_or_else(|| "0".repeat(40), |side| git_blob_id(&side.content))
    };
    if was == is {
        if old.is_none() || new.is_none() {
            let index = format!("index {}..{}\n", id(old), id(new));
            patch.text.extend_from_slice(index.as_bytes());
        }
        return;
    }
    let mode = match (old, new) {
        (Some(old), Some(new)) if old.mode == new.mode => format!(" {}", new.mode),
        _ => String::new(),
    };
    let index = format!("index {}..{}{mode}\n", id(old), id(new));
    patch.text.extend_from_slice(index.as_bytes());
    if is_binary(&was) || is_binary(&is) {
        patch.text.extend_from_slice(b"GIT binary patch\n");
        write_literal(&is, &mut patch.text);
        write_literal(&was, &mut patch.text);
        return;
    }
    let nothing = "/dev/null".to_owned();
    // Git appends a tab to a name with a space in it.
    let side = |name: String| if name.contains(' ') { name + "\t" } else { name };
    let a = if old.is_some() { side(a) } else { nothing.clone() };
    let b = if new.is_some() { side(b) } else { nothing };
    patch.text.extend_from_slice(format!("--- {a}\n+++ {b}\n").as_bytes());
    let hunks = text_diff::hunks(&was, &is);
    for line in hunks.split(|byte| *byte == b'\n') {
        match line.first() {
            Some(b'+') => patch.added += 1,
            Some(b'-') => patch.removed += 1,
            _ => {}
        }
    }
    patch.text.extend_from_slice(&hunks);
}

/// Returns whether git treats a content as binary.
fn is_binary(content: &[u8]) -> bool {
    content[..content.len().min(8_000)].contains(&0)
}
