//! A journal in a temporary folder, for a run that nothing limits.

use std::path::Path;
use std::time::SystemTime;

use architect::journal::{
    FileJournal, SessionHeader, SessionId, SessionSetup, SessionStore, WorkspaceIdentity,
};
use architect::machine::{Machine, MachineOutput};
use architect::types::{ConversationItem, LoopDetection, MessageOrigin, RunLimits, RunRules};

/// Begins a session.
pub(crate) fn begin(
    store: &SessionStore,
    workspace: &Path,
) -> (FileJournal, Machine, MachineOutput) {
    let setting = SessionSetup {
        model: "scripted/none".into(),
        agent: "build".into(),
        workspace: WorkspaceIdentity::inspect(workspace).unwrap(),
        system: "Be brief.".into(),
        tools: [].into(),
        schema: None,
        requests: serde_json::Value::Null,
        options: serde_json::Value::Null,
    };
    let limits = RunLimits { max_steps: u32::MAX, ..RunLimits::default() };
    let loops = LoopDetection { warn_at: u32::MAX, end_at: u32::MAX };
    let rules = RunRules { limits, loop_detection: loops, ..RunRules::default() };
    let task = ConversationItem::user(MessageOrigin::Task, "task");
    let session = SessionId::generate();
    let header = SessionHeader::new(session, SystemTime::now(), setting, rules, task);
    let journal = store.create(&header).unwrap();
    let (fold, outcomes) = header.start_machine();
    (journal, fold, outcomes)
}
