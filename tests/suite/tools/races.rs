//! Changes that another process makes at the same time.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::fixture::ToolFixture;

/// The duration of the attack.
const LONG: Duration = Duration::from_secs(3);

/// Swaps `d` between a folder and a symbolic link to the outside as fast as it can while `act` runs again and again.
/// Returns the number of swaps.
fn under_attack(world: &ToolFixture, act: impl Fn()) -> u64 {
    let outside = world.path.parent().unwrap().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("f"), "secret\n").unwrap();
    fs::create_dir_all(outside.join("secret")).unwrap();
    fs::write(outside.join("secret/name"), "").unwrap();
    fs::create_dir_all(world.path.join("real")).unwrap();
    fs::write(world.path.join("real/f"), "plain\n").unwrap();
    let end = Arc::new(AtomicBool::new(false));
    let swaps = Arc::new(AtomicU64::new(0));
    let attacker = {
        let (end, swaps, path) = (Arc::clone(&end), Arc::clone(&swaps), world.path.clone());
        thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let _ = fs::rename(path.join("real"), path.join("d"));
                let _ = fs::rename(path.join("d"), path.join("real"));
                let _ = symlink("../outside", path.join("d"));
                let _ = fs::remove_file(path.join("d"));
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        act();
    }
    end.store(true, Ordering::Relaxed);
    attacker.join().unwrap();
    let mut left: Vec<_> =
        fs::read_dir(&outside).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["f", "secret"], "something was written outside");
    assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "secret\n");
    swaps.load(Ordering::Relaxed)
}

/// Fault X6: a folder that is swapped for a symbolic link leads no tool outside, neither reading nor writing.
#[test]
fn a_folder_that_is_swapped_leads_nowhere() {
    let world = ToolFixture::new();
    let swaps = under_attack(&world, || {
        for (tool, arguments) in [
            ("read_file", json!({"path": "d/f"})),
            ("grep", json!({"text": "secret"})),
            ("grep", json!({"text": "secret", "path": "d"})),
            ("list_files", json!({"path": "d"})),
            ("find_files", json!({"pattern": "name"})),
            ("find_files", json!({"pattern": "name", "path": "d"})),
            ("write_file", json!({"path": "d/new", "content": "x"})),
            ("edit_file", json!({"path": "d/f", "old_str": "secret", "new_str": "x"})),
            ("apply_patch", json!({"patch": "--- a/d/f\n+++ b/d/f\n@@ -1 +1 @@\n-secret\n+x\n"})),
            ("apply_patch", json!({"patch": "--- /dev/null\n+++ b/d/made\n@@ -0,0 +1 @@\n+x\n"})),
        ] {
            let output = world.call(tool, &arguments).text;
            let is_leak = output.contains("secret\n")
                || output.ends_with("secret")
                || output.contains("secret/name");
            assert!(!is_leak, "{tool}: {output}");
        }
    });
    assert!(swaps > 100, "{swaps}");
}

/// Fault R11: files that vanish during the search are not an error.
#[test]
fn files_that_vanish_meanwhile_are_left_out() {
    let world = ToolFixture::new();
    let path = world.path.clone();
    let end = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&end);
    let other = thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            for n in 0..50 {
                let folder = path.join(format!("t{n}"));
                let _ = fs::create_dir(&folder);
                let _ = fs::write(folder.join("f"), "hit\n");
            }
            for n in 0..50 {
                let _ = fs::remove_dir_all(path.join(format!("t{n}")));
            }
        }
    });
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        world.ok("grep", &json!({"text": "hit"}));
        world.ok("list_files", &json!({"recursive": true}));
        world.ok("find_files", &json!({"pattern": "f"}));
    }
    end.store(true, Ordering::Relaxed);
    other.join().unwrap();
}
