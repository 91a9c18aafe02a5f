//! Resolution of the links of many paths.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A cache that resolves links like the system, and looks at each path once.
///
/// The paths of one policy are in the same few folders. Later changes of these folders are not seen, so a resolver is
/// only for paths that are resolved at the same moment. A path with more links than the system follows is resolved if
/// its later links are already known.
#[derive(Debug, Default)]
pub struct LinkResolver {
    /// The targets of absolute paths; `None` if the target does not exist.
    resolved: RefCell<HashMap<PathBuf, Option<PathBuf>>>,
    /// The entries at paths whose folders have no links.
    entries: RefCell<HashMap<PathBuf, PathEntry>>,
}

#[derive(Clone, Debug)]
enum PathEntry {
    Missing,
    Link(PathBuf),
    FileOrFolder,
}

/// The maximum number of links that the system follows in a path.
pub(crate) const MAX_LINKS: usize = 40;

impl LinkResolver {
    /// Returns an existing path without links.
    pub fn canonicalize(&self, path: &Path) -> Option<PathBuf> {
        let bytes = path.as_os_str().as_bytes();
        // A path with such an end has to be a folder.
        if !path.is_absolute() || bytes.ends_with(b"/") || bytes.ends_with(b"/.") {
            return path.canonicalize().ok();
        }
        self.real_path_of(path, 0)
    }

    /// Resolves the links of a path as far as it exists; `None` for a relative path if no part of it exists.
    pub fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let real = path.ancestors().find_map(|existing| {
            let rest = path.strip_prefix(existing).ok()?;
            Some(self.canonicalize(existing)?.join(rest))
        })?;
        // Joining an empty path would add a slash.
        Some(real.components().collect())
    }

    /// Returns the target of a path, as it is written, if the path is a link.
    pub fn read_link(&self, path: &Path) -> Option<PathBuf> {
        let folder = path.parent()?;
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match self.entry(self.canonicalize(folder)?.join(path.file_name()?)) {
            PathEntry::Link(target) => Some(target),
            PathEntry::Missing | PathEntry::FileOrFolder => None,
        }
    }

    /// Returns the target of an absolute path, after this number of links.
    fn real_path_of(&self, path: &Path, links: usize) -> Option<PathBuf> {
        if let Some(known) = self.resolved.borrow().get(path) {
            return known.clone();
        }
        let real = self.follow(path, links);
        // Too many links are an error of this path only if it is the first in the chain.
        if links == 0 || real.is_some() {
            self.resolved.borrow_mut().insert(path.to_owned(), real.clone());
        }
        real
    }

    fn follow(&self, path: &Path, links: usize) -> Option<PathBuf> {
        let name = match path.components().next_back()? {
            Component::Normal(name) => name,
            Component::ParentDir => {
                let folder = self.real_path_of(path.parent()?, links)?;
                let is_folder = folder.is_dir();
                return is_folder.then(|| folder.parent().unwrap_or(&folder).to_owned());
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {
                return Some(path.to_owned());
            }
        };
        let folder = self.real_path_of(path.parent()?, links)?;
        let real = folder.join(name);
        match self.entry(real.clone()) {
            PathEntry::Missing => None,
            PathEntry::FileOrFolder => Some(real),
            PathEntry::Link(_) if links == MAX_LINKS => None,
            PathEntry::Link(target) => self.real_path_of(&folder.join(target), links + 1),
        }
    }

    fn entry(&self, real: PathBuf) -> PathEntry {
        let look = |path: &PathBuf| match fs::read_link(path) {
            Ok(target) => PathEntry::Link(target),
            // The error for an existing entry that is not a link.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
                PathEntry::FileOrFolder
            }
            Err(_) => PathEntry::Missing,
        };
        self.entries.borrow_mut().entry(real).or_insert_with_key(look).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_lead_where_the_system_says() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(top.join("a/file"), "").unwrap();
        let links = [
            ("absolute", top.join("a").to_str().unwrap()),
            ("a/up", "../a/b"),
            ("dangling", "a/none/x"),
            ("round", "round/x"),
            ("to-file", "a/up/../file"),
            ("root", "/"),
        ]
        .map(|(name, target)| symlink(target, top.join(name)));
        assert!(links.iter().all(Result::is_ok));
        for number in 0..45 {
            symlink(format!("l{}", number + 1), top.join(format!("l{number}"))).unwrap();
        }
        fs::write(top.join("l45"), "").unwrap();
        let paths = "a a/b absolute/b a/up absolute/up/.. a/file a/file/.. a/file/x a/file/ a/./b dangling \
            dangling/x round to-file root root/tmp none none/x none/../a l5 l44 a/../../..";
        // In both orders: known results must not change later ones.
        let (first, second) = (LinkResolver::default(), LinkResolver::default());
        let all: Vec<PathBuf> = paths.split_whitespace().map(|path| top.join(path)).collect();
        let checked = all.iter().map(|path| (&first, path));
        for (resolver, path) in checked.chain(all.iter().rev().map(|path| (&second, path))) {
            assert_eq!(resolver.canonicalize(path), path.canonicalize().ok(), "{}", path.display());
            assert_eq!(resolver.read_link(path), fs::read_link(path).ok(), "{}", path.display());
        }
    }

    #[test]
    fn a_path_is_resolved_as_far_as_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let (there, link) = (top.join("there"), folder.path().join("link"));
        fs::create_dir(&there).unwrap();
        symlink(&there, &link).unwrap();
        let resolver = LinkResolver::default();
        assert_eq!(resolver.resolve(&link).unwrap().as_os_str(), there.as_os_str());
        assert_eq!(resolver.resolve(&link.join(".git/hooks")), Some(there.join(".git/hooks")));
    }
}
