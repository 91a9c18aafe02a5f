//! A journal in a temporary folder, for a run that nothing limits.

use std::path::Path;
use std::time::SystemTime;

use architect::journal::{Begin, FileJournal, SessionId, Setting, Store, Workspace};
use architect::machine::{Fold, Outcomes};
use architect::model::{Item, Limits, LoopRules, Origin, Rules};

/// Begins a session.
pub(crate) fn begin(store: &Store, workspace: &Path) -> (FileJournal, Fold, Outcomes) {
    let setting = Setting {
        model: "scripted/none".into(),
        agent: "build".into(),
        workspace: Workspace::look(workspace).unwrap(),
        system: "Be brief.".into(),
        tools: [].into(),
        schema: None,
        options: serde_json::Value::Null,
    };
    let limits = Limits { max_steps: u32::MAX, ..Limits::default() };
    let loops = LoopRules { warn: u32::MAX, end: u32::MAX };
    let begin = Begin {
        now: SystemTime::now(),
        dispatched_by: None,
        setting,
        rules: Rules { limits, loops, ..Rules::default() },
        fixed: 0,
        history: vec![],
        task: Item::user(Origin::Task, "task"),
    };
    let (journal, header) = store.create(SessionId::fresh(), begin).unwrap();
    let (fold, outcomes) = header.start();
    (journal, fold, outcomes)
}
