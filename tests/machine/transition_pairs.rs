//! Every pair of consecutive transitions of the chart: pairs that the explorer and the driver take, and impossible
//! ones.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use architect::machine::chart::Chart;
use architect::machine::{Event, EventKind, StateKind};

use crate::explorer::{SearchReport, Visit};
use crate::pair_names::{label, meet, short_label, why_impossible};
use crate::small_model::SmallModel;
use crate::{driver_paths, small_model};

/// Transitions as the bits of their numbers in the chart.
type TransitionSet = u128;

/// The transitions into and out of each state of a small model, by the hash of the state.
#[derive(Default)]
pub(crate) struct MetTransitions {
    /// With the hash of the state before, and the event.
    into: HashMap<u64, BTreeMap<usize, (u64, Event)>>,
    out_of: HashMap<u64, BTreeMap<usize, Event>>,
}

impl MetTransitions {
    /// Adds a transition that was taken. Of several between the same two states, any is as good. One that stays begins no
    /// pair.
    pub(crate) fn add(&mut self, visit: &Visit<'_>, number: usize) {
        let Visit { event, hash: from, .. } = *visit;
        let out_of = self.out_of.entry(from).or_default();
        out_of.entry(number).or_insert_with(|| event.clone());
        let is_over = visit.next.state.kind() == StateKind::Done;
        if !is_over && event.kind() != EventKind::CommandEnded {
            let into = self.into.entry(visit.next_hash).or_default();
            // The order in which states are visited changes from run to run.
            match into.get(&number) {
                Some((other, _)) if *other <= from => {}
                _ => drop(into.insert(number, (from, event.clone()))),
            }
        }
    }
}

/// Pairs of transitions: the second one leaves the state that the first one enters.
pub(crate) struct TransitionPairs {
    chart: &'static Chart,
    /// For each transition, those that followed it in the small models. One that stays is its own.
    explored: Vec<TransitionSet>,
    /// The same for the driver.
    played: Vec<TransitionSet>,
}

impl TransitionPairs {
    pub(crate) fn of(chart: &'static Chart) -> Self {
        let none = vec![0; chart.transitions.len()];
        assert!(none.len() <= 128);
        Self { chart, explored: none.clone(), played: none }
    }

    /// Adds the pairs that were taken in a small model, and plays those of them through the driver that it has not taken.
    pub(crate) fn cover(&mut self, world: &SmallModel, met: &MetTransitions, found: &SearchReport) {
        // The pair, with the place where it is nearest to the start: the state between both transitions.
        // The driver doesn't stay in one that is overdue.
        let mut nearest: BTreeMap<(usize, usize), (bool, usize, u64, usize)> = BTreeMap::new();
        for (state, into) in &met.into {
            for first in into.keys() {
                for second in met.out_of.get(state).into_iter().flat_map(BTreeMap::keys) {
                    let (from, event) = &into[first];
                    let place = (small_model::is_late(event), found.depth(*from), *state, *first);
                    let start = if self.stays(*second) { second } else { first };
                    let nearest = nearest.entry((*start, *second)).or_insert(place);
                    *nearest = place.min(*nearest);
                }
            }
        }
        for ((start, second), (_, _, state, first)) in nearest {
            self.explored[start] |= 1 << second;
            if self.played[start] >> second & 1 == 1 {
                continue;
            }
            let (from, event) = &met.into[&state][&first];
            let mut path = found.path_to(*from);
            path.extend([event.clone(), met.out_of[&state][&second].clone()]);
            let taken = driver_paths::play(&world.rules, &path);
            for (first, second) in taken.iter().zip(taken.iter().skip(1)) {
                self.played[*first] |= 1 << second;
            }
            for number in taken {
                if self.stays(number) {
                    self.played[number] |= 1 << number;
                }
            }
        }
    }

    /// Returns whether a transition changes only the running commands of its state. Any transition after it may as well
    /// follow the one before it, so it is in no pair.
    fn stays(&self, number: usize) -> bool {
        self.chart.transitions[number].event == EventKind::CommandEnded.as_str()
    }

    /// Returns the tables as Markdown. Every pair that is not impossible must be taken by both.
    fn tables(&self) -> String {
        let all = &self.chart.transitions;
        // Sorted: the order in which the chart is read depends on the features of the crate.
        let mut counts: BTreeMap<String, [usize; 4]> = BTreeMap::new();
        let mut never: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
        let mut missing = BTreeSet::new();
        let stays: Vec<usize> = (0..all.len()).filter(|number| self.stays(*number)).collect();
        for number in &stays {
            for taken in [&self.explored, &self.played] {
                assert!(taken[*number] >> number & 1 == 1, "never taken: {}", label(&all[*number]));
            }
        }
        for (number, first) in all.iter().enumerate() {
            for (other, second) in all.iter().enumerate() {
                if self.stays(number) || self.stays(other) || !meet(self.chart, first, second) {
                    continue;
                }
                let is_taken = |pairs: &[TransitionSet]| pairs[number] >> other & 1 == 1;
                let why = why_impossible(first, second);
                let counted =
                    [true, is_taken(&self.explored), is_taken(&self.played), why.is_some()];
                let count = counts.entry(label(first)).or_default();
                count.iter_mut().zip(counted).for_each(|(count, is)| *count += usize::from(is));
                if let Some(why) = why {
                    let second = format!("`{}`", short_label(second));
                    never.entry((why, label(first))).or_default().insert(second);
                }
                if counted[1..3] != [why.is_none(); 2] {
                    missing.insert(format!(
                        "{}, then {}: {counted:?}",
                        label(first),
                        label(second)
                    ));
                }
            }
        }
        assert!(missing.is_empty(), "drawn, explored, played, impossible: {missing:#?}");
        let sum = |column: usize| counts.values().map(|count| count[column]).sum::<usize>();
        let mut text = format!(
            "# Pairs of transitions\n\n\
             Generated by `UPDATE=1 cargo test --release --test machine chart`: the pairs of transitions of [run.json](run.json) of which the\n\
             second one leaves the state that the first one enters.\n\n\
             * {} pairs are drawn.\n\
             * {} of them are taken by the explorer in the small models.\n\
             * {} of them are taken by the driver with scripted ports: for each pair, it runs a short path of the explorer.\n\
             * {} of them are impossible, for the reason given. The explorer takes none of them.\n\n\
             `COMMAND_ENDED` is in no pair: it leaves each of the {} states as it is but for the commands that run, so that what follows\n\
             it may as well follow the transition before it. Explorer and driver take it in each of them.\n\n\
             | after | never follows | why |\n|---|---|---|\n",
            sum(0),
            sum(1),
            sum(2),
            sum(3),
            stays.len()
        );
        for ((why, first), seconds) in never {
            let seconds: Vec<String> = seconds.into_iter().collect();
            let _ = writeln!(text, "| `{first}` | {} | {why} |", seconds.join(", "));
        }
        text += "\n| after | pairs | taken by the explorer | taken by the driver | impossible |\n|---|---|---|---|---|\n";
        for (first, [drawn, explored, played, impossible]) in counts {
            let _ =
                writeln!(text, "| `{first}` | {drawn} | {explored} | {played} | {impossible} |");
        }
        text
    }

    /// Compares the table with the stored one, or writes it.
    pub(crate) fn compare_with_table(&self) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("statecharts/PAIRS.md");
        let table = self.tables();
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &table).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == table, "statecharts/PAIRS.md is not up to date:\n{table}");
    }
}
