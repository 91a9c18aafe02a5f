//! Conversion of stored sessions to a suite: the fewest scenarios that take all transitions of the sessions.

use std::collections::{HashMap, HashSet};
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use crate::journal::index::{SessionRow, SessionStatus};
use crate::journal::{JournalError, SessionId, SessionIndex, SessionStore, StoredContent};
use crate::machine::{EventKind, StateKind};

/// A transition of the chart, taken by a session.
type TakenTransition = (StateKind, EventKind, StateKind);

/// A suite of scenarios, and the sessions that it was made of. Its JSON is the document of `architect test --from-all`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(
    rename = "SuiteDocument",
    description = "The document of `architect test --from-all --json`."
)]
pub struct ScenarioSuite {
    /// Number of considered sessions.
    pub sessions: usize,
    /// Number of different paths of the sessions through the statechart.
    pub paths: usize,
    /// Number of different transitions on these paths.
    pub transitions: usize,
    /// Number of sessions left out because they were resumed.
    pub resumed: usize,
    /// Number of sessions left out because they have not ended.
    pub unfinished: usize,
    /// Number of sessions left out because they are damaged or unreadable.
    pub unreadable: usize,
    /// The written scenarios.
    pub scenarios: Vec<WrittenScenario>,
}

/// A scenario written for a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WrittenScenario {
    /// The name of the file in the folder of `--out`.
    pub file: String,
    /// The id of the session.
    pub session_id: SessionId,
    /// The first line of the task.
    pub prompt: String,
    /// Number of different transitions that the scenario takes.
    pub transitions: usize,
    /// Number of transitions that no earlier scenario takes.
    pub added: usize,
}

/// The reason why a session can't become a scenario, which repeats a single complete run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoScenarioReason {
    /// The session was resumed, or is a fork of a resumed session.
    Resumed,
    /// The session has not ended.
    Unfinished,
}

impl fmt::Display for NoScenarioReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resumed => "was resumed or forked",
            Self::Unfinished => "has not ended",
        })
    }
}

/// Returns the reason why a session can't become a scenario; `None` if it can.
///
/// # Errors
///
/// Fails if the session can't be read.
pub fn no_scenario_reason(
    store: &SessionStore,
    session: SessionId,
) -> Result<Option<NoScenarioReason>, JournalError> {
    let mut is_resumed = false;
    let (history, _) = store.replay(session, |_, stored, _| {
        is_resumed |= matches!(stored.content, StoredContent::Resumed(_));
    })?;
    let is_unfinished = history.machine.state.outcome().is_none();
    Ok(match (is_resumed, is_unfinished) {
        (true, _) => Some(NoScenarioReason::Resumed),
        (false, true) => Some(NoScenarioReason::Unfinished),
        (false, false) => None,
    })
}

/// A session that may be chosen for the suite.
struct SuiteCandidate {
    session: SessionId,
    prompt: String,
    /// The length of its path through the chart.
    steps: usize,
    taken: HashSet<TakenTransition>,
}

/// Chooses sessions for a suite, among those whose id begins with `text`, or whose task, agent, model, status or stop
/// reason contains it. Sessions of sub-agents and evaluations are parts of other sessions, and are skipped.
///
/// # Errors
///
/// Fails if the store can't be listed, or its index fails.
pub fn choose_sessions(store: &SessionStore, text: &str) -> Result<ScenarioSuite, JournalError> {
    let mut suite = ScenarioSuite::default();
    // The newest session of each path.
    let mut by_path: HashMap<Vec<TakenTransition>, SuiteCandidate> = HashMap::new();
    let rows = SessionIndex::open(store)?.list()?;
    for row in rows.iter().filter(|row| is_asked(row, text)) {
        match row.status {
            SessionStatus::Unreadable => suite.unreadable += 1,
            _ if row.damaged => suite.unreadable += 1,
            SessionStatus::Running | SessionStatus::Unfinished => suite.unfinished += 1,
            SessionStatus::Success | SessionStatus::Partial | SessionStatus::Failed => {
                add_candidate(store, row, &mut suite, &mut by_path);
            }
        }
    }
    suite.paths = by_path.len();
    choose(by_path.into_values().collect(), &mut suite);
    Ok(suite)
}

fn is_asked(row: &SessionRow, text: &str) -> bool {
    let text = text.to_lowercase();
    let fields = [&row.prompt, &row.agent, &row.model, &row.stop_reason].into_iter().flatten();
    row.session_id.to_string().starts_with(&text)
        || row.status.as_str().contains(&text)
        || fields.into_iter().any(|field| field.to_lowercase().contains(&text))
}

fn add_candidate(
    store: &SessionStore,
    row: &SessionRow,
    suite: &mut ScenarioSuite,
    by_path: &mut HashMap<Vec<TakenTransition>, SuiteCandidate>,
) {
    let (mut path, mut is_resumed) = (Vec::new(), false);
    let replayed = store.replay(row.session_id, |history, stored, _| match &stored.content {
        StoredContent::Event(_) => {
            let steps = history.output.transitions.iter();
            path.extend(steps.map(|step| (step.from, step.event, step.to)));
        }
        StoredContent::Resumed(_) => is_resumed = true,
        _ => {}
    });
    match replayed {
        Ok((history, _)) if history.header.dispatched_by.is_some() => return,
        Ok(_) if is_resumed => {
            suite.resumed += 1;
            return;
        }
        Ok(_) => {}
        Err(_) => {
            suite.unreadable += 1;
            return;
        }
    }
    suite.sessions += 1;
    let candidate = SuiteCandidate {
        session: row.session_id,
        prompt: row.prompt.clone().unwrap_or_default(),
        steps: path.len(),
        taken: path.iter().copied().collect(),
    };
    // Rows are sorted from new to old, so the first session of a path is its newest.
    by_path.entry(path).or_insert(candidate);
}

/// Chooses greedily: each time the candidate that adds the most transitions and, among equal ones, the shortest. A
/// chosen candidate is dropped again if the others take all its transitions.
fn choose(mut candidates: Vec<SuiteCandidate>, suite: &mut ScenarioSuite) {
    let (mut covered, mut chosen) = (HashSet::new(), Vec::<SuiteCandidate>::new());
    loop {
        let added = |candidate: &SuiteCandidate| candidate.taken.difference(&covered).count();
        let best = candidates.iter().enumerate().max_by(|(_, one), (_, other)| {
            let order = added(one).cmp(&added(other));
            order.then(other.steps.cmp(&one.steps)).then(one.session.cmp(&other.session))
        });
        let Some((index, _)) = best.filter(|(_, best)| added(best) > 0) else { break };
        let best = candidates.swap_remove(index);
        covered.extend(best.taken.iter().copied());
        chosen.push(best);
    }
    suite.transitions = covered.len();
    let mut index = 0;
    while index < chosen.len() {
        let others = chosen.iter().enumerate().filter(|(other, _)| *other != index);
        let taken: HashSet<_> = others.flat_map(|(_, other)| &other.taken).collect();
        match chosen[index].taken.iter().all(|step| taken.contains(step)) {
            true => drop(chosen.remove(index)),
            false => index += 1,
        }
    }
    let mut covered = HashSet::new();
    for candidate in chosen {
        let before = covered.len();
        covered.extend(candidate.taken.iter().copied());
        suite.scenarios.push(WrittenScenario {
            file: format!("{}.toml", candidate.session),
            session_id: candidate.session,
            prompt: candidate.prompt,
            transitions: candidate.taken.len(),
            added: covered.len() - before,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [StateKind; 4] =
        [StateKind::Preparing, StateKind::CallingSending, StateKind::Executing, StateKind::Done];

    /// Returns a session that takes the transitions from these states to the first one.
    fn candidate(taken: &[usize], steps: usize) -> SuiteCandidate {
        let taken = taken.iter().map(|at| (STATES[*at], EventKind::Tick, STATES[0])).collect();
        SuiteCandidate { session: SessionId::generate(), prompt: String::new(), steps, taken }
    }

    fn added(candidates: Vec<SuiteCandidate>) -> Vec<usize> {
        let mut suite = ScenarioSuite::default();
        choose(candidates, &mut suite);
        assert_eq!(suite.scenarios.iter().map(|one| one.added).sum::<usize>(), suite.transitions);
        suite.scenarios.iter().map(|one| one.added).collect()
    }

    #[test]
    fn few_sessions_take_all_transitions() {
        assert_eq!(added(vec![candidate(&[0], 1), candidate(&[0, 1], 2), candidate(&[1], 1)]), [2]);
        assert_eq!(added(vec![candidate(&[0, 1], 9), candidate(&[2, 3], 9)]), [2, 2]);
        // The first choice becomes superfluous.
        let all = vec![candidate(&[1, 2], 1), candidate(&[0, 1], 2), candidate(&[2, 3], 2)];
        assert_eq!(added(all), [2, 2]);
        assert_eq!(added(Vec::new()), [0; 0]);
    }

    #[test]
    fn of_equal_sessions_the_shortest_is_chosen() {
        let (long, short) = (candidate(&[0, 1], 5), candidate(&[0, 1], 3));
        let expected = short.session;
        let mut suite = ScenarioSuite::default();
        choose(vec![long, short], &mut suite);
        assert_eq!(suite.scenarios[0].session_id, expected);
    }
}
