//! Server processes: start, failures, shutdown.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use architect::exec::SandboxMode;
use architect::mcp::{McpServers, Necessity, ServerError, ServerProblem, ServerSpec};
use architect::port::{CancellationToken, EffectMessage, EffectNotice};
use architect::types::ToolStatus;

use super::fixture::McpFixture;
use crate::kit::effect::scope_with;
use crate::kit::system::{count_sleeping, count_with_variable, wait_until};

fn within(spec: ServerSpec, timeout: Duration) -> ServerSpec {
    ServerSpec { timeout, ..spec }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_server_of_the_newest_era_is_asked_without_a_session() {
    let world = McpFixture::new();
    let started = world.start_one("modern");
    assert_eq!(started.ok("echo", "hello"), "hello");
    assert_eq!(world.log("s"), ["start", "server/discover", "tools/list", "tools/call"]);
}

/// Fault M8.
#[test]
fn an_older_server_gets_its_session() {
    let world = McpFixture::new();
    let started = world.start_one("legacy");
    assert_eq!(started.ok("echo", "hello"), "hello");
    let expected = [
        "start",
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
    ];
    assert_eq!(world.log("s"), expected);
}

/// Fault M8: a server that ignores unknown methods, and one that exits because of them.
#[test]
fn a_server_that_does_not_answer_the_first_question_is_an_older_one() {
    let mut world = McpFixture::new();
    world.setup.probe_timeout = SECOND;
    assert_eq!(world.start_one("silent").ok("echo", "a"), "a");
    assert_eq!(world.start_one("brittle").ok("echo", "b"), "b");
    // However long the first request may take, the second one has its time.
    world.setup.probe_timeout = 60 * SECOND;
    assert_eq!(world.start_one("silent").ok("echo", "c"), "c");
}

/// Fault M8.
#[test]
fn a_server_of_an_unknown_version_is_left_out() {
    let world = McpFixture::new();
    let started =
        world.start([world.test_server("f", "future"), world.test_server("a", "ancient")]);
    let expected = [
        "the tools of the MCP server `f` are missing: it uses version 2099-01-01 of the protocol, which is not \
         supported",
        "the tools of the MCP server `a` are missing: it uses version 1999-01-01 of the protocol, which is not \
         supported",
    ];
    assert_eq!(started.problems(), expected);
}

/// Fault M1.
#[test]
fn a_server_that_cannot_be_had_costs_its_tools_and_nothing_else() {
    let world = McpFixture::new();
    let missing = McpFixture::real_server("missing", "/no/such/server", &[]);
    let exits =
        ServerSpec { necessity: Necessity::Required, ..world.test_server("exits", "exits") };
    let started = world.start([missing, exits, world.test_server("good", "legacy")]);
    let expected = [
        "the tools of the MCP server `missing` are missing: it could not be started: program '/no/such/server' was \
         not found",
        "the tools of the MCP server `exits` are missing: it died (exit code 3); its last output: no \
         configuration found",
    ];
    assert_eq!(started.problems(), expected);
    assert_eq!(
        started.problems.iter().map(ServerProblem::is_fatal).collect::<Vec<_>>(),
        [false, true]
    );
    assert_eq!(started.ok("echo", "here"), "here");
}

/// Fault M2.
#[test]
fn servers_that_never_answer_are_waited_for_together() {
    let world = McpFixture::new();
    let begun = Instant::now();
    let deaf = ["a", "b", "c", "d"].map(|name| within(world.test_server(name, "deaf"), 5 * SECOND));
    let started = world.start(deaf);
    assert_eq!(started.problems.len(), 4);
    assert!(
        started.problems()[0].ends_with("it did not answer within 5 s"),
        "{:?}",
        started.problems()
    );
    assert!(begun.elapsed() < 15 * SECOND, "{:?}", begun.elapsed());
}

/// Fault M3.
#[test]
fn a_server_that_dies_in_a_call_is_started_again_for_the_next_one() {
    let world = McpFixture::new();
    let started = world.start_one("legacy");
    let expected = "MCP server 's': it died (exit code 9); its last output: out of cheese, secret ***. The call \
                    may have had an effect or not.";
    assert_eq!(started.err("crash", ""), expected);
    assert_eq!(started.ok("echo", "again"), "again");
    assert_eq!(world.log("s").iter().filter(|word| *word == "start").count(), 2);
    // The negotiated mode is not asked for again.
    assert_eq!(world.log("s").iter().filter(|word| *word == "server/discover").count(), 1);
}

/// Fault M3.
#[test]
fn a_call_is_made_again_only_if_it_is_declared_harmless() {
    let world = McpFixture::new();
    let started = world.start_one("modern");
    assert_eq!(started.ok("crash_once", ""), "back again");
    started.err("crash", "");
    assert_eq!(world.log("s").iter().filter(|word| *word == "tools/call").count(), 3);
}

/// Fault M3.
#[test]
fn a_server_is_not_started_again_and_again() {
    let mut world = McpFixture::new();
    world.setup.restart_interval = Duration::from_secs(3_600);
    let started = world.start_one("legacy");
    started.err("crash", "");
    started.err("crash", "");
    let expected = "MCP server 's': it crashed again, and is restarted at most every 3600 s.";
    assert_eq!(started.err("echo", ""), expected);
}

/// Fault M4.
#[test]
fn a_call_without_an_answer_is_taken_back_at_its_deadline() {
    let world = McpFixture::new();
    let started = world.start([within(world.test_server("s", "modern"), 2 * SECOND)]);
    let answer = started.call("hang", "");
    assert_eq!(answer.status, ToolStatus::TimedOut);
    assert!(answer.text.contains("did not answer within 2 s"), "{}", answer.text);
    wait_until("it was notified", || {
        world.log("s").last().is_some_and(|word| word == "notifications/cancelled")
    });
    assert_eq!(started.ok("echo", "still there"), "still there");
}

#[test]
fn a_cancelled_call_ends_at_once() {
    let world = McpFixture::new();
    let started = world.start_one("modern");
    let cancel = CancellationToken::new();
    let (answer, took) = std::thread::scope(|scope| {
        let calling = scope.spawn(|| started.call_in("hang", "", &scope_with(&cancel)));
        wait_until("it was called", || world.log("s").iter().any(|word| word == "tools/call"));
        let begun = Instant::now();
        cancel.cancel();
        (calling.join().unwrap(), begun.elapsed())
    });
    assert_eq!(answer.status, ToolStatus::Interrupted);
    assert!(took < 5 * SECOND, "{took:?}");
    wait_until("it was notified", || {
        world.log("s").last().is_some_and(|word| word == "notifications/cancelled")
    });
}

/// Fault M5.
#[test]
fn noise_is_passed_over_until_there_is_too_much_of_it() {
    let mut world = McpFixture::new();
    world.setup.limits.invalid_lines = 50;
    let started = world.start_one("modern");
    assert_eq!(started.ok("noise", "50"), "done");
    let reply = started.err("noise", "51");
    assert!(
        reply.contains("wrote 51 consecutive lines that are not messages, and was ended"),
        "{reply}"
    );
    // A full pipe on the other side would stop it.
    assert_eq!(started.ok("loud", ""), "done");
}

/// Fault M5.
#[test]
fn an_answer_that_cannot_be_read_fails_its_call_at_once() {
    let world = McpFixture::new();
    let started = world.start_one("modern");
    for line in [
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"te"#,
        r#"{"result":{"content":[{"type":"te"#,
        r#"{"jsonrpc":"1.0","id":ID,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":ID}"#,
    ] {
        let reply = started.err("raw", line);
        assert!(reply.starts_with("MCP server 's': its answer could not be read: "), "{reply}");
        assert!(reply.ends_with("The call may have had an effect or not."), "{reply}");
    }
    let log = r#"{"level":"warn","id":ID,"error":"slow"}"#;
    let answer =
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"done"}]}}"#;
    assert_eq!(started.ok("raw", &format!("{log}\n{answer}")), "done");
}

/// Fault M6.
#[test]
fn a_message_without_an_end_ends_the_server() {
    let mut world = McpFixture::new();
    world.setup.limits.message_bytes = 1 << 20;
    let started = world.start_one("modern");
    let reply = started.err("flood", "");
    assert!(reply.contains("sent a message of more than 1048576 bytes, and was ended"), "{reply}");
    assert_eq!(started.ok("echo", "again"), "again");
}

/// Faults M4 and M7.
#[test]
fn an_answer_reaches_the_call_that_it_belongs_to() {
    let started = McpFixture::new();
    let started = started.start_one("modern");
    assert_eq!(started.ok("ids", ""), "right");
    assert_eq!(started.ok("echo", "next"), "next");
}

/// Fault M11.
#[test]
fn what_a_server_asks_of_us_is_refused() {
    let world = McpFixture::new();
    let reply = world.start_one("legacy").ok("ask", "");
    assert!(reply.contains(r#""code":-32601"#) && reply.contains(r#""id":"s1""#), "{reply}");
}

/// Fault M13.
#[test]
fn a_server_ends_with_its_input_and_a_stubborn_one_is_killed() {
    let world = McpFixture::new();
    drop(world.start_one("modern"));
    assert_eq!(world.log("s").last().unwrap(), "end");
    let stubborn = world.start([world.test_server("stubborn", "modern,stubborn")]);
    let begun = Instant::now();
    stubborn.servers.stop(None);
    assert!(begun.elapsed() < 10 * SECOND, "{:?}", begun.elapsed());
    let path = world.workspace().join("stubborn.log");
    wait_until("it is gone", || count_with_variable(path.to_str().unwrap()) == 0);
    let reply = stubborn.err("echo", "");
    assert!(reply.contains("it was cancelled"), "{reply}");
}

/// Without time left, a server gets only a moment, and its supervisor does the rest.
#[test]
fn a_stubborn_server_is_not_waited_for_when_there_is_no_time() {
    let mut world = McpFixture::new();
    world.setup.shutdown_timeout = 5 * SECOND;
    let stubborn = world.start([world.test_server("late", "modern,stubborn")]);
    let begun = Instant::now();
    stubborn.servers.stop(Some(Duration::ZERO));
    assert!(begun.elapsed() < 4 * SECOND, "{:?}", begun.elapsed());
    let path = world.workspace().join("late.log");
    wait_until("it is gone", || count_with_variable(path.to_str().unwrap()) == 0);
}

/// Fault M14.
#[test]
fn what_a_server_has_started_ends_with_it() {
    let world = McpFixture::new();
    let started = world.start_one("modern");
    started.ok("sleeper", "87621");
    wait_until("it runs", || count_sleeping("87621") == 1);
    drop(started);
    wait_until("it is gone", || count_sleeping("87621") == 0);
}

/// Fault M16.
#[test]
fn few_of_many_progress_messages_are_shown() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&received);
    let scope = scope_with(&CancellationToken::new()).with_messages(move |message| match message {
        EffectMessage::Notice(EffectNotice::Progress { text }) => {
            listener.lock().unwrap().push(text);
        }
        other => panic!("{other:?}"),
    });
    let started = McpFixture::new();
    let (started, begun) = (started.start_one("modern"), Instant::now());
    assert_eq!(started.call_in("spam", "", &scope).text, "done");
    let (received, quarters) = (received.lock().unwrap(), begun.elapsed().as_millis() / 250);
    assert!(
        !received.is_empty() && received.len() as u128 <= quarters + 1,
        "{} words",
        received.len()
    );
    assert!(
        received[0].starts_with("mcp_s_spam: ") && received[0].ends_with(" of 20000"),
        "{}",
        received[0]
    );
}

/// Fault M17.
#[test]
fn a_server_is_confined_as_the_policy_says() {
    let world = McpFixture::with_policy(|policy| policy.mode = SandboxMode::WorkspaceWrite);
    let Some(outside) = crate::kit::system::folder_outside_temp() else { return };
    let file = outside.path().join("x");
    let started = world.start_one("modern");
    let reply = started.ok("write", file.to_str().unwrap());
    assert_ne!(reply, "written");
    assert!(!file.exists());
    assert_eq!(started.ok("write", "inside"), "written");
}

/// Fault M18.
#[test]
fn servers_can_be_cancelled_while_they_start() {
    let world = McpFixture::new();
    let specs = vec![world.test_server("a", "deaf"), world.test_server("b", "legacy")];
    let cancel = CancellationToken::new();
    let ((servers, problems), took) = std::thread::scope(|scope| {
        let starting = scope.spawn(|| McpServers::start(specs, &world.setup, &cancel, &|_, _| {}));
        wait_until("one was asked", || world.log("a").len() > 1);
        let begun = Instant::now();
        cancel.cancel();
        (starting.join().unwrap(), begun.elapsed())
    });
    assert!(took < 5 * SECOND, "{took:?}");
    let is_cancelled = |problem: &ServerProblem| {
        matches!(problem, ServerProblem::Unavailable { error: ServerError::Cancelled, .. })
    };
    assert!(problems.iter().any(is_cancelled));
    drop(servers);
    let folder = world.workspace();
    wait_until("nothing is left", || count_with_variable(folder.to_str().unwrap()) == 0);
}

/// A server of the newest mode may defer a call; its opaque state is returned to it.
#[test]
fn a_call_that_is_put_off_is_made_again_but_not_for_ever() {
    let world = McpFixture::new();
    let started = world.start_one("modern");
    assert_eq!(started.ok("later", ""), "now");
    assert!(started.err("never", "").contains("deferred it repeatedly"));
    assert_eq!(started.ok("echo", "hello"), "hello");
}

/// Fault M10: usage instructions of a server are limited and plain.
#[test]
fn servers_of_both_eras_may_say_how_they_want_to_be_used() {
    let world = McpFixture::new();
    for behaviour in ["modern,talkative", "legacy,talkative"] {
        let started = world.start_one(behaviour);
        let received = started.servers.instructions();
        assert_eq!((received.len(), &*received[0].server), (1, "s"));
        assert!(received[0].text.starts_with("Use echo.\n"), "{:?}", &received[0].text[..20]);
        assert!(received[0].text.len() < 5_000);
    }
    assert_eq!(world.start_one("modern").servers.instructions(), []);
}

/// A rule such as `mcp_s_ec_*` is about one server.
#[test]
fn no_tool_of_a_server_has_a_name_for_tools_of_another() {
    let world = McpFixture::new();
    let started =
        world.start(["s", "s_crash", "s-2"].map(|name| world.test_server(name, "modern")));
    let tools = |server: &str| {
        let own = started.servers.tools().iter().filter(|tool| tool.server() == server);
        own.map(|tool| tool.spec().name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(tools("s").len() + 1, tools("s_crash").len());
    assert!(!tools("s").contains(&"mcp_s_crash_once".to_owned()), "{:?}", tools("s"));
    assert!(tools("s_crash").contains(&"mcp_s_crash_echo".to_owned()));
    assert_eq!(tools("s-2").len(), tools("s_crash").len());
    let note = "the tool `mcp_s_crash_once` is left out: its name is one for tools of `s_crash`";
    assert!(started.problems[0].to_string().contains(note), "{:?}", started.problems);
}
