//! Stored sessions that are run again from a record, with a model: what each lane did, beside what is recorded.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::app::{AppError, RunSetup, SessionUsage};
use crate::journal::{SessionId, SessionStore, StoredContent};
use crate::machine::{Event, RunStatus, StateKind};
use crate::types::{Digest, Reply, RunTime, TimeSpan, ToolCall};
use crate::view::WorktreeResult;
use crate::workflow::batch::Estimate;
use crate::workflow::command_check::run_check;

/// A session that was run again. The serialized form is what `architect what-if --json` prints for each.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LaneComparison {
    /// The session.
    pub session_id: SessionId,
    /// The last record that the lanes share with it.
    pub after: u64,
    /// Whether the lanes began with the files as they were then, and not with those of now.
    pub has_recorded_files: bool,
    /// What is recorded after that record.
    pub recorded: SessionPart,
    /// What was run.
    pub lanes: Vec<LaneRun>,
}

/// One of several runs from the same record.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LaneRun {
    /// Its session, a fork.
    pub session_id: SessionId,
    /// What it did.
    #[serde(flatten)]
    pub part: SessionPart,
    /// The first reply that differs from the recorded ones; `None` if all are the same.
    pub first_divergence: Option<ReplyDivergence>,
    /// The checks of its files.
    pub checks: Vec<LaneCheck>,
    /// Its worktree.
    pub worktree: Option<WorktreeResult>,
}

/// What a session did after a record.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionPart {
    /// How its newest run ended; `None` if it has not ended.
    pub status: Option<String>,
    /// Why.
    pub stop_reason: Option<String>,
    /// The error with which it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The exit code of that failure.
    #[serde(skip)]
    failure: Option<u8>,
    /// The model of that run, as the user names it.
    pub model: String,
    /// What was used after the record.
    #[serde(flatten)]
    pub used: SessionUsage,
    /// The time after the record, without pauses between runs.
    pub duration_seconds: f64,
    #[serde(skip)]
    replies: Vec<RecordedReply>,
}

/// A reply, as far as lanes are compared by it: its calls, or else its text.
#[derive(Clone, Debug)]
struct RecordedReply {
    calls: Vec<Digest>,
    text: Arc<str>,
}

/// The first reply of a lane that differs from the recorded one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReplyDivergence {
    /// The number of the reply after the shared record, counted from one.
    pub reply: usize,
    /// The recorded one: its calls, or else its text. `None` if the session had ended.
    pub recorded: Option<Arc<str>>,
    /// That of the lane; `None` if the lane had ended.
    pub lane: Option<Arc<str>>,
}

/// A check of the files of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LaneCheck {
    /// The command.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
}

/// By how much the lanes differ from what is recorded: means of the paired differences. With several sessions, the mean of a
/// session's lanes is one value; with one session, each lane is.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LaneSummary {
    /// The compared sessions.
    pub sessions: usize,
    /// The lanes.
    pub lanes: usize,
    /// The share of lanes that succeeded, less the share of sessions that did.
    pub success: Option<Estimate>,
    /// Steps.
    pub steps: Option<Estimate>,
    /// Model calls.
    pub llm_calls: Option<Estimate>,
    /// Input and output tokens.
    pub tokens: Option<Estimate>,
    /// Dollars; `None` if a model has no price.
    pub cost: Option<Estimate>,
    /// Seconds.
    pub duration_seconds: Option<Estimate>,
    /// The share of lanes whose checks all passed; `None` without checks.
    pub checks_passed: Option<Estimate>,
}

impl SessionPart {
    /// Reads what a session did after a record.
    ///
    /// # Errors
    ///
    /// Fails if the session can't be read.
    pub fn read(store: &SessionStore, session: SessionId, after: u64) -> Result<Self, AppError> {
        let (mut shared, mut at, mut micros) = (None, RunTime::START, 0);
        let mut replies = Vec::new();
        let (history, _) = store.replay(session, |history, stored, replayed| {
            let before = mem::replace(&mut at, stored.at);
            if stored.seq <= after {
                shared = Some(SessionUsage::of(history));
                return;
            }
            match &stored.content {
                // No process has worked since the record before.
                StoredContent::Resumed(_) => return,
                StoredContent::Event(event) => {
                    if let Event::Replied { reply, .. } = event
                        && replayed.fingerprint.state == StateKind::CallingSending
                    {
                        replies.push(RecordedReply::new(reply));
                    }
                }
                StoredContent::Header(_)
                | StoredContent::Checkpoint(_)
                | StoredContent::Ended(_)
                | StoredContent::Partial(_)
                | StoredContent::Other => {}
            }
            micros += stored.at.since(before).0;
        })?;
        let all = SessionUsage::of(&history);
        let ended = history.ended.as_ref();
        let failed = ended.and(history.machine.state.outcome());
        let failed = failed.filter(|outcome| outcome.reason.status() == RunStatus::Failed);
        Ok(Self {
            status: ended.map(|ended| ended.status.clone()),
            stop_reason: ended.map(|ended| ended.reason.clone()),
            error: failed.and_then(|outcome| outcome.error.as_deref()).map(str::to_owned),
            failure: failed.map(|outcome| outcome.reason.exit_code()),
            model: history.setup.model.to_string(),
            used: shared.map_or(all, |shared| all.since(&shared)),
            duration_seconds: TimeSpan(micros).as_secs_f64(),
            replies,
        })
    }

    /// Returns the first reply in which a lane differs from this part.
    pub fn first_divergence(&self, lane: &Self) -> Option<ReplyDivergence> {
        let count = self.replies.len().max(lane.replies.len());
        let both = |index| (self.replies.get(index), lane.replies.get(index));
        let index = (0..count).find(|index| both(*index).0 != both(*index).1)?;
        let text = |reply: Option<&RecordedReply>| reply.map(|reply| Arc::clone(&reply.text));
        let (recorded, lane) = both(index);
        Some(ReplyDivergence { reply: index + 1, recorded: text(recorded), lane: text(lane) })
    }

    fn is_success(&self) -> bool {
        self.status.as_deref() == Some(RunStatus::Success.as_str())
    }
}

/// The exit code if some lanes failed, and others did not.
const SOME_LANES_FAILED: u8 = 2;

impl LaneComparison {
    /// Returns the number of lanes of several sessions that failed, and the exit code that reports it: zero if none did, and
    /// that of the failure if all lanes failed in the same way.
    pub fn failures(comparisons: &[Self]) -> (usize, u8) {
        let lanes = || comparisons.iter().flat_map(|one| &one.lanes);
        let codes: Vec<u8> = lanes().filter_map(|lane| lane.part.failure).collect();
        let exit_code = match codes.first() {
            None => 0,
            Some(_) if codes.len() < lanes().count() => SOME_LANES_FAILED,
            Some(first) if codes.iter().all(|code| code == first) => *first,
            Some(_) => 1,
        };
        (codes.len(), exit_code)
    }
}

impl RecordedReply {
    fn new(reply: &Reply) -> Self {
        let calls: Vec<&ToolCall> = reply.calls().collect();
        let text = calls.iter().map(|call| format!("{} {}", call.name, call.arguments.text()));
        let text = match calls.is_empty() {
            true => reply.text(),
            false => text.collect::<Vec<_>>().join("; ").into(),
        };
        Self { calls: calls.iter().map(|call| call.digest).collect(), text }
    }
}

/// The same calls with arguments written in another way are the same reply, whatever text is beside them.
impl PartialEq for RecordedReply {
    fn eq(&self, other: &Self) -> bool {
        self.calls == other.calls && (!self.calls.is_empty() || self.text == other.text)
    }
}

/// Runs a check in the workspace of a lane.
pub fn check_lane(setup: &RunSetup, line: &str) -> LaneCheck {
    let timeout = setup.config.settings.limits.timeout.map(Duration::from);
    let report = run_check(setup, line, timeout, 0);
    LaneCheck { name: report.line, passed: matches!(report.output, Some(Ok(_))) }
}

impl LaneSummary {
    /// Returns the summary of several sessions.
    pub fn new(comparisons: &[LaneComparison]) -> Self {
        let lanes: Vec<&LaneRun> = comparisons.iter().flat_map(|one| &one.lanes).collect();
        let mean = |values: &[f64]| Estimate::mean(values).map(|mean| mean.value);
        let differences = |measure: &dyn Fn(&SessionPart) -> Option<f64>| {
            let of_session = |one: &LaneComparison| -> Option<Vec<f64>> {
                let recorded = measure(&one.recorded)?;
                one.lanes.iter().map(|lane| Some(measure(&lane.part)? - recorded)).collect()
            };
            let all = comparisons.iter().map(of_session).collect::<Option<Vec<Vec<f64>>>>()?;
            match &all[..] {
                [only] => Estimate::mean(only),
                several => {
                    Estimate::mean(&several.iter().filter_map(|one| mean(one)).collect::<Vec<_>>())
                }
            }
            .map(rounded)
        };
        let checked = lanes.iter().filter(|lane| !lane.checks.is_empty()).count();
        let passed = |lane: &&&LaneRun| {
            !lane.checks.is_empty() && lane.checks.iter().all(|check| check.passed)
        };
        Self {
            sessions: comparisons.len(),
            lanes: lanes.len(),
            success: differences(&|part| Some(f64::from(u8::from(part.is_success())))),
            steps: differences(&|part| Some(f64::from(part.used.steps))),
            llm_calls: differences(&|part| Some(f64::from(part.used.llm_calls))),
            tokens: differences(&|part| Some(as_float(part.used.tokens))),
            cost: differences(&|part| part.used.cost),
            duration_seconds: differences(&|part| Some(part.duration_seconds)),
            checks_passed: Estimate::proportion(lanes.iter().filter(passed).count(), checked),
        }
    }
}

/// Rounds to millionths, the unit of money.
fn rounded(Estimate { value, low, high }: Estimate) -> Estimate {
    let round = |value: f64| (value * 1e6).round() / 1e6;
    Estimate { value: round(value), low: low.map(round), high: high.map(round) }
}

#[allow(clippy::cast_precision_loss)] // exact up to 2^53
fn as_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ReplyFinish, ReplyPart, Usage};

    fn part(steps: u32, replies: &[ReplyPart]) -> SessionPart {
        let reply = |part: &ReplyPart| {
            let (parts, finish) = ([part.clone()].into(), ReplyFinish::Stop);
            RecordedReply::new(&Reply { parts, finish, usage: Usage::default(), model: None })
        };
        SessionPart {
            status: Some("success".to_owned()),
            stop_reason: None,
            error: None,
            failure: None,
            model: String::new(),
            used: SessionUsage { steps, llm_calls: 1, tokens: 10, cost: None },
            duration_seconds: 1.0,
            replies: replies.iter().map(reply).collect(),
        }
    }

    fn call(arguments: &str) -> ReplyPart {
        ReplyPart::Call(ToolCall::new("1".into(), "read", arguments))
    }

    #[test]
    fn replies_are_compared_by_their_calls_or_else_by_their_text() {
        let text = |text: &str| ReplyPart::Text(text.into());
        let recorded = part(1, &[call(r#"{"a": 1}"#), text("Done.")]);
        let divergence = |replies: &[ReplyPart]| recorded.first_divergence(&part(1, replies));
        assert_eq!(divergence(&[call(r#"{"a":1}"#), text("Done.")]), None);
        let other = divergence(&[call(r#"{"a":2}"#), text("Done.")]).unwrap();
        assert_eq!((other.reply, other.lane.as_deref()), (1, Some(r#"read {"a":2}"#)));
        let longer = divergence(&[call(r#"{"a":1}"#), text("Done."), text("More.")]).unwrap();
        assert_eq!((longer.reply, longer.recorded), (3, None));
        assert_eq!(divergence(&[call(r#"{"a":1}"#)]).unwrap().lane, None);
    }

    #[test]
    fn failed_lanes_have_an_exit_code() {
        let lane = |failure| LaneRun {
            session_id: SessionId::generate(),
            part: SessionPart { failure, ..part(1, &[]) },
            first_divergence: None,
            checks: Vec::new(),
            worktree: None,
        };
        for (lanes, expected) in [
            (&[None, None][..], (0, 0)),
            (&[None, Some(4)], (1, 2)),
            (&[Some(4), Some(4)], (2, 4)),
            (&[Some(4), Some(1)], (2, 1)),
            (&[], (0, 0)),
        ] {
            let compared = LaneComparison {
                session_id: SessionId::generate(),
                after: 0,
                has_recorded_files: true,
                recorded: part(1, &[]),
                lanes: lanes.iter().map(|failure| lane(*failure)).collect(),
            };
            assert_eq!(LaneComparison::failures(&[compared]), expected);
        }
    }

    /// With one session each lane is a value, with several the mean of each session's lanes.
    #[test]
    fn differences_are_paired() {
        let lane = |steps| LaneRun {
            session_id: SessionId::generate(),
            part: part(steps, &[]),
            first_divergence: None,
            checks: Vec::new(),
            worktree: None,
        };
        let compared = |recorded, lanes: &[u32]| LaneComparison {
            session_id: SessionId::generate(),
            after: 0,
            has_recorded_files: true,
            recorded: part(recorded, &[]),
            lanes: lanes.iter().map(|steps| lane(*steps)).collect(),
        };
        let one = LaneSummary::new(&[compared(4, &[5, 7])]);
        assert_eq!(one.steps.map(|steps| steps.value), Some(2.0));
        assert!(one.steps.is_some_and(|steps| steps.low.is_some()));
        let two = LaneSummary::new(&[compared(4, &[5, 7]), compared(10, &[4, 4, 4])]);
        assert_eq!(two.steps.map(|steps| steps.value), Some(-2.0));
        assert_eq!((two.cost, two.checks_passed, two.lanes), (None, None, 5));
    }
}
