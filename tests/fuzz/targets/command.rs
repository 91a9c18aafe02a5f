//! A command line is judged, the same whenever it is, and no mode or rule allows what nobody may do.
#![no_main]

use architect::model::ToolCall;
use architect::policy::{ConfirmMode, Rules};
use architect::tools::{Registry, Settings, standard};
use architect::workspace::Root;

/// Judges that never allow more than the ones before them.
struct Judges([Registry; 3], #[allow(dead_code)] tempfile::TempDir);

fn judges() -> Judges {
    let folder = architect_fuzz::folder();
    let registry = |mode, allow: &[&str], deny: &[&str]| {
        let rules = Rules::parse(deny, &[], allow).unwrap();
        let settings = Settings { mode, rules, ..Settings::default() };
        let policy = architect::exec::Policy::off(folder.path());
        let supervisor = architect::exec::Supervisor::in_process(policy, Vec::new());
        let root = Root::open(folder.path()).unwrap();
        Registry::new(standard(&root, &supervisor, &settings), settings)
    };
    let all = [
        registry(ConfirmMode::Yolo, &["run_command"], &[]),
        registry(ConfirmMode::Yolo, &[], &["run_command(rm *)"]),
        registry(ConfirmMode::ConfirmSensitive, &[], &["run_command(rm *)"]),
    ];
    Judges(all, folder)
}

thread_local!(static JUDGES: Judges = judges());

/// How free a call is: refused, to be asked about, allowed.
fn freedom(registry: &Registry, call: &ToolCall) -> u8 {
    match registry.judge(call) {
        Err(answer) => {
            assert!(!answer.text.is_empty());
            0
        }
        Ok(judged) => match judged.decision {
            architect::policy::Decision::Deny(_) => 0,
            architect::policy::Decision::Ask(_) => 1,
            architect::policy::Decision::Allow(_) => 2,
        },
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(line) = std::str::from_utf8(data) else { return };
    let arguments = serde_json::json!({"command": line}).to_string();
    let call = ToolCall::new("c".into(), "run_command", &arguments);
    JUDGES.with(|Judges(all, _)| {
        let free: Vec<u8> = all.iter().map(|registry| freedom(registry, &call)).collect();
        assert!(free.is_sorted_by(|a, b| a >= b), "{line:?}: {free:?}");
        assert_eq!(free[2], freedom(&all[2], &call));
    });
});
