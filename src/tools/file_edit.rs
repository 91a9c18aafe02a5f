//! Changes of files, shared by the tools that write files.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::tool::{CallPlan, ToolOutput};
use crate::machine::{CallIntent, FileDigests};
use crate::types::{FileAction, FileChange, pluralize};
use crate::workspace::{
    BatchedChange, RelPath, WorkspaceRoot, apply_changes, common_ends, sha256, unified_diff,
};

/// The maximum size of a file to be edited, in bytes.
pub(super) const MAX_FILE_SIZE: u64 = 64 << 20;

/// A change of one or more files that is applied as a whole.
#[derive(Default)]
pub(super) struct FileEdit {
    changes: Vec<BatchedChange>,
    reports: Vec<FileChange>,
    /// The original contents, for the diff.
    originals: Vec<Option<Vec<u8>>>,
    /// A remark for the result.
    pub remark: Option<String>,
}

impl FileEdit {
    /// Returns the change of one file; a content of `None` stands for a missing file.
    pub(super) fn new(path: RelPath, before: Option<&[u8]>, after: Option<Arc<[u8]>>) -> Self {
        let mut edit = Self::default();
        edit.add(path, before, after, None);
        edit
    }

    /// Adds the change of another file.
    pub(super) fn add(
        &mut self,
        path: RelPath,
        before: Option<&[u8]>,
        after: Option<Arc<[u8]>>,
        mode: Option<u32>,
    ) {
        let action = match (before, &after) {
            (None, _) => FileAction::Created,
            (Some(_), Some(_)) => FileAction::Modified,
            (Some(_), None) => FileAction::Deleted,
        };
        let (added, removed) = count_changed_lines(before, after.as_deref());
        self.reports.push(FileChange { path: (&path).into(), action, added, removed });
        self.originals.push(before.map(<[u8]>::to_vec));
        self.changes.push(BatchedChange { path, before: before.map(sha256), after, mode });
    }

    /// Returns the changed files, and the intent, with which a resumed run detects whether the change was made.
    pub(super) fn plan(&self) -> CallPlan {
        let image = |change: &BatchedChange| FileDigests {
            path: (&change.path).into(),
            before: change.before.clone(),
            after: change.after.as_deref().map(sha256),
        };
        let files = self.changes.iter().map(image).collect();
        CallPlan { intent: CallIntent::Edit { files }, changes: self.reports.clone() }
    }

    /// Returns the change as a unified diff.
    pub(super) fn diff(&self) -> String {
        let diff = |(change, original): (&BatchedChange, &Option<Vec<u8>>)| {
            unified_diff(&change.path.to_string(), original.as_deref(), change.after.as_deref())
        };
        self.changes.iter().zip(&self.originals).map(diff).collect()
    }

    /// Makes the change, and returns the result of the call.
    pub(super) fn apply(self, root: &WorkspaceRoot) -> ToolOutput {
        let linked: Vec<RelPath> =
            self.changes.iter().filter_map(|change| linked(root, change)).collect();
        let left = match apply_changes(root, &self.changes) {
            Ok(left) => left,
            Err(error) => return ToolOutput::failed(error),
        };
        for BatchedChange { path, after, .. } in &self.changes {
            if let Some(content) = after {
                root.notify_written(path, content);
            }
        }
        let text = self.reports.iter().map(describe_change).chain(linked.iter().map(unlinked));
        let left = left
            .iter()
            .map(|path| format!("The temporary file {} could not be removed.", path.display()));
        let text = text.chain(left);
        let text = text.collect::<Vec<_>>().join("\n") + &self.remark.unwrap_or_default();
        ToolOutput { changes: self.reports, ..ToolOutput::ok(text) }
    }
}

/// Returns the file that a change replaces, if it has other hard links.
fn linked(root: &WorkspaceRoot, change: &BatchedChange) -> Option<RelPath> {
    change.after.as_ref()?;
    let meta = root.open_file(&change.path).ok()?.file.metadata().ok()?;
    (meta.nlink() > 1).then(|| change.path.clone())
}

/// Describes that the other hard links of a file keep the old content. Changes are not written through hard links,
/// since another link may be outside the workspace.
fn unlinked(path: &RelPath) -> String {
    format!(
        "{path} had other names (hard links), which keep the old content: {path} is a separate file now."
    )
}

fn describe_change(change: &FileChange) -> String {
    let FileChange { path, action, added, removed } = change;
    let lines = |number: &u64| pluralize(*number, "line", "lines");
    match action {
        FileAction::Created => format!("Created {path} ({}).", lines(added)),
        FileAction::Modified => format!("Changed {path} (+{added} -{removed} lines)."),
        FileAction::Deleted => format!("Deleted {path} ({}).", lines(removed)),
    }
}

/// Returns the numbers of lines that the shortest diff adds and removes. If that takes too long to compute, all lines
/// between the common beginning and the common end are counted.
fn count_changed_lines(before: Option<&[u8]>, after: Option<&[u8]>) -> (u64, u64) {
    let before: Vec<&[u8]> = split_lines(before.unwrap_or_default());
    let after: Vec<&[u8]> = split_lines(after.unwrap_or_default());
    let (start, end) = common_ends(&before, &after);
    let (before, after) = (&before[start..before.len() - end], &after[start..after.len() - end]);
    let (removed, added) = (before.len(), after.len());
    match diff_distance(before, after) {
        Some(distance) => {
            let same = (removed + added - distance) / 2;
            ((added - same) as u64, (removed - same) as u64)
        }
        None => (added as u64, removed as u64),
    }
}

/// The number of changed lines beyond which the shortest diff is not computed.
const MAX_DIFF_DISTANCE: usize = 4_000;

/// Returns the number of removed and added lines in the shortest diff (Myers, "An O(ND) Difference Algorithm and Its
/// Variations"); `None` above [`MAX_DIFF_DISTANCE`].
fn diff_distance(before: &[&[u8]], after: &[&[u8]]) -> Option<usize> {
    let (n, m) = (before.len(), after.len());
    if n == 0 || m == 0 {
        return Some(n + m);
    }
    let most = MAX_DIFF_DISTANCE.min(n + m);
    // The furthest position in `before` on each diagonal (`before` - `after`). Indices are shifted by `most + 1`.
    let mut reached = vec![0_usize; 2 * most + 3];
    let middle = most + 1;
    for distance in 0..=most {
        for diagonal in (middle - distance..=middle + distance).step_by(2) {
            let is_added = diagonal == middle - distance
                || (diagonal != middle + distance && reached[diagonal - 1] < reached[diagonal + 1]);
            let mut x = if is_added { reached[diagonal + 1] } else { reached[diagonal - 1] + 1 };
            let Some(mut y) = (x + middle).checked_sub(diagonal) else { continue };
            while x < n && y < m && before[x] == after[y] {
                x += 1;
                y += 1;
            }
            reached[diagonal] = x;
            if x >= n && y >= m {
                return Some(distance);
            }
        }
    }
    None
}

fn split_lines(content: &[u8]) -> Vec<&[u8]> {
    content.split_inclusive(|byte| *byte == b'\n').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_and_removed_lines_are_counted() {
        let count = |a: &str, b: &str| count_changed_lines(Some(a.as_bytes()), Some(b.as_bytes()));
        assert_eq!(count("a\nb\nc\n", "a\nx\ny\nc\n"), (2, 1));
        assert_eq!(count("a\n", "a\n"), (0, 0));
        assert_eq!(count("a\na\n", "a\n"), (0, 1));
        assert_eq!(count("a\nb\nc\n", "x\nb\ny\n"), (2, 2));
        assert_eq!(count("a\nb\nc\na\nb\nb\na\n", "c\nb\na\nb\na\nc\n"), (2, 3));
        assert_eq!(count_changed_lines(None, Some(b"a\nb")), (2, 0));
        assert_eq!(count_changed_lines(Some(b"a\nb"), None), (0, 2));
    }

    #[test]
    fn unchanged_lines_between_changes_are_not_counted() {
        let lines = |at: &[usize]| -> String {
            (1..=100)
                .map(|n| if at.contains(&n) { "x\n".to_owned() } else { format!("{n}\n") })
                .collect()
        };
        let count =
            count_changed_lines(Some(lines(&[]).as_bytes()), Some(lines(&[1, 100]).as_bytes()));
        assert_eq!(count, (2, 2));
        let many = |word: &str| (0..9_000).map(|n| format!("{word}{n}\n")).collect::<String>();
        let count = count_changed_lines(Some(many("a").as_bytes()), Some(many("b").as_bytes()));
        assert_eq!(count, (9_000, 9_000));
    }
}
