//! Commands that calls have started in the background.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::machine::context::instructions;
use crate::machine::event::CallIntent;
use crate::machine::run_context::RunContext;
use crate::types::{CallId, EffectId, first_line};

/// A command that a call has started in the background. It is a separate effect, which is pending until the end of the
/// command or the run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StartedCommand {
    /// The effect.
    pub id: EffectId,
    /// The call.
    pub call: CallId,
    /// The command line.
    pub command: Arc<str>,
    /// Whether an answer has to wait for the end of the command.
    pub is_needed: bool,
}

impl RunContext {
    /// Adds the command that a call with this intent starts in the background, and returns its effect.
    pub(crate) fn add_command(&mut self, call: &CallId, intent: &CallIntent) -> Option<EffectId> {
        let CallIntent::Background { command, needed: Some(is_needed) } = intent else {
            return None;
        };
        let (id, command) = (self.next_effect.allocate(), Arc::clone(command));
        let (call, is_needed) = (call.clone(), *is_needed);
        self.commands.push(StartedCommand { id, call, command, is_needed });
        Some(id)
    }

    /// Removes a command that has ended.
    pub(crate) fn remove_command(&mut self, id: EffectId) {
        self.commands.retain(|command| command.id != id);
    }

    /// Returns whether an answer has to wait for a command.
    pub(crate) fn needs_commands(&self) -> bool {
        self.commands.iter().any(|command| command.is_needed)
    }

    /// Returns the message to the model about the commands that an answer has to wait for.
    pub(crate) fn needed_commands_message(&self) -> Arc<str> {
        let needed = self.commands.iter().filter(|command| command.is_needed);
        let names: Vec<String> = needed.map(StartedCommand::describe).collect();
        format!("[SYSTEM] {} Then answer again.", instructions::needed_commands_run(&names)).into()
    }
}

impl StartedCommand {
    /// Returns the beginning of the command line, and the call.
    fn describe(&self) -> String {
        format!("`{}` (call_id \"{}\")", first_line(&self.command, 80), self.call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{
        Authorization, CheckResult, Conversation, Effect, Event, Machine, MachineOutput,
        RequestSize, ResumePrompt, Resumption, State, StateKind, StopReason,
    };
    use crate::types::{
        ConversationItem, MessageOrigin, Reply, ReplyFinish, ReplyPart, RunRules, RunTime, Signal,
        TimeSpan, Tokens, ToolCall, ToolResult, ToolStatus, Usage,
    };

    fn handle(machine: Machine, event: Event) -> (Machine, MachineOutput) {
        machine.handle(RunTime::START, event)
    }

    fn reply(machine: Machine, part: ReplyPart) -> Machine {
        let size = RequestSize::default();
        let id = machine.state.pending_effects()[0];
        let machine = handle(machine, Event::Prepared { id, size, messages: [].into() }).0;
        let (id, access) = (machine.state.pending_effects()[0], [].into());
        let finish = match part {
            ReplyPart::Call(_) => ReplyFinish::ToolCalls,
            _ => ReplyFinish::Stop,
        };
        let reply = Reply { parts: [part].into(), finish, usage: Usage::default(), model: None };
        handle(machine, Event::Replied { id, reply, access }).0
    }

    /// Returns a machine whose call has started a command, and the effects of that step.
    fn started(needed: Option<bool>) -> (Machine, Vec<Effect>) {
        let task = ConversationItem::user(MessageOrigin::Task, "task");
        let (machine, _) = Machine::start(RunRules::default(), Conversation::new(0), task);
        let call = ToolCall::new("c1".into(), "run_command", "{}");
        let machine = reply(machine, ReplyPart::Call(call));
        let id = machine.state.pending_effects()[0];
        let intent = CallIntent::Background { command: "serve".into(), needed };
        let timeout = TimeSpan::from_secs(1);
        let authorization = Authorization::Approved { timeout, intent, reason: "".into() };
        let (machine, output) = handle(machine, Event::Authorized { id, authorization });
        let id = machine.state.pending_effects()[0];
        let result = ToolResult::new("c1".into(), ToolStatus::Ok, "ready");
        (handle(machine, Event::ToolCompleted { id, result }).0, output.effects)
    }

    fn answer(machine: Machine) -> Machine {
        reply(machine, ReplyPart::Text("done".into()))
    }

    fn messages(machine: &Machine) -> Vec<String> {
        let entries = machine.conversation.entries().iter();
        let message = entries.filter_map(|entry| match &entry.item {
            ConversationItem::User(message) => Some(message.text.to_string()),
            ConversationItem::Assistant(_) | ConversationItem::Exchange(_) => None,
        });
        message.collect()
    }

    /// Answers, and returns the machine after the check of the answer has this result.
    fn check(machine: Machine, result: CheckResult) -> Machine {
        let machine = answer(machine);
        assert_eq!(machine.state.kind(), StateKind::CallingChecking);
        let id = machine.state.pending_effects()[0];
        handle(machine, Event::Checked { id, result }).0
    }

    #[test]
    fn an_answer_is_sent_back_until_the_command_has_ended() {
        let (machine, effects) = started(Some(true));
        let [Effect::RunTool { command: Some(id), .. }] = effects[..] else {
            panic!("{effects:?}")
        };
        let machine = check(machine, CheckResult::Passed);
        assert_eq!(machine.state.kind(), StateKind::Preparing);
        let text = messages(&machine).pop().unwrap();
        assert!(text.contains("still runs: `serve` (call_id \"c1\")"), "{text}");
        let ended = handle(machine, Event::CommandEnded { id }).0;
        assert_eq!(ended.state.run().commands, []);
        let done = answer(ended);
        assert_eq!(done.state.outcome().unwrap().reason, StopReason::LlmDone);
    }

    #[test]
    fn a_command_that_ends_during_the_check_is_waited_for() {
        let (machine, effects) = started(Some(true));
        let [Effect::RunTool { command: Some(id), .. }] = effects[..] else {
            panic!("{effects:?}")
        };
        let machine = handle(answer(machine), Event::CommandEnded { id }).0;
        let id = machine.state.pending_effects()[0];
        let machine = handle(machine, Event::Checked { id, result: CheckResult::Passed }).0;
        assert_eq!(machine.state.outcome().unwrap().reason, StopReason::LlmDone);
    }

    #[test]
    fn an_answer_that_is_never_good_ends_the_run() {
        let (mut machine, _) = started(Some(true));
        for _ in 0..RunRules::default().bounds.sent_back {
            machine = check(machine, CheckResult::Passed);
            assert_eq!(machine.state.kind(), StateKind::Preparing);
        }
        let outcome = check(machine, CheckResult::Passed).state.outcome().cloned().unwrap();
        let expected = (StopReason::ChecksFailed, Some("done"));
        assert_eq!((outcome.reason, outcome.output.as_deref()), expected);
    }

    #[test]
    fn the_end_of_a_run_stops_its_commands() {
        let (machine, effects) = started(Some(false));
        let [Effect::RunTool { command: Some(id), .. }] = effects[..] else {
            panic!("{effects:?}")
        };
        let (machine, output) = handle(machine, Event::Interrupt { signal: Signal::Terminate });
        assert_eq!(output.effects[1..], [Effect::Cancel { id }, Effect::End]);
        assert_eq!(machine.state.run().commands, []);
    }

    /// The answer of an interrupted check is not good without the command.
    #[test]
    fn a_resumed_run_has_no_commands() {
        let (running, _) = started(Some(true));
        for machine in [running.clone(), answer(running)] {
            let (rules, prompt) = (RunRules::default(), ResumePrompt::Continue);
            let resumption =
                Resumption { rules, recovered: vec![], prompt, received: Tokens::ZERO };
            let resumed = machine.resume(RunTime::START, resumption).0;
            assert_eq!(resumed.state.run().commands, []);
            assert_eq!(resumed.state.kind(), StateKind::Preparing);
        }
    }

    /// A journal of an older release has no events of their ends, and the effects of its run have no numbers for them.
    #[test]
    fn commands_of_older_journals_are_not_followed() {
        let stored = r#"{"background": {"command": "serve"}}"#;
        let intent: CallIntent = serde_json::from_str(stored).unwrap();
        let old = CallIntent::Background { command: "serve".into(), needed: None };
        assert_eq!(intent, old);
        assert_eq!(serde_json::to_string(&intent).unwrap().replace(':', ": "), stored);
        let (machine, effects) = started(None);
        assert!(matches!(effects[..], [Effect::RunTool { command: None, .. }]), "{effects:?}");
        assert!(matches!(answer(machine).state, State::Done(_)));
    }

    #[test]
    fn a_message_has_the_first_80_characters_of_the_first_line_of_a_command() {
        let begin = |command: &str| {
            let (id, call, command) = (EffectId(1), "c1".into(), command.into());
            StartedCommand { id, call, command, is_needed: true }.describe()
        };
        assert_eq!(begin(" serve "), "`serve` (call_id \"c1\")");
        assert_eq!(begin("a\nb"), "`a…` (call_id \"c1\")");
        assert!(begin(&"x".repeat(81)).contains(&format!("`{}…`", "x".repeat(80))));
    }
}
