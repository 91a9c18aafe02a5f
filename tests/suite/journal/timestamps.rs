//! Unusual times: equal ones, the end of the range, and a clock that goes back.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;

use architect::journal::SessionId;
use architect::types::RunTime;

use super::fixture::SessionFixture;
use super::resume::{reason, replay_and_verify};
use crate::kit::sources::rust_files;

/// Fault C5: ids that are generated at the same moment differ, also in several threads.
#[test]
fn sessions_of_the_same_moment_have_different_ids() {
    let make = || (0..5_000).map(|_| SessionId::generate()).collect::<Vec<_>>();
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(make)).collect();
    let ids: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let different: BTreeSet<_> = ids.iter().collect();
    assert_eq!(different.len(), 20_000);
}

/// Fault C5: records of the same moment keep their order, which their sequence numbers define.
#[test]
fn records_of_the_same_moment_are_folded_in_their_order() {
    let fixture = SessionFixture::new();
    let (journal, machine, output) = fixture.begin();
    let session = journal.session();
    // On this thread no time passes.
    let machine = fixture.drive_inline(journal, machine, output, RunTime::START);
    let mut times = BTreeSet::new();
    let mut records = 0;
    let mut see = |at| {
        times.insert(at);
        records += 1;
    };
    let replayed = fixture.store.replay(session, |_, stored, _| see(stored.at));
    assert_eq!(replayed.unwrap().0.machine, machine);
    assert!(times.len() < records, "{records} records at {} times", times.len());
    replay_and_verify(&fixture, session);
}

/// Fault C6: no run lasts so long, but a manipulated journal may claim it. At the end of time each deadline has passed;
/// nothing overflows, and nothing waits.
#[test]
fn a_session_at_the_end_of_time_ends() {
    for from in [u64::MAX, u64::MAX - 1, u64::MAX >> 1] {
        let fixture = SessionFixture::new();
        let (journal, machine, output) = fixture.begin();
        let session = journal.session();
        let machine = fixture.drive_inline(journal, machine, output, RunTime(from));
        assert!(reason(&machine).is_some(), "{from}");
        replay_and_verify(&fixture, session);
        assert_eq!(fixture.history(session).at, RunTime(u64::MAX).min(machine.state.run().now));
    }
}

/// Fault C1: waiting, counting and limits do not depend on the wall clock. It is read only for display and for the
/// age of files.
#[test]
fn the_wall_clock_is_read_only_for_display() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for path in rust_files(&root.join("src")) {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        if ["SystemTime::now", "Timestamp::now", "Zoned::now"].iter().any(|w| code.contains(w)) {
            found.push(path.strip_prefix(root).unwrap().display().to_string());
        }
    }
    found.sort();
    assert_eq!(
        found,
        [
            "src/app/run.rs",
            "src/app/session.rs",
            "src/cli/batch_output.rs",
            "src/cli/commands/resume.rs",
            "src/cli/commands/sessions.rs",
            "src/cli/commands/stats.rs",
            "src/cli/commands/stored.rs",
            "src/cli/commands/undo.rs",
            "src/cli/commands/what_if_lanes.rs",
            // Whether a folder changed so recently that its time would not show another change.
            "src/exec/confine/temp_folder.rs",
            "src/exec/package_caches.rs",
            "src/exec/repository/scan.rs",
            // The age of a leftover.
            "src/journal/session_store.rs",
            "src/net/retry_after.rs",
            // Names that sort by time.
            "src/port/unique_id.rs",
            "src/runner/clock.rs",
            "src/workflow/engine/journal.rs",
            // Whether a file changed so recently that its time would not show another change.
            "src/workspace/checkpoint/scan.rs",
            "src/workspace/index/cache.rs",
        ]
    );
}
