//! Seatbelt: the profile of the macOS sandbox for a policy.

use std::path::{Path, PathBuf};

use super::policy::{NetworkAccess, SandboxMode, SandboxPolicy, resolve_path};

/// Returns the profile for `sandbox-exec`.
pub(in crate::exec) fn profile(policy: &SandboxPolicy) -> String {
    let mut profile = String::from("(version 1)\n(allow default)\n");
    if policy.mode != SandboxMode::Off {
        profile += "(deny file-write*)\n";
        let mut writable = policy.writable_roots();
        writable.push(PathBuf::from("/dev"));
        if policy.mode == SandboxMode::WorkspaceWrite {
            writable.extend(policy.caches.private_root());
        }
        profile += &format_rule("allow file-write*", &writable);
        // Later rules override earlier ones.
        profile += &format_rule("deny file-write*", &policy.protected);
        profile += &format_rule("deny file-read* file-write*", &policy.hidden);
        let shown: Vec<PathBuf> =
            policy.visible.iter().filter(|path| !policy.hidden.contains(path)).cloned().collect();
        profile += &format_rule("allow file-read*", &shown);
        let is_inside = |path: &&PathBuf| shown.iter().any(|folder| path.starts_with(folder));
        let inside: Vec<PathBuf> = policy.hidden.iter().filter(is_inside).cloned().collect();
        profile += &format_rule("deny file-read*", &inside);
    }
    // Without namespaces there is no proxy, so a list of hosts allows no network.
    if policy.network != NetworkAccess::On {
        profile += "(deny network*)\n(allow network* (local ip \"localhost:*\"))\n";
        profile += "(allow network* (remote ip \"localhost:*\"))\n";
    }
    profile
}

/// Formats a rule for some paths and everything below. The system compares resolved paths; `/tmp` and `/var` are links.
fn format_rule(what: &str, paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return String::new();
    }
    let paths: Vec<String> = paths
        .iter()
        .map(|path| {
            format!("(subpath {})", quote_path(&resolve_path(path).unwrap_or_else(|| path.clone())))
        })
        .collect();
    format!("({what} {})\n", paths.join(" "))
}

fn quote_path(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_follows_the_policy() {
        let policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            network: NetworkAccess::Off,
            temp: "/t".into(),
            protected: vec!["/w/.git/hooks".into()],
            ..SandboxPolicy::off("/w \"x\"")
        };
        let expected = r#"(version 1)
(allow default)
(deny file-write*)
(allow file-write* (subpath "/t") (subpath "/w \"x\"") (subpath "/dev"))
(deny file-write* (subpath "/w/.git/hooks"))
(deny network*)
(allow network* (local ip "localhost:*"))
(allow network* (remote ip "localhost:*"))
"#;
        assert_eq!(profile(&policy), expected);
    }
}
