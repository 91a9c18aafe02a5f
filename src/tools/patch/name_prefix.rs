//! Prefixes of the file names in a unified diff.
//!
//! `git diff` writes `a/` and `b/` before names, other tools write other prefixes, and models often write none. The
//! pair `a/x` and `b/x` always means `x`. Otherwise, the existing files decide; if they don't, the patch is rejected.

use std::collections::BTreeSet;

use super::file_name::without_prefix;
use super::file_patch::{FileOperation, FilePatch, UnresolvedFilePatch};

/// Prefixes written by git: for the index, the work tree, a commit, an object.
const GIT_PREFIXES: [&str; 6] = ["a", "b", "c", "i", "o", "w"];

/// Returns sections with resolved names.
pub(super) fn resolve_names(
    named: Vec<UnresolvedFilePatch>,
    exists: &dyn Fn(&str) -> bool,
) -> Result<Vec<FilePatch>, String> {
    let mut names = NameResolver { exists, prefixes: BTreeSet::new() };
    let mut sections = Vec::with_capacity(named.len());
    // Existing files show the prefixes of the patch; only from them, the prefixes of new files can be inferred.
    let mut new = Vec::new();
    for (index, UnresolvedFilePatch { patch: mut section, git_names: git }) in
        named.into_iter().enumerate()
    {
        match section.operation {
            FileOperation::Modified => {
                let name = match (&section.old, &section.new) {
                    (Some(old), Some(new)) => Some(names.resolve_pair(old, new)?),
                    (Some(one), None) | (None, Some(one)) => Some(names.resolve_one(one)?),
                    (None, None) => None,
                };
                section.old.clone_from(&name);
                section.new = name;
            }
            FileOperation::Deleted | FileOperation::DeletedUnchecked => {
                section.old = section.old.map(|old| names.resolve_one(&old)).transpose()?;
            }
            FileOperation::Created => new.push((index, git)),
            // Names in these operations have no prefixes.
            FileOperation::Renamed | FileOperation::Copied => {}
        }
        sections.push(section);
    }
    for (index, git) in new {
        let name = sections[index].new.take();
        sections[index].new = name.map(|name| names.resolve_new(&name, git.as_ref()));
    }
    Ok(sections)
}

struct NameResolver<'a> {
    exists: &'a dyn Fn(&str) -> bool,
    /// The prefixes of names that exist only without a prefix.
    prefixes: BTreeSet<String>,
}

impl NameResolver<'_> {
    /// Returns the file for an old and a new name.
    fn resolve_pair(&mut self, old: &str, new: &str) -> Result<String, String> {
        if old == new {
            return self.resolve_one(new);
        }
        let (are_of_git, short) = (is_git_prefix(old) && is_git_prefix(new), without_prefix(new));
        match short.filter(|short| are_of_git || without_prefix(old) == Some(short)) {
            Some(short) if are_of_git => Ok(short.to_owned()),
            Some(short) => match ((self.exists)(short), (self.exists)(old) || (self.exists)(new)) {
                (true, true) => Err(describe_ambiguous(new, short)),
                // Some tools name the old file after a backup copy.
                (false, true) => Ok(new.to_owned()),
                (_, false) => {
                    self.learn(old);
                    self.learn(new);
                    Ok(short.to_owned())
                }
            },
            None => self.resolve_one(new),
        }
    }

    /// Returns the file for a single name.
    fn resolve_one(&mut self, name: &str) -> Result<String, String> {
        let Some(short) = without_prefix(name) else { return Ok(name.to_owned()) };
        match ((self.exists)(name), (self.exists)(short)) {
            (true, true) if is_git_prefix(name) => Err(describe_ambiguous(name, short)),
            (true, _) => Ok(name.to_owned()),
            (false, true) => {
                self.learn(name);
                Ok(short.to_owned())
            }
            (false, false) if is_git_prefix(name) => Ok(short.to_owned()),
            (false, false) => Ok(name.to_owned()),
        }
    }

    /// Returns the new file for a name.
    fn resolve_new(&self, name: &str, git: Option<&(String, String)>) -> String {
        let Some(short) = without_prefix(name) else { return name.to_owned() };
        let are_different = git.is_some_and(|(old, new)| {
            old != new && name == new && without_prefix(old) == Some(short)
        });
        let is_prefix =
            are_different || is_git_prefix(name) || self.prefixes.contains(prefix_of(name));
        if is_prefix { short.to_owned() } else { name.to_owned() }
    }

    fn learn(&mut self, name: &str) {
        self.prefixes.insert(prefix_of(name).to_owned());
    }
}

fn prefix_of(name: &str) -> &str {
    name.split_once('/').map_or("", |(prefix, _)| prefix)
}

fn is_git_prefix(name: &str) -> bool {
    GIT_PREFIXES.contains(&prefix_of(name)) && without_prefix(name).is_some()
}

fn describe_ambiguous(name: &str, short: &str) -> String {
    format!(
        "its '{name}' may be '{name}' or '{short}', and both are there; write 'a/{short}' and 'b/{short}', or 'a/{name}' \
         and 'b/{name}'"
    )
}

#[cfg(test)]
mod tests {
    use crate::tools::patch::tests::parse_patch;

    /// Returns the names of a patch's files, given the existing files.
    fn names(patch: &str, files: &[&str]) -> Result<String, String> {
        let sections = parse_patch(patch, &|name| files.contains(&name))?;
        let names = sections.iter().map(|section| section.new.as_ref().or(section.old.as_ref()));
        Ok(names.flatten().map(String::as_str).collect::<Vec<_>>().join(" "))
    }

    fn change(old: &str, new: &str) -> String {
        format!("--- {old}\n+++ {new}\n@@ -1 +1 @@\n-1\n+2\n")
    }

    #[test]
    fn prefixes_are_distinguished_from_folders() {
        for (old, new, files, expected) in [
            ("a/x", "b/x", &["x"][..], "x"),
            ("a/x", "b/x", &["x", "a/x", "b/x"], "x"),
            ("a/x.orig", "b/x", &["x"], "x"),
            ("x.orig", "x", &["x"], "x"),
            ("src/x", "src/x", &["src/x"], "src/x"),
            ("src/x", "src/x", &["src/x", "x"], "src/x"),
            ("a/x", "a/x", &["a/x"], "a/x"),
            ("a/x", "a/x", &["x"], "x"),
            ("src/x", "dst/x", &["x"], "x"),
            ("orig/x", "src/x", &["src/x"], "src/x"),
            ("project-1.0/src/x", "project-1.0/src/x", &["src/x"], "src/x"),
            ("project-1.0/src/x", "project-1.1/src/x", &["src/x"], "src/x"),
            ("i/x", "w/x", &[], "x"),
        ] {
            assert_eq!(names(&change(old, new), files).as_deref(), Ok(expected), "{old} {new}");
        }
    }

    #[test]
    fn an_ambiguous_name_is_rejected() {
        for (old, new, files) in [
            ("src/x", "dst/x", &["x", "dst/x"][..]),
            ("src/x", "dst/x", &["x", "src/x"]),
            ("a/x", "a/x", &["x", "a/x"]),
        ] {
            let why = names(&change(old, new), files).unwrap_err();
            assert!(why.contains("both are there"), "{why}");
        }
        let why = names("diff --git a/x b/x c/x\nold mode 100644\nnew mode 100755\n", &["x"]);
        assert!(why.unwrap_err().contains("are ambiguous"));
    }

    #[test]
    fn new_files_have_the_prefix_of_the_others() {
        let new = |name: &str| format!("--- /dev/null\n+++ {name}\n@@ -0,0 +1 @@\n+1\n");
        assert_eq!(names(&new("b/x"), &[]).as_deref(), Ok("x"));
        assert_eq!(names(&new("src/x"), &[]).as_deref(), Ok("src/x"));
        let both = new("p-2/d/x") + &change("p-1/y", "p-2/y");
        assert_eq!(names(&both, &["y"]).as_deref(), Ok("d/x y"));
        let git = "diff --git src/x dst/x\nnew file mode 100644\n";
        assert_eq!(names(&(git.to_owned() + &new("dst/x")), &[]).as_deref(), Ok("x"));
        let git = "diff --git src/x src/x\nnew file mode 100644\n";
        assert_eq!(names(&(git.to_owned() + &new("src/x")), &[]).as_deref(), Ok("src/x"));
    }
}
