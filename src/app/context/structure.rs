//! The section about the structure of the project.

use std::fmt::Write as _;

use super::PromptSection;
use crate::workspace::index::{FolderTree, IndexCoverage, IndexResult, TreeEntry};

/// The maximum number of languages that are named.
const MAX_LANGUAGES: usize = 10;

/// Returns the structure of a workspace.
pub(super) fn structure_section(indexed: &IndexResult) -> PromptSection {
    let index = &indexed.index;
    let files = index.files;
    let (mut text, notice) = match indexed.coverage {
        IndexCoverage::Complete => (format!("{files} files."), None),
        IndexCoverage::Stale(age) => {
            let minutes = age.as_secs().div_ceil(60);
            let notice = format!(
                "there was no time to index the workspace; its structure is shown as of {minutes} minutes ago"
            );
            (format!("{files} files, as of a while ago."), Some(notice))
        }
        IndexCoverage::Partial => {
            let text = format!("At least {files} files; not all of them were looked at.");
            let notice = format!(
                "there was no time to index all of the workspace; its structure is shown for {files} files"
            );
            (text, Some(notice))
        }
    };
    if !index.languages.is_empty() {
        let named = index.languages.iter().take(MAX_LANGUAGES);
        let named: Vec<String> = named.map(|(name, files)| format!("{name} {files}")).collect();
        let _ = write!(text, " By language: {}.", named.join(", "));
    }
    if files > 0 {
        text.push_str("\n\n```\n");
        let detailed = files <= FolderTree::MAX_FULL_FILES as u64;
        write_tree(&mut text, &index.tree, 0, detailed);
        text.push_str("```\n");
    }
    PromptSection { text, notices: Vec::from_iter(notice) }
}

/// Writes the tree below a folder. Unless it is complete, each folder has the count of its files.
fn write_tree(text: &mut String, folder: &FolderTree, depth: usize, detailed: bool) {
    let indent = "  ".repeat(depth);
    for (name, node) in &folder.entries {
        match node {
            TreeEntry::File => {
                let _ = writeln!(text, "{indent}{name}");
            }
            TreeEntry::Folder(below) => {
                let count = if detailed { String::new() } else { format!(" ({})", below.files) };
                let _ = writeln!(text, "{indent}{name}/{count}");
                write_tree(text, below, depth + 1, detailed);
            }
        }
    }
    if folder.omitted > 0 {
        let _ = writeln!(text, "{indent}… and {} more", folder.omitted);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::workspace::WorkspaceRoot;
    use crate::workspace::index::{IndexSettings, WorkspaceIndex};

    fn section(paths: impl Iterator<Item = String>) -> String {
        let folder = tempfile::tempdir().unwrap();
        for path in paths {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let root = WorkspaceRoot::open(folder.path()).unwrap();
        let patience = Duration::from_secs(20);
        let settings = IndexSettings { max_wait: patience, ..IndexSettings::default() };
        structure_section(&WorkspaceIndex::build(&root, &settings).unwrap()).text
    }

    #[test]
    fn a_small_project_is_shown_file_by_file() {
        let paths = ["README.md", "src/main.rs", "src/a/b.rs"].map(str::to_owned);
        insta::assert_snapshot!(section(paths.into_iter()), @r"
        3 files. By language: Rust 2, Markdown 1.

        ```
        README.md
        src/
          a/
            b.rs
          main.rs
        ```
        ");
    }

    #[test]
    fn a_large_one_is_shown_by_two_levels_and_counts() {
        let paths = (0..400).map(|n| format!("src/p{}/deep/{n}.py", n % 2));
        insta::assert_snapshot!(section(paths.chain(["x".to_owned()])), @r"
        401 files. By language: Python 400.

        ```
        src/ (400)
          p0/ (200)
          p1/ (200)
        x
        ```
        ");
    }

    #[test]
    fn what_is_not_whole_says_so_to_both() {
        for reach in [IndexCoverage::Partial, IndexCoverage::Stale(Duration::from_secs(400))] {
            let section = structure_section(&IndexResult {
                index: WorkspaceIndex::default(),
                coverage: reach,
            });
            assert_eq!(section.notices.len(), 1);
            assert!(section.text.contains("not all") || section.text.contains("a while ago"));
        }
    }
}
