//! The chart is compared with the code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, OnceLock};

use architect::machine::chart::{Chart, ChartCounter, ChartTransition};
use architect::machine::{Event, EventKind, Guard, Rank, State, StateKind, rank, step};
use architect::types::WordEnum;

use crate::explorer::explore;
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

/// Returns the transition that the chart names for an event, with guards as in their table.
pub(crate) fn transition(state: &State, event: &Event) -> Option<&'static ChartTransition> {
    let chart = chart();
    if event.effect_id().is_some() && !state.awaits(event) {
        return None;
    }
    chart.transitions_for(state.kind().as_str(), event.kind().as_str()).find(|arrow| {
        let guard = arrow.guard.as_deref().map(|name| Guard::from_word(name).unwrap());
        guard.is_none_or(|guard| guard_table::holds(guard, state, event))
    })
}

/// Returns the number of a transition of the chart.
pub(crate) fn transition_number(arrow: &ChartTransition) -> usize {
    chart().transitions.iter().position(|other| std::ptr::eq(other, arrow)).unwrap()
}

/// Every explored pair of state and event is put to the chart: it must name the target that the code has, every
/// transition of the chart must be taken, and every guard must be seen to hold and not to hold, as its table says.
#[test]
fn chart_and_code_take_the_same_transitions() {
    let chart = chart();
    let wrong = Mutex::new(BTreeSet::new());
    let taken = Mutex::new(BTreeSet::new());
    let sides: Mutex<BTreeMap<&str, BTreeSet<bool>>> = Mutex::default();
    let mut pairs = TransitionPairs::of(chart);
    for (world, most) in small_model::models_of_pairs() {
        let met = Mutex::new(MetTransitions::default());
        let found = explore(&world, step, most, |state, event, next| {
            let arrow = transition(state, event);
            let target = arrow.map_or(state.kind(), |arrow| {
                StateKind::from_word(chart.initial_leaf(&arrow.to)).unwrap()
            });
            let went = next.state != *state || !next.effects.is_empty();
            let moved = matches!(event.kind(), EventKind::Tick) || went == arrow.is_some();
            if target != next.state.kind() || !moved {
                wrong.lock().unwrap().insert(format!(
                    "{} on {}: the chart says {}, the code goes to {}",
                    state.kind().as_str(),
                    event.kind().as_str(),
                    target.as_str(),
                    next.state.kind().as_str()
                ));
            }
            if let Some(arrow) = arrow {
                met.lock().unwrap().add(state, event, transition_number(arrow), &next.state);
                if !uses_its_counter(arrow, state, &next.state) {
                    wrong.lock().unwrap().insert(format!("not what it uses: {arrow:?}"));
                }
                taken.lock().unwrap().insert((
                    state.kind(),
                    arrow.event.as_str(),
                    arrow.guard.as_deref(),
                    arrow.to.as_str(),
                ));
            }
            for arrow in chart.transitions_for(state.kind().as_str(), event.kind().as_str()) {
                if let Some(guard) =
                    Guard::ALL.iter().find(|guard| Some(guard.as_str()) == arrow.guard.as_deref())
                {
                    let holds = guard_table::holds(*guard, state, event);
                    if guard.holds(state, event) != holds {
                        let place = (state.kind().as_str(), event.kind().as_str());
                        let found =
                            format!("{} is {holds} in the table: {place:?}", guard.as_str());
                        wrong.lock().unwrap().insert(found);
                    }
                    sides.lock().unwrap().entry(guard.as_str()).or_default().insert(holds);
                }
            }
        });
        pairs.cover(&world, &met.into_inner().unwrap(), &found);
    }
    pairs.compare_with_table();
    let (wrong, taken) = (wrong.into_inner().unwrap(), taken.into_inner().unwrap());
    let sides = sides.into_inner().unwrap();
    assert_eq!(wrong, BTreeSet::new());
    let both: BTreeSet<bool> = [true, false].into();
    let one_sided: Vec<_> = sides.iter().filter(|(_, seen)| **seen != both).collect();
    assert!(one_sided.is_empty(), "these guards had one value only: {one_sided:?}");
    for arrow in &chart.transitions {
        let from = |leaf: &StateKind| {
            leaf.as_str() == arrow.from || leaf.as_str().starts_with(&format!("{}.", arrow.from))
        };
        let is_taken = taken.iter().any(|(leaf, event, guard, to)| {
            (arrow.from.is_empty() || from(leaf))
                && (*event, *guard, *to)
                    == (arrow.event.as_str(), arrow.guard.as_deref(), arrow.to.as_str())
        });
        assert!(is_taken, "the code never takes {arrow:?}");
    }
}

/// The rank of the states shows what a transition uses. This is what models of the chart for other checkers rely on.
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
fn the_edges_of_code_and_chart_are_the_same_set() {
    let chart = chart();
    let mut code = BTreeSet::new();
    for world in small_model::small_models() {
        code.extend(explore(&world, step, 60_000, |_, _, _| {}).edges);
    }
    let mut drawn = BTreeSet::new();
    for leaf in StateKind::ALL {
        for event in EventKind::ALL {
            for arrow in chart.transitions_for(leaf.as_str(), event.as_str()) {
                let to = StateKind::ALL
                    .into_iter()
                    .find(|kind| kind.as_str() == chart.initial_leaf(&arrow.to));
                drawn.insert((leaf, event, to.unwrap()));
            }
        }
    }
    // Time may move the clock and nothing else; the chart has no transition for that.
    code.retain(|(from, event, to)| {
        !(from == to && *event == EventKind::Tick) || drawn.contains(&(*from, *event, *to))
    });
    assert_eq!(code, drawn);
}
