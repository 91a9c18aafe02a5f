//! Quality gates: commands that have to succeed before an answer counts.

use std::time::Instant;

use super::sandbox::Sandbox;
use crate::config::QualityGate;
use crate::exec::{CommandEnd, CommandSpec};
use crate::machine::CheckResult;
use crate::port::{AnswerChecks, EffectContext, EffectNotice, HookOutcome, HookPoint, HookRun};

/// Runs the gates, one after the other; all that fail send the answer back together.
pub(super) struct QualityGates {
    gates: Vec<QualityGate>,
    sandbox: Sandbox,
}

/// How much of a gate's output the model is shown, in bytes of its beginning and its end.
const MAX_SHOWN_BYTES: usize = 4 << 10;

impl QualityGates {
    /// Returns these gates.
    pub(super) fn new(gates: &[QualityGate], sandbox: Sandbox) -> Self {
        Self { gates: gates.to_vec(), sandbox }
    }

    /// Runs a gate; returns what it says when it fails.
    fn run_gate(&self, gate: &QualityGate, scope: &EffectContext) -> Result<(), String> {
        let command = CommandSpec {
            timeout: Some(gate.timeout.into()),
            kept_bytes: MAX_SHOWN_BYTES,
            ..self.sandbox.command(&gate.command)
        };
        let outcome =
            self.sandbox.checks.run(&command, &scope.cancel).map_err(|error| error.to_string())?;
        let how = match outcome.end {
            CommandEnd::Exited(0) => return Ok(()),
            CommandEnd::Exited(code) => format!("exit code {code}"),
            CommandEnd::Signalled(signal) => format!("ended by signal {signal}"),
            CommandEnd::TimedOut => "timed out".to_owned(),
            CommandEnd::OutOfMemory => "used too much memory".to_owned(),
            CommandEnd::Cancelled => "cancelled".to_owned(),
            CommandEnd::Stuck => "could not be ended".to_owned(),
            CommandEnd::Lost => "the supervisor of the command broke down".to_owned(),
        };
        let output = [outcome.stdout.text(), outcome.stderr.text()].join("\n");
        Err(format!("{how}\n{}", output.trim()))
    }
}

impl AnswerChecks for QualityGates {
    fn check(&self, _: &str, scope: &EffectContext) -> CheckResult {
        let mut failed = Vec::new();
        for gate in &self.gates {
            if scope.cancel.is_cancelled() {
                break;
            }
            let begun = Instant::now();
            let done = self.run_gate(gate, scope);
            scope.notify(EffectNotice::Hook(HookRun {
                name: format!("gate {}", gate.name).into(),
                point: HookPoint::Stop,
                outcome: match (&done, gate.required) {
                    (Ok(()), _) => HookOutcome::Passed,
                    (Err(_), true) => HookOutcome::Blocked,
                    (Err(_), false) => HookOutcome::Failed,
                },
                duration: begun.elapsed().into(),
                call: None,
                message: done.as_ref().err().map(|error| error.as_str().into()),
            }));
            if let (Err(error), true) = (done, gate.required) {
                failed.push(format!(
                    "Quality gate {} (`{}`) failed: {error}",
                    gate.name, gate.command
                ));
            }
        }
        if failed.is_empty() {
            return CheckResult::Passed;
        }
        let message =
            format!("[SYSTEM] {}\n\nFix that, and then answer again.", failed.join("\n\n"));
        CheckResult::SentBack { message: message.into() }
    }
}
