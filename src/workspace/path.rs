//! Paths relative to the workspace, and their display.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use thiserror::Error;

use crate::types::{FilePath, escape_name};

/// A path below the workspace: relative, and without `.` and `..`. The empty path is the workspace itself.
///
/// Its display, for users and models, is text. Names that are not valid text are shown with escapes, which
/// [`WorkspaceRoot::resolve`](super::WorkspaceRoot::resolve) decodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(PathBuf);

/// The reason why a text is not a path in the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// The path leads outside.
    #[error("path '{0}' is outside the workspace; use a path relative to the workspace")]
    Outside(String),
    /// The path contains a NUL byte.
    #[error("path '{0}' contains a NUL character")]
    Nul(String),
}

impl RelPath {
    /// Returns the path of the workspace itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// Parses a relative path. `..` is resolved lexically, as long as it stays inside.
    ///
    /// # Errors
    ///
    /// Fails for an absolute path, and for a path that leads outside.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, PathError> {
        let path = path.as_ref();
        let outside = || PathError::Outside(escape_name(path.as_os_str()));
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(PathError::Nul(escape_name(path.as_os_str())));
        }
        let mut inside = PathBuf::new();
        for component in path.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => inside.push(name),
                Component::ParentDir if inside.pop() => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(outside());
                }
            }
        }
        Ok(Self(inside))
    }

    /// Returns the path of a walk's entry below the workspace.
    pub(crate) fn from_entry(path: &Path) -> Self {
        debug_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
        Self(path.to_owned())
    }

    /// Returns the path as the file system expects it; `.` for the workspace itself.
    pub fn as_path(&self) -> &Path {
        if self.is_root() { Path::new(".") } else { &self.0 }
    }

    /// Returns whether this is the workspace itself.
    pub fn is_root(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// Returns the path of an entry below this one.
    pub fn join(&self, name: &OsStr) -> Self {
        Self(self.0.join(name))
    }

    /// Returns the parent; `None` for the workspace itself.
    pub fn parent(&self) -> Option<Self> {
        self.0.parent().map(|parent| Self(parent.to_owned()))
    }

    /// Returns the last component; `None` for the workspace itself.
    pub fn name(&self) -> Option<&OsStr> {
        self.0.file_name()
    }

    /// Returns the components, outermost first.
    pub fn parts(&self) -> impl Iterator<Item = &OsStr> {
        self.0.iter()
    }

    /// Returns the rest of this path below a folder, or the path itself if it is not below the folder.
    pub(super) fn strip_folder(&self, folder: &Self) -> &Path {
        self.0.strip_prefix(&folder.0).unwrap_or(&self.0)
    }

    /// Returns the path with its escapes decoded; `None` without escapes.
    pub(super) fn unescaped(&self) -> Option<Self> {
        unescape(self.0.as_os_str().as_bytes())
            .and_then(|bytes| Self::new(PathBuf::from(OsString::from_vec(bytes))).ok())
    }
}

impl From<&RelPath> for FilePath {
    fn from(path: &RelPath) -> Self {
        Self::new(path.as_path())
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape_name(self.as_path().as_os_str()))
    }
}

/// Returns the current target of a folder path that was resolved earlier, if the path is or contains a link now. `None`
/// also if it is missing, which is reported at its use.
pub fn link_target(resolved: &Path) -> Option<PathBuf> {
    resolved.canonicalize().ok().filter(|now| now != resolved)
}

/// Decodes the escapes in a text; `None` without escapes.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    let mut found = false;
    while let Some((&first, more)) = rest.split_first() {
        if let Some((decoded, after)) = parse_escape(rest) {
            bytes.extend(decoded);
            rest = after;
            found = true;
        } else {
            bytes.push(first);
            rest = more;
        }
    }
    found.then_some(bytes)
}

/// Decodes one escape, `\xNN` or `\u{N…}`, at the start of a text.
fn parse_escape(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    if let Some(rest) = text.strip_prefix(b"\\x") {
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        return Some((vec![u8::from_str_radix(digits, 16).ok()?], &rest[2..]));
    }
    let rest = text.strip_prefix(b"\\u{")?;
    let end = rest.iter().take(7).position(|byte| *byte == b'}')?;
    let code = u32::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
    let char = char::from_u32(code)?;
    Some((char.to_string().into_bytes(), &rest[end + 1..]))
}

/// Resolves `..` without looking at the file system.
pub fn normalize_path(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parent_components_are_resolved_inside_only() {
        assert_eq!(RelPath::new("./a/../b//c/.").unwrap().to_string(), "b/c");
        assert!(RelPath::new("a/..").unwrap().is_root());
        for outside in ["..", "a/../../b", "/etc/passwd", "a/b/../../.."] {
            assert_eq!(RelPath::new(outside), Err(PathError::Outside(outside.into())));
        }
        assert!(matches!(RelPath::new("a\0b"), Err(PathError::Nul(_))));
    }

    proptest! {
        /// Fault R8.
        #[test]
        fn every_name_is_found_again_by_what_is_shown(bytes in "[^/\0\\\\]{1,20}", odd in 0x80..=0xffu8) {
            let mut name = bytes.into_bytes();
            name.push(odd);
            let path = RelPath(PathBuf::from(OsString::from_vec(name)));
            prop_assert_eq!(RelPath(PathBuf::from(path.to_string())).unescaped(), Some(path));
        }

        #[test]
        fn no_path_leads_outside(text in "[./a]{0,12}") {
            if let Ok(path) = RelPath::new(&text) {
                prop_assert!(path.parts().all(|part| part != ".." && part != "."));
                prop_assert!(path.as_path().is_relative());
            }
        }
    }
}
