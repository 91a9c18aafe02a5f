//! A run of the machine by the driver, and its outcome.

use architect::machine::{Conversation, Done, Machine, State, StopReason};
use architect::runner::{Driver, Executor, Ports, RequestContext};
use architect::types::{ConversationItem, MessageOrigin, RunRules, ToolResult};

/// Runs a task to its end.
pub(crate) fn run(executor: impl Executor + 'static, rules: RunRules, ports: Ports) -> Machine {
    let context =
        RequestContext { system: "system".into(), tools: ports.tools.specs(), schema: None };
    let conversation = Conversation::new(context.request_bytes());
    let task = ConversationItem::user(MessageOrigin::Task, "the task");
    let (machine, first) = Machine::start(rules, conversation, task);
    Driver::new(Box::new(executor), ports, context, machine).run(first)
}

pub(crate) fn done(machine: &Machine) -> &Done {
    let State::Done(done) = &machine.state else { panic!("in {}", machine.state.kind().as_str()) };
    done
}

pub(crate) fn reason(machine: &Machine) -> StopReason {
    done(machine).outcome.reason
}

/// Returns the final answer; empty if there is none.
pub(crate) fn output(machine: &Machine) -> &str {
    done(machine).outcome.output.as_deref().unwrap_or_default()
}

/// Returns the results of all exchanges, in the order of the conversation.
pub(crate) fn results(machine: &Machine) -> Vec<&ToolResult> {
    let results = machine.conversation.entries().iter().filter_map(|entry| match &entry.item {
        ConversationItem::Exchange(exchange) => Some(exchange.results()),
        ConversationItem::User(_) | ConversationItem::Assistant(_) => None,
    });
    results.flatten().collect()
}
