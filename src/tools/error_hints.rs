//! Hints in error messages that help the model to correct a mistake.

use crate::types::edit_distance;
use crate::types::escape_name;
use crate::workspace::{FileError, FileKind, RelPath, WorkspaceRoot};

/// Returns the message for a file error, with similar names if the file is missing.
pub(super) fn describe_missing(root: &WorkspaceRoot, error: &FileError) -> String {
    let FileError::Missing(path) = error else { return error.to_string() };
    match similar_names(root, path) {
        Some(similar) => format!("{error}. {similar}"),
        None => error.to_string(),
    }
}

/// The maximum number of entries of a folder that are compared.
const MAX_ENTRIES: usize = 2_000;

/// The maximum number of suggested names.
const MAX_SUGGESTIONS: usize = 3;

fn similar_names(root: &WorkspaceRoot, path: &RelPath) -> Option<String> {
    let (parent, name) = (path.parent()?, path.name()?);
    if !root.exists(&parent) {
        return Some(format!("The directory '{parent}' does not exist either"));
    }
    let (entries, _) = root.list(&parent, MAX_ENTRIES).ok()?;
    let name = name.to_string_lossy().to_lowercase();
    let mut near: Vec<(usize, String)> = entries
        .iter()
        .map(|entry| (edit_distance(&name, &entry.name.to_string_lossy().to_lowercase()), entry))
        .filter(|(distance, _)| *distance <= 2.max(name.chars().count() / 3))
        .map(|(distance, entry)| {
            (distance, escape_name(parent.join(&entry.name).as_path().as_os_str()))
        })
        .collect();
    near.sort();
    near.truncate(MAX_SUGGESTIONS);
    let names: Vec<String> = near.into_iter().map(|(_, name)| format!("'{name}'")).collect();
    (!names.is_empty()).then(|| format!("Did you mean {}?", names.join(" or ")))
}

/// Describes why a link is not deleted; `None` if the path is not a link.
///
/// Changes are made to the target of a link, which is another file.
pub(super) fn describe_link_deletion(root: &WorkspaceRoot, path: &RelPath) -> Option<String> {
    (root.link_kind(path).ok()? == FileKind::Link).then(|| {
        let is_to_file = root.kind(path).is_ok_and(|kind| kind == FileKind::File);
        let target = match root.canonical(path) {
            Ok(target) if is_to_file => {
                format!(" To delete the file that it leads to, name that: '{target}'.")
            }
            Ok(_) | Err(_) => String::new(),
        };
        format!(
            "'{path}' is a symbolic link, and only files can be deleted.{target} To delete the link, use a command, such \
             as rm"
        )
    })
}

/// Describes why non-ASCII text cannot be added to a file.
pub(super) fn describe_encoding_conflict(path: &RelPath) -> String {
    format!(
        "'{path}' is not UTF-8, and its encoding is not known; characters beyond ASCII would damage it. Keep to ASCII, or \
         change it with a command that knows the encoding, such as iconv."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_edits() {
        assert_eq!(edit_distance("flaw", "lawn"), 2);
        assert_eq!(edit_distance("", "ab"), 2);
    }

    #[test]
    fn the_error_for_a_missing_file_suggests_similar_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["main.rs", "lib.rs", "other.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let root = WorkspaceRoot::open(folder.path()).unwrap();
        let message =
            |path: &str| describe_missing(&root, &FileError::Missing(root.resolve(path).unwrap()));
        assert_eq!(message("mian.rs"), "'mian.rs' does not exist. Did you mean 'main.rs'?");
        assert_eq!(message("x/y"), "'x/y' does not exist. The directory 'x' does not exist either");
        assert_eq!(message("nothing-alike"), "'nothing-alike' does not exist");
    }
}
