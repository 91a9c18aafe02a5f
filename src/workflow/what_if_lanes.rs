//! What-if lanes: stored sessions run again from one of their records with a model, and compared with the recorded
//! rest.

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

/// A session that was run again. The serialized form is the output of `architect what-if --json` for each session.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LaneComparison {
    /// The id of the session.
    pub session_id: SessionId,
    /// The last record that the lanes share with the session.
    pub after: u64,
    /// Whether the lanes began with the files of that time, and not with the present ones.
    pub has_recorded_files: bool,
    /// The part of the session after that record.
    pub recorded: SessionPart,
    /// The runs.
    pub lanes: Vec<LaneRun>,
}

/// One of several runs from the same record.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LaneRun {
    /// The id of its session, which is a fork.
    pub session_id: SessionId,
    /// The part of its session after the shared record.
    #[serde(flatten)]
    pub part: SessionPart,
    /// The first reply that differs from the recorded one; `None` if all are the same.
    pub first_divergence: Option<ReplyDivergence>,
    /// The checks in its workspace.
    pub checks: Vec<LaneCheck>,
    /// The worktree.
    pub worktree: Option<WorktreeResult>,
}

/// The part of a session after a record.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionPart {
    /// The status of the newest run; `None` if the run has not ended.
    pub status: Option<String>,
    /// The stop reason.
    pub stop_reason: Option<String>,
    /// The error of a failed run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The exit code of a failed run.
    #[serde(skip)]
    failure: Option<u8>,
    /// The model of the newest run, as named by the user.
    pub model: String,
    /// The usage after the record.
    #[serde(flatten)]
    pub used: SessionUsage,
    /// The duration after the record in seconds, without pauses between runs.
    pub duration_seconds: f64,
    #[serde(skip)]
    replies: Vec<RecordedReply>,
}

/// A reply in the form in which lanes are compared: its calls or, without calls, its text.
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
    /// The recorded reply: its calls or, without calls, its text. `None` if the session had ended.
    pub recorded: Option<Arc<str>>,
    /// The reply of the lane, in the same form; `None` if the lane had ended.
    pub lane: Option<Arc<str>>,
}

/// A check in the workspace of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LaneCheck {
    /// The command.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
}

/// Mean differences between the lanes and the recorded sessions, paired. With several sessions, each value is the mean
/// of one session's lanes; with one session, each lane is a value.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LaneSummary {
    /// Number of compared sessions.
    pub sessions: usize,
    /// Number of lanes.
    pub lanes: usize,
    /// The share of successful lanes, less the share of successful sessions.
    pub success: Option<Estimate>,
    /// Difference of steps.
    pub steps: Option<Estimate>,
    /// Difference of model calls.
    pub llm_calls: Option<Estimate>,
    /// Difference of input and output tokens.
    pub tokens: Option<Estimate>,
    /// Difference of the cost in dollars; `None` if a model has no price.
    pub cost: Option<Estimate>,
    /// Difference of the duration in seconds.
    pub duration_seconds: Option<Estimate>,
    /// The share of lanes whose checks all passed; `None` without checks.
    pub checks_passed: Option<Estimate>,
}

impl SessionPart {
    /// Reads the part of a session after a record.
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
                // No process has worked on the session since the previous record, so that time does not count.
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

/// Exit code if some lanes failed and others did not.
const SOME_LANES_FAILED: u8 = 2;

impl LaneComparison {
    /// Returns the number of failed lanes of several sessions, and the exit code for it: zero without failures, and the
    /// exit code of the lanes if all of them failed in the same way.
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

/// Replies with the same calls are equal, even if the arguments are formatted differently or the text differs.
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
    /// Returns the summary of the lanes of several sessions.
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

    /// With one session, each lane is a value; with several, each value is the mean of one session's lanes.
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
