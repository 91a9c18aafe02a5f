//! Servers that are processes: how they begin, how they fail, how they end.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use architect::exec::Mode;
use architect::mcp::{Necessity, Problem, ServerError, Servers, Spec};
use architect::model::ToolStatus;
use architect::port::{Cancel, Notice};

use super::world::World;
use crate::tools::world::{eventually, scope_of, sleeping};

fn within(spec: Spec, timeout: Duration) -> Spec {
    Spec { timeout, ..spec }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_server_of_the_newest_era_is_asked_without_a_session() {
    let world = World::new();
    let started = world.one("modern");
    assert_eq!(started.ok("echo", "hello"), "hello");
    assert_eq!(world.log("s"), ["start", "server/discover", "tools/list", "tools/call"]);
}

/// Fault M8.
#[test]
fn an_older_server_gets_its_session() {
    let world = World::new();
    let started = world.one("legacy");
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

/// Fault M8: a server that says nothing to what it does not know, and one that dies of it.
#[test]
fn a_server_that_does_not_answer_the_first_question_is_an_older_one() {
    let mut world = World::new();
    world.setup.probe = SECOND;
    assert_eq!(world.one("silent").ok("echo", "a"), "a");
    assert_eq!(world.one("brittle").ok("echo", "b"), "b");
    // However long the first question may be waited for, the second one has its time.
    world.setup.probe = 60 * SECOND;
    assert_eq!(world.one("silent").ok("echo", "c"), "c");
}

/// Fault M8.
#[test]
fn a_server_of_an_unknown_version_is_left_out() {
    let world = World::new();
    let started = world.start([world.server("f", "future"), world.server("a", "ancient")]);
    let expected = [
        "the tools of the MCP server `f` are missing: it speaks version 2099-01-01 of the protocol, which is not \
         known here",
        "the tools of the MCP server `a` are missing: it speaks version 1999-01-01 of the protocol, which is not \
         known here",
    ];
    assert_eq!(started.told(), expected);
}

/// Fault M1.
#[test]
fn a_server_that_cannot_be_had_costs_its_tools_and_nothing_else() {
    let world = World::new();
    let missing = World::program("missing", "/no/such/server", &[]);
    let exits = Spec { necessity: Necessity::Required, ..world.server("exits", "exits") };
    let started = world.start([missing, exits, world.server("good", "legacy")]);
    let expected = [
        "the tools of the MCP server `missing` are missing: it could not be started: program '/no/such/server' was \
         not found",
        "the tools of the MCP server `exits` are missing: it died (exit code 3); the last that it said: no \
         configuration found",
    ];
    assert_eq!(started.told(), expected);
    assert_eq!(started.problems.iter().map(Problem::is_fatal).collect::<Vec<_>>(), [false, true]);
    assert_eq!(started.ok("echo", "here"), "here");
}

/// Fault M2.
#[test]
fn servers_that_never_answer_are_waited_for_together() {
    let world = World::new();
    let begun = Instant::now();
    let deaf = ["a", "b", "c", "d"].map(|name| within(world.server(name, "deaf"), 2 * SECOND));
    let started = world.start(deaf);
    assert_eq!(started.problems.len(), 4);
    assert!(started.told()[0].ends_with("it did not answer within 2 s"), "{:?}", started.told());
    assert!(begun.elapsed() < 6 * SECOND, "{:?}", begun.elapsed());
}

/// Fault M3.
#[test]
fn a_server_that_dies_in_a_call_is_started_again_for_the_next_one() {
    let world = World::new();
    let started = world.one("legacy");
    let expected = "MCP server 's': it died (exit code 9); the last that it said: out of cheese, secret ***. The call \
                    may have had an effect or not.";
    assert_eq!(started.err("crash", ""), expected);
    assert_eq!(started.ok("echo", "again"), "again");
    assert_eq!(world.log("s").iter().filter(|word| *word == "start").count(), 2);
    // What is known of the server is not asked again.
    assert_eq!(world.log("s").iter().filter(|word| *word == "server/discover").count(), 1);
}

/// Fault M3.
#[test]
fn a_call_is_made_again_only_where_that_is_said_to_do_no_harm() {
    let world = World::new();
    let started = world.one("modern");
    assert_eq!(started.ok("crash_once", ""), "back again");
    started.err("crash", "");
    assert_eq!(world.log("s").iter().filter(|word| *word == "tools/call").count(), 3);
}

/// Fault M3.
#[test]
fn a_server_is_not_started_again_and_again() {
    let mut world = World::new();
    world.setup.restart = Duration::from_secs(3_600);
    let started = world.one("legacy");
    started.err("crash", "");
    started.err("crash", "");
    let expected =
        "MCP server 's': it has died again, and is not restarted more often than every 3600 s.";
    assert_eq!(started.err("echo", ""), expected);
}

/// Fault M4.
#[test]
fn a_call_without_an_answer_is_taken_back_at_its_deadline() {
    let world = World::new();
    let started = world.start([within(world.server("s", "modern"), 2 * SECOND)]);
    let answer = started.call("hang", "");
    assert_eq!(answer.status, ToolStatus::TimedOut);
    assert!(answer.text.contains("did not answer within 2 s"), "{}", answer.text);
    eventually("it was told", || {
        world.log("s").last().is_some_and(|word| word == "notifications/cancelled")
    });
    assert_eq!(started.ok("echo", "still there"), "still there");
}

#[test]
fn a_cancelled_call_ends_at_once() {
    let world = World::new();
    let started = world.one("modern");
    let (cancel, begun) = (Cancel::new(), Instant::now());
    let answer = std::thread::scope(|scope| {
        let calling = scope.spawn(|| started.call_in("hang", "", &scope_of(&cancel)));
        eventually("it was called", || world.log("s").iter().any(|word| word == "tools/call"));
        cancel.cancel();
        calling.join().unwrap()
    });
    assert_eq!(answer.status, ToolStatus::Interrupted);
    assert!(begun.elapsed() < 5 * SECOND);
    eventually("it was told", || {
        world.log("s").last().is_some_and(|word| word == "notifications/cancelled")
    });
}

/// Fault M5.
#[test]
fn noise_is_passed_over_until_there_is_too_much_of_it() {
    let mut world = World::new();
    world.setup.caps.noise = 50;
    let started = world.one("modern");
    assert_eq!(started.ok("noise", "50"), "done");
    let said = started.err("noise", "51");
    assert!(said.contains("wrote 51 lines in a row that are no messages, and was ended"), "{said}");
    // A full pipe on the other side would stop it.
    assert_eq!(started.ok("loud", ""), "done");
}

/// Fault M6.
#[test]
fn a_message_without_an_end_ends_the_server() {
    let mut world = World::new();
    world.setup.caps.message = 1 << 20;
    let started = world.one("modern");
    let said = started.err("flood", "");
    assert!(said.contains("sent a message of more than 1048576 bytes, and was ended"), "{said}");
    assert_eq!(started.ok("echo", "again"), "again");
}

/// Faults M4 and M7.
#[test]
fn an_answer_reaches_the_call_that_it_belongs_to() {
    let started = World::new();
    let started = started.one("modern");
    assert_eq!(started.ok("ids", ""), "right");
    assert_eq!(started.ok("echo", "next"), "next");
}

/// Fault M11.
#[test]
fn what_a_server_asks_of_us_is_refused() {
    let world = World::new();
    let said = world.one("legacy").ok("ask", "");
    assert!(said.contains(r#""code":-32601"#) && said.contains(r#""id":"s1""#), "{said}");
}

/// Fault M13.
#[test]
fn a_server_ends_with_its_input_and_a_stubborn_one_is_killed() {
    let world = World::new();
    drop(world.one("modern"));
    assert_eq!(world.log("s").last().unwrap(), "end");
    let stubborn = world.start([world.server("stubborn", "modern,stubborn")]);
    let begun = Instant::now();
    stubborn.servers.stop(None);
    assert!(begun.elapsed() < 5 * SECOND, "{:?}", begun.elapsed());
    let path = world.workspace().join("stubborn.log");
    eventually("it is gone", || super::world::with_variable(path.to_str().unwrap()) == 0);
    let said = stubborn.err("echo", "");
    assert!(said.contains("it was cancelled"), "{said}");
}

/// Whoever has no time left gives a server no more than a moment, and leaves the rest to its supervisor.
#[test]
fn a_stubborn_server_is_not_waited_for_when_there_is_no_time() {
    let world = World::new();
    let stubborn = world.start([world.server("late", "modern,stubborn")]);
    let begun = Instant::now();
    stubborn.servers.stop(Some(Duration::ZERO));
    assert!(begun.elapsed() < 2 * SECOND, "{:?}", begun.elapsed());
    let path = world.workspace().join("late.log");
    eventually("it is gone", || super::world::with_variable(path.to_str().unwrap()) == 0);
}

/// Fault M14.
#[test]
fn what_a_server_has_started_ends_with_it() {
    let world = World::new();
    let started = world.one("modern");
    started.ok("sleeper", "87621");
    eventually("it runs", || sleeping("87621") == 1);
    drop(started);
    eventually("it is gone", || sleeping("87621") == 0);
}

/// Fault M16.
#[test]
fn of_many_words_about_progress_few_are_told() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&told);
    let scope = scope_of(&Cancel::new()).telling(Arc::new(move |notice| {
        let Notice::Progress { text } = notice else { panic!("{notice:?}") };
        listener.lock().unwrap().push(text);
    }));
    let started = World::new();
    let (started, begun) = (started.one("modern"), Instant::now());
    assert_eq!(started.call_in("spam", "", &scope).text, "done");
    let (told, quarters) = (told.lock().unwrap(), begun.elapsed().as_millis() / 250);
    assert!(!told.is_empty() && told.len() as u128 <= quarters + 1, "{} words", told.len());
    assert!(told[0].starts_with("mcp_s_spam: ") && told[0].ends_with(" of 20000"), "{}", told[0]);
}

/// Fault M17.
#[test]
fn a_server_is_confined_as_the_policy_says() {
    let world = World::confined(|policy| policy.mode = Mode::WorkspaceWrite);
    let Some(outside) = crate::tools::world::elsewhere() else { return };
    let file = outside.path().join("x");
    let started = world.one("modern");
    let said = started.ok("write", file.to_str().unwrap());
    assert_ne!(said, "written");
    assert!(!file.exists());
    assert_eq!(started.ok("write", "inside"), "written");
}

/// Fault M18.
#[test]
fn servers_can_be_cancelled_while_they_start() {
    let world = World::new();
    let specs = vec![world.server("a", "deaf"), world.server("b", "legacy")];
    let (cancel, begun) = (Cancel::new(), Instant::now());
    let (servers, problems) = std::thread::scope(|scope| {
        let starting = scope.spawn(|| Servers::start(specs, &world.setup, &cancel));
        eventually("one was asked", || world.log("a").len() > 1);
        cancel.cancel();
        starting.join().unwrap()
    });
    assert!(begun.elapsed() < 6 * SECOND, "{:?}", begun.elapsed());
    let is_cancelled = |problem: &Problem| {
        matches!(problem, Problem::Missing { error: ServerError::Cancelled, .. })
    };
    assert!(problems.iter().any(is_cancelled));
    drop(servers);
    let folder = world.workspace();
    eventually("nothing is left", || super::world::with_variable(folder.to_str().unwrap()) == 0);
}

/// A server of the newest era may say "not now" and nothing else; what it gives along goes back to it unseen.
#[test]
fn a_call_that_is_put_off_is_made_again_but_not_for_ever() {
    let world = World::new();
    let started = world.one("modern");
    assert_eq!(started.ok("later", ""), "now");
    assert!(started.err("never", "").contains("puts it off again and again"));
    assert_eq!(started.ok("echo", "hello"), "hello");
}

/// Fault M10: what a server says of its use is bounded, and plain.
#[test]
fn servers_of_both_eras_may_say_how_they_want_to_be_used() {
    let world = World::new();
    for behaviour in ["modern,talkative", "legacy,talkative"] {
        let started = world.one(behaviour);
        let told = started.servers.instructions();
        assert_eq!((told.len(), &*told[0].server), (1, "s"));
        assert!(told[0].text.starts_with("Use echo.\n"), "{:?}", &told[0].text[..20]);
        assert!(told[0].text.len() < 5_000);
    }
    assert_eq!(world.one("modern").servers.instructions(), []);
}
