//! Hooks that agree, change their input, block, fail, are slow, or panic.

use architect::hooks::{
    Hook, HookChanges, HookError, HookFailurePolicy, HookInput, HookMatcher, HookOutput, Hooks,
};
use architect::port::{EffectContext, HookPoint};
use serde_json::json;

use super::executor::panic_quietly;
use super::journal::SharedDisk;
use super::rng::Rng;

struct SimulatedHook {
    chance: Rng,
    disk: SharedDisk,
}

/// Returns hooks at some points, or at none.
pub(super) fn hooks(chance: &Rng, disk: &SharedDisk) -> Hooks {
    if chance.once_in(2) {
        return Hooks::new();
    }
    let there = HookPoint::ALL
        .into_iter()
        .filter(|point| chance.once_in(if *point == HookPoint::PreLlmCall { 2 } else { 4 }));
    there.fold(Hooks::new(), |hooks, point| {
        let on_failure = chance.of(&[HookFailurePolicy::Ignore, HookFailurePolicy::Block]);
        let hook = SimulatedHook { chance: chance.clone(), disk: disk.clone() };
        hooks.with(HookMatcher { on_failure, ..HookMatcher::for_point(point, "hook") }, hook)
    })
}

impl Hook for SimulatedHook {
    fn run(&self, occasion: &HookInput, scope: &EffectContext) -> Result<HookOutput, HookError> {
        // An effect outside needs a durable reason; a read may be repeated.
        let may_be_loose =
            matches!(occasion, HookInput::PostToolUse { .. } | HookInput::PostEdit { .. });
        let mut disk = self.disk.lock();
        if !may_be_loose && !disk.is_durable() {
            disk.broken =
                Some(format!("a hook is asked before its reason is durable: {occasion:?}"));
        }
        if disk.has_failed {
            disk.broken = Some(format!("a hook is asked after the journal failed: {occasion:?}"));
        }
        drop(disk);
        let chance = &self.chance;
        scope.sleep(chance.delay());
        let some = |text: &str| chance.once_in(3).then(|| text.to_owned());
        match chance.below(12) {
            0 => Ok(HookOutput::Block { reason: "no".to_owned() }),
            1 => Err(HookError::Exit { code: 7, stderr: "it failed".to_owned() }),
            2 => Err(HookError::Output("no answer".to_owned())),
            3 => panic_quietly(),
            4..7 => Ok(HookOutput::Continue(HookChanges {
                input: chance.once_in(3).then(|| json!({"path": "c"}).as_object().unwrap().clone()),
                output: some("other output"),
                system: some("another prompt"),
                tools: None,
                context: some("by the way"),
            })),
            _ => Ok(HookOutput::default()),
        }
    }
}
