//! Two hundred steps: what was sent before is the beginning of what is sent now, and a connection is kept.

use architect::model::{
    Exchange, Finish, Item, Part, Reply as Answer, ToolCall, ToolResult, ToolStatus, Usage,
};
use architect::port::ToolSpec;
use serde_json::json;

use super::caller::{Caller, patient};
use super::recorded::{Wire, one};
use crate::support::server::Server;

/// What closes a request may differ from one to the next: brackets, limits, the mark for the provider's cache.
const CLOSING: usize = 100;

fn exchange(step: usize) -> Item {
    let id = format!("call_of_step_{step}");
    let call = ToolCall::new(id.as_str().into(), "read_file", r#"{"path":"a"}"#);
    let result = ToolResult::new(call.id.clone(), ToolStatus::Ok, "x\n".repeat(50));
    let reply = Answer {
        parts: [Part::Text("I will look.".into()), Part::Call(call)].into(),
        finish: Finish::ToolCalls,
        usage: Usage::default(),
        model: None,
    };
    Item::Exchange(Exchange::new(reply, vec![result]).unwrap())
}

/// Prompt caches, the provider's and our own, depend on it.
#[test]
fn what_was_sent_stays_the_beginning_of_what_is_sent_on_every_wire() {
    for wire in Wire::ALL {
        let server = Server::repeating([one(wire, "text").in_chunks(usize::MAX)]);
        let mut caller = Caller::new(wire.model(), &patient(&server, ""));
        caller.tools = [ToolSpec {
            name: "read_file".into(),
            description: "reads".into(),
            schema: json!({"type": "object"}),
        }]
        .into();
        for step in 0..200 {
            caller.call().reply();
            caller.push(exchange(step));
        }
        let requests = server.requests();
        let sizes: Vec<usize> = requests.iter().map(|request| request.body.len()).collect();
        for (before, now) in requests.iter().zip(&requests[1..]) {
            let kept = &before.body.as_bytes()[..before.body.len() - CLOSING];
            assert!(now.body.as_bytes().starts_with(kept), "{wire:?}: {}", now.body);
        }
        // Each step adds the same, but for the digits of its number.
        let (first, last) = (sizes[2] - sizes[1], sizes[199] - sizes[198]);
        assert!(last.abs_diff(first) <= 8, "{wire:?}: {first} bytes, then {last}");
    }
}
