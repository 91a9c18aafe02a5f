//! The workspace of a session, and the detection of changes to it.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{IoContext, JournalError, Result};
use crate::types::hex;
use crate::workspace::open_input;
use crate::workspace::worktree::named_folder;

/// The identity of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceIdentity {
    /// The folder of the workspace.
    #[serde(with = "path_text")]
    pub root: PathBuf,
    /// The device of the folder.
    pub device: u64,
    /// The inode of the folder.
    pub inode: u64,
    /// The checked-out branch and commit, if it is a git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<GitHead>,
    /// The workspace that it replaces, if it is an isolated worktree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<PathBuf>,
}

/// The checked-out branch and commit of a git repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitHead {
    /// The branch; `None` if the head is detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit; `None` if only git itself could determine it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// A change of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkspaceChange {
    /// The same folder has another path.
    Moved {
        /// The previous path.
        from: PathBuf,
    },
    /// Another folder is at the same path.
    Replaced,
    /// Another branch or commit is checked out.
    Head {
        /// The previous head.
        from: Option<GitHead>,
        /// The current head.
        to: Option<GitHead>,
    },
    /// Files have changed since the session wrote them.
    Files(Vec<String>),
    /// The user has restored an earlier state of the files.
    Restored,
    /// The session is a fork that begins in this folder.
    Forked {
        /// The folder.
        to: PathBuf,
    },
}

/// The maximum size of a file in a git folder that is read.
const MAX_GIT_FILE_BYTES: u64 = 4 << 20;

impl WorkspaceIdentity {
    /// Determines the identity of a workspace.
    ///
    /// # Errors
    ///
    /// Fails if there is no such folder.
    pub fn inspect(root: &Path) -> Result<Self> {
        let root = fs::canonicalize(root).io_context("find the workspace", root)?;
        let found = fs::metadata(&root).io_context("inspect", &root)?;
        if !found.is_dir() {
            return Err(JournalError::NoWorkspace(root));
        }
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
            head: GitHead::of(&root),
            root,
            origin: None,
        })
    }

    /// Returns whether a folder's sessions include the sessions of this workspace.
    pub fn belongs_to(&self, folder: &Path) -> bool {
        self.root == folder || self.origin.as_deref() == Some(folder)
    }

    /// Returns the changes of a workspace since this identity.
    pub fn changes_to(&self, now: &Self) -> Vec<WorkspaceChange> {
        let mut drift = Vec::new();
        let is_same = (self.device, self.inode) == (now.device, now.inode);
        match (is_same, self.root == now.root) {
            (true, true) => {}
            (true, false) => drift.push(WorkspaceChange::Moved { from: self.root.clone() }),
            (false, _) => drift.push(WorkspaceChange::Replaced),
        }
        if self.head != now.head {
            drift.push(WorkspaceChange::Head { from: self.head.clone(), to: now.head.clone() });
        }
        drift
    }
}

impl GitHead {
    /// Reads the head without git, whose configuration can run programs.
    fn of(root: &Path) -> Option<Self> {
        let git = root.ancestors().map(|folder| folder.join(".git")).find(|git| git.exists())?;
        let git = if git.is_dir() { git } else { named_folder(&git, "gitdir: ")? };
        let head = read_small_file(&git.join("HEAD")).ok()?;
        let Some(name) = head.trim_end().strip_prefix("ref: ") else {
            return Some(Self { branch: None, commit: parse_commit(&head) });
        };
        let branch = name.strip_prefix("refs/heads/").filter(|name| is_branch_name(name))?;
        let common = named_folder(&git.join("commondir"), "");
        let folders = [Some(git), common];
        let loose = folders.iter().flatten().find_map(|folder| {
            read_small_file(&folder.join(name)).ok().and_then(|text| parse_commit(&text))
        });
        let packed = || {
            folders.iter().flatten().find_map(|folder| {
                let refs = read_small_file(&folder.join("packed-refs")).ok()?;
                let line = refs.lines().find(|line| line.ends_with(&format!(" {name}")))?;
                parse_commit(line.split(' ').next()?)
            })
        };
        Some(Self { branch: Some(branch.to_owned()), commit: loose.or_else(packed) })
    }
}

/// Returns whether a text is a valid branch name.
fn is_branch_name(text: &str) -> bool {
    let fine = |c: char| !c.is_control() && !" ~^:?*[\\".contains(c);
    text.len() <= 255 && text.chars().all(fine) && !text.split('/').any(|part| part == "..")
}

/// Returns the commit that a text names, if it contains nothing else.
fn parse_commit(text: &str) -> Option<String> {
    let text = text.trim_end();
    let is_id = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| text.to_owned())
}

/// Reads a small regular file. A pipe in its place does not block.
fn read_small_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_input(path)?.take(MAX_GIT_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

impl fmt::Display for GitHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commit = self.commit.as_deref().and_then(|commit| commit.get(..12));
        match (&self.branch, commit) {
            (Some(branch), Some(commit)) => write!(f, "{branch} at {commit}"),
            (Some(branch), None) => f.write_str(branch),
            (None, commit) => f.write_str(commit.unwrap_or("an unknown commit")),
        }
    }
}

impl fmt::Display for WorkspaceChange {
    /// Writes the text for users and models.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |head: &Option<GitHead>| {
            head.as_ref().map_or("no git repository".to_owned(), GitHead::to_string)
        };
        match self {
            Self::Moved { from } => {
                write!(f, "The workspace has moved; it was at {} before.", from.display())
            }
            Self::Replaced => f.write_str("The workspace is a different folder than before."),
            Self::Restored => f.write_str(
                "The user has taken back changes that this session made: the files are as they were before them.",
            ),
            Self::Forked { to } => write!(
                f,
                "It continues in another folder, {}, with the files as they were at this point.",
                to.display()
            ),
            Self::Head { from, to } => {
                write!(f, "The git checkout has changed from {} to {}.", name(from), name(to))
            }
            Self::Files(files) => {
                let some: Vec<_> = files.iter().take(20).map(String::as_str).collect();
                let more = files.len() - some.len();
                write!(
                    f,
                    "These files have changed since this session wrote them: {}",
                    some.join(", ")
                )?;
                if more > 0 { write!(f, " and {more} more.") } else { f.write_str(".") }
            }
        }
    }
}

/// Paths as text. A path that is not UTF-8 is written as a zero byte, which no path contains, and the path in
/// hexadecimal.
mod path_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{OsStrExt, OsString, OsStringExt, Path, PathBuf, hex};

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = path.to_str() {
            return to.serialize_str(text);
        }
        to.serialize_str(&format!("\0{}", hex(path.as_os_str().as_bytes())))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        let text = String::deserialize(from)?;
        let Some(hex) = text.strip_prefix('\0') else { return Ok(text.into()) };
        let byte = |pair: &[u8]| {
            let pair = str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16).ok()
        };
        let bytes: Option<Vec<u8>> = hex.as_bytes().chunks(2).map(byte).collect();
        let bytes = bytes.ok_or_else(|| D::Error::custom("a path that is not hexadecimal"))?;
        Ok(OsString::from_vec(bytes).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn repository() -> (tempfile::TempDir, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("project");
        fs::create_dir_all(root.join(".git/refs/heads")).unwrap();
        fs::write(root.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(root.join(".git/refs/heads/main"), format!("{COMMIT}\n")).unwrap();
        (temp, root)
    }

    #[test]
    fn a_workspace_that_is_left_alone_does_not_drift() {
        let (_temp, root) = repository();
        let workspace = WorkspaceIdentity::inspect(&root).unwrap();
        assert_eq!(workspace.head.as_ref().unwrap().to_string(), "main at 0123456789ab");
        assert_eq!(workspace.changes_to(&WorkspaceIdentity::inspect(&root).unwrap()), []);
        let text = serde_json::to_string(&workspace).unwrap();
        assert_eq!(serde_json::from_str::<WorkspaceIdentity>(&text).unwrap(), workspace);
    }

    /// Fault S14.
    #[test]
    fn another_branch_another_place_and_another_folder_are_changes() {
        let (temp, root) = repository();
        let before = WorkspaceIdentity::inspect(&root).unwrap();
        fs::write(root.join(".git/HEAD"), format!("{COMMIT}\n")).unwrap();
        let changes = |now: &WorkspaceIdentity| {
            before
                .changes_to(now)
                .iter()
                .map(WorkspaceChange::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let changed = "The git checkout has changed from main at 0123456789ab to 0123456789ab.";
        assert_eq!(changes(&WorkspaceIdentity::inspect(&root).unwrap()), changed);
        let moved = temp.path().join("elsewhere");
        fs::rename(&root, &moved).unwrap();
        assert!(
            changes(&WorkspaceIdentity::inspect(&moved).unwrap())
                .starts_with("The workspace has moved; it was at /")
        );
        fs::create_dir(&root).unwrap();
        assert!(
            changes(&WorkspaceIdentity::inspect(&root).unwrap())
                .starts_with("The workspace is a different folder")
        );
        fs::remove_dir(&root).unwrap();
        assert!(WorkspaceIdentity::inspect(&root).is_err());
    }

    #[test]
    fn a_branch_is_found_in_packed_refs_and_from_a_worktree_and_from_below() {
        let (temp, root) = repository();
        fs::remove_file(root.join(".git/refs/heads/main")).unwrap();
        fs::write(
            root.join(".git/packed-refs"),
            format!("# pack-refs\n{COMMIT} refs/heads/main\n"),
        )
        .unwrap();
        fs::create_dir_all(root.join(".git/worktrees/tree")).unwrap();
        fs::write(root.join(".git/worktrees/tree/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(root.join(".git/worktrees/tree/commondir"), "../..\n").unwrap();
        let tree = temp.path().join("tree/deep");
        fs::create_dir_all(&tree).unwrap();
        fs::write(tree.join("../.git"), "gitdir: ../project/.git/worktrees/tree\n").unwrap();
        for folder in [&root, &tree] {
            let head = WorkspaceIdentity::inspect(folder).unwrap().head.unwrap();
            assert_eq!(head.commit.as_deref(), Some(COMMIT), "{}", folder.display());
        }
    }

    #[test]
    fn an_invalid_git_folder_has_no_head() {
        let (temp, root) = repository();
        fs::write(temp.path().join("secret"), "secret").unwrap();
        for head in ["ref: refs/heads/../../../../secret", "ref: ../secret", "secret", ""] {
            fs::write(root.join(".git/HEAD"), head).unwrap();
            let head = WorkspaceIdentity::inspect(&root).unwrap().head;
            assert!(
                head.as_ref().is_none_or(|head| head.commit.is_none() && head.branch.is_none()),
                "{head:?}"
            );
        }
    }

    #[test]
    fn a_path_that_is_not_utf_8_comes_back() {
        let root = PathBuf::from(OsString::from_vec(b"/tmp/\xff\xfe".to_vec()));
        let workspace = WorkspaceIdentity { root, device: 1, inode: 2, head: None, origin: None };
        let text = serde_json::to_string(&workspace).unwrap();
        assert_eq!(serde_json::from_str::<WorkspaceIdentity>(&text).unwrap(), workspace);
    }
}
