//! A patch of several files that is cut off between two of them.

use super::strace;
use super::tracing_unavailable;
use crate::kit::cli::{CliFixture, wait_for_exit};

const FILES: [&str; 3] = ["a", "b", "c"];

const SCRIPT: &str = r#"
[[turn]]
[[turn.calls]]
name = "apply_patch"
[turn.calls.arguments]
patch = """
--- a/a
+++ b/a
@@ -1 +1 @@
-old
+new
--- a/b
+++ b/b
@@ -1 +1 @@
-old
+new
--- a/c
+++ b/c
@@ -1 +1 @@
-old
+new
"""
[[turn]]
text = "Done."
"#;

/// Fault T24: the files that were not yet in their places are ready beside them.
#[test]
fn a_patch_that_was_cut_off_is_completed_by_the_resume() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let (mut cut_off, mut completed) = (0, 0);
    // Before each file takes its place, the old one gets a second name.
    for nth in 1..=FILES.len() + 1 {
        let world = CliFixture::new();
        for name in FILES {
            world.write(name, "old\n");
        }
        let model = world.script_model(SCRIPT);
        let args = ["run", "Do it.", "--model", &model, "--mode", "yolo", "--json"];
        let log = world.home().join("strace.log");
        let kill = format!("inject=linkat:signal=KILL:when={nth}");
        let how = ["-f", "-e", &kill];
        let ran =
            wait_for_exit(strace::under_strace(&world.command(&args), &log, &how).spawn().unwrap());
        let new = FILES.iter().filter(|name| world.read(name) == "new\n").count();
        let how = ["-f", "-y", "-e", "trace=fsync"];
        let resume =
            strace::under_strace(&world.command(&["resume", "last", "--json"]), &log, &how);
        let resumed = wait_for_exit({ resume }.spawn().unwrap());
        if ran.code != -1 || resumed.code == 3 {
            // Another process was killed or none was, or there was no session yet.
            continue;
        }
        cut_off += 1;
        assert_eq!(resumed.code, 0, "{nth}: {}", resumed.err);
        for name in FILES {
            assert_eq!(world.read(name), "new\n", "{nth}: {name}");
        }
        let left = std::fs::read_dir(world.path("")).unwrap().flatten();
        assert_eq!(left.count(), FILES.len(), "{nth}");
        let shown = world.run(&["sessions", "show", "last"]).out;
        // Files that are reported as completed are durable.
        let folder = format!("<{}>", world.path(".").canonicalize().unwrap().display());
        let synced = std::fs::read_to_string(&log).unwrap();
        let renamed = if new == 0 { 0 } else { FILES.len() - new };
        assert_eq!(synced.matches(&folder).count(), renamed, "{nth}: {synced}");
        let is_reported = shown.contains("the files show that it was completed: a, b, c.");
        assert!(is_reported || new == 0 || new == 3, "{nth}: {shown}");
        completed += u32::from(is_reported);
    }
    assert!(cut_off > 1 && completed > 0, "{cut_off} cut off, {completed} completed");
}
