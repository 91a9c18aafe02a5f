//! Files of a session, before and after it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Component, Path};

use serde_json::Value;

use crate::machine::CallIntent;
use crate::types::{CallId, Reply, Sha256Digest, ToolResult, ToolStatus};
use crate::workspace::{RelPath, WorkspaceRoot};

/// The files that occur in a session, with the information about them in its journal.
#[derive(Default)]
pub(super) struct OriginalFiles {
    /// The paths in the calls.
    paths: HashMap<CallId, String>,
    /// The files of successful calls: a file that the run could not read stays out.
    used: BTreeSet<String>,
    /// The first and the last digest of each replaced file; `None` where there was no file.
    replaced: BTreeMap<String, (Option<String>, Option<String>)>,
    /// Replacements within files, oldest first.
    edits: Vec<TextReplacement>,
}

struct TextReplacement {
    path: String,
    old: String,
    new: String,
}

/// Size limit of a file that becomes part of a scenario, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 10;

impl OriginalFiles {
    /// Adds the files that are named by the calls of a reply.
    pub(super) fn record_calls(&mut self, reply: &Reply) {
        for call in reply.calls() {
            let arguments: Value = serde_json::from_str(call.arguments.text()).unwrap_or_default();
            let text = |key: &str| arguments[key].as_str().map(str::to_owned);
            let Some(path) = text("path").filter(|path| is_inside(path)) else { continue };
            self.paths.insert(call.id.clone(), path.clone());
            if let (Some(old), Some(new)) = (text("old_str"), text("new_str")) {
                self.edits.push(TextReplacement { path, old, new });
            }
        }
    }

    /// Adds the result of a call.
    pub(super) fn record_result(&mut self, result: &ToolResult) {
        if result.status == ToolStatus::Ok {
            self.used.extend(self.paths.get(&result.call).cloned());
        }
    }

    /// Adds the files that a call was approved to change.
    pub(super) fn record_intent(&mut self, intent: &CallIntent) {
        let CallIntent::Edit { files } = intent else { return };
        for image in files.iter() {
            let digest =
                |digest: &Option<std::sync::Arc<str>>| digest.as_deref().map(str::to_owned);
            let (before, after) = (digest(&image.before), digest(&image.after));
            self.replaced
                .entry(image.path.to_text())
                .and_modify(|known| known.1.clone_from(&after))
                .or_insert((before, after));
        }
    }

    /// Returns the files before the session, and the paths whose earlier content is unknown.
    pub(super) fn restore(&self, root: &Path) -> (BTreeMap<String, String>, Vec<String>) {
        let (mut files, mut unknown) = (BTreeMap::new(), Vec::new());
        let root = WorkspaceRoot::open(root).ok();
        for path in self.used.iter().chain(self.replaced.keys()) {
            if files.contains_key(path) {
                continue;
            }
            let now = read_file(root.as_ref(), path);
            match self.replaced.get(path) {
                Some((None, _)) => {}
                Some((Some(digest), _)) => {
                    let undone = self.undo_edits(path, digest, now.clone());
                    if undone.is_none() {
                        unknown.push(path.clone());
                    }
                    files.extend(undone.or(now).map(|text| (path.clone(), text)));
                }
                None => files.extend(now.map(|now| (path.clone(), now))),
            }
        }
        unknown.dedup();
        (files, unknown)
    }

    /// Reverts the edits of a file, newest first, until it has this digest. Returns `None` if no revision has it.
    fn undo_edits(&self, path: &str, digest: &str, now: Option<String>) -> Option<String> {
        let mut text = now?;
        let mut edits = self.edits.iter().rev().filter(|edit| edit.path == path);
        loop {
            if Sha256Digest::of(text.as_bytes()).to_string() == digest {
                return Some(text);
            }
            let edit = edits.next()?;
            text = text.replacen(&edit.new, &edit.old, 1);
        }
    }

    /// Returns the files that the session replaced and that have not changed since; `None` for removed files.
    pub(super) fn unchanged_since(&self, root: &Path) -> BTreeMap<String, Option<String>> {
        let mut files = BTreeMap::new();
        let root = WorkspaceRoot::open(root).ok();
        for (path, (_, after)) in &self.replaced {
            let now = read_file(root.as_ref(), path);
            if now.as_ref().map(|now| Sha256Digest::of(now.as_bytes()).to_string()) == *after {
                files.insert(path.clone(), now);
            }
        }
        files
    }
}

/// Returns whether a path, as written, stays in the workspace.
fn is_inside(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    !path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Reads a file, unless it has become a link, or a folder around it has: that may lead to a file that the run could not
/// read.
fn read_file(root: Option<&WorkspaceRoot>, path: &str) -> Option<String> {
    let path = RelPath::new(path).ok().filter(|_| is_inside(path))?;
    let root = root.filter(|root| root.real_path(&path).is_none())?;
    String::from_utf8(root.read(&path, MAX_FILE_BYTES).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::machine::FileDigests;

    #[test]
    fn edits_are_taken_back_until_the_digest_is_that_of_the_first_image() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "one three").unwrap();
        let edit = |old: &str, new: &str| TextReplacement {
            path: "a".into(),
            old: old.into(),
            new: new.into(),
        };
        let mut files = OriginalFiles {
            edits: vec![edit("x", "two"), edit("two", "three")],
            ..OriginalFiles::default()
        };
        let image = |before: &str, after: &str| CallIntent::Edit {
            files: [FileDigests {
                path: "a".into(),
                before: Some(before.into()),
                after: Some(after.into()),
            }]
            .into(),
        };
        files.record_intent(&image(
            &Sha256Digest::of(b"one x").to_string(),
            &Sha256Digest::of(b"one two").to_string(),
        ));
        files.record_intent(&image(
            &Sha256Digest::of(b"one two").to_string(),
            &Sha256Digest::of(b"one three").to_string(),
        ));
        let (before, unknown) = files.restore(folder.path());
        assert_eq!((before["a"].as_str(), unknown), ("one x", vec![]));
        assert_eq!(files.unchanged_since(folder.path())["a"].as_deref(), Some("one three"));
    }

    #[test]
    fn a_file_whose_past_is_lost_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "now").unwrap();
        let mut files = OriginalFiles::default();
        let image = FileDigests { path: "a".into(), before: Some("00".into()), after: None };
        files.record_intent(&CallIntent::Edit { files: [image].into() });
        let (before, unknown) = files.restore(folder.path());
        assert_eq!((before["a"].as_str(), unknown), ("now", vec!["a".to_owned()]));
    }
}
