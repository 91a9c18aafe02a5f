//! Questions about stored and recorded sessions.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::kit::cli::{CliFixture, wait_for_exit};
use crate::kit::system::{count_sleeping, wait_until};

const PRICED: &str = r#"
[[turn]]
usage = { input = 1000, output = 10, cached_input = 250 }
calls = [
    { name = "read_file", arguments = { path = "a" } },
    { name = "read_file", arguments = { path = "missing" } },
]
[[turn]]
usage = { input = 1000, output = 10, cached_input = 750 }
calls = [{ name = "run_command", arguments = { command = "true" } }]
[[turn]]
usage = { input = 2000, output = 20, cached_input = 0 }
text = "Done."
"#;

/// Returns a store with two sessions of different ends.
fn two_sessions() -> CliFixture {
    let world = CliFixture::new();
    world.write("a", "text\n");
    let ran = world.run_script(PRICED, &["--deny", "run_command", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = world.run_script(PRICED, &["--max-steps", "1", "--mode", "yolo", "--json"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    world
}

fn row<'a>(rows: &'a Value, key: &str, value: &str) -> &'a Value {
    let mut found = rows.as_array().unwrap().iter().filter(|row| row[key] == value);
    found.next().unwrap_or_else(|| panic!("{value}: {rows}"))
}

#[test]
fn statistics_count_what_the_sessions_did() {
    let world = two_sessions();
    let failing =
        "[[turn]]\nerror = { kind = \"server\", wait_ms = 1 }\n[[turn]]\ntext = \"Done.\"\n";
    assert_eq!(world.run_script(failing, &[]).code, 0);
    let stats = world.run(&["stats", "--json"]).json();
    assert_eq!((&stats["sessions"], &stats["subagents"]), (&json!(3), &json!(0)));
    assert_eq!(row(&stats["outcomes"], "stop_reason", "llm_done")["sessions"], 2);
    assert_eq!(row(&stats["outcomes"], "stop_reason", "max_steps")["status"], "partial");
    assert_eq!((&stats["failed_calls"], &stats["retries"]), (&json!(1), &json!(1)));
    assert_eq!(row(&stats["failures"], "kind", "server")["count"], 1);
    let reads = row(&stats["tools"], "name", "read_file");
    assert_eq!(
        (&reads["calls"], &reads["ok"], &reads["failed"]),
        (&json!(4), &json!(2), &json!(2))
    );
    assert!(reads["p50"].as_f64().unwrap() <= reads["max"].as_f64().unwrap());
    let commands = row(&stats["tools"], "name", "run_command");
    assert_eq!((&commands["calls"], &commands["denied"]), (&json!(1), &json!(1)));
    assert_eq!((&stats["denials"], &stats["tool_calls"]), (&json!(1), &json!(5)));
    assert_eq!(stats["tool_failure_rate"], json!(0.4));
    let steps = stats["step_costs"].as_array().unwrap();
    assert_eq!((steps.len(), &steps[0]["llm_calls"]), (2, &json!(2)));
    assert_eq!((&steps[1]["step"], &steps[1]["cached_input_tokens"]), (&json!(2), &json!(750)));
    assert_eq!(row(&stats["states"], "state", "Calling.Waiting")["visits"], 1);
    assert_eq!(row(&stats["states"], "state", "Done")["visits"], 3);
    let preparing = row(&stats["states"], "state", "Preparing");
    assert_eq!(preparing["visits"], 6, "before each model call, and where a limit ends the run");
    let costs = world.run(&["sessions", "costs", "--total", "--json"]).json();
    assert_eq!(costs["llm_calls"], stats["llm_calls"]);
    assert_eq!(costs["input_tokens"], stats["input_tokens"]);
    let steps = row(&stats["percentiles"], "measure", "session_steps");
    assert_eq!(
        (&steps["p50"], &steps["p99"], &steps["count"]),
        (&json!(1.0), &json!(2.0), &json!(3))
    );
}

#[test]
fn statistics_of_a_time_without_sessions_are_empty() {
    let world = two_sessions();
    let stats = world.run(&["stats", "--since", "2999-01-01", "--json"]).json();
    assert_eq!((&stats["sessions"], &stats["llm_calls"]), (&json!(0), &json!(0)));
    assert_eq!((&stats["cost"], &stats["cache_hit_rate"]), (&Value::Null, &Value::Null));
    assert_eq!(world.run(&["stats", "--since", "1h", "--json"]).json()["sessions"], 2);
    let wrong = world.run(&["stats", "--since", "yesterday"]);
    assert!(wrong.code == 3 && wrong.err.contains("30d"), "{}", wrong.err);
}

#[test]
fn a_fork_counts_from_where_it_was_forked() {
    let world = CliFixture::new();
    let text = "[[turn]]\nusage = { input = 100, output = 1 }\ntext = \"Done.\"\n";
    assert_eq!(world.run_script(text, &[]).code, 0);
    assert_eq!(world.run(&["fork", "last", "--only"]).code, 0);
    let stats = world.run(&["stats", "--json"]).json();
    assert_eq!((&stats["sessions"], &stats["llm_calls"]), (&json!(2), &json!(1)));
    assert_eq!(row(&stats["states"], "state", "Done")["visits"], 1);
}

#[test]
fn statistics_are_tables_and_a_page_without_scripts() {
    let world = two_sessions();
    let text = world.run(&["stats"]).out;
    for expected in ["2 sessions\n", "cache hit rate", "max_steps", "read_file", "50.0 %"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let page = world.run(&["stats", "--format", "html"]).out;
    assert!(page.contains("<svg class=\"plot\"") && page.contains("read_file"), "{page}");
    assert!(!page.contains("<script") && page.contains("script-src 'none'"), "{page}");
}

/// The tables on the page about the laboratory are those of the index, and the queries of the page have results.
#[test]
fn the_documented_queries_run_on_the_documented_tables() {
    let world = two_sessions();
    assert_eq!(world.run(&["stats"]).code, 0);
    let index = world.home().join(".local/state/architect/index.db");
    let database = rusqlite::Connection::open(index).unwrap();
    let page = include_str!("../../../docs/laboratory.md");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let version = |row: &rusqlite::Row<'_>| row.get::<_, u32>(0);
    let version = database.query_row("PRAGMA user_version", [], version).unwrap();
    assert!(words(page).contains(&format!("is the version of the tables: {version}.")));
    let mut tables = database
        .prepare("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'words%' AND sql NOT NULL")
        .unwrap();
    let tables: Vec<String> =
        tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(tables.len(), 6);
    for table in tables {
        assert!(words(page).contains(&format!("{};", words(&table))), "{table}");
    }
    let queries = page.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let answers: Vec<usize> = queries
        .map(|query| {
            let mut query = database.prepare(query).unwrap();
            query.query_map([], |_| Ok(())).unwrap().map(Result::unwrap).count()
        })
        .collect();
    // One session has a single call of this purpose.
    assert_eq!(answers, [2, 1]);
}

/// Runs a task whose model answers at once.
fn answer(world: &CliFixture, text: &str, args: &[&str]) {
    let script = format!("[[turn]]\ntext = \"{text}\"\n");
    assert_eq!(world.run_script(&script, args).code, 0);
}

#[test]
fn stored_sessions_become_the_fewest_scenarios_that_take_their_transitions() {
    let world = two_sessions();
    answer(&world, "One.", &[]);
    let twice = "[[turn]]\ntext = \"Two.\"\n[[turn]]\ntext = \"Three.\"\n";
    assert_eq!(world.run_script(twice, &[]).code, 0);
    assert_eq!(world.run(&["resume", "last", "And now?"]).code, 0);
    let suite = world.run(&["test", "--from-all", "--out", "suite", "--json"]).json();
    assert_eq!((&suite["sessions"], &suite["paths"]), (&json!(3), &json!(3)), "{suite}");
    assert_eq!(suite["resumed"], 1);
    // The third session takes no transition that the others don't take.
    let scenarios = suite["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), 2, "{suite}");
    let added: u64 = scenarios.iter().map(|one| one["added"].as_u64().unwrap()).sum();
    assert_eq!(suite["transitions"], added);
    let tested = world.run(&["test", "suite"]);
    assert_eq!(tested.code, 0, "{}{}", tested.out, tested.err);
    let answers = world.run(&["test", "--from-all", "LLM_DONE", "--out", "answers"]);
    assert!(answers.out.contains("1 scenario from 2 sessions with 2 paths"), "{}", answers.out);
    assert!(answers.out.contains("left out: 1 resumed or forked"), "{}", answers.out);
    // The newest session was resumed.
    let rows = world.run(&["sessions", "--json"]).json();
    let resumed = rows[0]["session_id"].as_str().unwrap();
    let refused = world.run(&["test", "--from-all", resumed]);
    assert_eq!(refused.code, 3);
    assert!(refused.err.contains("can become a scenario: 1 resumed or forked"), "{}", refused.err);
    let refused = world.run(&["test", "--from", resumed]);
    assert_eq!((refused.code, &*refused.out), (3, ""));
    assert!(refused.err.contains("was resumed or forked"), "{}", refused.err);
    let nothing = world.run(&["test", "--from-all", "zebra"]);
    assert!(nothing.code == 3 && nothing.err.contains("zebra"), "{}", nothing.err);
}

#[test]
fn a_scenario_from_a_session_has_no_key() {
    let (world, key) = (CliFixture::new(), "sk-test-canary-1234567890");
    answer(&world, &format!("The key is {key}."), &[]);
    let made = |args: &[&str]| {
        let mut command = world.command(args);
        wait_for_exit(command.env("OPENAI_API_KEY", key).spawn().unwrap())
    };
    assert_eq!(made(&["test", "--from-all", "--out", "suite"]).code, 0);
    let file = std::fs::read_dir(world.path("suite")).unwrap().next().unwrap().unwrap().path();
    let texts = [std::fs::read_to_string(file).unwrap(), made(&["test", "--from", "last"]).out];
    for text in texts {
        assert!(text.contains("The key is") && !text.contains(key), "{text}");
    }
}

/// The files and the calls of a session may have secrets that are not keys of this program.
#[test]
fn a_scenario_and_an_export_have_no_secrets_of_the_workspace() {
    let world = CliFixture::new();
    let key =
        "-----BEGIN PRIVATE KEY-----\nMIIEvAIBADANBgkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----\n";
    world
        .write("key.pem", key)
        .write(".env", "DB=postgres://u:sesame1@h/db\nA_SECRET=opensesame\n");
    let script = r#"
        [[turn]]
        calls = [
            { name = "read_file", arguments = { path = "key.pem" } },
            { name = "read_file", arguments = { path = ".env" } },
            { name = "write_file", arguments = { path = "b.py", content = "password = input()\npassword = 'opensesame'\n" } },
        ]
        [[turn]]
        text = "Done."
    "#;
    let args = ["--mode", "yolo", "--set", "guardrails.sensitive_files=[]"];
    assert_eq!(world.run_script(script, &args).code, 0);
    let scenario = world.run(&["test", "--from", "last"]).out;
    let exported = ["jsonl", "atif"].map(|it| world.run(&["export", "last", "--format", it]).out);
    for text in exported.iter().chain([&scenario]) {
        for secret in ["MIIEvAIBADAN", "sesame1", "opensesame"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        assert!(text.contains("password = input()") && text.contains("A_SECRET=***"), "{text}");
    }
    // The masks are the same in the files, the calls and the results.
    world.write("made.toml", &scenario);
    let tested = world.run(&["test", "made.toml"]);
    assert_eq!(tested.code, 0, "{}{}", tested.out, scenario);
    world.write("session.jsonl", &exported[0]);
    assert_eq!(world.run(&["sessions", "import", "session.jsonl"]).code, 0);
    assert_eq!(world.run(&["replay", "last", "--verify"]).code, 0);
}

#[test]
fn recordings_of_other_programs_are_checked() {
    let world = CliFixture::new();
    let user = r#"{"role": "user", "content": "Do it."}"#;
    let call = r#"{"role": "assistant", "tool_calls": [{"id": "a"}]}"#;
    let result = |id: &str| format!(r#"{{"role": "tool", "tool_call_id": "{id}", "content": ""}}"#);
    let trace = |last: &str| [user, call, last, ""].join("\n");
    world.write("sound.jsonl", &trace(&result("a"))).write("broken.jsonl", &trace(&result("b")));
    let conform = |file: &str, args: &[&str]| {
        world.run(&[&["conform", file, "--from", "openai"][..], args].concat())
    };
    let sound = conform("sound.jsonl", &[]);
    assert_eq!(
        (sound.code, &*sound.out),
        (0, "sound.jsonl: conforms: 1 reply, 1 call, 1 result\n")
    );
    world.write("marked.jsonl", &format!("\u{feff}{}", trace(&result("a"))));
    assert_eq!(conform("marked.jsonl", &[]).code, 0, "a byte order mark is skipped");
    let broken = conform("broken.jsonl", &[]);
    let expected =
        "broken.jsonl:3: orphan_result at $.tool_call_id: a result for b, which no call has\n";
    assert_eq!((broken.code, &*broken.out), (1, expected));
    let both = conform("broken.jsonl", &["sound.jsonl", "--json"]);
    let [first, second] = &both.lines()[..] else { panic!("{}", both.out) };
    assert_eq!((both.code, &first["violation"]["line"]), (1, &json!(3)));
    assert_eq!((&first["conforms"], &second["conforms"]), (&json!(false), &json!(true)));
    assert_eq!((&second["file"], &second["violation"]), (&json!("sound.jsonl"), &Value::Null));
    world.write("other", "no recording\n");
    let mixed = conform("other", &["broken.jsonl"]);
    assert_eq!((mixed.code, &*mixed.out), (3, expected), "{}", mixed.err);
    for file in ["other", "missing"] {
        let wrong = conform(file, &[]);
        assert!(wrong.code == 3 && wrong.out.is_empty(), "{}{}", wrong.out, wrong.err);
    }
}

const EDITS: &str = r#"
[[turn]]
usage = { input = 1000, output = 10 }
calls = [{ name = "write_file", arguments = { path = "a", content = "1\n" } }]
[[turn]]
usage = { input = 1000, output = 10 }
calls = [{ name = "run_command", arguments = { command = "cat a; echo done" } }]
[[turn]]
usage = { input = 1000, output = 10 }
text = "Done."
"#;

#[test]
fn other_settings_show_where_a_stored_session_would_have_differed() {
    let world = CliFixture::new();
    assert_eq!(world.run_script(EDITS, &["--mode", "yolo"]).code, 0);
    let what_if = |args: &[&str]| {
        let ran = world.run(&[&["what-if", "last", "--json"][..], args].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.json()
    };
    let same = what_if(&["--set", "limits.max_steps=50"]);
    assert_eq!((&same["first_difference"], &same["divergence"]), (&Value::Null, &Value::Null));
    assert_eq!((&same["recorded"]["steps"], &same["stop_reason"]), (&json!(2), &json!("llm_done")));
    let shorter = what_if(&["--set", "limits.max_steps=1"]);
    let found = &shorter["divergence"];
    assert_eq!((&found["stop_reason"], &found["used"]["steps"]), (&json!("max_steps"), &json!(1)));
    assert_eq!((&found["used"]["llm_calls"], &found["used"]["tokens"]), (&json!(1), &json!(1010)));
    assert_eq!(shorter["first_difference"], found["seq"]);
    let tokens = what_if(&["--set", "limits.max_tokens=1500"]);
    assert_eq!(tokens["divergence"]["stop_reason"], "budget_exceeded", "{tokens}");
    world.write("policy.toml", "[permissions]\ndeny = [\"run_command(cat *)\"]\n");
    let denied = what_if(&["--policy", "policy.toml"]);
    let [decision] = &denied["decisions"].as_array().unwrap()[..] else { panic!("{denied}") };
    assert_eq!((&decision["tool"], &decision["ran"]), (&json!("run_command"), &json!(true)));
    assert_eq!((&denied["divergence"], denied["first_difference"].is_u64()), (&Value::Null, true));
    let asked = what_if(&["--set", "agents.build.confirm_mode=confirm-all"]);
    assert_eq!(asked["decisions"].as_array().unwrap().len(), 2, "{asked}");
    assert_eq!(asked["first_difference"], Value::Null);
    // The session itself is as it was.
    assert_eq!(world.run(&["replay", "last", "--verify"]).code, 0);
}

/// The closing call of a limit is not recorded, so the report gives its upper bound, and the real call stays within it.
#[test]
fn a_final_summary_that_is_not_recorded_is_counted_with_its_upper_bound() {
    let world = CliFixture::new();
    let script = format!("price = {{ input = 1.0, output = 4.0 }}\n{EDITS}");
    let ran = |args: &[&str]| {
        world.run_script(&script, &[&["--mode", "yolo", "--json"][..], args].concat()).json()
    };
    let session = ran(&[])["session_id"].as_str().unwrap().to_owned();
    for limit in [["--max-steps", "1"], ["--budget", "0.006"]] {
        let what_if = |more: &[&str]| {
            world.run(&[&["what-if", &session, limit[0], limit[1]][..], more].concat())
        };
        let found = &what_if(&["--json"]).json()["divergence"];
        let (used, bound) = (&found["used"], &found["final_summary"]);
        let real = ran(&limit);
        assert_eq!(real["stop_reason"], found["stop_reason"]);
        let calls = used["llm_calls"].as_u64().unwrap() + bound["llm_calls"].as_u64().unwrap();
        assert_eq!(real["llm_calls"], calls, "{found}");
        let cost = used["cost"].as_f64().unwrap() + bound["max_cost"].as_f64().unwrap();
        assert!(real["cost"].as_f64().unwrap() <= cost, "{found} {real}");
        assert!(bound["max_tokens"].as_u64().unwrap() >= 1_010, "{found}");
        let text = what_if(&[]).out;
        assert!(
            text.contains("and a final summary, not recorded: 1 model call, at most"),
            "{text}"
        );
    }
    // Nothing is left to pay for a summary, and a run without time makes no call.
    for limit in [["--max-tokens", "0"], ["--step-timeout", "0"]] {
        let text = world.run(&["what-if", &session, limit[0], limit[1]]).out;
        assert!(text.contains("would have ended") && !text.contains("final summary"), "{text}");
    }
}

#[test]
fn what_would_have_changed_is_shown_in_words() {
    let world = CliFixture::new();
    assert_eq!(world.run_script(EDITS, &["--mode", "yolo"]).code, 0);
    let deny = r#"permissions.deny=["run_command(cat *)"]"#;
    let ran = world.run(&["what-if", "last", "--set", deny, "--set", "limits.max_steps=2"]);
    assert!(ran.out.contains("allowed, then denied (rule run_command(cat *)"), "{}", ran.out);
    assert!(ran.out.contains("; it ran"), "{}", ran.out);
    let same = world.run(&["what-if", "last", "--set", "limits.max_steps=50"]);
    assert!(same.out.ends_with("nothing would have changed\n"), "{}", same.out);
    for wrong in ["[limits]\nmax_steps = 1\n", "deny = 1", "[permissions]\n", "["] {
        world.write("policy.toml", wrong);
        let refused = world.run(&["what-if", "last", "--policy", "policy.toml"]);
        assert!(refused.code == 3 && refused.err.contains("policy.toml"), "{}", refused.err);
    }
    assert_eq!(world.run(&["what-if", "last"]).code, 3);
}

/// The command needs a file that the session has made, and fails in the lane, which begins without the file.
#[test]
fn a_session_is_run_again_with_another_model_in_its_files() {
    let world = CliFixture::new();
    world.write("first", "as it was\n");
    assert_eq!(world.run_script(EDITS, &["--mode", "yolo"]).code, 0);
    world.write("first", "changed since\n");
    let other = EDITS
        .replace("write_file", "run_command")
        .replace(r#"path = "a", content = "1\n""#, r#"command = "cat first > a; test ! -e b""#);
    world.write("other.toml", &other);
    let ran = world.run(&[
        "what-if",
        "last",
        "--model",
        "scripted/other.toml",
        "--lanes",
        "2",
        "--json",
        "--check",
        "grep -q 'as it was' a",
        "--check",
        "test -e missing",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let [compared, summary] = &ran.lines()[..] else { panic!("{}", ran.out) };
    assert_eq!((&compared["after"], &compared["has_recorded_files"]), (&json!(0), &json!(true)));
    let (recorded, lanes) = (&compared["recorded"], compared["lanes"].as_array().unwrap());
    assert_eq!((&recorded["steps"], &recorded["stop_reason"]), (&json!(2), &json!("llm_done")));
    assert_eq!(lanes.len(), 2);
    for lane in lanes {
        assert_eq!((&lane["steps"], &lane["status"]), (&json!(2), &json!("success")), "{lane}");
        let found = &lane["first_divergence"];
        assert_eq!(found["reply"], 1);
        assert!(found["recorded"].as_str().unwrap().starts_with("write_file "), "{found}");
        let passed = lane["checks"].as_array().unwrap().iter().map(|check| &check["passed"]);
        assert_eq!(passed.collect::<Vec<_>>(), [&json!(true), &json!(false)]);
    }
    let summary = &summary["summary"];
    assert_eq!(
        (&summary["steps"]["value"], &summary["success"]["value"]),
        (&json!(0.0), &json!(0.0))
    );
    assert_eq!(summary["checks_passed"]["value"], 0.0);
    // The session and its folder are unchanged, and it is still the last session.
    assert_eq!((world.read("first"), world.read("a")), ("changed since\n".into(), "1\n".into()));
    let again = world.run(&["what-if", "last", "--model", "scripted/other.toml", "--json"]);
    assert_eq!(again.lines()[0]["session_id"], compared["session_id"]);
    let folder = world.home().join(".local/state/architect/sessions");
    let stored = || std::fs::read_dir(&folder).unwrap().count();
    let before = stored();
    assert_eq!(world.run(&["what-if", "last", "--model", "scripted/none.toml"]).code, 3);
    assert_eq!(stored(), before);
    assert_eq!(world.run(&["replay", "last", "--verify"]).code, 0);
}

#[test]
fn another_task_replaces_the_one_of_the_session() {
    let world = CliFixture::new();
    answer(&world, "One.", &[]);
    world.write("two.toml", "[[turn]]\ntext = \"Two.\"\n");
    let ran = world.run(&[
        "what-if",
        "last",
        "--prompt",
        "Another task.",
        "--model",
        "scripted/two.toml",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for expected in
        ["no files are recorded", "reply 1: Two.", "recorded: One.", "1 lane of 1 session"]
    {
        assert!(ran.out.contains(expected), "{expected}: {}", ran.out);
    }
    let lane = ran.out.lines().find_map(|line| line.trim().strip_prefix("session ")).unwrap();
    let shown = world.run(&["sessions", "show", lane.split(' ').next().unwrap()]).out;
    assert!(shown.contains("Another task."), "{shown}");
    let without = world.run(&["what-if", "last", "--set", "limits.max_steps=1", "--lanes", "2"]);
    assert!(without.code == 3 && without.err.contains("--model"), "{}", without.err);
}

#[test]
fn all_records_are_checked_before_a_lane_runs() {
    let world = CliFixture::new();
    answer(&world, "One.", &[]);
    let folder = world.home().join(".local/state/architect/sessions");
    let stored = || std::fs::read_dir(&folder).unwrap().count();
    let before = stored();
    let model = world.script_model("[[turn]]\ntext = \"Two.\"\n");
    let ran = world.run(&["what-if", "last", "last@9999", "--model", &model]);
    assert!(ran.code == 3 && ran.err.contains("has no record 9999"), "{}", ran.err);
    assert_eq!(stored(), before);
}

#[test]
fn failed_lanes_are_reported_with_their_errors() {
    let world = CliFixture::new();
    answer(&world, "One.", &[]);
    for (kind, code) in [("request", 1), ("auth", 4)] {
        let turn = format!("[[turn]]\nerror = {{ kind = \"{kind}\", message = \"not today\" }}\n");
        let model = world.script_model(&turn);
        let args = ["what-if", "last", "--lanes", "2", "--model", &model];
        let ran = world.run(&args);
        assert_eq!(ran.code, code, "{}", ran.err);
        assert!(ran.err.contains("2 of 2 lanes failed"), "{}", ran.err);
        assert_eq!(ran.out.matches("error: ").count(), 2, "{}", ran.out);
        let lines = world.run(&[&args[..], &["--json"]].concat()).lines();
        let error = lines[0]["lanes"][1]["error"].as_str().unwrap();
        assert!(error.contains("not today"), "{error}");
    }
}

/// The interrupt comes while a check of the first lane runs.
#[test]
fn an_interrupt_ends_all_lanes() {
    let world = CliFixture::new();
    answer(&world, "One.", &[]);
    let model = world.script_model("[[turn]]\ntext = \"Two.\"\n");
    let lanes = ["what-if", "last", "--lanes", "3", "--json", "--check", "sleep 61.357", "--model"];
    let child = world.command(&[&lanes[..], &[&model]].concat()).spawn().unwrap();
    wait_until("a check runs", || count_sleeping("61.357") == 1);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = wait_for_exit(child);
    let [compared] = &ran.lines()[..] else { panic!("{}", ran.out) };
    assert_eq!((ran.code, compared["lanes"].as_array().unwrap().len()), (130, 1), "{}", ran.err);
    assert_eq!(count_sleeping("61.357"), 0);
}
