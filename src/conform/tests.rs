//! Recordings made for these tests, each with its first violation.

use super::*;

/// Returns the first violation as `invariant line path`; an empty text if there is none.
fn violation(format: TraceFormat, text: &str) -> String {
    let report = check(format, text).unwrap_or_else(|| panic!("not a recording: {text}"));
    assert_eq!(report.conforms, report.violation.is_none());
    report.violation.map_or_else(String::new, |found| {
        format!("{} {} {}", found.invariant, found.line, found.path)
    })
}

fn lines(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// A line of Claude Code: uuid, parent, and blocks such as `use:a` and `result:a`; the reply is `message`.
fn claude_line(uuid: &str, parent: &str, message: &str, blocks: &[&str]) -> String {
    let is_user = message.is_empty();
    let blocks: Vec<Value> = blocks
        .iter()
        .map(|block| match block.split_once(':') {
            Some(("use", id)) => {
                serde_json::json!({"type": "tool_use", "id": id, "name": "Read", "input": {}})
            }
            Some(("result", id)) => {
                serde_json::json!({"type": "tool_result", "tool_use_id": id, "content": ""})
            }
            _ => serde_json::json!({"type": "text", "text": block}),
        })
        .collect();
    let parent = if parent.is_empty() { Value::Null } else { parent.into() };
    let (kind, role) = if is_user { ("user", "user") } else { ("assistant", "assistant") };
    let mut line = serde_json::json!({
        "type": kind, "uuid": uuid, "parentUuid": parent,
        "message": {"role": role, "content": blocks},
    });
    if !is_user {
        line["message"]["id"] = message.into();
    }
    line.to_string()
}

fn claude(rows: &[(&str, &str, &str, &[&str])]) -> String {
    let rows = rows
        .iter()
        .map(|(uuid, parent, message, blocks)| claude_line(uuid, parent, message, blocks) + "\n");
    rows.collect()
}

#[test]
fn what_claude_code_does_is_no_violation() {
    // Parallel calls in lines of their own, answered in another order; a line written again; the end is cut off.
    let sound = claude(&[
        ("1", "", "", &["Do it."]),
        ("2", "1", "m1", &["use:a"]),
        ("3", "2", "m1", &["use:b"]),
        ("4", "3", "", &["result:b"]),
        ("5", "2", "", &["result:a"]),
        ("2", "1", "m1", &["use:a"]),
        ("6", "5", "m2", &["use:c"]),
    ]);
    assert_eq!(violation(TraceFormat::Claude, &sound), "");
    let half = format!("{sound}{{\"type\": \"user\", \"mess");
    assert_eq!(violation(TraceFormat::Claude, &half), "");
    let report = check(TraceFormat::Claude, &sound).unwrap();
    assert_eq!((report.replies, report.calls, report.results), (2, 3, 2));
    assert_eq!(report.cut_off_calls, 1);
}

#[test]
fn a_line_may_be_written_before_the_one_that_it_follows() {
    let early = claude(&[
        ("1", "", "", &["Do it."]),
        ("2", "1", "m1", &["use:a"]),
        ("4", "3", "", &["result:b"]),
        ("3", "2", "m1", &["use:b"]),
        ("5", "2", "", &["result:a"]),
        ("6", "5", "m2", &["Done."]),
    ]);
    let report = check(TraceFormat::Claude, &early).unwrap();
    assert_eq!((report.violation, report.calls, report.results), (None, 2, 2));
    assert_eq!(report.cut_off_calls, 0);
    let circle = claude(&[("1", "2", "", &["Do it."]), ("2", "1", "m1", &["use:a"])]);
    assert_eq!(violation(TraceFormat::Claude, &circle), "");
}

#[test]
fn a_killed_session_that_was_resumed_or_rewound_is_no_violation() {
    let begin: [(&str, &str, &str, &[&str]); 2] =
        [("1", "", "", &["Do it."]), ("2", "1", "m1", &["use:a"])];
    let resumed = [("3", "2", "", &["Go on."] as &[_]), ("4", "3", "m2", &["Done."])];
    assert_eq!(violation(TraceFormat::Claude, &claude(&[&begin[..], &resumed].concat())), "");
    let rewound = [("3", "1", "m2", &["Another way."] as &[_])];
    assert_eq!(violation(TraceFormat::Claude, &claude(&[&begin[..], &rewound].concat())), "");
    let unanswered = [("3", "2", "m2", &["Done."] as &[_])];
    assert_eq!(
        violation(TraceFormat::Claude, &claude(&[&begin[..], &unanswered].concat())),
        "unanswered_call 3 $.message"
    );
}

#[test]
fn results_and_ids_are_checked() {
    let begin: [(&str, &str, &str, &[&str]); 3] =
        [("1", "", "", &["Do it."]), ("2", "1", "m1", &["use:a"]), ("3", "2", "", &["result:a"])];
    let with = |row: (&str, &str, &str, &[&str])| {
        violation(TraceFormat::Claude, &claude(&[&begin[..], &[row]].concat()))
    };
    let place = "$.message.content[0]";
    assert_eq!(
        with(("4", "3", "", &["result:a"])),
        format!("answered_twice 4 {place}.tool_use_id")
    );
    assert_eq!(with(("4", "3", "", &["result:x"])), format!("orphan_result 4 {place}.tool_use_id"));
    assert_eq!(with(("4", "3", "m2", &["use:a"])), format!("duplicate_call_id 4 {place}.id"));
    let early = claude(&[
        ("1", "", "", &["result:a"]),
        ("2", "1", "m1", &["use:a"]),
        ("3", "2", "", &["Go on."]),
    ]);
    assert_eq!(
        violation(TraceFormat::Claude, &early),
        format!("result_before_call 1 {place}.tool_use_id")
    );
    let damaged = claude(&begin).replacen("\"uuid\"", "uuid", 1);
    assert_eq!(violation(TraceFormat::Claude, &damaged), "damaged_line 1 $");
}

/// An id may be a number, and a result without an id belongs to no call.
#[test]
fn results_of_messages_name_their_calls() {
    let recorded = |id: &str, result: &str| {
        let messages = format!(
            r#"[{{"role":"user","content":"x"}},{{"role":"assistant","tool_calls":[{{"id":{id}}}]}},{{"role":"tool"{result}}}]"#
        );
        violation(TraceFormat::OpenAi, &messages)
    };
    assert_eq!(recorded("5", r#","tool_call_id":5"#), "");
    assert_eq!(recorded("5", r#","tool_call_id":6"#), "orphan_result 1 $[2].tool_call_id");
    assert_eq!(recorded("5", ""), "orphan_result 1 $[2].tool_call_id");
}

#[test]
fn a_recording_that_begins_within_a_session_is_no_violation() {
    let begin = [("2", "before", "", &["result:a"] as &[_]), ("3", "2", "m2", &["use:b"])];
    assert_eq!(violation(TraceFormat::Claude, &claude(&begin)), "");
    let twice = [("4", "3", "", &["result:b"] as &[_]), ("5", "lost", "", &["result:b"])];
    assert_eq!(
        violation(TraceFormat::Claude, &claude(&[&begin[..], &twice].concat())),
        "answered_twice 4 $.message.content[0].tool_use_id"
    );
}

#[test]
fn records_without_a_line_end_between_them_are_found() {
    let [one, other] = ["1", "2"].map(|uuid| claude_line(uuid, "", "", &["Do it."]));
    let joined = format!("{one}\n{one}{other}\n");
    let report = check(TraceFormat::Claude, &joined).unwrap();
    let found = report.violation.unwrap();
    assert_eq!((found.line, found.invariant), (2, Invariant::DamagedLine));
    assert!(found.message.contains("a line end is missing"), "{}", found.message);
}

/// Owners of recordings mask addresses, and other text that looks like an address.
#[test]
fn a_masked_escape_damages_no_line() {
    let [masked, other] = ["1", "2"].map(|uuid| claude_line(uuid, "", "", &["Write to \\ me:@"]));
    let masked = masked.replace('@', r"\***@***.***");
    assert_eq!(violation(TraceFormat::Claude, &lines(&[&masked, &other])), "");
    let damaged = masked.replace(r"\*", r"\x");
    assert_eq!(violation(TraceFormat::Claude, &lines(&[&damaged, &other])), "damaged_line 1 $");
}

#[test]
fn retries_of_claude_code_keep_their_limit() {
    let begin = claude_line("1", "", "", &["Do it."]);
    let retry = |attempt: u32| {
        format!(
            r#"{{"type":"system","subtype":"api_error","uuid":"r{attempt}","parentUuid":"1","retryAttempt":{attempt},"maxRetries":10}}"#
        )
    };
    let sound = lines(&[&begin, &retry(1), &retry(10)]);
    assert_eq!(violation(TraceFormat::Claude, &sound), "");
    let unbounded = lines(&[&begin, &retry(11)]);
    assert_eq!(violation(TraceFormat::Claude, &unbounded), "unbounded_retries 2 $.retryAttempt");
}

const CODEX_HEAD: &str = r#"{"type":"session_meta","payload":{"id":"s"}}"#;
const CODEX_USER: &str =
    r#"{"type":"event_msg","payload":{"type":"user_message","message":"Do it."}}"#;
const CODEX_TEXT: &str =
    r#"{"type":"response_item","payload":{"type":"message","role":"assistant","content":[]}}"#;
const CODEX_END: &str = r#"{"type":"event_msg","payload":{"type":"task_complete"}}"#;

fn codex_item(kind: &str, id: &str) -> String {
    format!(r#"{{"type":"response_item","payload":{{"type":"{kind}","call_id":"{id}"}}}}"#)
}

#[test]
fn rollouts_of_codex_are_checked() {
    let [a, b] = ["a", "b"].map(|id| codex_item("function_call", id));
    let [to_a, to_b] = ["a", "b"].map(|id| codex_item("function_call_output", id));
    let head = [CODEX_HEAD, CODEX_USER, CODEX_TEXT, &a, &b];
    let with = |rest: &[&str]| violation(TraceFormat::Codex, &lines(&[&head[..], rest].concat()));
    assert_eq!(with(&[&to_b, &to_a, CODEX_TEXT, CODEX_END, CODEX_USER, CODEX_TEXT]), "");
    assert_eq!(with(&[&to_b]), "");
    assert_eq!(with(&[&to_b, CODEX_USER, CODEX_TEXT]), "");
    assert_eq!(with(&[&to_b, CODEX_TEXT]), "unanswered_call 7 $.payload");
    assert_eq!(
        with(&[&to_a, &to_b, CODEX_TEXT, CODEX_END, CODEX_TEXT]),
        "reply_after_end 10 $.payload"
    );
    let again = codex_item("function_call", "c");
    assert_eq!(with(&[&to_a, &to_b, CODEX_END, &again]), "reply_after_end 9 $.payload");
    assert_eq!(with(&[&to_a, &to_a]), "answered_twice 7 $.payload.call_id");
    let bare = lines(&[
        r#"{"id":"s","timestamp":"t","instructions":null}"#,
        r#"{"type":"function_call","id":null,"call_id":"a"}"#,
        r#"{"type":"function_call_output","call_id":"x"}"#,
    ]);
    assert_eq!(violation(TraceFormat::Codex, &bare), "orphan_result 3 $.call_id");
}

#[test]
fn limits_that_codex_states_are_checked() {
    let count = |tokens: u32| {
        format!(
            r#"{{"type":"event_msg","payload":{{"type":"token_count","info":{{"last_token_usage":{{"input_tokens":{tokens}}},"model_context_window":1000}}}}}}"#
        )
    };
    let error = |text: &str| {
        format!(r#"{{"type":"event_msg","payload":{{"type":"stream_error","message":"{text}"}}}}"#)
    };
    let with = |line: &str| violation(TraceFormat::Codex, &lines(&[CODEX_HEAD, CODEX_USER, line]));
    assert_eq!(with(&count(1000)), "");
    let path = "$.payload.info.last_token_usage.input_tokens";
    assert_eq!(with(&count(1200)), format!("limit_exceeded 3 {path}"));
    let text = lines(&[CODEX_HEAD, CODEX_USER, &count(1200)]);
    let found = check(TraceFormat::Codex, &text).and_then(|report| report.violation).unwrap();
    assert_eq!(
        found.message,
        "input tokens: 1200, and the stated limit is 1000 (1111 with a margin)"
    );
    assert_eq!(with(&error("Reconnecting... 5/5")), "");
    assert_eq!(with(&error("Reconnecting... 6/5")), "unbounded_retries 3 $.payload.message");
}

#[test]
fn sessions_of_pi_are_checked() {
    let head = r#"{"type":"session","version":3,"id":"s"}"#;
    let user = |id: &str, parent: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":{parent},"message":{{"role":"user","content":"Do it."}}}}"#
        )
    };
    let reply = |id: &str, parent: &str, stop: &str, call: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":"{parent}","message":{{"role":"assistant","stopReason":"{stop}","content":[{{"type":"toolCall","id":"{call}","name":"read","arguments":{{}}}}]}}}}"#
        )
    };
    let result = |id: &str, parent: &str, call: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":"{parent}","message":{{"role":"toolResult","toolCallId":"{call}","content":[]}}}}"#
        )
    };
    let begin = [head, &user("1", "null"), &reply("2", "1", "toolUse", "a")].map(str::to_owned);
    let with = |rest: &[String]| {
        let all: Vec<&str> = begin.iter().chain(rest).map(String::as_str).collect();
        violation(TraceFormat::Pi, &lines(&all))
    };
    assert_eq!(with(&[result("3", "2", "a"), reply("4", "3", "toolUse", "b")]), "");
    // Another branch, from before the call.
    assert_eq!(with(&[reply("3", "1", "toolUse", "b")]), "");
    assert_eq!(with(&[reply("3", "2", "toolUse", "b")]), "unanswered_call 4 $.message");
    assert_eq!(with(&[result("3", "2", "x")]), "orphan_result 4 $.message.toolCallId");
    // Calls of a reply that was aborted don't run.
    let aborted =
        [result("3", "2", "a"), reply("4", "3", "aborted", "b"), reply("5", "4", "stop", "c")];
    assert_eq!(with(&aborted), "");
    let errors: Vec<String> =
        [result("e0", "2", "a")]
            .into_iter()
            .chain((0..101).map(|n| {
                reply(&format!("e{}", n + 1), &format!("e{n}"), "error", &format!("c{n}"))
            }))
            .collect();
    assert_eq!(with(&errors[..101]), "");
    assert_eq!(with(&errors), "unbounded_retries 105 $.message.stopReason");
}

#[test]
fn sessions_of_goose_are_checked() {
    let message = |role: &str, kind: &str, id: &str| {
        format!(r#"{{"role":"{role}","content":[{{"type":"{kind}","id":"{id}"}}]}}"#)
    };
    let (a, b) =
        (message("assistant", "toolRequest", "a"), message("assistant", "toolRequest", "b"));
    let (to_a, to_b) = (message("user", "toolResponse", "a"), message("user", "toolResponse", "b"));
    let text = r#"{"role":"assistant","content":[{"type":"text","text":"Done."}]}"#;
    let head = r#"{"working_dir":"/","message_count":3}"#;
    let with = |rest: &[&str]| violation(TraceFormat::Goose, &lines(&[&[head], rest].concat()));
    assert_eq!(with(&[&a, &b, &to_a, &to_b, text]), "");
    assert_eq!(with(&[&a, &to_a, &b, &to_b, text]), "");
    assert_eq!(with(&[&a, &b, &to_a, text]), "unanswered_call 5 $");
    let export = format!("{{\n\"conversation\": [\n{a},\n{to_a},\n{to_a}\n]}}");
    let path = "$.conversation[2].content[0].id";
    assert_eq!(violation(TraceFormat::Goose, &export), format!("answered_twice 5 {path}"));
}

#[test]
fn trajectories_are_checked() {
    let trajectory = |second: &str, result: &str| {
        format!(
            r#"{{"schema_version":"ATIF-v1.6","agent":{{"name":"x","version":"1"}},"steps":[
            {{"step_id":1,"source":"user","message":"Do it."}},
            {{"step_id":{second},"source":"agent","message":"","tool_calls":[
                {{"tool_call_id":"a","function_name":"f","arguments":{{}}}}],
              "observation":{{"results":[
                {result}]}}}},
            {{"step_id":3,"source":"agent","message":"Done."}}]}}"#
        )
    };
    let with = |second, result| violation(TraceFormat::Atif, &trajectory(second, result));
    assert_eq!(with("2", r#"{"source_call_id":"a","content":""}"#), "");
    assert_eq!(with("2", r#"{"content":"of all calls"}"#), "");
    assert_eq!(with("2", ""), "unanswered_call 7 $.steps[2]");
    assert_eq!(with("4", ""), "step_order 3 $.steps[1].step_id");
    assert_eq!(
        with("2", r#"{"source_call_id":"x","content":""}"#),
        "orphan_result 6 $.steps[1].observation.results[0].source_call_id"
    );
}

#[test]
fn messages_of_openai_are_checked() {
    let user = r#"{"role":"user","content":"Do it."}"#;
    let call = r#"{"role":"assistant","tool_calls":[{"id":"a"},{"id":"b"}]}"#;
    let tool = |id: &str| format!(r#"{{"role":"tool","tool_call_id":"{id}","content":""}}"#);
    let (to_a, to_b) = (tool("a"), tool("b"));
    let done = r#"{"role":"assistant","content":"Done."}"#;
    let with = |messages: &[&str]| violation(TraceFormat::OpenAi, &lines(messages));
    assert_eq!(with(&[user, call, &to_b, &to_a, done, user]), "");
    assert_eq!(with(&[user, call]), "");
    assert_eq!(with(&[user, call, &to_a, user, done]), "unanswered_call 5 $");
    let array = format!("{{\"messages\": [\n{user},\n{call},\n{to_a},\n{to_a}]}}");
    let path = "$.messages[3].tool_call_id";
    assert_eq!(violation(TraceFormat::OpenAi, &array), format!("answered_twice 5 {path}"));
}

#[test]
fn a_reply_may_be_several_messages() {
    let user = r#"{"role":"user","content":"Do it."}"#;
    let [a, b, c] = [("a", "null"), ("b", r#"[{"type":"tool_call"}]"#), ("c", r#""\n""#)].map(
        |(id, content)| {
            format!(r#"{{"role":"assistant","content":{content},"tool_calls":[{{"id":"{id}"}}]}}"#)
        },
    );
    let [to_a, to_b, to_c] = ["a", "b", "c"]
        .map(|id| format!(r#"{{"role":"tool","tool_call_id":"{id}","content":""}}"#));
    let text = r#"{"role":"assistant","content":"Next."}"#;
    let with = |messages: &[&str]| {
        let messages = [&[user], messages].concat();
        let array = violation(TraceFormat::OpenAi, &format!("[{}]", messages.join(",\n")));
        let [array, lines] =
            [array, violation(TraceFormat::OpenAi, &lines(&messages))].map(|found| {
                found.split('[').next().unwrap_or_default().trim_end_matches('$').to_owned()
            });
        assert_eq!(array, lines);
        lines
    };
    assert_eq!(with(&[text, &a, &b, &to_a, &to_b, text]), "");
    assert_eq!(with(&[&a, &b, text, &to_b, &to_a, text]), "");
    assert_eq!(with(&[&a, &b, &to_a, &c, &to_c, &to_b, text]), "");
    // A text after a result begins another reply, and so does a message of the user.
    assert_eq!(with(&[&a, &b, &to_a, text, &to_b]), "unanswered_call 5 ");
    assert_eq!(with(&[&a, user, &b, &to_a, &to_b]), "unanswered_call 4 ");
    // A call without a result.
    assert_eq!(with(&[&a, &b, &to_b, &c, &to_c]), "unanswered_call 3 ");
    assert_eq!(with(&[&a, text]), "unanswered_call 3 ");
}

#[test]
fn a_request_begins_with_the_one_before() {
    let request = |texts: &[&str]| {
        let messages: Vec<Value> =
            texts.iter().map(|text| serde_json::json!({"role": "user", "content": text})).collect();
        serde_json::json!({ "messages": messages }).to_string()
    };
    let with = |all: &[&[&str]]| {
        let all: String = all.iter().map(|texts| request(texts) + "\n").collect();
        violation(TraceFormat::OpenAi, &all)
    };
    assert_eq!(with(&[&["one", "two"], &["one", "two", "three"]]), "");
    // A shorter history, and another task.
    assert_eq!(with(&[&["one", "two", "three"], &["one", "sum"], &["four", "five", "six"]]), "");
    assert_eq!(with(&[&["one", "two"], &["one", "2", "three"]]), "changed_prefix 2 $.messages[1]");
}

#[test]
fn what_is_no_such_recording_is_not_checked() {
    for format in TraceFormat::ALL {
        for text in ["", "text\n", "{}", "[]", "{\"a\": 1}\n{\"b\": 2}\n", "{\"type\": \"other\"}"]
        {
            assert_eq!(check(format, text), None, "{format}: {text}");
        }
    }
}

/// Quadratic in the number of calls, each of these would take minutes.
#[test]
fn many_calls_are_checked_in_linear_time() {
    const COUNT: usize = 200_000;
    let call = |id: usize| format!(r#"{{"id":"{id}"}}"#);
    let joined = |items: Vec<String>| items.join(",");
    let results = (0..COUNT).rev().map(|id| format!(r#"{{"role":"tool","tool_call_id":"{id}"}}"#));
    let results = joined(results.collect());
    let reply = |calls: String| format!(r#"{{"role":"assistant","tool_calls":[{calls}]}}"#);
    let in_one = reply(joined((0..COUNT).map(call).collect()));
    let in_several = joined((0..COUNT).map(|id| reply(call(id))).collect());
    for replies in [in_one, in_several] {
        assert_eq!(violation(TraceFormat::OpenAi, &format!("[{replies},{results}]")), "");
    }
}

/// Several programs share some types of lines.
#[test]
fn a_recording_is_recognized_by_content_of_its_format() {
    let pi = lines(&[
        r#"{"type":"session","version":3,"id":"s","cwd":"/x"}"#,
        r#"{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":[{"type":"text","text":"Do it."}]}}"#,
        r#"{"type":"compaction","id":"b","parentId":"a","summary":"Nothing."}"#,
        r#"{"type":"message","id":"c","parentId":"b","message":{"role":"assistant","content":[{"type":"text","text":"Done."}]}}"#,
    ]);
    let goose = lines(&[
        r#"{"type":"message","message":{"role":"user","created":1,"content":[{"type":"text","text":"Do it."}]}}"#,
        r#"{"type":"message","message":{"id":"m","role":"assistant","created":2,"content":[{"type":"text","text":"Well, "}]}}"#,
        r#"{"type":"message","message":{"id":"m","role":"assistant","created":2,"content":[{"type":"toolRequest","id":"a","toolCall":{}}]}}"#,
        r#"{"type":"notification","extension_id":"developer","log":{"message":"one"}}"#,
        r#"{"type":"message","message":{"role":"user","created":3,"content":[{"type":"toolResponse","id":"a","toolResult":{}}]}}"#,
        r#"{"type":"message","message":{"role":"assistant","created":4,"content":[{"type":"text","text":"Done."}]}}"#,
        r#"{"type":"complete","total_tokens":10}"#,
    ]);
    for (text, own) in [(&pi, TraceFormat::Pi), (&goose, TraceFormat::Goose)] {
        for format in TraceFormat::ALL {
            assert_eq!(check(format, text).is_some(), format == own, "{format}: {text}");
        }
    }
    let report = check(TraceFormat::Goose, &goose).unwrap();
    assert_eq!((report.violation, report.replies, report.calls, report.results), (None, 2, 1, 1));
    let orphan = goose.replace(r#""toolResponse","id":"a""#, r#""toolResponse","id":"b""#);
    assert_eq!(violation(TraceFormat::Goose, &orphan), "orphan_result 5 $.message.content[0].id");
    for empty in [
        r#"{"type":"message"}"#,
        r#"{"type":"message","message":{}}"#,
        r#"{"type":"compaction"}"#,
        r#"{"type":"compacted"}"#,
        r#"{"type":"turn_context"}"#,
        r#"{"type":"session_meta"}"#,
        r#"{"type":"session"}"#,
        r#"{"type":"user","message":{}}"#,
        r#"{"type":"assistant","message":{}}"#,
        r#"{"type":"response_item","payload":{"type":"message"}}"#,
    ] {
        for format in TraceFormat::ALL {
            assert!(check(format, empty).is_none(), "{format}: {empty}");
        }
    }
}
