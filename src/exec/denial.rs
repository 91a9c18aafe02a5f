//! Explains why the confinement made a command fail, and how to allow the denied access.
//!
//! The system reports only "permission denied". So this module reads the error messages of the command, and compares
//! them with the access that this unconfined process has to the same files.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::confine::policy::{NetworkAccess, SandboxMode, SandboxPolicy};
use crate::workspace::normalize_path;

/// Messages of programs without write access. Here and below, `|` separates alternatives.
const WRITE_MESSAGES: &str = "\
    Read-only file system|Permission denied|Operation not permitted|EROFS|EACCES|EPERM|Errno 13]|\
    Errno 30]";

/// The messages among them that nearly always come from the confinement, even if the command succeeds: if another
/// program reads a command's errors, the exit code is that of the other program.
const SURE_MESSAGES: &str = "Read-only file system|EROFS|Errno 30]";

/// Messages of git when it fails to update a file.
const GIT_MESSAGES: &str = "unable to unlink|unable to create file";

/// Messages of programs that try to move or remove the parent of a protected path.
const BUSY_MESSAGES: &str = "Device or resource busy|EBUSY|Errno 16]";

/// Messages of programs without a network.
const NETWORK_MESSAGES: &str = "\
    Network is unreachable|network is unreachable|No route to host|Could not resolve host|\
    Couldn't resolve host|Temporary failure in name resolution|Name or service not known|\
    ENETUNREACH|EAI_AGAIN|ENOTFOUND|no such host|socket: Operation not permitted";

/// Messages of programs that lack a key or a password, each with the file that they looked for.
const LOGIN_MESSAGES: [(&str, &str); 6] = [
    ("Permission denied (publickey|Host key verification failed", "~/.ssh"),
    (
        "could not read Username|could not read Password|Authentication failed for 'http",
        "~/.git-credentials",
    ),
    ("ENEEDAUTH|Unable to authenticate|code E401", "~/.npmrc"),
    ("ERROR: HTTP error 401|401 Client Error", "~/.config/pip/pip.conf"),
    ("no authentication token", "~/.cargo/credentials.toml"),
    ("Unable to locate credentials", "~/.aws"),
];

/// Messages of programs that may not read a file, or do not find it.
const READ_MESSAGES: &str = "Permission denied|No such file or directory|EACCES";

/// The number of lines examined at the end of an output.
const MAX_LINES: usize = 200;

/// Returns the lines that show a denial even if the command has succeeded, the last lines first.
pub fn sure_denials(output: &str) -> String {
    let last = output.lines().rev().take(MAX_LINES);
    last.filter(|line| says(line, SURE_MESSAGES)).collect::<Vec<_>>().join("\n")
}

fn says(line: &str, all: &str) -> bool {
    all.split('|').any(|text| line.contains(text))
}

/// Returns an explanation of the denied access for the model; `None` if there is no sign of a denial.
pub fn explain_denial(output: &str, policy: &SandboxPolicy, cwd: &Path) -> Option<String> {
    let lines = || output.lines().rev().take(MAX_LINES);
    if lines().any(|line| says(line, NETWORK_MESSAGES)) {
        let denied = match policy.network {
            NetworkAccess::On => None,
            NetworkAccess::List => Some(
                "sandbox denied: the network can be reached only through the proxy in HTTPS_PROXY, which this program did \
                 not use; the user can allow all of it with --network on",
            ),
            NetworkAccess::Off => {
                Some("sandbox denied: the network is off; the user can allow it with --network on")
            }
        };
        if let Some(denied) = denied {
            return Some(denied.to_owned());
        }
    }
    if policy.mode == SandboxMode::Off {
        return None;
    }
    let allowing = |what: &str| {
        format!(
            "sandbox denied: secrets of the user are hidden from commands; the user can allow reading one with \
             sandbox.readable = [\"{what}\"] in the configuration"
        )
    };
    let login = lines().find_map(|line| LOGIN_MESSAGES.iter().find(|(all, _)| says(line, all)));
    if let (Some((_, what)), false) = (login, policy.hidden.is_empty()) {
        return Some(allowing(what));
    }
    let is_hidden = |path: &PathBuf| policy.hidden.iter().any(|hidden| path.starts_with(hidden));
    let hidden = lines().filter(|line| says(line, READ_MESSAGES));
    if let Some(path) = hidden.flat_map(|line| possible_paths(line, cwd)).find(|path| {
        // A missing path was not hidden.
        is_hidden(path) && path.symlink_metadata().is_ok()
    }) {
        return Some(allowing(&path.display().to_string()));
    }
    let is_left = lines().any(|line| says(line, GIT_MESSAGES));
    let protected = |path: &Path| {
        // A commit of all files would revert the change that git failed to make in the work tree.
        let left = match is_left {
            true => {
                ". The working tree has its old version now and the index the new one: don't commit it (no `git commit -a`)"
            }
            false => "",
        };
        format!(
            "sandbox denied: {} is protected, and no command may write it; the user can allow it with --sandbox off{left}",
            path.display()
        )
    };
    let leads_to = |path: &PathBuf| policy.protected.iter().find(|there| there.starts_with(path));
    if let Some(there) = lines()
        .filter(|line| says(line, BUSY_MESSAGES))
        .find_map(|line| possible_paths(line, cwd).find_map(|path| leads_to(&path)))
    {
        return Some(protected(there));
    }
    lines().filter(|line| says(line, WRITE_MESSAGES)).find_map(|line| {
        let path = possible_paths(line, cwd).find(|path| is_denied_by_sandbox(path, policy))?;
        Some(if policy.protected.iter().any(|protected| path.starts_with(protected)) {
            protected(&path)
        } else {
            let allowed = match policy.mode {
                SandboxMode::ReadOnly => "writing anything but temporary files",
                SandboxMode::WorkspaceWrite | SandboxMode::Off => "writing outside the workspace",
            };
            let setting = match repository_of(&path).filter(|_| policy.mode != SandboxMode::ReadOnly) {
                Some(repository) => format!("sandbox.writable = [\"{}\"]", repository.display()),
                None => "sandbox.writable".to_owned(),
            };
            format!(
                "sandbox denied: {allowed} ({}); the user can allow it with {setting} in the configuration, or with \
                 --sandbox off. Temporary files belong into $TMPDIR",
                path.display()
            )
        })
    })
}

/// Returns the repository that contains a path. Files of it that git runs or follows stay protected where it is
/// writable.
fn repository_of(path: &Path) -> Option<&Path> {
    path.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == ".git"))
}

/// Returns whether the confinement, rather than the system's permissions, denies writing a path.
fn is_denied_by_sandbox(path: &Path, policy: &SandboxPolicy) -> bool {
    let writable = policy.writable_roots();
    let is_protected = policy.protected.iter().any(|protected| path.starts_with(protected));
    if !is_protected && writable.iter().any(|root| path.starts_with(root)) {
        return false;
    }
    // A missing file is created in its closest existing folder.
    let existing = path.ancestors().find(|path| path.exists());
    existing.is_some_and(|existing| access(existing, Access::WRITE_OK).is_ok())
}

/// Returns the parts of a line that may be paths.
fn possible_paths<'a>(whole: &'a str, cwd: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    // Messages of a shell begin with its name and the line number.
    let line = whole.split_once(": line ").filter(|(shell, _)| !shell.contains(' '));
    let line = line.map_or(whole, |(_, message)| message);
    let is_end = |char: char| char.is_whitespace() || "'\"`‘’“”,;()<>".contains(char);
    line.split(is_end)
        .map(|word| word.trim_end_matches(':'))
        .filter(|word| !word.is_empty() && (word.contains('/') || cwd.join(word).exists()))
        .map(|word| {
            // git names its files relative to the top of the work tree.
            let mut above = cwd.ancestors().filter(|_| word.starts_with(".git/"));
            let top = above.find(|folder| folder.join(".git").exists());
            normalize_path(&top.unwrap_or(cwd).join(word))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        _folder: tempfile::TempDir,
        policy: SandboxPolicy,
    }

    fn place() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["w", "w/.git", "out", "t"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            network: NetworkAccess::Off,
            temp: root.join("t"),
            protected: vec![root.join("w/.git")],
            ..SandboxPolicy::off(root.join("w"))
        };
        Fixture { _folder: folder, policy }
    }

    impl Fixture {
        fn outside(&self, name: &str) -> PathBuf {
            self.policy.workspace.parent().unwrap().join("out").join(name)
        }
    }

    fn explain(place: &Fixture, output: &str) -> Option<String> {
        explain_denial(output, &place.policy, &place.policy.workspace)
    }

    #[test]
    fn a_write_outside_is_explained_and_one_inside_is_not() {
        let place = place();
        for line in [
            "touch: cannot touch '../out/x': Read-only file system",
            "bash: line 1: ../out/x: Permission denied",
            "OSError: [Errno 30] Read-only file system: '../out/x'",
        ] {
            let text = explain(&place, line).unwrap();
            assert!(text.starts_with("sandbox denied: writing outside the workspace (/"), "{text}");
        }
        assert!(
            explain(&place, "rm: .git/x: Read-only file system").unwrap().contains("is protected")
        );
        let (inside, policy) = (place.policy.workspace.join("src"), &place.policy);
        std::fs::create_dir(&inside).unwrap();
        let text = "error: could not lock config file .git/config: Read-only file system";
        assert!(
            explain_denial(text, policy, &inside).unwrap().contains("w/.git/config is protected")
        );
        assert_eq!(explain(&place, "cat: ./locked: Permission denied"), None);
        assert_eq!(explain(&place, "bash: line 1: ../t/x: Permission denied"), None);
        let busy = "mv: cannot move '../w/.git' to 'x': Device or resource busy";
        assert!(explain(&place, busy).unwrap().contains("/w/.git is protected"));
        let shell = "/bin/bash: line 1: kill: (1) - Operation not permitted";
        assert_eq!(explain(&place, shell), None);
        assert_eq!(explain(&place, "all is well"), None);
        let lock = "fatal: Unable to create '../out/.git/index.lock': Read-only file system";
        let setting = format!("sandbox.writable = [\"{}\"]", place.outside(".git").display());
        assert!(explain(&place, lock).unwrap().contains(&setting));
    }

    #[test]
    fn a_version_that_git_could_not_write_is_not_to_be_committed() {
        let place = place();
        let line = "error: unable to unlink old '.git/x': Read-only file system";
        assert!(explain(&place, line).unwrap().contains("`git commit -a`"));
    }

    #[test]
    fn a_command_that_succeeds_may_have_printed_a_denial() {
        let output = "ok\ntouch: cannot touch '/x': Read-only file system\nPermission denied\n";
        assert_eq!(sure_denials(output), "touch: cannot touch '/x': Read-only file system");
    }

    #[test]
    fn a_hidden_path_is_named_with_the_key_that_allows_it() {
        let mut place = place();
        let ssh = place.policy.workspace.parent().unwrap().join("out/.ssh");
        std::fs::create_dir(&ssh).unwrap();
        let line = "cat: ../out/.ssh: Permission denied";
        assert!(!explain(&place, line).unwrap_or_default().contains("readable"));
        assert_eq!(explain(&place, "git@host: Permission denied (publickey)."), None);
        place.policy.hidden = vec![ssh];
        assert!(explain(&place, line).unwrap().contains("sandbox.readable = [\"/"));
        let text = explain(&place, "git@host: Permission denied (publickey).").unwrap();
        assert!(text.contains("sandbox.readable = [\"~/.ssh\"]"), "{text}");
    }

    #[test]
    fn a_missing_network_is_explained() {
        let place = place();
        let line = "curl: (6) Could not resolve host: example.org";
        assert!(explain(&place, line).unwrap().contains("--network on"));
    }
}
