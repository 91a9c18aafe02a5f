//! The documents for programs.

use architect::types::{Fault, FaultKind};
use architect::view::{JsonFormat, JsonSink, ReportSink};
use serde_json::Value;

use super::fixture::{SharedBuffer, ViewFixture, call_turn, fault_turn, text_turn};

fn run() -> ViewFixture {
    let edit = r#"{"path":"src/main.py","old_str":"a","new_str":"b"}"#;
    let mut fixture = ViewFixture::new(vec![
        fault_turn("Half", Fault::new(FaultKind::Truncated, "the stream ended early")),
        call_turn("I look.", &[("c1", "edit_file", edit), ("c2", "rm", r#"{"path":"/"}"#)]),
        text_turn("The greeting is edited."),
    ]);
    fixture.messages = vec!["mind the comma"];
    fixture
}

fn shown<O: ReportSink + 'static>(
    fixture: ViewFixture,
    output: impl FnOnce(SharedBuffer) -> O,
) -> String {
    let page = SharedBuffer::default();
    fixture.run(vec![Box::new(output(page.clone()))]).1.unwrap();
    page.text()
}

fn streamed(fixture: ViewFixture) -> String {
    shown(fixture, |page| JsonSink::new(page, JsonFormat::Stream).unwrap())
}

#[test]
fn a_run_is_streamed_event_by_event_and_ends_with_its_result() {
    insta::assert_snapshot!(streamed(run()), @r#"
    {"type":"agent_start","seq":1,"ts":"2026-01-02T03:04:05.000000Z","session_id":"s-1","schema":1,"version":"0.1.0","agent":"build","model":"scripted/demo","workspace":"/w","resumed":false,"limits":{"max_steps":50,"budget_usd":null,"max_tokens":null,"timeout_seconds":null,"step_timeout_seconds":null}}
    {"type":"steering_received","seq":2,"ts":"2026-01-02T03:04:05.000000Z","session_id":"s-1","kind":"steering","text":"mind the comma"}
    {"type":"state_change","seq":3,"ts":"2026-01-02T03:04:05.000000Z","session_id":"s-1","from":"Preparing","to":"Calling.Sending","event":"PREPARED","duration_ms":0.0}
    {"type":"api_call_start","seq":4,"ts":"2026-01-02T03:04:05.000000Z","session_id":"s-1","call":2,"purpose":"agent","attempt":1,"step":1,"messages":2,"context_tokens":22,"max_output_tokens":null}
    {"type":"text_delta","seq":5,"ts":"2026-01-02T03:04:05.100000Z","session_id":"s-1","call":2,"purpose":"agent","text":"Half"}
    {"type":"api_call_end","seq":6,"ts":"2026-01-02T03:04:05.100000Z","session_id":"s-1","call":2,"purpose":"agent","attempt":1,"outcome":"failed","fault":"truncated","message":"the stream ended early","duration_ms":100.0,"first_byte_ms":100.0,"usage":{"input_tokens":0,"output_tokens":0,"cached_input_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"cost_usd":0.0}
    {"type":"retry","seq":7,"ts":"2026-01-02T03:04:05.100000Z","session_id":"s-1","cause":"fault","fault":"truncated","attempt":2,"wait_ms":737.518}
    {"type":"state_change","seq":8,"ts":"2026-01-02T03:04:05.100000Z","session_id":"s-1","from":"Calling.Sending","to":"Calling.Waiting","event":"FAILED","guard":"mayRetry","duration_ms":100.0}
    {"type":"state_change","seq":9,"ts":"2026-01-02T03:04:05.837518Z","session_id":"s-1","from":"Calling.Waiting","to":"Calling.Sending","event":"TICK","guard":"retryAffordable","duration_ms":737.518}
    {"type":"api_call_start","seq":10,"ts":"2026-01-02T03:04:05.837518Z","session_id":"s-1","call":3,"purpose":"agent","attempt":2,"step":1,"messages":2,"context_tokens":22,"max_output_tokens":null}
    {"type":"text_delta","seq":11,"ts":"2026-01-02T03:04:06.637518Z","session_id":"s-1","call":3,"purpose":"agent","text":"I look."}
    {"type":"api_call_end","seq":12,"ts":"2026-01-02T03:04:06.637518Z","session_id":"s-1","call":3,"purpose":"agent","attempt":2,"outcome":"replied","finish":"tool_calls","text":"I look.","tool_calls":2,"duration_ms":800.0,"first_byte_ms":800.0,"usage":{"input_tokens":100,"output_tokens":20,"cached_input_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"cost_usd":0.00045}
    {"type":"state_change","seq":13,"ts":"2026-01-02T03:04:06.637518Z","session_id":"s-1","from":"Calling.Sending","to":"Executing","event":"REPLIED","guard":"hasCalls","duration_ms":800.0}
    {"type":"tool_call_start","seq":14,"ts":"2026-01-02T03:04:06.637518Z","session_id":"s-1","id":"c1","name":"edit_file","arguments":{"path":"src/main.py","old_str":"a","new_str":"b"},"step":1}
    {"type":"tool_call_start","seq":15,"ts":"2026-01-02T03:04:06.637518Z","session_id":"s-1","id":"c2","name":"rm","arguments":{"path":"/"},"step":1}
    {"type":"tool_call_end","seq":16,"ts":"2026-01-02T03:04:06.637518Z","session_id":"s-1","id":"c2","name":"rm","status":"denied","success":false,"path":"/","decision":{"verdict":"deny","rule":"denied by the rule run_command(rm *)"},"duration_ms":0.0,"output":"denied by the rule run_command(rm *)","step":1}
    {"type":"hook_complete","seq":17,"ts":"2026-01-02T03:04:06.647518Z","session_id":"s-1","name":"ruff","point":"post_edit","outcome":"passed","duration_ms":7.0,"tool_call_id":"c1"}
    {"type":"tool_call_end","seq":18,"ts":"2026-01-02T03:04:06.647518Z","session_id":"s-1","id":"c1","name":"edit_file","status":"ok","success":true,"path":"src/main.py","decision":{"verdict":"allow","rule":"test"},"duration_ms":0.0,"output":"done","changes":[{"path":"src/main.py","action":"modified","added":5,"removed":3}],"step":1}
    {"type":"state_change","seq":19,"ts":"2026-01-02T03:04:06.647518Z","session_id":"s-1","from":"Executing","to":"Preparing","event":"SETTLED","guard":"lastCall","duration_ms":10.0}
    {"type":"state_change","seq":20,"ts":"2026-01-02T03:04:06.647518Z","session_id":"s-1","from":"Preparing","to":"Calling.Sending","event":"PREPARED","duration_ms":0.0}
    {"type":"api_call_start","seq":21,"ts":"2026-01-02T03:04:06.647518Z","session_id":"s-1","call":8,"purpose":"agent","attempt":1,"step":2,"messages":5,"context_tokens":248,"max_output_tokens":null}
    {"type":"text_delta","seq":22,"ts":"2026-01-02T03:04:07.047518Z","session_id":"s-1","call":8,"purpose":"agent","text":"The greetin"}
    {"type":"text_delta","seq":23,"ts":"2026-01-02T03:04:07.047518Z","session_id":"s-1","call":8,"purpose":"agent","text":"g is edited."}
    {"type":"api_call_end","seq":24,"ts":"2026-01-02T03:04:07.047518Z","session_id":"s-1","call":8,"purpose":"agent","attempt":1,"outcome":"replied","finish":"stop","text":"The greeting is edited.","tool_calls":0,"duration_ms":400.0,"first_byte_ms":400.0,"usage":{"input_tokens":100,"output_tokens":20,"cached_input_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"cost_usd":0.00045}
    {"type":"state_change","seq":25,"ts":"2026-01-02T03:04:07.047518Z","session_id":"s-1","from":"Calling.Sending","to":"Done","event":"REPLIED","duration_ms":400.0}
    {"type":"agent_end","seq":26,"ts":"2026-01-02T03:04:07.047518Z","session_id":"s-1","status":"success","stop_reason":"llm_done","exit_code":0,"steps":1,"llm_calls":2,"duration_seconds":2.048,"cost":0.0009}
    {"type":"result","schema":1,"session_id":"s-1","status":"success","stop_reason":"llm_done","exit_code":0,"output":"The greeting is edited.","structured_output":null,"steps":1,"llm_calls":2,"duration_seconds":2.048,"model":"scripted/demo","tools_used":[{"name":"edit_file","success":true,"path":"src/main.py","duration_ms":0.0},{"name":"rm","success":false,"path":"/","duration_ms":0.0,"error":"denied by the rule run_command(rm *)"}],"files_modified":[{"path":"src/main.py","action":"modified"}],"usage":{"input_tokens":200,"output_tokens":40,"cached_input_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"cost":0.0009,"costs":{"total_cost_usd":0.0009,"by_source":{"agent":0.0009}},"denied":[{"tool":"rm","arguments":{"path":"/"},"reason":"denied by the rule run_command(rm *)"}],"error":null}
    "#);
}

#[test]
fn the_result_is_one_document() {
    let json = shown(run(), |page| JsonSink::new(page, JsonFormat::Document).unwrap());
    let document: Value = serde_json::from_str(&json).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&document).unwrap(), @r#"
    {
      "schema": 1,
      "session_id": "s-1",
      "status": "success",
      "stop_reason": "llm_done",
      "exit_code": 0,
      "output": "The greeting is edited.",
      "structured_output": null,
      "steps": 1,
      "llm_calls": 2,
      "duration_seconds": 2.048,
      "model": "scripted/demo",
      "tools_used": [
        {
          "name": "edit_file",
          "success": true,
          "path": "src/main.py",
          "duration_ms": 0.0
        },
        {
          "name": "rm",
          "success": false,
          "path": "/",
          "duration_ms": 0.0,
          "error": "denied by the rule run_command(rm *)"
        }
      ],
      "files_modified": [
        {
          "path": "src/main.py",
          "action": "modified"
        }
      ],
      "usage": {
        "input_tokens": 200,
        "output_tokens": 40,
        "cached_input_tokens": 0,
        "cache_write_tokens": 0,
        "reasoning_tokens": 0
      },
      "cost": 0.0009,
      "costs": {
        "total_cost_usd": 0.0009,
        "by_source": {
          "agent": 0.0009
        }
      },
      "denied": [
        {
          "tool": "rm",
          "arguments": {
            "path": "/"
          },
          "reason": "denied by the rule run_command(rm *)"
        }
      ],
      "error": null
    }
    "#);
}
