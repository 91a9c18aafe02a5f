//! The texts of the log, in each language.
//!
//! English and Spanish sentences are side by side, so that a missing translation does not compile. External text
//! (errors, names, paths) is sanitized.

use super::public_events::{
    AgentEnd, AgentStart, ApiCallEnd, ApiCallStart, CallOutcome, CompactionComplete, HookComplete,
    IncompleteReply, LimitAction, MessageTiming, ModelFallback, PublicEvent, PublicEventKind,
    RetryCause, SummaryAuthor, ToolCallEnd,
};
use super::result::WorktreeResult;
use super::sanitize;
use super::tool_failure::failure_line;
use crate::machine::{CallPurpose, CloseReason, LlmFailure, NoFinalSummary, RunStatus, StopReason};
use crate::port::HookOutcome;
use crate::types::{FaultKind, Language, MicroUsd, Signal, Tokens, ToolStatus, Usage, pluralize};

/// Length limit of an external text, in characters.
pub(super) const MAX_DETAIL: usize = 360;

/// Formats a text in a language, from the English and the Spanish sentence.
macro_rules! text {
    ($lang:expr, $english:literal, $spanish:literal) => {
        match $lang {
            $crate::types::Language::En => format_args!($english).to_string(),
            $crate::types::Language::Es => format_args!($spanish).to_string(),
        }
    };
}
pub(super) use text;

impl Language {
    /// Returns the sentence for an event; empty if the event has none.
    #[allow(clippy::too_many_lines)] // one arm for each sentence
    pub(super) fn sentence(self, event: &PublicEvent) -> String {
        match &event.kind {
            PublicEventKind::AgentStart(AgentStart { model, agent, resumed, .. }) => {
                let [id, model, agent] =
                    [&event.session_id, model, agent].map(|text| sanitize::line(text));
                let begin = match resumed {
                    false => self.pick(["Session", "Sesión"]),
                    true => self.pick(["Session resumed:", "Sesión reanudada:"]),
                };
                format!("{begin} {id} · {model} · {agent}")
            }
            PublicEventKind::ApiCallStart(ApiCallStart { purpose, step, messages, .. }) => {
                let messages =
                    self.count(*messages, ["message", "messages"], ["mensaje", "mensajes"]);
                let call = match purpose {
                    CallPurpose::Agent => {
                        text!(self, "Step {step} → LLM call", "Paso {step} → llamada al LLM")
                    }
                    CallPurpose::Compaction => {
                        text!(self, "Compaction → LLM call", "Compactación → llamada al LLM")
                    }
                    CallPurpose::Closing => text!(
                        self,
                        "Final summary → LLM call without tools",
                        "Resumen final → llamada al LLM sin herramientas"
                    ),
                };
                format!("{call} ({messages})")
            }
            PublicEventKind::ApiCallEnd(ApiCallEnd { outcome, .. }) => match outcome {
                CallOutcome::Replied { tool_calls: 0, .. } => {
                    text!(self, "LLM answered", "El LLM respondió")
                }
                CallOutcome::Replied { tool_calls, .. } => {
                    let english = ["tool call", "tool calls"];
                    let spanish = ["llamada a herramienta", "llamadas a herramientas"];
                    let calls = self.count(*tool_calls, english, spanish);
                    text!(self, "LLM answered with {calls}", "El LLM respondió con {calls}")
                }
                CallOutcome::Failed { fault: FaultKind::Blocked, message } => {
                    let message = sanitize::headline(message, MAX_DETAIL);
                    text!(
                        self,
                        "LLM call not made: {message}",
                        "Llamada al LLM no hecha: {message}"
                    )
                }
                CallOutcome::Failed { fault, message } => {
                    let fault = self.fault(*fault);
                    let message = sanitize::headline(message, MAX_DETAIL);
                    text!(
                        self,
                        "LLM call failed: {fault} ({message})",
                        "Falló la llamada al LLM: {fault} ({message})"
                    )
                }
                CallOutcome::Cancelled => {
                    text!(self, "LLM call cancelled", "Llamada al LLM cancelada")
                }
            },
            PublicEventKind::Retry(cause) => match cause {
                RetryCause::Fault { attempt, wait, .. } => {
                    text!(self, "Attempt {attempt} in {wait}", "Intento {attempt} en {wait}")
                }
                RetryCause::IncompleteReply { reason } => self
                    .pick(match reason {
                        IncompleteReply::Length => [
                            "Cut off by the output limit; asking for the rest",
                            "Cortado por el límite de salida; se pide el resto",
                        ],
                        IncompleteReply::Empty => {
                            ["Empty reply; asking again", "Respuesta vacía; se pregunta de nuevo"]
                        }
                        IncompleteReply::Pause => [
                            "Paused by the provider; continuing",
                            "Pausado por el proveedor; se continúa",
                        ],
                    })
                    .to_owned(),
            },
            PublicEventKind::ModelFallback(ModelFallback { from, to, fault }) => {
                let fault = self.fault(*fault);
                let [from, to] = [from, to].map(|name| sanitize::headline(name, MAX_DETAIL));
                text!(
                    self,
                    "{from} failed ({fault}); continuing with {to}",
                    "Falló {from} ({fault}); se continúa con {to}"
                )
            }
            PublicEventKind::ToolCallEnd(end) => self.tool_outcome(end),
            PublicEventKind::SubagentDenied(denied) => {
                let tool = sanitize::headline(&denied.name, MAX_DETAIL);
                let (agent, reason) =
                    (&denied.agent, sanitize::headline(&denied.reason, MAX_DETAIL));
                text!(
                    self,
                    "{tool} of the sub-agent {agent}: {reason}",
                    "{tool} del subagente {agent}: {reason}"
                )
            }
            PublicEventKind::HookComplete(HookComplete { name, outcome, message, .. }) => {
                let name = sanitize::headline(name, MAX_DETAIL);
                let outcome = match outcome {
                    HookOutcome::Passed => "✓",
                    HookOutcome::Blocked => self.pick(["blocked", "bloqueado"]),
                    HookOutcome::Failed => "✗",
                    HookOutcome::TimedOut => self.pick(["timed out", "tiempo agotado"]),
                };
                match sanitize::headline(message.as_deref().unwrap_or_default(), MAX_DETAIL) {
                    output if output.is_empty() => format!("Hook {name}: {outcome}"),
                    output => format!("Hook {name}: {outcome} ({output})"),
                }
            }
            PublicEventKind::SteeringReceived(message) => {
                let begin = match message.kind {
                    MessageTiming::Steering => self.pick(["Message received", "Mensaje recibido"]),
                    MessageTiming::FollowUp => self.pick(["Follow-up", "Continuación"]),
                };
                format!("{begin}: {}", sanitize::headline(&message.text, MAX_DETAIL))
            }
            PublicEventKind::CompactionTriggered(start) => {
                let begin = self.pick(["Compacting the context", "Compactando el contexto"]);
                format!("{begin} ({})", self.tokens(start.context_tokens))
            }
            PublicEventKind::CompactionComplete(CompactionComplete { context_tokens, summary }) => {
                let tokens = self.tokens(*context_tokens);
                match summary {
                    SummaryAuthor::Model => {
                        text!(self, "Compacted to {tokens}", "Compactado a {tokens}")
                    }
                    SummaryAuthor::Program => text!(
                        self,
                        "Compacted to {tokens} without the LLM",
                        "Compactado a {tokens} sin el LLM"
                    ),
                    SummaryAuthor::None => self
                        .pick([
                            "Not compacted; the run ends",
                            "Sin compactar; la ejecución termina",
                        ])
                        .to_owned(),
                }
            }
            PublicEventKind::LimitReached(action) => match action {
                LimitAction::Close {
                    reason,
                    least_budget_usd: budget,
                    least_max_tokens: tokens,
                } => {
                    let budget = budget.map(|budget| format!("--budget {}", budget.as_dollars()));
                    let tokens = tokens.map(|tokens| format!("--max-tokens {}", tokens.0));
                    let least: Vec<String> = budget.into_iter().chain(tokens).collect();
                    let (limit, least) = (self.limit(*reason), least.join(" "));
                    match least.is_empty() {
                        true => limit,
                        false => text!(
                            self,
                            "{limit}; it needs {least} at least",
                            "{limit}; necesita al menos {least}"
                        ),
                    }
                }
                LimitAction::NoSummary { cause } => {
                    let begin = self.pick([
                        "The run ends without a final summary",
                        "La ejecución termina sin resumen final",
                    ]);
                    format!("{begin}: {}", self.no_summary(*cause))
                }
                LimitAction::LowerOutput { max_output_tokens } => {
                    let tokens = self.tokens(*max_output_tokens);
                    text!(
                        self,
                        "The budget limits the reply to {tokens}",
                        "El presupuesto limita la respuesta a {tokens}"
                    )
                }
                LimitAction::Warn { cost_usd: cost } => {
                    text!(self, "{cost} spent so far", "{cost} gastados hasta ahora")
                }
            },
            PublicEventKind::LoopDetected(found) => {
                let times = found.times;
                text!(
                    self,
                    "The same tool calls {times} times in a row",
                    "Las mismas llamadas a herramientas {times} veces seguidas"
                )
            }
            PublicEventKind::Error(error) => sanitize::headline(&error.message, MAX_DETAIL),
            PublicEventKind::AgentEnd(AgentEnd { reason, steps, llm_calls, .. }) => {
                let steps = self.count(*steps, ["step", "steps"], ["paso", "pasos"]);
                let spanish = ["llamada al LLM", "llamadas al LLM"];
                let calls = self.count(*llm_calls, ["LLM call", "LLM calls"], spanish);
                format!("{} ({steps}) · {calls}", self.run_ended(*reason))
            }
            PublicEventKind::StateChange(_)
            | PublicEventKind::TextDelta(_)
            | PublicEventKind::ToolCallStart(_)
            | PublicEventKind::SubagentCall(_) => String::new(),
        }
    }

    /// Returns the English or the Spanish text.
    pub fn pick<T>(self, [english, spanish]: [T; 2]) -> T {
        match self {
            Self::En => english,
            Self::Es => spanish,
        }
    }

    /// Returns a count with its noun. Each language has a singular and a plural.
    pub fn count(self, count: impl TryInto<u64>, english: [&str; 2], spanish: [&str; 2]) -> String {
        let [one, many] = self.pick([english, spanish]);
        pluralize(count, one, many)
    }

    fn number(self, number: u64) -> String {
        group_thousands(number, self.pick([",", "."]))
    }

    fn tokens(self, tokens: Tokens) -> String {
        format!("≈ {} tokens", self.number(tokens.0))
    }

    /// Returns the sentence about the worktree of a run.
    pub(super) fn worktree(self, worktree: &WorktreeResult) -> String {
        let WorktreeResult { name, branch, summary, kept, .. } = worktree;
        let name = branch.as_ref().unwrap_or(name);
        match kept {
            true => text!(self, "Worktree {name}: {summary}", "Árbol de trabajo {name}: {summary}"),
            false => text!(
                self,
                "Worktree {name}: unchanged, removed",
                "Árbol de trabajo {name}: sin cambios, eliminado"
            ),
        }
    }

    /// Returns the sentence about the usage of all calls.
    pub(super) fn costs(self, cost: Option<MicroUsd>, usage: Usage) -> String {
        let unknown = self.pick(["price unknown", "precio desconocido"]);
        let cost = cost.map_or(unknown.to_owned(), |cost| cost.to_string());
        let [input, output, cached] =
            [usage.input, usage.output, usage.cached_input].map(|tokens| self.number(tokens.0));
        let cached = match usage.cached_input.0 {
            0 => String::new(),
            _ => text!(self, " ({cached} cached)", " ({cached} en caché)"),
        };
        text!(
            self,
            "{cost} · {input} tokens in{cached}, {output} out",
            "{cost} · {input} tokens de entrada{cached}, {output} de salida"
        )
    }

    fn tool_status(self, status: ToolStatus) -> &'static str {
        self.pick(match status {
            ToolStatus::Ok => ["OK", "OK"],
            ToolStatus::Failed => ["Failed", "Falló"],
            ToolStatus::TimedOut => ["Timed out", "Tiempo agotado"],
            ToolStatus::Unknown => ["Unknown tool", "Herramienta desconocida"],
            ToolStatus::Malformed => ["Malformed arguments", "Argumentos inválidos"],
            ToolStatus::Denied => ["Denied", "Denegado"],
            ToolStatus::Truncated => {
                ["Cut off by the output limit", "Cortado por el límite de salida"]
            }
            ToolStatus::Skipped => ["Skipped", "Omitido"],
            ToolStatus::Interrupted => ["Interrupted", "Interrumpido"],
            ToolStatus::Abandoned => ["Abandoned", "Abandonado"],
            ToolStatus::InDoubt => ["Outcome unknown", "Resultado desconocido"],
        })
    }

    fn tool_outcome(self, end: &ToolCallEnd) -> String {
        let outcome = self.tool_status(end.status);
        if end.status == ToolStatus::Ok {
            return outcome.to_owned();
        }
        let error = failure_line(&end.name, &end.output, MAX_DETAIL);
        match &*error {
            "" => outcome.to_owned(),
            // The preceding mark already shows the failure.
            _ if end.status == ToolStatus::Failed => error,
            text if text.to_lowercase().starts_with(&outcome.to_lowercase()) => error,
            text => {
                // The text for the model is always English, and contains the outcome.
                let english = Self::En.tool_status(end.status);
                let rest = text.strip_prefix(english).and_then(|rest| rest.strip_prefix(": "));
                format!("{outcome}: {}", rest.unwrap_or(text))
            }
        }
    }

    pub(super) fn fault(self, fault: FaultKind) -> &'static str {
        self.pick(match fault {
            FaultKind::Connect => ["no connection", "sin conexión"],
            FaultKind::Timeout => ["timed out", "tiempo agotado"],
            FaultKind::RateLimited => ["rate limited", "demasiadas peticiones"],
            FaultKind::Server => ["provider error", "error del proveedor"],
            FaultKind::Truncated => ["reply cut off", "respuesta cortada"],
            FaultKind::Protocol => ["invalid reply", "respuesta inválida"],
            FaultKind::Overflow => ["context too large", "contexto demasiado grande"],
            FaultKind::Auth => ["not authorized", "sin autorización"],
            FaultKind::Quota => ["no quota left", "sin cuota"],
            FaultKind::Refused => ["refused by the provider", "rechazado por el proveedor"],
            FaultKind::Request => ["invalid request", "petición inválida"],
            FaultKind::MissingModel => ["no such model", "no existe ese modelo"],
            FaultKind::NotAnApi => ["not a model API", "no es una API de modelos"],
            FaultKind::Tls => ["untrusted connection", "conexión que no es de confianza"],
            FaultKind::Blocked => ["blocked by a hook", "bloqueado por un hook"],
            FaultKind::Budget => ["over the shared budget", "por encima del presupuesto común"],
        })
    }

    fn limit(self, reason: CloseReason) -> String {
        let text = self.pick(match reason {
            CloseReason::MaxSteps => ["Step limit reached", "Límite de pasos alcanzado"],
            CloseReason::Timeout => ["Time limit reached", "Límite de tiempo alcanzado"],
            CloseReason::ContextFull => {
                ["The context window is full", "La ventana de contexto está llena"]
            }
            CloseReason::BudgetExceeded => [
                "The budget does not cover another LLM call",
                "El presupuesto no alcanza para otra llamada al LLM",
            ],
            CloseReason::LoopDetected => {
                ["The run repeats the same calls", "La ejecución repite las mismas llamadas"]
            }
        });
        format!("{text} ({})", reason.as_str())
    }

    fn no_summary(self, cause: NoFinalSummary) -> &'static str {
        self.pick(match cause {
            NoFinalSummary::Budget => {
                ["the budget does not cover the call", "el presupuesto no alcanza para la llamada"]
            }
            NoFinalSummary::Context => [
                "the call does not fit into the context window",
                "la llamada no cabe en la ventana de contexto",
            ],
            NoFinalSummary::Time => {
                ["there is no time left for the call", "no queda tiempo para la llamada"]
            }
        })
    }

    /// Returns the sentence about denied calls.
    pub(super) fn denied(self, calls: usize, tools: &str) -> String {
        match calls {
            1 => text!(
                self,
                "1 tool call was denied: {tools}",
                "Se denegó 1 llamada a una herramienta: {tools}"
            ),
            calls => text!(
                self,
                "{calls} tool calls were denied: {tools}",
                "Se denegaron {calls} llamadas a herramientas: {tools}"
            ),
        }
    }

    /// Returns the sentence about the end of a run.
    pub(super) fn run_ended(self, reason: StopReason) -> String {
        let begin = self.pick(match reason {
            StopReason::LlmDone => ["Agent completed", "Agente completado"],
            StopReason::UserInterrupt(Signal::Interrupt) => {
                ["Interrupted by the user", "Interrumpido por el usuario"]
            }
            StopReason::UserInterrupt(Signal::Terminate) => ["Terminated", "Terminado"],
            StopReason::UserInterrupt(Signal::Hangup) => {
                ["The terminal was closed", "Se cerró el terminal"]
            }
            StopReason::UserInterrupt(Signal::Pipe) => {
                ["Standard output was closed", "Se cerró la salida estándar"]
            }
            StopReason::LlmError(LlmFailure::Auth) => {
                ["Agent failed: not authorized", "El agente falló: sin autorización"]
            }
            StopReason::LlmError(LlmFailure::Timeout) => {
                ["Agent failed: the LLM timed out", "El agente falló: el LLM agotó el tiempo"]
            }
            reason if reason.status() == RunStatus::Failed => {
                return text!(self, "Agent failed: {reason}", "El agente falló: {reason}");
            }
            reason => return text!(self, "Agent stopped: {reason}", "Agente detenido: {reason}"),
        });
        begin.to_owned()
    }
}

/// Returns a number with grouped thousands.
fn group_thousands(number: u64, mark: &str) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push_str(mark);
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::EffectId;

    #[test]
    fn numbers_agree_with_their_nouns() {
        let call = |messages| {
            let kind = PublicEventKind::ApiCallStart(ApiCallStart {
                call: EffectId(1),
                purpose: CallPurpose::Agent,
                attempt: 1,
                step: 1,
                messages,
                context_tokens: Tokens::ZERO,
                max_output_tokens: None,
                model: None,
            });
            let ts = jiff::Timestamp::UNIX_EPOCH;
            let event = PublicEvent { seq: 1, ts, session_id: "s".into(), kind };
            [Language::En.sentence(&event), Language::Es.sentence(&event)]
        };
        assert_eq!(
            call(1),
            ["Step 1 → LLM call (1 message)", "Paso 1 → llamada al LLM (1 mensaje)"]
        );
        assert_eq!(
            call(3),
            ["Step 1 → LLM call (3 messages)", "Paso 1 → llamada al LLM (3 mensajes)"]
        );
    }

    #[test]
    fn large_numbers_are_grouped_as_the_language_does() {
        assert_eq!(group_thousands(1_234_567, ","), "1,234,567");
        assert_eq!(
            [group_thousands(0, ","), group_thousands(999, ","), group_thousands(1_000, ".")],
            ["0", "999", "1.000"]
        );
    }
}
