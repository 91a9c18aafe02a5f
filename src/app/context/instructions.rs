//! Instructions of the project for agents: `AGENTS.md`, the nearest first; `CLAUDE.md`; `.architect.md`.
//!
//! These files are in the workspace, and in the folders above it up to the top of its repository.

use std::fmt::Write as _;

use super::diff::repository_root;
use super::{PromptSection, file_excerpt};
use crate::workspace::{RelPath, WorkspaceRoot};

/// The files, in the order in which they are shown.
const FILE_NAMES: [&str; 3] = ["AGENTS.md", "CLAUDE.md", ".architect.md"];

/// The maximum number of bytes of one file.
const MAX_FILE_BYTES: usize = 32 * 1024;

/// The maximum number of bytes of all files together.
const MAX_TOTAL_BYTES: usize = 64 * 1024;

/// The least space for a file, in bytes; less of its beginning would be of no use.
const MIN_USEFUL_BYTES: usize = 1024;

const PREFACE: &str = "\
The project asks for this. Follow it unless the user's task says otherwise; where two of these texts differ, the one \
that comes first counts.
";

/// Returns the instructions; `guides` are further files of this kind in subfolders.
pub(super) fn instructions_section(root: &WorkspaceRoot, guides: &[String]) -> PromptSection {
    let mut section = PromptSection::default();
    let mut shown: Vec<String> = Vec::new();
    let mut left = MAX_TOTAL_BYTES;
    let folders = instruction_folders(root);
    for name in FILE_NAMES {
        for (prefix, root, folder) in &folders {
            let heading = format!("{prefix}{name}");
            let most = if left < MIN_USEFUL_BYTES { 0 } else { MAX_FILE_BYTES.min(left) };
            let (text, omitted) =
                match file_excerpt::read_excerpt(root, &folder.join(name.as_ref()), most) {
                    Ok(found) => (found.text.trim().to_owned(), found.omitted_bytes),
                    Err(error) if error.is_missing() => continue,
                    Err(error) => {
                        section.notices.push(format!("{heading} is left out: {error}"));
                        continue;
                    }
                };
            if omitted > 0 {
                section.notices.push(match &*text {
                    "" => {
                        format!("{heading} is left out: it is not text, or there is no room for it")
                    }
                    _ => format!("{heading} is too long; its last {omitted} bytes are left out"),
                });
            }
            // Many projects have the same text under two names, or a file that refers to the other one.
            let is_known = shown.contains(&text) || text.starts_with("@AGENTS.md");
            if text.is_empty() || is_known && omitted == 0 {
                continue;
            }
            let _ = write!(section.text, "\n### {heading}\n\n{text}\n");
            if omitted > 0 {
                let _ = writeln!(section.text, "\n[... {omitted} bytes omitted ...]");
            }
            left = left.saturating_sub(text.len());
            shown.push(text);
        }
    }
    if !shown.is_empty() {
        section.text.insert_str(0, PREFACE);
    }
    if !guides.is_empty() {
        let _ = write!(
            section.text,
            "\nParts of the project have their own; read the nearest one before you work there: {}\n",
            guides.join(", ")
        );
    }
    section
}

/// Returns the folders with instructions, the nearest first: the prefix of paths relative to the workspace (empty,
/// `../`, `../../`), and the folder in a root.
fn instruction_folders(root: &WorkspaceRoot) -> Vec<(String, WorkspaceRoot, RelPath)> {
    let mut folders = vec![(String::new(), root.clone(), RelPath::root())];
    let above = repository_root(root.path()).filter(|top| *top != root.path());
    let Some(above) = above.and_then(|top| WorkspaceRoot::open(top).ok()) else { return folders };
    let inside = root.path().strip_prefix(above.path()).ok();
    let mut folder = inside.and_then(|inside| RelPath::new(inside).ok());
    let mut prefix = String::new();
    while let Some(parent) = folder.and_then(|folder| folder.parent()) {
        prefix.push_str("../");
        folders.push((prefix.clone(), above.clone(), parent.clone()));
        folder = Some(parent);
    }
    folders
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn put(folder: &Path, path: &str, text: &str) {
        fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
        fs::write(folder.join(path), text).unwrap();
    }

    fn shown(folder: &Path) -> PromptSection {
        instructions_section(&WorkspaceRoot::open(folder).unwrap(), &[])
    }

    fn headings(section: &PromptSection) -> Vec<&str> {
        section.text.lines().filter_map(|line| line.strip_prefix("### ")).collect()
    }

    #[test]
    fn a_file_that_is_not_text_is_not_called_too_long() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "AGENTS.md", "a\0b");
        let section = shown(folder.path());
        assert_eq!(
            (section.text.as_str(), section.notices.concat().as_str()),
            ("", "AGENTS.md is left out: it is not text, or there is no room for it")
        );
    }

    #[test]
    fn the_nearest_agents_file_comes_first_and_the_other_names_after() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("AGENTS.md", "outside"),
            ("repo/.git/config", ""),
            ("repo/AGENTS.md", "far"),
            ("repo/.architect.md", "own"),
            ("repo/a/b/AGENTS.md", "near"),
            ("repo/a/CLAUDE.md", "other"),
        ] {
            put(folder.path(), path, text);
        }
        let section = shown(&folder.path().join("repo/a/b"));
        let expected = ["AGENTS.md", "../../AGENTS.md", "../CLAUDE.md", "../../.architect.md"];
        assert_eq!(headings(&section), expected);
        assert!(section.text.contains("### AGENTS.md\n\nnear\n") && section.notices.is_empty());
        // Without a repository, only the workspace itself counts.
        assert_eq!(headings(&shown(&folder.path().join("repo"))), ["AGENTS.md", ".architect.md"]);
    }

    #[test]
    fn one_text_under_two_names_is_shown_once() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "AGENTS.md", "the rules\n");
        symlink("AGENTS.md", folder.path().join("CLAUDE.md")).unwrap();
        put(folder.path(), ".architect.md", "@AGENTS.md\n");
        assert_eq!(headings(&shown(folder.path())), ["AGENTS.md"]);
    }

    #[test]
    fn a_long_file_is_cut_and_a_link_outside_is_left_out_with_a_notice_each() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "AGENTS.md", &"a line\n".repeat(10_000));
        symlink("/etc/passwd", folder.path().join("CLAUDE.md")).unwrap();
        let section = shown(folder.path());
        assert!(section.text.len() < 33 * 1024 && section.text.contains("bytes omitted ...]"));
        assert_eq!(section.notices.len(), 2, "{:?}", section.notices);
        assert!(section.notices[1].starts_with("CLAUDE.md is left out: "));
    }

    #[test]
    fn all_files_together_have_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), ".git/config", "");
        for (depth, name) in ["", "a/", "a/b/", "a/b/c/"].iter().enumerate() {
            put(
                folder.path(),
                &format!("{name}AGENTS.md"),
                &format!("line {depth}\n").repeat(4_000),
            );
        }
        let section = shown(&folder.path().join("a/b/c"));
        assert!(section.text.len() < 66 * 1024, "{}", section.text.len());
        assert_eq!(headings(&section).len(), 3);
        assert!(section.notices.iter().any(|notice| notice.starts_with("../../../AGENTS.md")));
    }

    #[test]
    fn deeper_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = WorkspaceRoot::open(folder.path()).unwrap();
        assert!(
            instructions_section(&root, &["a/AGENTS.md".to_owned()])
                .text
                .contains("there: a/AGENTS.md")
        );
        assert!(instructions_section(&root, &[]).text.is_empty());
    }
}
