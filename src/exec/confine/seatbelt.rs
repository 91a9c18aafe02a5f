//! macOS: the profile of the system's sandbox that a policy means.

use std::path::{Path, PathBuf};

use crate::exec::policy::{Mode, Network, Policy};

/// Returns the profile, in the language of `sandbox-exec`.
pub(in crate::exec) fn profile(policy: &Policy) -> String {
    let mut profile = String::from("(version 1)\n(allow default)\n");
    if policy.mode != Mode::Off {
        profile += "(deny file-write*)\n";
        let mut writable = vec![policy.temp.clone(), PathBuf::from("/dev")];
        if policy.mode == Mode::WorkspaceWrite {
            writable.push(policy.workspace.clone());
            writable.extend(policy.writable.iter().cloned());
        }
        profile += &rule("allow file-write*", &writable);
        // A later rule wins over an earlier one.
        profile += &rule("deny file-write*", &policy.protected);
        profile += &rule("deny file-read* file-write*", &policy.hidden);
    }
    if policy.network == Network::Off {
        profile += "(deny network*)\n(allow network* (local ip \"localhost:*\"))\n";
        profile += "(allow network* (remote ip \"localhost:*\"))\n";
    }
    profile
}

fn rule(what: &str, paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return String::new();
    }
    let paths: Vec<String> =
        paths.iter().map(|path| format!("(subpath {})", quoted(&real(path)))).collect();
    format!("({what} {})\n", paths.join(" "))
}

/// Returns the path as the system compares it: without links. `/tmp` and `/var` are links there; what doesn't exist yet
/// will stand in a folder that does.
fn real(path: &Path) -> PathBuf {
    let known = path.ancestors().find_map(|around| Some((around, around.canonicalize().ok()?)));
    match known.and_then(|(around, real)| Some(real.join(path.strip_prefix(around).ok()?))) {
        // Joining nothing would leave a slash behind.
        Some(real) => real.components().collect(),
        None => path.to_owned(),
    }
}

fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_without_links_also_where_nothing_is_yet() {
        let folder = tempfile::tempdir().unwrap();
        let (there, link) =
            (folder.path().canonicalize().unwrap().join("there"), folder.path().join("link"));
        std::fs::create_dir(&there).unwrap();
        std::os::unix::fs::symlink(&there, &link).unwrap();
        assert_eq!(quoted(&real(&link)), quoted(&there));
        assert_eq!(real(&link.join(".git/hooks")), there.join(".git/hooks"));
    }

    #[test]
    fn the_profile_says_what_the_policy_says() {
        let policy = Policy {
            mode: Mode::WorkspaceWrite,
            network: Network::Off,
            temp: "/t".into(),
            protected: vec!["/w/.git/hooks".into()],
            ..Policy::off("/w \"x\"")
        };
        let expected = r#"(version 1)
(allow default)
(deny file-write*)
(allow file-write* (subpath "/t") (subpath "/dev") (subpath "/w \"x\""))
(deny file-write* (subpath "/w/.git/hooks"))
(deny network*)
(allow network* (local ip "localhost:*"))
(allow network* (remote ip "localhost:*"))
"#;
        assert_eq!(profile(&policy), expected);
    }
}
