//! Hooks that agree, change what they see, say no, fail, take their time, and break down.

use architect::hooks::{Answer, Changes, Hook, HookError, Hooks, Occasion, OnFailure, Place};
use architect::port::{HookPoint, Scope};
use serde_json::json;

use super::chance::Chance;
use super::hands::break_down;
use super::journal::Shared;

struct SimulatedHook {
    chance: Chance,
    disk: Shared,
}

/// Returns hooks at some points, or at none.
pub(super) fn hooks(chance: &Chance, disk: &Shared) -> Hooks {
    if chance.once_in(2) {
        return Hooks::new();
    }
    let there = HookPoint::ALL.into_iter().filter(|_| chance.once_in(4));
    there.fold(Hooks::new(), |hooks, point| {
        let on_failure = chance.of(&[OnFailure::Ignore, OnFailure::Block]);
        let hook = SimulatedHook { chance: chance.clone(), disk: disk.clone() };
        hooks.with(Place { on_failure, ..Place::at(point, "hook") }, hook)
    })
}

impl Hook for SimulatedHook {
    fn ask(&self, occasion: &Occasion, scope: &Scope) -> Result<Answer, HookError> {
        // Whoever acts outside has to have a reason that survives a crash; what is read may be read again.
        let may_be_loose =
            matches!(occasion, Occasion::PostToolUse { .. } | Occasion::PostEdit { .. });
        let mut disk = self.disk.lock();
        if !may_be_loose && disk.durable < disk.records.len() {
            disk.broken =
                Some(format!("a hook is asked before its reason is durable: {occasion:?}"));
        }
        drop(disk);
        let chance = &self.chance;
        scope.sleep(chance.delay());
        let some = |text: &str| chance.once_in(3).then(|| text.to_owned());
        match chance.below(12) {
            0 => Ok(Answer::Block { reason: "no".to_owned() }),
            1 => Err(HookError::Exit { code: 7, stderr: "it failed".to_owned() }),
            2 => Err(HookError::Output("no answer".to_owned())),
            3 => break_down(),
            4..7 => Ok(Answer::GoOn(Changes {
                input: chance.once_in(3).then(|| json!({"path": "c"}).as_object().unwrap().clone()),
                output: some("other output"),
                system: some("another prompt"),
                tools: None,
                context: some("by the way"),
            })),
            _ => Ok(Answer::default()),
        }
    }
}
