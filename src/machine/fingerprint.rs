//! A short fingerprint of a machine. A replay uses it to detect a divergence from the stored run.

use crate::machine::budget::budget_share::BudgetShare;
use crate::machine::effect::{CallPurpose, Effect};
use crate::machine::machine::Machine;
use crate::machine::run_context::RunContext;
use crate::machine::state::StateKind;
use crate::types::{Digest, DigestPiece, EffectId};

/// The state of a machine by name, and a digest of its context, its pending effects and the effects of the last event.
///
/// Texts are excluded, so that the computation takes less than a microsecond; their consequences are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The state.
    pub state: StateKind,
    /// The digest of everything else.
    pub digest: Digest,
}

impl Fingerprint {
    /// The version of the digest's input. Digests of different versions can't be compared.
    pub const VERSION: u32 = 1;

    /// Returns the fingerprint of a machine and of the effects of its last event.
    pub fn of(machine: &Machine, effects: &[Effect]) -> Self {
        let run = machine.state.run();
        let RunContext { streaks, compactions, used, .. } = run;
        let mut input = FingerprintInput(DigestPiece::new());
        input.add([run.now.0, run.started_at.0, run.next_effect.0]);
        input.add([run.steps, run.model_calls, run.requests].map(u64::from));
        input.add([used.cost.0, used.tokens.0]);
        // Fingerprints of releases without other models stay the same.
        if run.model > 0 {
            input.add([run.model.into()]);
        }
        input.add(
            [streaks.truncated, streaks.empty, streaks.pauses, streaks.invalid].map(u64::from),
        );
        input
            .add([streaks.sent_back, streaks.schema_violations, streaks.follow_ups].map(u64::from));
        input.add([compactions.count.into(), compactions.is_futile.into()]);
        input.add([compactions.size_before.unwrap_or_default().0, run.repetition.count().into()]);
        input.add([run.partial_answer.as_ref().map_or(0, |text| text.len() as u64)]);
        let deadline = machine.deadline();
        input.add(deadline.map_or([0, 0], |due| [due.at.0, due.kind as u64]));
        let pending = machine.state.pending_effects();
        input.add([pending.len() as u64]);
        pending.into_iter().for_each(|id| input.add([id.0]));
        let entries = machine.conversation.entries();
        input.add([entries.len() as u64, entries.last().map_or(0, |entry| entry.id.0)]);
        for effect in effects {
            input.add_effect(effect);
        }
        Self { state: machine.state.kind(), digest: input.0.finish() }
    }
}

/// The numbers that the digest covers.
struct FingerprintInput(DigestPiece);

impl FingerprintInput {
    fn add<const N: usize>(&mut self, numbers: [u64; N]) {
        for number in numbers {
            self.0.add(&number.to_le_bytes());
        }
    }

    fn add_effect(&mut self, effect: &Effect) {
        let mut name = |kind: u64, id: EffectId| self.add([kind, id.0]);
        match effect {
            Effect::Prepare { id, purpose } => {
                name(1, *id);
                self.add([purpose_code(*purpose)]);
            }
            Effect::CallModel { id, purpose, attempt, max_output } => {
                name(2, *id);
                let output = max_output.map_or(u64::MAX, |tokens| tokens.0);
                self.add([purpose_code(*purpose), u64::from(*attempt), output]);
            }
            Effect::Authorize { id, call } => {
                name(3, *id);
                self.0.add(call.id.as_str().as_bytes());
            }
            Effect::RunTool { id, call, budget, command } => {
                name(4, *id);
                self.0.add(call.id.as_str().as_bytes());
                // Fingerprints of releases without budget shares stay the same.
                if let Some(BudgetShare { cost, tokens, time }) = budget.as_deref() {
                    let limits = [cost.map(|it| it.0), tokens.map(|it| it.0), time.map(|it| it.0)];
                    self.add(limits.map(|limit| limit.unwrap_or(u64::MAX)));
                }
                // Only calls with a background command have this number.
                if let Some(command) = command {
                    self.add([command.0]);
                }
            }
            Effect::CheckAnswer { id, answer } => {
                name(5, *id);
                self.add([answer.len() as u64]);
            }
            Effect::Cancel { id } => name(6, *id),
            Effect::End => self.add([7]),
        }
    }
}

fn purpose_code(purpose: CallPurpose) -> u64 {
    match purpose {
        CallPurpose::Agent => 1,
        CallPurpose::Compaction => 2,
        CallPurpose::Closing => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Conversation, Event, MachineOutput, RequestSize, State};
    use crate::types::{ConversationItem, MessageOrigin, RunRules, RunTime, Signal};

    fn start() -> (Machine, MachineOutput) {
        let task = ConversationItem::user(MessageOrigin::Task, "task");
        Machine::start(RunRules::default(), Conversation::new(0), task)
    }

    #[test]
    fn a_fingerprint_never_changes_between_releases() {
        let (machine, output) = start();
        let fingerprint = Fingerprint::of(&machine, &output.effects);
        assert_eq!(fingerprint.state, StateKind::Preparing);
        assert_eq!(fingerprint.digest.to_string(), "bb4097a6133423ca");
    }

    #[test]
    fn another_path_has_another_fingerprint() {
        let (machine, first) = start();
        let fingerprint = |event: Option<Event>, at| {
            let (machine, output) = match event {
                Some(event) => machine.clone().handle(RunTime(at), event),
                None => (machine.clone(), first.clone()),
            };
            Fingerprint::of(&machine, &output.effects).digest
        };
        let prepared =
            Event::Prepared { id: EffectId(1), size: RequestSize::default(), messages: [].into() };
        let fingerprints = [
            fingerprint(None, 0),
            fingerprint(Some(prepared.clone()), 5),
            fingerprint(Some(prepared), 6),
            fingerprint(Some(Event::Interrupt { signal: Signal::Interrupt }), 5),
        ];
        for (index, fingerprint) in fingerprints.iter().enumerate() {
            assert!(!fingerprints[..index].contains(fingerprint), "{index}");
        }
    }

    #[test]
    fn another_model_has_another_fingerprint() {
        let (mut machine, _) = start();
        let before = Fingerprint::of(&machine, &[]).digest;
        let State::Preparing(state) = &mut machine.state else { panic!("{:?}", machine.state) };
        state.run.model = 1;
        assert_ne!(Fingerprint::of(&machine, &[]).digest, before);
    }

    #[test]
    fn another_purpose_has_another_fingerprint() {
        let (machine, _) = start();
        let fingerprint =
            |purpose| Fingerprint::of(&machine, &[Effect::Prepare { id: EffectId(1), purpose }]);
        let fingerprints =
            [CallPurpose::Agent, CallPurpose::Compaction, CallPurpose::Closing].map(fingerprint);
        assert!(
            fingerprints[0] != fingerprints[1]
                && fingerprints[1] != fingerprints[2]
                && fingerprints[2] != fingerprints[0]
        );
    }
}
