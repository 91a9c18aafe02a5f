//! Failing lives: each is minimized, and written as a scenario.
//!
//! The scenario has the replies, faults and signals of the life, and calls of real tools instead of the simulated ones.
//! `architect test FILE` runs it. Crashes, errors of the disk and results of tools can't be expressed in a scenario,
//! and are in its comments. So is the [description](LifeSeed) from which `LIFE=FILE cargo test --test suite
//! simulator::a_life_from` simulates the same life again.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use architect::machine::{Event, Fingerprint};
use architect::port::{Journal as _, JournalRecord};
use architect::types::{Reply, ReplyPart, ToolArguments, ToolCall};
use architect::workflow::scenario::scenario_from_session;

use crate::journal::fixture::SessionFixture;

use super::journal::{SharedDisk, StoredRecord};
use super::rng::{Choices, Rng};
use super::session_life::{InjectedFault, SessionLife};

/// The greatest number of lives that are tried to minimize one.
const MOST_TRIES: u32 = 2_000;

/// The start of the line that describes a life.
const LIFE: &str = "# life: ";

/// The inputs that determine a life, as long as the simulator stays the same.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LifeSeed {
    pub(super) seed: u64,
    pub(super) fault: InjectedFault,
    /// The random numbers of the life; `None` is all of the seed.
    pub(super) choices: Option<Choices>,
}

thread_local! {
    static IS_SILENT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl LifeSeed {
    /// Simulates the life; a failed assertion panics.
    pub(super) fn simulate(&self, disk: &SharedDisk) -> SessionLife {
        SessionLife::simulate(&self.chance(), self.fault, disk)
    }

    fn chance(&self) -> Rng {
        Rng::with_choices(self.seed, self.choices.clone())
    }

    /// Returns the random numbers that the life draws.
    pub(super) fn drawn(&self) -> Choices {
        let chance = self.chance();
        self.fail(&chance, &SharedDisk::default());
        let all = || (0..chance.drawn()).map(Some).collect();
        let mut drawn = self.choices.clone().unwrap_or_else(all);
        drawn.truncate(chance.drawn());
        drawn
    }

    /// Returns the reason why the life fails, without numbers, since these differ between lives.
    pub(super) fn failure(&self, disk: &SharedDisk) -> Option<String> {
        self.fail(&self.chance(), disk)
    }

    fn fail(&self, chance: &Rng, disk: &SharedDisk) -> Option<String> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = take_hook();
            set_hook(Box::new(move |panic| {
                if !IS_SILENT.get() {
                    before(panic);
                }
            }));
        });
        IS_SILENT.set(true);
        let life =
            catch_unwind(AssertUnwindSafe(|| SessionLife::simulate(chance, self.fault, disk)));
        IS_SILENT.set(false);
        let panic = life.err()?;
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        Some(first.chars().filter(|char| !char.is_ascii_digit()).collect())
    }

    /// Returns the life with as few random numbers as possible for which `holds` still returns true (delta debugging).
    /// A part of the numbers is left out, so that the later numbers move up, or becomes quiet, so that the later ones
    /// keep their places. Larger parts are tried before smaller ones, and later parts before earlier ones.
    pub(super) fn minimize(&self, holds: impl Fn(&Self) -> bool) -> Self {
        let with = |choices: Choices| Self { choices: Some(choices), ..self.clone() };
        let (mut smallest, mut tries) = (self.drawn(), 0);
        let mut size = smallest.len();
        while size > 0 {
            let (before, mut end) = (smallest.clone(), smallest.len());
            while end > 0 && tries < MOST_TRIES {
                let part = end.saturating_sub(size)..end;
                end = part.start;
                for quiet in [0, part.len()] {
                    if smallest[part.clone()].iter().all(Option::is_none) {
                        break;
                    }
                    let mut fewer = smallest.clone();
                    fewer.splice(part.clone(), vec![None; quiet]);
                    tries += 1;
                    if holds(&with(fewer.clone())) {
                        smallest = fewer;
                        break;
                    }
                }
            }
            // With fewer numbers around them, larger parts may be unnecessary now.
            let is_smaller = smallest != before && tries < MOST_TRIES;
            smallest = with(smallest).drawn();
            size = if size == 1 && is_smaller { smallest.len() } else { size / 2 };
        }
        while smallest.pop_if(|last| last.is_none()).is_some() {}
        with(smallest)
    }

    /// Returns the line that describes the life.
    fn line(&self) -> String {
        let choice = |choice: &Option<usize>| choice.map_or("-".into(), |nth| nth.to_string());
        let choices: Vec<String> = self.drawn().iter().map(choice).collect();
        let fault = format!("{:?}", self.fault).replace('(', " ").replace(')', "");
        format!("{LIFE}{} of {fault} with {}\n", self.seed, choices.join(" "))
    }

    /// Finds the life in the text of a scenario.
    pub(super) fn find(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix(LIFE))?;
        let (seed, rest) = line.split_once(" of ")?;
        let (fault, choices) = rest.split_once(" with ")?;
        let (name, nth) = fault.split_once(' ').unwrap_or((fault, "0"));
        let choice = |text: &str| match text {
            "-" => Some(None),
            nth => nth.parse().ok().map(Some),
        };
        let choices = choices.split_whitespace().map(choice).collect::<Option<_>>()?;
        let fault = InjectedFault::from_name(name, nth.parse().ok()?)?;
        Some(Self { seed: seed.parse().ok()?, fault, choices: Some(choices) })
    }

    /// Returns the scenario of the life, which has left this disk.
    pub(super) fn scenario(&self, disk: &SharedDisk) -> Result<String, Box<dyn std::error::Error>> {
        let disk = disk.lock();
        let rules = disk.rules.clone().unwrap_or_default();
        let most = format!("sets = [\"limits.max_steps={}\"]", rules.limits.max_steps);
        let fixture = SessionFixture::new();
        let (mut journal, mut machine, output) = fixture.try_begin_by(rules)?;
        let mut fingerprint = Fingerprint::of(&machine, &output.effects);
        let mut comments = self.line();
        for (at, record) in &disk.records {
            let StoredRecord::Event(event, _) = record else {
                writeln!(comments, "# {at:?}: {}", first_line(&format!("{record:?}")))?;
                continue;
            };
            writeln!(comments, "# {at:?}: {}", first_line(&format!("{event:?}")))?;
            let event = real_event(event);
            let record = JournalRecord::Event { event: &event, fingerprint, timing: None };
            journal.append(*at, record)?;
            let (next, output) = machine.handle(*at, event);
            fingerprint = Fingerprint::of(&next, &output.effects);
            machine = next;
        }
        let session = journal.session();
        drop(journal);
        let text = scenario_from_session(&fixture.store, session)?;
        // The expected outcome of the life is unknown.
        let head = text.lines().take_while(|line| {
            !["[expect", "[[expect"].iter().any(|section| line.starts_with(section))
        });
        let head: String = head.map(|line| format!("{line}\n")).collect();
        Ok(format!("{comments}mode = \"yolo\"\n{}", head.replace("sets = []", &most)))
    }

    /// Returns the smallest life that fails for the same reason, as a scenario.
    pub(super) fn report(&self) -> String {
        let failure = self.failure(&SharedDisk::default());
        let small = self.minimize(|life| life.failure(&SharedDisk::default()) == failure);
        let disk = SharedDisk::default();
        let reason = small.failure(&disk).unwrap_or_default();
        let text = small.scenario(&disk);
        let text = text.unwrap_or_else(|error| format!("{}# no scenario: {error}", small.line()));
        format!("# {reason}\n{text}")
    }
}

/// Returns the first line of a text, shortened.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

/// Returns an event with calls of real tools.
fn real_event(event: &Event) -> Event {
    let mut event = event.clone();
    if let Event::Replied { reply, .. } = &mut event {
        let parts = reply.parts.iter().map(|part| match part {
            ReplyPart::Call(call) => ReplyPart::Call(real_call(call)),
            part => part.clone(),
        });
        *reply = Reply { parts: parts.collect(), ..reply.clone() };
    }
    event
}

fn real_call(call: &ToolCall) -> ToolCall {
    let (name, arguments) = match &*call.name {
        "unknown" => return call.clone(),
        "read" => ("read_file", r#"{"path": "a"}"#),
        "write" => ("write_file", r#"{"path": "a", "content": "b"}"#),
        "background" => ("run_command", r#"{"command": "sleep 1", "background": true}"#),
        "hang" | "break" => ("run_command", r#"{"command": "false"}"#),
        _ => ("run_command", r#"{"command": "true"}"#),
    };
    let is_valid = call.arguments.text().starts_with('{') && call.arguments.text().len() > 1;
    let arguments = if is_valid { arguments } else { call.arguments.text() };
    let real = ToolCall::new(call.id.clone(), name, arguments);
    match &call.arguments {
        ToolArguments::Truncated { .. } => real.mark_truncated(),
        ToolArguments::Complete { .. } | ToolArguments::Malformed { .. } => real,
    }
}
