//! The log for people.

use architect::types::{Fault, FaultKind, LoopDetection, ReplyFinish, RunLimits, Tokens};
use architect::view::human::{HumanLog, LogStyle};
use architect::view::{Language, ReportSink};

use crate::kit::model::FakeCall;

use super::fixture::{
    SharedBuffer, ViewFixture, call_turn, fault_turn, text_turn, turn_ending_with,
};

fn edit() -> Vec<FakeCall> {
    let edit = r#"{"path":"src/main.py","old_str":"a\nb\nc","new_str":"a\nb\nc\nd\ne"}"#;
    vec![
        call_turn(
            "I look first.",
            &[("c1", "read_file", r#"{"path":"src/main.py"}"#), ("c2", "edit_file", edit)],
        ),
        text_turn("The greeting is edited."),
    ]
}

fn logged(fixture: ViewFixture, style: LogStyle) -> String {
    let page = SharedBuffer::default();
    let log: Box<dyn ReportSink> = Box::new(HumanLog::plain(page.clone(), style).unwrap());
    fixture.run(vec![log]).1.unwrap();
    page.text()
}

#[test]
fn a_run_is_logged_step_by_step() {
    let style = LogStyle { shows_costs: true, ..LogStyle::default() };
    insta::assert_snapshot!(logged(ViewFixture::new(edit()), style), @r#"
    ▶ Session s-1 · scripted/demo · build

    🔄 Step 1 → LLM call (1 message)
       ✓ LLM answered with 2 tool calls
       💬 I look first.

       🔧 read_file → src/main.py
          ✓ OK
       🔧 edit_file → src/main.py (3→5 lines)
          ✓ OK
          🔍 Hook ruff: ✓

    🔄 Step 2 → LLM call (4 messages)
       ✓ LLM answered
    ✅ Agent completed (1 step) · 2 LLM calls
    💰 $0.000900 · 200 tokens in, 40 out
    "#);
}

/// The rest of a budget limits each reply; the log shows that again when it has halved.
#[test]
fn a_lowered_output_limit_is_logged_once_and_when_it_changes_much() {
    let mut turns: Vec<FakeCall> =
        (0..12).map(|_| call_turn("", &[("c", "read_file", "{}")])).collect();
    turns.push(text_turn("Done."));
    let mut fixture = ViewFixture::new(turns);
    fixture.rules.limits.max_tokens = Some(Tokens(4_000));
    fixture.rules.loop_detection = LoopDetection { warn_at: 90, end_at: 99 };
    let log = logged(fixture, LogStyle::default());
    let limits: Vec<&str> = log.lines().filter(|line| line.contains("limits the reply")).collect();
    let line = |tokens| format!("⚠️  The budget limits the reply to ≈ {tokens} tokens");
    assert_eq!(limits, [line("3,180"), line("1,550")]);
}

#[test]
fn a_run_is_logged_in_spanish() {
    let style = LogStyle { lang: Language::Es, shows_costs: true, ..LogStyle::default() };
    insta::assert_snapshot!(logged(ViewFixture::new(edit()), style), @r#"
    ▶ Sesión s-1 · scripted/demo · build

    🔄 Paso 1 → llamada al LLM (1 mensaje)
       ✓ El LLM respondió con 2 llamadas a herramientas
       💬 I look first.

       🔧 read_file → src/main.py
          ✓ OK
       🔧 edit_file → src/main.py (3→5 líneas)
          ✓ OK
          🔍 Hook ruff: ✓

    🔄 Paso 2 → llamada al LLM (4 mensajes)
       ✓ El LLM respondió
    ✅ Agente completado (1 paso) · 2 llamadas al LLM
    💰 $0.000900 · 200 tokens de entrada, 40 de salida
    "#);
}

#[test]
fn failures_are_logged_with_their_reasons() {
    let turns = vec![
        fault_turn("Half", Fault::new(FaultKind::Truncated, "the stream ended early")),
        call_turn(
            "",
            &[
                ("c1", "rm", r#"{"path":"/"}"#),
                ("c2", "fail", "{}"),
                ("c3", "hostile", "{\"a\u{1b}[2J"),
            ],
        ),
        turn_ending_with("", ReplyFinish::Stop),
        fault_turn("", Fault::new(FaultKind::Auth, "401 from the provider: no such key")),
    ];
    insta::assert_snapshot!(logged(ViewFixture::new(turns), LogStyle::default()), @r#"
    ▶ Session s-1 · scripted/demo · build

    🔄 Step 1 → LLM call (1 message)
       ✗ LLM call failed: reply cut off (the stream ended early)
       ⏳ Attempt 2 in 737 ms
       ✓ LLM answered with 3 tool calls

       🔧 rm → path=/
          ⛔ denied by the rule run_command(rm *)
       🔧 fail
          ✗ old_str not found in a.txt
       🔧 hostile → {"a\u{1b}[2J
          ✓ OK

    🔄 Step 2 → LLM call (5 messages)
       ✓ LLM answered
       ⏳ Empty reply; asking again

    🔄 Step 2 → LLM call (5 messages)
       ✗ LLM call failed: not authorized (401 from the provider: no such key)
    ❌ Agent failed: not authorized (1 step) · 3 LLM calls
    🚫 1 tool call was denied: rm
    "#);
}

#[test]
fn a_limit_is_logged() {
    let mut fixture = ViewFixture::new(vec![
        call_turn("", &[("c1", "ls", "{}")]),
        turn_ending_with("I did half of it.", ReplyFinish::Stop),
    ]);
    fixture.rules.limits = RunLimits { max_steps: 1, ..RunLimits::default() };
    insta::assert_snapshot!(logged(fixture, LogStyle::default()), @r#"
    ▶ Session s-1 · scripted/demo · build

    🔄 Step 1 → LLM call (1 message)
       ✓ LLM answered with 1 tool call

       🔧 ls
          ✓ OK
    ⚠️  Step limit reached (max_steps)

    🔄 Final summary → LLM call without tools (4 messages)
       ✓ LLM answered
    ⚠️  Agent stopped: max_steps (1 step) · 2 LLM calls
    "#);
}

/// Calls that run in parallel are logged one after the other, in call order.
#[test]
fn the_lines_of_a_tool_call_stay_together() {
    let turns = vec![
        call_turn(
            "",
            &[
                ("c1", "slow", r#"{"ms":500}"#),
                ("c2", "fail", r#"{"ms":5}"#),
                ("c3", "ls", r#"{"ms":7}"#),
            ],
        ),
        text_turn("Done."),
    ];
    insta::assert_snapshot!(logged(ViewFixture::new(turns), LogStyle::default()), @r#"
    ▶ Session s-1 · scripted/demo · build

    🔄 Step 1 → LLM call (1 message)
       ✓ LLM answered with 3 tool calls

       🔧 slow → ms=500
          ✓ OK
       🔧 fail → ms=5
          ✗ old_str not found in a.txt
       🔧 ls → ms=7
          ✓ OK

    🔄 Step 2 → LLM call (5 messages)
       ✓ LLM answered
    ✅ Agent completed (1 step) · 2 LLM calls
    "#);
}
