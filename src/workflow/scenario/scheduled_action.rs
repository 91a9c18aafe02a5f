//! Scheduled actions of the user or the system during the run of a scenario.

use schemars::JsonSchema;
use serde::Deserialize;

use super::event_pattern::EventPattern;
use crate::types::Signal;

/// An action at an event of the run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "ScheduledActionToml")]
pub struct ScheduledAction {
    /// The pattern of the event.
    pub event: EventPattern,
    /// The number of the matching event, counted from one.
    pub nth: u32,
    /// The action.
    pub action: ScenarioAction,
}

/// An action of the user or the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScenarioAction {
    /// The user sends a message for the next model call.
    Steer(String),
    /// The user sends a message for the end of the run.
    FollowUp(String),
    /// A signal arrives.
    Signal(Signal),
}

/// An action at an event of the run: one of `steer`, `follow_up` and `signal`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ScheduledActionToml {
    /// The event: its name and, where needed, fields, such as `tool_call_end name=grep`.
    event: EventPattern,
    /// The number of the matching event, counted from one.
    #[schemars(range(min = 1))]
    nth: Option<u32>,
    /// A message for the next model call.
    steer: Option<String>,
    /// A message for the end of the run.
    follow_up: Option<String>,
    /// A signal: `SIGINT`, `SIGTERM` or `SIGHUP`.
    signal: Option<String>,
}

impl TryFrom<ScheduledActionToml> for ScheduledAction {
    type Error = &'static str;

    fn try_from(read: ScheduledActionToml) -> Result<Self, &'static str> {
        let ScheduledActionToml { event, nth, steer, follow_up, signal } = read;
        let action = match (steer, follow_up, signal) {
            (Some(text), None, None) => ScenarioAction::Steer(text),
            (None, Some(text), None) => ScenarioAction::FollowUp(text),
            (None, None, Some(name)) => {
                let sent = [Signal::Interrupt, Signal::Terminate, Signal::Hangup];
                let signal = sent.into_iter().find(|signal| signal.name() == name);
                ScenarioAction::Signal(signal.ok_or("signal is one of SIGINT, SIGTERM and SIGHUP")?)
            }
            _ => return Err("one of steer, follow_up and signal has to be there"),
        };
        match nth {
            Some(0) => Err("nth counts from one"),
            nth => Ok(Self { event, nth: nth.unwrap_or(1), action }),
        }
    }
}
