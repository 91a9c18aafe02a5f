//! A patch of several files that is cut off between two of them.

use super::strace;
use super::untraceable;
use crate::cli::world::{World, finish};

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

/// Fault T24: the files that were not yet in their places lie ready beside them.
#[test]
fn a_patch_that_was_cut_off_is_completed_by_the_resume() {
    if let Some(why) = untraceable() {
        return println!("skipped: {why}");
    }
    // Other calls of this name are made too, by whatever thread: only those with the name of a file count.
    for nth in 1..=FILES.len() {
        let world = World::new();
        for name in FILES {
            world.write(name, "old\n");
        }
        let model = world.script(SCRIPT);
        let args = ["run", "Do it.", "--model", &model, "--mode", "yolo", "--json"];
        let log = world.home().join("strace.log");
        let kill = format!("inject=renameat,renameat2:signal=KILL:when={nth}");
        let mut how = vec!["-f", "-e", &kill];
        how.extend(FILES.iter().flat_map(|name| ["-P", name]));
        let ran = finish(strace::around(&world.command(&args), &log, &how).spawn().unwrap());
        let new = FILES.iter().filter(|name| world.read(name) == "new\n").count();
        let resumed = world.run(&["resume", "last", "--json"]);
        assert_eq!((ran.code, new), (-1, nth - 1), "{nth}");
        assert_eq!(resumed.code, 0, "{nth}: {}", resumed.err);
        for name in FILES {
            assert_eq!(world.read(name), "new\n", "{nth}: {name}");
        }
        let left = std::fs::read_dir(world.path("")).unwrap().flatten();
        assert_eq!(left.count(), FILES.len(), "{nth}");
        let shown = world.run(&["sessions", "show", "last"]).out;
        let is_told = shown.contains("the files show that it was completed: a, b, c.");
        assert!(is_told || new == 0, "{nth}: {shown}");
    }
}
