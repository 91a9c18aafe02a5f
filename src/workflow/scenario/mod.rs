//! Scenarios: runs with a scripted model, and expectations of them.
//!
//! Everything except the model is real (configuration, tools, confinement, journal), on a temporary workspace. Effects
//! run inline and time is virtual: a reply that is an hour late takes no time, and two runs are identical to the byte.
//! A scenario needs no key and no network, and reads no files of the user.
//!
//! ```toml
//! about = "A command that fails is shown to the model, which fixes the file."
//! prompt = "Make the test pass."
//! mode = "yolo"                     # as --mode; also: agent, dry_run, sets, config, schema, confirm, time
//! sets = ["limits.max_steps=5"]     # as --set
//!
//! [workspace]                       # files
//! "test.sh" = "grep -q right answer.txt\n"
//! "answer.txt" = "wrong\n"
//!
//! [[turn]]                          # the model's replies, turn by turn: see `llm::scripted`
//! calls = [{ name = "run_command", arguments = { command = "sh test.sh" } }]
//!
//! [[turn]]
//! calls = [{ name = "write_file", arguments = { path = "answer.txt", content = "right\n" } }]
//!
//! [[turn]]
//! text = "Done."
//!
//! [[at]]                            # an action at an event: steer, follow_up or signal
//! event = "tool_call_end name=run_command"
//! nth = 1
//! steer = "Be quick."
//!
//! [expect]                          # the last section of the file; `--update` rewrites it
//! exit_code = 0
//! output = "Done."
//! events = ["tool_call_end status=failed", "agent_end"]   # in this order; others may come between
//! files = { "answer.txt" = "right\n" }
//!
//! [[expect.tools]]
//! name = "run_command"
//! text = { contains = ["exit code 1"] }
//! ```
//!
//! Expectations are compared with the record of the run as text, so that a failure is a readable difference:
//! [`ScenarioOutcome`].

mod event_pattern;
mod expectations;
mod original_files;
mod parse;
mod play;
mod recording;
mod report;
mod run;
mod scheduled_action;
mod session_scenario;
mod suite;

pub use event_pattern::EventPattern;
pub use expectations::{
    Expectations, ExpectedFile, ExpectedRequest, ExpectedTool, PartialText, TextPattern,
};
pub use parse::{Scenario, ScenarioClock, ScenarioContent, ScenarioError, scenario_schema};
pub use report::{TestDocument, format_text, to_json, to_junit};
pub use run::{ScenarioOutcome, ScenarioResult, find_scenarios, run_all};
pub use scheduled_action::{ScenarioAction, ScheduledAction};
pub use session_scenario::scenario_from_session;
pub use suite::{
    NoScenarioReason, ScenarioSuite, WrittenScenario, choose_sessions, no_scenario_reason,
};
