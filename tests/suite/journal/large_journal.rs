//! A session far longer than any in practice.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use architect::journal::FileJournal;
use architect::machine::{
    Authorization, CallIntent, CallState, Event, Fingerprint, Machine, MachineOutput, RequestSize,
    State,
};
use architect::port::{Journal as _, JournalRecord};
use architect::types::{
    CallAccess, LoopDetection, RunLimits, RunRules, RunTime, TimeSpan, Tokens, ToolStatus,
};
use architect::types::{ReplyPart, ToolCall, ToolResult};

use super::fixture::{SessionFixture, reply};
use crate::kit::system::wait_with_peak;

/// The length of the journal.
const SIZE: u64 = 64 << 20;

/// The event that a run waits for: each turn reads a file.
fn awaited(machine: &Machine, text: &str) -> Event {
    let id = machine.state.pending_effects()[0];
    match &machine.state {
        State::Preparing(_) => {
            let facts = RequestSize {
                estimate: Tokens(1_000),
                upper_bound: Tokens(1_200),
                exchanges: 3,
                ..RequestSize::default()
            };
            Event::Prepared { id, size: facts, messages: [].into() }
        }
        State::Calling(_) => {
            let call = ToolCall::new(format!("c{}", id.0).as_str().into(), "read", "{}");
            let access = [CallAccess::read("a")].into();
            Event::Replied { id, reply: reply(vec![ReplyPart::Call(call)]), access }
        }
        State::Executing(state)
            if matches!(state.calls[0].state, CallState::Authorizing { .. }) =>
        {
            let (limit, grounds) = (TimeSpan::from_secs(60), "test".into());
            Event::Authorized {
                id,
                authorization: Authorization::Approved {
                    timeout: limit,
                    intent: CallIntent::ReadOnly,
                    reason: grounds,
                },
            }
        }
        State::Executing(state) => {
            let call = state.calls[0].call.id.clone();
            Event::ToolCompleted { id, result: ToolResult::new(call, ToolStatus::Ok, text) }
        }
        other => panic!("{:?}", other.kind()),
    }
}

fn fill(
    mut journal: FileJournal,
    mut machine: Machine,
    mut output: MachineOutput,
    file: &std::path::Path,
) {
    let text = "a line of a file that was read\n".repeat(200);
    for at in 1.. {
        let event = awaited(&machine, &text);
        let met = Fingerprint::of(&machine, &output.effects);
        journal
            .append(
                RunTime(at),
                JournalRecord::Event { event: &event, fingerprint: met, timing: None },
            )
            .unwrap();
        (machine, output) = machine.handle(RunTime(at), event);
        if at % 100 == 0 && fs::metadata(file).unwrap().len() > SIZE {
            return;
        }
    }
}

/// Fault S13: it is read record by record; only the conversation stays in memory, once.
#[test]
fn a_huge_journal_is_read_in_a_stream() {
    let fixture = SessionFixture::new();
    let loops = LoopDetection { warn_at: u32::MAX, end_at: u32::MAX };
    let limits = RunLimits { max_steps: u32::MAX, ..RunLimits::default() };
    let rules = RunRules { loop_detection: loops, limits, ..super::fixture::rules() };
    let (journal, machine, output) = fixture.try_begin_by(rules).unwrap();
    let path = fixture.journal(journal.session());
    fill(journal, machine, output, &path);
    let mut child = Command::new(env!("CARGO_BIN_EXE_architect"))
        .args(["replay", "last", "--verify"])
        .current_dir(fixture.workspace())
        .env_clear()
        .env("HOME", &fixture.root)
        .env("ARCHITECT_SESSIONS_DIR", fixture.root.join("state"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (status, most) = wait_with_peak(&mut child, Duration::from_secs(60));
    assert!(status.success(), "{status}");
    assert!(SIZE / 2 < most && most < 2 * SIZE, "{} MB", most >> 20);
}
