//! Quality gates: commands that have to succeed before an answer counts.

use std::time::Instant;

use super::sandbox::Sandbox;
use crate::config::QualityGate;
use crate::exec::{Command, End};
use crate::machine::Check;
use crate::port::{Checks, HookOutcome, HookPoint, HookRun, Notice, Scope};

/// Runs the gates, one after the other; all that fail send the answer back together.
pub(super) struct Gates {
    gates: Vec<QualityGate>,
    sandbox: Sandbox,
}

/// What the model is shown of a gate's output, in bytes of its beginning and its end.
const SHOWN: usize = 4 << 10;

impl Gates {
    /// Returns these gates.
    pub(super) fn new(gates: &[QualityGate], sandbox: Sandbox) -> Self {
        Self { gates: gates.to_vec(), sandbox }
    }

    /// Runs a gate; returns what it says when it fails.
    fn run(&self, gate: &QualityGate, scope: &Scope) -> Result<(), String> {
        let command = Command {
            timeout: Some(gate.timeout.into()),
            keep: SHOWN,
            ..self.sandbox.command(&gate.command)
        };
        let outcome =
            self.sandbox.checks.run(&command, &scope.cancel).map_err(|error| error.to_string())?;
        let how = match outcome.end {
            End::Exited(0) => return Ok(()),
            End::Exited(code) => format!("exit code {code}"),
            End::Signalled(signal) => format!("ended by signal {signal}"),
            End::TimedOut => "timed out".to_owned(),
            End::OutOfMemory => "used too much memory".to_owned(),
            End::Cancelled => "cancelled".to_owned(),
            End::Stuck => "could not be ended".to_owned(),
            End::Lost => "the supervisor of the command broke down".to_owned(),
        };
        let output = [outcome.stdout.text(), outcome.stderr.text()].join("\n");
        Err(format!("{how}\n{}", output.trim()))
    }
}

impl Checks for Gates {
    fn check(&self, _: &str, scope: &Scope) -> Check {
        let mut failed = Vec::new();
        for gate in &self.gates {
            if scope.cancel.is_cancelled() {
                break;
            }
            let begun = Instant::now();
            let done = self.run(gate, scope);
            scope.tell(Notice::Hook(HookRun {
                name: format!("gate {}", gate.name).into(),
                point: HookPoint::Stop,
                outcome: match (&done, gate.required) {
                    (Ok(()), _) => HookOutcome::Passed,
                    (Err(_), true) => HookOutcome::Blocked,
                    (Err(_), false) => HookOutcome::Failed,
                },
                took: begun.elapsed().into(),
                call: None,
                said: done.as_ref().err().map(|said| said.as_str().into()),
            }));
            if let (Err(said), true) = (done, gate.required) {
                failed.push(format!(
                    "Quality gate {} (`{}`) failed: {said}",
                    gate.name, gate.command
                ));
            }
        }
        if failed.is_empty() {
            return Check::Passed;
        }
        let message =
            format!("[SYSTEM] {}\n\nMend that, and then answer again.", failed.join("\n\n"));
        Check::SentBack { message: message.into() }
    }
}
