//! A short fingerprint of where a run stands, so that a replay can tell where it left the stored path.

use super::allowance::Allowance;
use super::deadline::Why;
use super::effect::{Effect, Purpose};
use super::fold::Fold;
use super::state::StateKind;
use crate::model::{Digest, EffectId};

/// What a run amounts to after an event: its state by name, and a digest of its account, of what it waits for and of
/// the effects that the event led to.
///
/// Texts take no part, so that a mark costs less than a microsecond; what they lead to does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The state.
    pub state: StateKind,
    /// The digest of the rest.
    pub digest: Digest,
}

impl Mark {
    /// The release of what a digest covers; digests of different releases can't be compared.
    pub const RELEASE: u32 = 1;

    /// Returns the mark of a fold and of the effects that led out of it.
    pub fn of(fold: &Fold, effects: &[Effect]) -> Self {
        let run = fold.state.run();
        let mut sum = Sum::default();
        sum.add([run.now.0, run.began.0, run.next.0, run.steps.into(), run.calls.into()]);
        sum.add([run.sends.into(), run.spent.cost.0, run.spent.tokens.0]);
        let streaks = &run.streaks;
        sum.add([streaks.cut, streaks.empty, streaks.pauses, streaks.invalid].map(u64::from));
        sum.add([streaks.sent_back, streaks.unfit, streaks.follow_ups].map(u64::from));
        sum.add([run.compactions.count.into(), run.compactions.futile.into()]);
        sum.add([run.compactions.before.map_or(0, |tokens| tokens.0), run.repeats.times().into()]);
        sum.add([run.partial.as_ref().map_or(0, |text| text.len() as u64)]);
        sum.add(fold.deadline().map_or([0, 0], |deadline| [deadline.at.0, why(deadline.why)]));
        let outstanding = fold.state.outstanding();
        sum.add([outstanding.len() as u64]);
        for id in outstanding {
            sum.add([id.0]);
        }
        let entries = fold.conversation.entries();
        sum.add([entries.len() as u64, entries.last().map_or(0, |entry| entry.id.0)]);
        for effect in effects {
            sum.effect(effect);
        }
        Self { state: fold.state.kind(), digest: Digest::EMPTY.and(&sum.0) }
    }
}

/// The numbers that a digest covers, one after the other.
#[derive(Default)]
struct Sum(Vec<u8>);

impl Sum {
    fn add<const N: usize>(&mut self, numbers: [u64; N]) {
        for number in numbers {
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn effect(&mut self, effect: &Effect) {
        let mut name = |kind: u64, id: EffectId| self.add([kind, id.0]);
        match effect {
            Effect::Prepare { id, purpose } => {
                name(1, *id);
                self.add([tag(*purpose)]);
            }
            Effect::Call { id, purpose, attempt, max_output } => {
                name(2, *id);
                let output = max_output.map_or(u64::MAX, |tokens| tokens.0);
                self.add([tag(*purpose), u64::from(*attempt), output]);
            }
            Effect::Vet { id, call } => {
                name(3, *id);
                self.0.extend_from_slice(call.id.as_str().as_bytes());
            }
            Effect::Run { id, call, allowance } => {
                name(4, *id);
                self.0.extend_from_slice(call.id.as_str().as_bytes());
                // Marks of releases that knew no allowances stay as they were.
                if let Some(Allowance { cost, tokens, time }) = allowance.as_deref() {
                    let limits = [
                        cost.map(|cost| cost.0),
                        tokens.map(|tokens| tokens.0),
                        time.map(|time| time.0),
                    ];
                    self.add(limits.map(|limit| limit.unwrap_or(u64::MAX)));
                }
            }
            Effect::Check { id, answer } => {
                name(5, *id);
                self.add([answer.len() as u64]);
            }
            Effect::Cancel { id } => name(6, *id),
            Effect::End => self.add([7]),
        }
    }
}

fn tag(purpose: Purpose) -> u64 {
    match purpose {
        Purpose::Agent => 1,
        Purpose::Compaction => 2,
        Purpose::Closing => 3,
    }
}

fn why(why: Why) -> u64 {
    match why {
        Why::RunLimit => 1,
        Why::StepLimit => 2,
        Why::CloseLimit => 3,
        Why::AttemptLimit => 4,
        Why::RetryDue => 5,
        Why::ToolLimit => 6,
        Why::WatchLimit => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Conversation, Event, Facts, Outcomes};
    use crate::model::{Item, Origin, Rules, Signal, Time};

    fn start() -> (Fold, Outcomes) {
        let task = Item::user(Origin::Task, "task");
        Fold::start(Rules::default(), Conversation::new(0), task)
    }

    #[test]
    fn a_mark_never_changes_between_releases() {
        let (fold, outcomes) = start();
        let mark = Mark::of(&fold, &outcomes.effects);
        assert_eq!(mark.state, StateKind::Preparing);
        assert_eq!(mark.digest.to_string(), "bb4097a6133423ca");
    }

    #[test]
    fn another_path_has_another_mark() {
        let (fold, first) = start();
        let mark = |event: Option<Event>, at| {
            let (fold, outcomes) = match event {
                Some(event) => fold.clone().accept(Time(at), event),
                None => (fold.clone(), first.clone()),
            };
            Mark::of(&fold, &outcomes.effects).digest
        };
        let prepared =
            Event::Prepared { id: EffectId(1), facts: Facts::default(), messages: [].into() };
        let marks = [
            mark(None, 0),
            mark(Some(prepared.clone()), 5),
            mark(Some(prepared), 6),
            mark(Some(Event::Interrupt { signal: Signal::Interrupt }), 5),
        ];
        for (index, mark) in marks.iter().enumerate() {
            assert!(!marks[..index].contains(mark), "{index}");
        }
    }

    #[test]
    fn another_purpose_has_another_mark() {
        let (fold, _) = start();
        let mark = |purpose| Mark::of(&fold, &[Effect::Prepare { id: EffectId(1), purpose }]);
        let marks = [Purpose::Agent, Purpose::Compaction, Purpose::Closing].map(mark);
        assert!(marks[0] != marks[1] && marks[1] != marks[2] && marks[2] != marks[0]);
    }
}
