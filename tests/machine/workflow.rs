//! The machine of workflows: compared with its chart, and explored for small programs.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use architect::journal::SessionId;
use architect::machine::chart::{Chart, ChartTransition};
use architect::workflow::engine::machine::{
    Measurement, MetricDirection, Program, SessionEnd, SessionOutcome, StepEvent, StepGoal,
    StepNeed, StepRules, WorkflowActivity, WorkflowEnd, WorkflowLimit, WorkflowState, step,
};

use crate::workflow_guards::{GUARDS, holds};

/// The text of the statechart of a workflow: an XState v5 configuration.
const WORKFLOW_CHART_JSON: &str = include_str!("../../statecharts/workflow.json");

type StepFunction = fn(&Program, WorkflowState, StepEvent) -> WorkflowState;

fn chart() -> Chart {
    Chart::parse(WORKFLOW_CHART_JSON).unwrap()
}

/// Returns programs with one step of every kind, and some with two steps.
fn programs() -> Vec<Program> {
    let mut rules = Vec::new();
    for goal in [StepGoal::Answered, StepGoal::Tested, StepGoal::Unbounded, StepGoal::EachTested] {
        for metric in [None, Some(MetricDirection::Maximize)] {
            for (iterations, max_unchanged) in [(0, None), (2, None), (3, Some(2))] {
                let is_rechecked = goal == StepGoal::Tested;
                rules.push(StepRules { goal, metric, iterations, max_unchanged, is_rechecked });
            }
        }
    }
    let smaller = StepRules { metric: Some(MetricDirection::Minimize), ..rules[10] };
    let (of_loop, build) = (rules[8], StepRules { iterations: 1, ..rules[1] });
    let two = [[build, of_loop], [of_loop, build], [build, build], [rules[4], build]];
    let one = rules.into_iter().chain([smaller]).map(|rules| vec![rules]);
    one.chain(two.map(Vec::from)).map(|steps| Program { steps }).collect()
}

/// Returns every event, with a session that no state has.
fn events(session: SessionId) -> Vec<StepEvent> {
    let mut events = vec![StepEvent::Begun(session), StepEvent::Undone];
    let needs = [StepNeed::Nothing, StepNeed::Iterations, StepNeed::Items(2), StepNeed::Items(9)];
    events.extend(needs.map(StepEvent::Decided));
    events.extend([true, false].map(|is_passed| StepEvent::Tested { is_passed }));
    events.extend([WorkflowLimit::Budget].map(StepEvent::Limited));
    events.extend([None, Some(1)].map(|iterations| StepEvent::Continued { iterations }));
    events.push(StepEvent::Measured(None));
    events.extend([1.0, 2.0].map(|number| StepEvent::Measured(Measurement::new(number))));
    let outcomes = [
        SessionOutcome::Answered,
        SessionOutcome::Partial,
        SessionOutcome::Limited(WorkflowLimit::Budget),
        SessionOutcome::Failed(1),
    ];
    for outcome in outcomes {
        events.extend(
            [true, false].map(|has_changed| StepEvent::Ended(SessionEnd { outcome, has_changed })),
        );
    }
    events
}

fn session(number: u64) -> SessionId {
    format!("00000000-0000-7000-8000-{number:012}").parse().unwrap()
}

/// Calls `see` for every reachable state with every event.
fn explore(
    program: &Program,
    step: StepFunction,
    mut see: impl FnMut(&WorkflowState, &StepEvent, &WorkflowState),
) {
    let mut seen = HashSet::from([program.start()]);
    let mut queue = VecDeque::from([program.start()]);
    while let Some(state) = queue.pop_front() {
        let number = state.place.step as u64 * 10 + u64::from(state.place.iteration);
        for event in events(session(number)) {
            let next = step(program, state, event);
            see(&state, &event, &next);
            if seen.insert(next) {
                queue.push_back(next);
            }
        }
        assert!(seen.len() < MAX_STATES, "{program:?} has no bound: {state:?}");
    }
}

/// More than any program here has.
const MAX_STATES: usize = 50_000;

fn chart_target<'a>(
    chart: &'a Chart,
    program: &Program,
    state: &WorkflowState,
    event: &StepEvent,
) -> Option<&'a ChartTransition> {
    let (from, name) = (state_name(state), event_name(event));
    chart
        .transitions
        .iter()
        .filter(|it| it.from == from && it.event == name)
        .find(|it| it.guard.as_deref().is_none_or(|guard| holds(guard, program, state, event)))
}

/// The states and the events of the chart.
const STATES: [&str; 7] =
    ["Deciding", "Measuring", "Starting", "Running", "Undoing", "Testing", "Done"];
const EVENTS: [&str; 8] =
    ["DECIDED", "MEASURED", "BEGUN", "ENDED", "UNDONE", "TESTED", "LIMITED", "CONTINUED"];

fn state_name(state: &WorkflowState) -> &'static str {
    STATES[match state.activity {
        WorkflowActivity::Deciding => 0,
        WorkflowActivity::Measuring => 1,
        WorkflowActivity::Starting => 2,
        WorkflowActivity::Running(_) => 3,
        WorkflowActivity::Undoing(_) => 4,
        WorkflowActivity::Testing => 5,
        WorkflowActivity::Done(_) => 6,
    }]
}

fn event_name(event: &StepEvent) -> &'static str {
    EVENTS[match event {
        StepEvent::Decided(_) => 0,
        StepEvent::Measured(_) => 1,
        StepEvent::Begun(_) => 2,
        StepEvent::Ended(_) => 3,
        StepEvent::Undone => 4,
        StepEvent::Tested { .. } => 5,
        StepEvent::Limited(_) => 6,
        StepEvent::Continued { .. } => 7,
    }]
}

#[test]
fn chart_and_code_have_the_same_names() {
    let chart = chart();
    let states: BTreeSet<&str> = chart.leaf_states().map(|node| node.path.as_str()).collect();
    assert_eq!(states, BTreeSet::from(STATES));
    let events: BTreeSet<&str> = chart.transitions.iter().map(|it| it.event.as_str()).collect();
    assert_eq!(events, BTreeSet::from(EVENTS));
    let guards: BTreeSet<&str> =
        chart.transitions.iter().filter_map(|it| it.guard.as_deref()).collect();
    assert_eq!(guards, BTreeSet::from(GUARDS));
}

#[test]
fn chart_and_code_take_the_same_transitions() {
    let chart = chart();
    let (mut wrong, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for program in programs() {
        explore(&program, step, |state, event, next| {
            let found = chart_target(&chart, &program, state, event);
            let target = found.map_or(state_name(state), |it| it.to.as_str());
            if target != state_name(next) || found.is_none() && next != state {
                wrong.insert(format!("{state:?} on {event:?}: {target}, but {next:?}"));
            }
            taken.extend(found.map(|it| (it.from.clone(), it.event.clone(), it.guard.clone())));
        });
    }
    let wrong: Vec<_> = wrong.into_iter().take(5).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for it in &chart.transitions {
        let key = (it.from.clone(), it.event.clone(), it.guard.clone());
        assert!(taken.contains(&key), "the code never takes {it:?}");
    }
}

/// Returns the violations that the exploration of a program finds.
fn violations(program: &Program, step: StepFunction) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    explore(program, step, |state, event, next| {
        let (before, after) = (&state.place, &next.place);
        let rules = program.rules(before).unwrap();
        let is_each = rules.goal == StepGoal::EachTested;
        if is_each
            && rules.metric.is_none()
            && matches!(state.activity, WorkflowActivity::Running(_) | WorkflowActivity::Testing)
            && next.activity == WorkflowActivity::Starting
            && *event != (StepEvent::Tested { is_passed: true })
        {
            found.insert("an item begins after the one before it has passed its tests");
        }
        if let (WorkflowActivity::Deciding, StepEvent::Decided(StepNeed::Items(count))) =
            (state.activity, event)
            && *count > rules.iterations
            && next.activity != WorkflowActivity::Done(WorkflowEnd::TooManyItems)
        {
            found.insert("with too many items, none begins");
        }
        let is_new = matches!(
            (state.activity, next.activity),
            (WorkflowActivity::Starting, WorkflowActivity::Running(_))
        );
        let most = program.max_iterations(before);
        if is_new && before.iteration >= most && matches!(event, StepEvent::Begun(_)) {
            // A command with a smaller bound may find a session that is about to begin.
            let is_bounded = before.iterations.is_some();
            if !is_bounded {
                found.insert("there are no more iterations than the bound");
            }
        }
        if after.step == before.step
            && after.iteration > before.iteration
            && !matches!(event, StepEvent::Begun(_))
        {
            found.insert("an iteration begins with a session of its own");
        }
        if let StepEvent::Tested { is_passed: true } = event
            && state.activity == WorkflowActivity::Testing
            && (!is_each || before.iteration >= program.max_iterations(before))
            && !matches!(
                next.activity,
                WorkflowActivity::Deciding | WorkflowActivity::Done(WorkflowEnd::Succeeded)
            )
        {
            found.insert("nothing begins after the tests have passed");
        }
        if let (WorkflowActivity::Running(_), StepEvent::Ended(end)) = (state.activity, event)
            && let SessionOutcome::Limited(_) = end.outcome
            && next.activity == WorkflowActivity::Starting
        {
            found.insert("nothing begins after a limit is reached");
        }
        if let (WorkflowActivity::Measuring, StepEvent::Measured(Some(number))) =
            (state.activity, event)
            && let Some(metric) = program.rules(before).and_then(|rules| rules.metric)
            && let Some(best) = before.best
        {
            let is_undone = matches!(next.activity, WorkflowActivity::Undoing(_));
            if is_undone == metric.is_better(*number, best) {
                found.insert("an iteration stays exactly if it improves the number");
            }
        }
        if after.step == before.step
            && let (Some(old), Some(new)) = (before.best, after.best)
            && let Some(metric) = program.rules(before).and_then(|rules| rules.metric)
            && metric.is_better(old, new)
        {
            found.insert("the best number never gets worse");
        }
        if let WorkflowActivity::Undoing(id) = next.activity
            && !matches!(state.activity, WorkflowActivity::Undoing(_))
            && (next.place.session != Some(id) || before.session.is_none())
        {
            found.insert("only the session of the iteration is undone");
        }
        if matches!(state.activity, WorkflowActivity::Done(_))
            && !matches!(event, StepEvent::Continued { .. })
            && next != state
        {
            found.insert("what is over stays over until the command is given again");
        }
    });
    found
}

#[test]
fn every_reachable_state_keeps_the_rules() {
    for program in programs() {
        assert_eq!(violations(&program, step), BTreeSet::new(), "{program:?}");
    }
}

/// Without the user, every path is finite: if states without successors are removed repeatedly, none is left.
#[test]
fn every_path_ends() {
    for program in programs() {
        let mut before: HashMap<WorkflowState, Vec<WorkflowState>> = HashMap::new();
        let mut open: HashMap<WorkflowState, usize> = HashMap::new();
        explore(&program, step, |state, event, next| {
            open.entry(*state).or_default();
            if !matches!(event, StepEvent::Continued { .. }) && next != state {
                before.entry(*next).or_default().push(*state);
                *open.entry(*state).or_default() += 1;
            }
        });
        let is_end = |(state, count): (&WorkflowState, &usize)| (*count == 0).then_some(*state);
        let mut ends: Vec<WorkflowState> = open.iter().filter_map(is_end).collect();
        assert!(
            ends.iter().all(|end| matches!(end.activity, WorkflowActivity::Done(_))),
            "{ends:?}"
        );
        while let Some(end) = ends.pop() {
            open.remove(&end);
            for state in before.remove(&end).unwrap_or_default() {
                let count = open.get_mut(&state).unwrap();
                *count -= 1;
                if *count == 0 {
                    ends.push(state);
                }
            }
        }
        assert!(open.is_empty(), "{program:?} has a cycle through {:?}", open.keys().next());
    }
}

/// If no rule finds a defect, a rule is missing.
#[test]
fn seeded_defects_are_found() {
    let keeps_worse: StepFunction = |program, state, event| match (state.activity, event) {
        (WorkflowActivity::Measuring, StepEvent::Measured(_)) if state.place.session.is_some() => {
            step(program, WorkflowActivity::Undoing(session(0)).at(state.place), StepEvent::Undone)
        }
        _ => step(program, state, event),
    };
    let goes_on: StepFunction = |program, state, event| match (state.activity, event) {
        (WorkflowActivity::Testing, StepEvent::Tested { .. }) => {
            step(program, state, StepEvent::Tested { is_passed: false })
        }
        _ => step(program, state, event),
    };
    let has_no_bound: StepFunction = |program, state, event| match step(program, state, event) {
        WorkflowState { place, activity: WorkflowActivity::Done(WorkflowEnd::IterationsUsed) }
            if place.iteration < 5 =>
        {
            WorkflowActivity::Starting.at(place)
        }
        next => next,
    };
    let overspends: StepFunction = |program, state, event| match (state.activity, event) {
        (WorkflowActivity::Running(_), StepEvent::Ended(end)) => {
            let outcome = SessionOutcome::Answered;
            step(program, state, StepEvent::Ended(SessionEnd { outcome, ..end }))
        }
        _ => step(program, state, event),
    };
    let skips_failed: StepFunction = |program, state, event| match (state.activity, event) {
        (WorkflowActivity::Testing, StepEvent::Tested { .. }) => {
            step(program, state, StepEvent::Tested { is_passed: true })
        }
        _ => step(program, state, event),
    };
    let has_any_items: StepFunction = |program, state, event| match event {
        StepEvent::Decided(StepNeed::Items(_)) => {
            step(program, state, StepEvent::Decided(StepNeed::Iterations))
        }
        _ => step(program, state, event),
    };
    for (name, defect) in [
        ("keeps worse", keeps_worse),
        ("begins an item after one that failed", skips_failed),
        ("has any number of items", has_any_items),
        ("goes on after success", goes_on),
        ("has no bound", has_no_bound),
        ("overspends", overspends),
    ] {
        // The first program that shows it is enough.
        let is_found = programs().iter().any(|program| !violations(program, defect).is_empty());
        assert!(is_found, "{name} is not found");
    }
}
