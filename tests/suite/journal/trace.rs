//! The trace of a session: the time of its states and effects, from its journal.

use architect::journal::SessionId;
use architect::machine::{Event, StateKind};
use architect::types::{Signal, TimeSpan, ToolStatus};
use architect::view::trace::{CallEnd, Speaker, Trace, TracePhase};

use super::fixture::SessionFixture;

/// Traces a session as the command line does.
pub(super) fn trace(fixture: &SessionFixture, session: SessionId) -> Trace {
    architect::app::trace_session(&fixture.store, session).unwrap()
}

fn sum(spans: impl Iterator<Item = TimeSpan>) -> u64 {
    spans.map(|span| span.0).sum()
}

#[test]
fn all_time_belongs_to_a_state_and_a_phase() {
    let fixture = SessionFixture::new();
    let (session, machine) = fixture.run();
    let trace = trace(&fixture, session);
    let at = fixture.history(session).at;
    assert_eq!(trace.duration.0, at.0);
    assert_eq!(sum(trace.states.iter().map(|state| state.time)), at.0);
    let phases = trace.states.iter().flat_map(|state| &state.phases);
    assert_eq!(sum(phases.map(|phase| phase.time)), at.0);
    assert_eq!((trace.steps, trace.llm_calls), (3, 4));
    assert_eq!(trace.cost, Some(machine.state.run().used.cost));
    // A command that starts a shell takes more than no time.
    let executing = trace.states.iter().find(|s| s.state == StateKind::Executing).unwrap();
    assert!(
        executing.phases.iter().any(|p| p.phase == TracePhase::Tools && p.time > TimeSpan::ZERO)
    );
}

#[test]
fn the_transitions_are_those_of_the_run() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let trace = trace(&fixture, session);
    let way = |edge: &architect::view::trace::TransitionCount| {
        format!("{} -{}-> {} {}", edge.from.as_str(), edge.event, edge.to.as_str(), edge.count)
    };
    let ways: Vec<String> = trace.edges.iter().map(way).collect();
    assert_eq!(
        ways,
        [
            "Preparing -PREPARED-> Calling.Sending 4",
            "Calling.Sending -REPLIED-> Calling.Checking 1",
            "Calling.Sending -REPLIED-> Executing 3",
            "Calling.Checking -CHECKED-> Done 1",
            "Executing -SETTLED-> Preparing 3",
        ]
    );
    let visits: Vec<u32> = trace.states.iter().map(|state| state.visits).collect();
    assert_eq!(visits, [4, 4, 1, 3, 1]);
}

#[test]
fn requests_and_tools_have_their_times_and_their_ends() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let trace = trace(&fixture, session);
    assert_eq!(trace.calls.len(), 4);
    for call in &trace.calls {
        assert!(
            matches!(call.end, CallEnd::Replied { usage, .. } if usage.input_tokens == 100),
            "{call:?}"
        );
        assert!(call.encode.unwrap().0 + call.first_byte.unwrap().0 <= call.duration.0, "{call:?}");
    }
    let tools: Vec<_> = trace.tools.iter().map(|tool| (&*tool.name, tool.status)).collect();
    let ok = Some(ToolStatus::Ok);
    assert_eq!(tools, [("write", ok), ("run", ok), ("read", ok), ("write", ok)]);
    for tool in &trace.tools {
        assert!(
            tool.authorized_at <= tool.started_at.unwrap()
                && tool.started_at.unwrap() <= tool.ended_at
        );
    }
}

#[test]
fn every_message_occurs_once_and_in_order() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    fixture.resume(session, Some("and now?"));
    let trace = trace(&fixture, session);
    let who = |speaker: &Speaker| match speaker {
        Speaker::User { .. } => "user",
        Speaker::Assistant => "assistant",
        Speaker::ToolCall { .. } => "call",
        Speaker::ToolResult { .. } => "result",
        Speaker::Partial => "partial",
    };
    let speakers: Vec<&str> = trace.messages.iter().map(|message| who(&message.speaker)).collect();
    let expected =
        "user assistant call result call result call result call result assistant user assistant";
    assert_eq!(speakers.join(" "), expected);
    assert!(trace.messages.is_sorted_by_key(|message| (message.seq, message.at)));
}

#[test]
fn a_trace_shows_what_was_running_when_the_process_died() {
    let fixture = SessionFixture::new();
    let session = super::resume::crash_at(&fixture, "vetted", 1);
    let before = trace(&fixture, session);
    assert_eq!((before.state, before.stop_reason), (StateKind::Executing, None));
    assert_eq!(before.tools.last().unwrap().status, None);
    let last = before.messages.last().unwrap();
    assert!(matches!(&last.speaker, Speaker::ToolCall { name } if **name == *"run"), "{last:?}");
    fixture.resume(session, None);
    let after = trace(&fixture, session);
    assert!(after.edges.iter().any(|edge| edge.event == "RESUMED"), "{:?}", after.edges);
    assert!(after.html().contains("outcome unknown"));
}

#[test]
fn a_new_session_has_a_trace() {
    let fixture = SessionFixture::new();
    let session = fixture.begin().0.session();
    let trace = trace(&fixture, session);
    assert_eq!((trace.duration, trace.state), (TimeSpan::ZERO, StateKind::Preparing));
    assert_eq!(trace.messages.len(), 1);
    assert!(trace.html().contains("in state Preparing") && trace.table().contains("total"));
}

#[test]
fn an_interrupt_is_a_transition() {
    let fixture = SessionFixture::new();
    let session = super::resume::interrupted_session(&fixture);
    let trace = trace(&fixture, session);
    let signal = Event::Interrupt { signal: Signal::Interrupt };
    assert!(trace.edges.iter().any(|edge| edge.event == signal.kind().as_str()));
    assert_eq!(trace.calls.last().unwrap().end, CallEnd::Cancelled);
    assert!(trace.messages.iter().any(|message| message.speaker == Speaker::Partial));
}

#[test]
fn a_table_has_a_line_for_each_state_and_phase() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let table = trace(&fixture, session).table();
    let names: Vec<&str> =
        table.lines().skip(2).filter_map(|line| line.split("  ").find(|n| !n.is_empty())).collect();
    let expected =
        ["state", "Preparing", "Calling.Sending", "first byte", "Executing", "tools", "total"];
    for name in expected {
        assert!(names.contains(&name), "{name}: {table}");
    }
}

#[test]
fn a_page_loads_nothing_and_its_texts_are_escaped() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    fixture.resume(session, Some("<script>alert(1)</script> & \"more\" \u{202e}"));
    let page = trace(&fixture, session).html();
    assert_eq!(page.matches("<script").count(), 1);
    assert!(!page.contains("http:") && !page.contains("https:"));
    assert!(!page.contains('\u{202e}') && page.contains("&lt;script&gt;alert(1)"));
    assert!(page.contains("default-src 'none'"));
    for tag in ["section", "details", "svg", "g", "span", "ol", "li", "table", "div", "pre"] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

/// Writes a page to look at: `ARCHITECT_TEST_PAGE=FILE cargo test a_page_to_look_at`.
#[test]
fn a_page_to_look_at() {
    let Some(file) = std::env::var_os("ARCHITECT_TEST_PAGE") else { return };
    let fixture = SessionFixture::new();
    let session = super::resume::crash_at(&fixture, "vetted", 1);
    fixture.resume(session, Some("Go on, and <b>mind</b> the gap."));
    std::fs::write(file, trace(&fixture, session).html()).unwrap();
}

#[test]
fn a_trace_is_json_too() {
    let fixture = SessionFixture::new();
    let (session, _) = fixture.run();
    let json = serde_json::to_value(trace(&fixture, session)).unwrap();
    assert_eq!(json["session_id"], session.to_string());
    assert_eq!((&json["stop_reason"], &json["state"]), (&"llm_done".into(), &"Done".into()));
    assert_eq!(json["calls"][0]["end"], "replied");
    assert_eq!(json["messages"][0]["role"], "user");
    assert!(json["states"][0]["phases"].is_array());
}
