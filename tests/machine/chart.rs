//! The chart is compared with the code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use architect::machine::chart::{Chart, ChartCounter, ChartTransition};
use architect::machine::{Event, EventKind, Guard, Rank, State, StateKind, rank, step};
use architect::types::WordEnum;

use crate::explorer::{Visit, complete_search, explore};
use crate::small_model::SmallModel;
use crate::transition_pairs::{MetTransitions, TransitionPairs};
use crate::{guard_table, small_model};

pub(crate) fn chart() -> &'static Chart {
    static CHART: OnceLock<Chart> = OnceLock::new();
    CHART.get_or_init(|| Chart::for_run().unwrap())
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    names.collect()
}

#[test]
fn chart_and_code_have_the_same_names() {
    let chart = chart();
    let states = names(chart.leaf_states().map(|node| node.path.as_str()));
    assert_eq!(states, names(StateKind::ALL.iter().map(|kind| kind.as_str())));
    let events = names(chart.transitions.iter().map(|arrow| arrow.event.as_str()));
    assert_eq!(events, names(EventKind::ALL.iter().map(|kind| kind.as_str())));
    let guards = names(chart.transitions.iter().filter_map(|arrow| arrow.guard.as_deref()));
    assert_eq!(guards, names(Guard::ALL.iter().map(|guard| guard.as_str())));
}

/// A transition of the chart for one state and event.
struct Arrow {
    transition: &'static ChartTransition,
    /// Its number in the chart.
    number: usize,
    guard: Option<Guard>,
    target: StateKind,
}

/// Returns the transitions of the chart for a state and an event, in the order of evaluation.
fn arrows(state: StateKind, event: EventKind) -> &'static [Arrow] {
    static ARROWS: OnceLock<BTreeMap<(StateKind, EventKind), Vec<Arrow>>> = OnceLock::new();
    let arrows = ARROWS.get_or_init(|| {
        let pairs = StateKind::ALL
            .into_iter()
            .flat_map(|state| EventKind::ALL.into_iter().map(move |event| (state, event)));
        let arrow = |transition: &'static ChartTransition| Arrow {
            transition,
            number: chart().transitions.iter().position(|it| std::ptr::eq(it, transition)).unwrap(),
            guard: transition.guard.as_deref().map(|name| Guard::from_word(name).unwrap()),
            target: StateKind::from_word(chart().initial_leaf(&transition.to)).unwrap(),
        };
        pairs
            .map(|(state, event)| {
                let found = chart().transitions_for(state.as_str(), event.as_str());
                ((state, event), found.map(arrow).collect())
            })
            .collect()
    });
    &arrows[&(state, event)]
}

/// Returns the transition that the chart names for an event, with guards as in their table.
fn transition(state: &State, event: &Event) -> Option<&'static Arrow> {
    if event.effect_id().is_some() && !state.awaits(event) {
        return None;
    }
    arrows(state.kind(), event.kind())
        .iter()
        .find(|arrow| arrow.guard.is_none_or(|guard| guard_table::holds(guard, state, event)))
}

/// Returns the number of the transition that the chart names for an event.
pub(crate) fn transition_number(state: &State, event: &Event) -> Option<usize> {
    transition(state, event).map(|arrow| arrow.number)
}

/// The comparison of the chart with explored states.
struct Comparison {
    wrong: BTreeSet<String>,
    /// For each transition, whether the code has taken it.
    taken: Vec<bool>,
    /// For each guard, whether it was seen not to hold, and to hold.
    sides: Vec<[bool; 2]>,
    pairs: TransitionPairs,
}

/// Compares the chart with the code for every pair of state and event, in this number of states of each small model:
/// the chart must name the target that the code has, and each guard must hold as its table says. With `plays`, the
/// driver takes the pairs of transitions too.
fn compare(models: Vec<(SmallModel, usize)>, plays: bool) -> Comparison {
    let chart = chart();
    let wrong = Mutex::new(BTreeSet::new());
    let taken: Vec<_> = chart.transitions.iter().map(|_| AtomicBool::new(false)).collect();
    let sides: Vec<[AtomicBool; 2]> = Guard::ALL.iter().map(|_| Default::default()).collect();
    let mut pairs = TransitionPairs::of(chart);
    for (world, most) in models {
        let met = Mutex::new(MetTransitions::default());
        let found = explore(&world, step, most, |visit| {
            let &Visit { state, event, next, .. } = visit;
            let place = (state.kind().as_str(), event.kind().as_str());
            let arrow = transition(state, event);
            let target = arrow.map_or(state.kind(), |arrow| arrow.target);
            let went = next.state != *state || !next.effects.is_empty();
            let moved = matches!(event.kind(), EventKind::Tick) || went == arrow.is_some();
            if target != next.state.kind() || !moved {
                wrong.lock().unwrap().insert(format!(
                    "{place:?}: the chart says {}, the code goes to {}",
                    target.as_str(),
                    next.state.kind().as_str()
                ));
            }
            if let Some(arrow) = arrow {
                met.lock().unwrap().add(visit, arrow.number);
                if !uses_its_counter(arrow.transition, state, &next.state) {
                    let found = format!("not what it uses: {:?}", arrow.transition);
                    wrong.lock().unwrap().insert(found);
                }
                taken[arrow.number].store(true, Relaxed);
            }
            for guard in arrows(state.kind(), event.kind()).iter().filter_map(|it| it.guard) {
                let holds = guard_table::holds(guard, state, event);
                if guard.holds(state, event) != holds {
                    let found = format!("{} is {holds} in the table: {place:?}", guard.as_str());
                    wrong.lock().unwrap().insert(found);
                }
                sides[guard as usize][usize::from(holds)].store(true, Relaxed);
            }
        });
        if plays {
            pairs.cover(&world, &met.into_inner().unwrap(), &found);
        }
    }
    let seen = |side: AtomicBool| side.into_inner();
    Comparison {
        wrong: wrong.into_inner().unwrap(),
        taken: taken.into_iter().map(seen).collect(),
        sides: sides.into_iter().map(|sides| sides.map(seen)).collect(),
        pairs,
    }
}

#[test]
fn chart_and_code_take_the_same_transitions_in_the_first_states() {
    let models = small_model::small_models().into_iter().map(|world| (world, 1_000)).collect();
    assert_eq!(compare(models, false).wrong, BTreeSet::new());
}

/// Every transition of the chart must be taken, and every guard must be seen to hold and not to hold.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes unless optimized: cargo test --release")]
fn chart_and_code_take_the_same_transitions() {
    let Comparison { wrong, taken, sides, pairs } = compare(small_model::models_of_pairs(), true);
    pairs.compare_with_table();
    assert_eq!(wrong, BTreeSet::new());
    for (guard, seen) in Guard::ALL.iter().zip(sides) {
        assert_eq!(seen, [true, true], "{} had one value only", guard.as_str());
    }
    for (transition, is_taken) in chart().transitions.iter().zip(taken) {
        assert!(is_taken, "the code never takes {transition:?}");
    }
}

/// Returns whether the rank shows the counter that a transition uses. Models of the chart for other checkers rely on
/// this.
fn uses_its_counter(arrow: &ChartTransition, before: &State, after: &State) -> bool {
    let (old, new) = (rank(before), rank(after));
    let same = |old: Rank, new: Rank| (old.steps, old.repeats) == (new.steps, new.repeats);
    match arrow.counter() {
        Some(ChartCounter::Steps) => new.steps + 1 == old.steps,
        Some(ChartCounter::Repeats) => new.steps == old.steps && new.repeats + 1 == old.repeats,
        // Models that the budget doesn't cover are passed over.
        Some(ChartCounter::Models) => new.steps == old.steps && new.repeats < old.repeats,
        Some(ChartCounter::Attempts | ChartCounter::Calls) => {
            same(old, new) && new.phase == old.phase && new.work < old.work
        }
        Some(ChartCounter::Commands) => {
            same(old, new)
                && (new.phase, new.work) == (old.phase, old.work)
                && new.commands + 1 == old.commands
        }
        None if arrow.event == EventKind::UsageReported.as_str() => new == old,
        // Also a step that ends the run, or several replies in a row with only invalid calls.
        None => new < old && (new.phase, new.work) < (old.phase, old.work),
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes unless optimized: cargo test --release")]
fn the_edges_of_code_and_chart_are_the_same_set() {
    let mut code = BTreeSet::new();
    for (_, report) in complete_search() {
        code.extend(&report.edges);
    }
    let mut drawn = BTreeSet::new();
    for leaf in StateKind::ALL {
        for event in EventKind::ALL {
            drawn.extend(arrows(leaf, event).iter().map(|arrow| (leaf, event, arrow.target)));
        }
    }
    // Time may move the clock and nothing else; the chart has no transition for that.
    code.retain(|(from, event, to)| {
        !(from == to && *event == EventKind::Tick) || drawn.contains(&(*from, *event, *to))
    });
    assert_eq!(code, drawn);
}
