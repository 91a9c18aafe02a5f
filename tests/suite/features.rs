//! The Cargo features: the dependencies of the crate without them.

use std::process::Command;

/// The most packages that the machine alone may link.
const MAX_DEPENDENCIES: usize = 9;

/// The packages that are linked with these features. Macros run in the compiler, and are not.
fn dependencies(features: &[&str]) -> Vec<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--offline", "--locked", "--no-default-features", "--no-dedupe"]);
    cargo.args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]);
    let tree = cargo.args(features).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8(tree.stdout).unwrap();
    let mut names: Vec<_> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().filter(|name| *name != "architect").map(str::to_owned).collect()
}

#[test]
fn the_machine_alone_has_few_dependencies_and_none_that_reaches_the_system() {
    let linked = dependencies(&[]);
    assert!(linked.len() <= MAX_DEPENDENCIES, "{linked:?}");
    assert!(linked.contains(&"serde".to_owned()), "{linked:?}");
    for name in ["libc", "rustix", "log", "rayon", "uuid", "ureq", "jiff"] {
        assert!(!linked.contains(&name.to_owned()), "{linked:?}");
    }
}

#[test]
fn the_runner_needs_no_network_and_no_command_line() {
    let linked = dependencies(&["--features", "runner"]);
    assert!(linked.contains(&"rayon".to_owned()), "{linked:?}");
    for name in ["ureq", "rustls", "clap", "rusqlite", "toml", "tempfile", "schemars"] {
        assert!(!linked.contains(&name.to_owned()), "{linked:?}");
    }
}
