//! The machine without a driver: each effect is answered with an event. There is no thread, no clock and no network, and
//! the crate needs no features: `cargo run --no-default-features --example manual_machine`.

#![allow(clippy::print_stdout)] // an example shows what it does

use std::collections::VecDeque;

use architect::machine::{
    Authorization, CallIntent, CheckResult, Conversation, Effect, Event, Machine, State,
};
use architect::types::{
    CallAccess, ConversationItem, MessageOrigin, Reply, ReplyFinish, ReplyPart, RunRules, RunTime,
    TimeSpan, ToolCall, ToolResult, ToolStatus, Usage,
};

/// Replies with a tool call first, and with the answer when there is a result.
fn reply(machine: &Machine) -> Reply {
    let result = machine.conversation.entries().iter().find_map(|entry| match &entry.item {
        ConversationItem::Exchange(exchange) => exchange.results().first(),
        ConversationItem::User(_) | ConversationItem::Assistant(_) => None,
    });
    if let Some(result) = result {
        let answer = format!("2 and 3 are {}.", result.text);
        Reply::text_only(&answer, ReplyFinish::Stop, Usage::default())
    } else {
        let call = ToolCall::new("call-1".into(), "add", r#"{"numbers": [2, 3]}"#);
        let (parts, finish) = ([ReplyPart::Call(call)].into(), ReplyFinish::ToolCalls);
        Reply { parts, finish, usage: Usage::default(), model: None }
    }
}

fn main() {
    let task = ConversationItem::user(MessageOrigin::Task, "Add 2 and 3.");
    let (mut machine, output) = Machine::start(RunRules::default(), Conversation::new(0), task);
    let mut effects = VecDeque::from(output.effects);
    let mut now = RunTime::START;
    while let Some(effect) = effects.pop_front() {
        let event = match effect {
            Effect::Prepare { id, .. } => {
                let size = machine.request_size(&[], 0);
                Event::Prepared { id, size, messages: [].into() }
            }
            Effect::CallModel { id, .. } => {
                let reply = reply(&machine);
                let access = reply.calls().map(|_| CallAccess::Exclusive).collect();
                Event::Replied { id, reply, access }
            }
            Effect::Authorize { id, .. } => {
                let (timeout, reason) = (TimeSpan::from_secs(10), "it only adds".into());
                let intent = CallIntent::ReadOnly;
                let authorization = Authorization::Approved { timeout, intent, reason };
                Event::Authorized { id, authorization }
            }
            Effect::RunTool { id, call, .. } => {
                Event::ToolCompleted { id, result: ToolResult::new(call.id, ToolStatus::Ok, "5") }
            }
            Effect::CheckAnswer { id, .. } => Event::Checked { id, result: CheckResult::Passed },
            Effect::Cancel { .. } | Effect::End => continue,
        };
        now = now.after(TimeSpan::from_secs(1));
        let (next, output) = machine.handle(now, event);
        for change in &output.transitions {
            println!("{:?} -> {:?}", change.from, change.to);
        }
        machine = next;
        effects.extend(output.effects);
    }
    if let State::Done(done) = &machine.state {
        println!(
            "{}: {}",
            done.outcome.reason.name(),
            done.outcome.output.as_deref().unwrap_or("")
        );
    }
}
