//! The texts of the log, in each language.
//!
//! A text is a [`LogMessage`] with typed parameters, and its English and Spanish sentences are next to each other: a
//! missing translation does not compile. Parameters from outside (errors, names, paths) have to be sanitized already.

use super::public::{IncompleteReply, MessageTiming, SummaryAuthor, TokenUsage};
use crate::machine::{CallPurpose, CloseReason, LlmFailure, NoFinalSummary, StopReason};
use crate::model::{
    FaultKind, Language, MicroUsd, Signal, TimeSpan, Tokens, ToolStatus, pluralize,
};
use crate::port::HookOutcome;

/// A text of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LogMessage<'a> {
    /// A run begins.
    Session {
        /// The session.
        id: &'a str,
        /// The model.
        model: &'a str,
        /// The agent.
        agent: &'a str,
        /// Whether the session has run before.
        resumed: bool,
    },
    /// A request goes to the model.
    ModelCall {
        /// Its purpose.
        purpose: CallPurpose,
        /// The step that its tool calls would form.
        step: u32,
        /// Messages in it.
        messages: u32,
    },
    /// A complete reply arrived.
    Replied {
        /// How many tools it calls.
        tool_calls: u32,
    },
    /// A request failed.
    CallFailed {
        /// What happened.
        fault: FaultKind,
        /// The message of the provider or the network.
        message: &'a str,
    },
    /// A request was cancelled.
    CallCancelled,
    /// The text shown so far belongs to an attempt that is discarded.
    Discarded,
    /// A request will be retried.
    Retry {
        /// The attempt, counted from one.
        attempt: u32,
        /// The delay before it.
        wait: TimeSpan,
    },
    /// The model is asked to continue.
    IncompleteReply {
        /// Why its reply is incomplete.
        reason: IncompleteReply,
    },
    /// How a tool call ended.
    Tool {
        /// The status.
        status: ToolStatus,
        /// The error; empty on success.
        error: &'a str,
    },
    /// A number of written lines.
    Lines {
        /// The count.
        lines: usize,
    },
    /// A number of lines that replace others.
    Change {
        /// Lines before.
        old: usize,
        /// Lines after.
        new: usize,
    },
    /// Lines of a file.
    Range {
        /// The first line, counted from one.
        from: u64,
        /// The last line; `None` for the end of the file.
        to: Option<u64>,
    },
    /// A search.
    Search {
        /// What is searched for.
        pattern: &'a str,
        /// Where.
        path: &'a str,
    },
    /// A number of files.
    Files {
        /// The count.
        files: usize,
    },
    /// A hook completed.
    Hook {
        /// Its name.
        name: &'a str,
        /// How it ended.
        outcome: HookOutcome,
        /// Its output; may be empty.
        output: &'a str,
    },
    /// A message of the user was delivered to the run.
    Steering {
        /// When the model reads it.
        kind: MessageTiming,
        /// The message.
        text: &'a str,
    },
    /// The context is being compacted.
    Compacting {
        /// The size of the context.
        context: Tokens,
    },
    /// The context was compacted.
    Compacted {
        /// The new size of the context.
        context: Tokens,
        /// Who wrote the summary.
        by: SummaryAuthor,
    },
    /// A limit ends the run.
    Closing {
        /// The limit.
        reason: CloseReason,
    },
    /// The run ends without a final summary.
    NoSummary {
        /// Why it could not be requested.
        cause: NoFinalSummary,
    },
    /// The output limit of a call was lowered, since the budget does not cover more.
    OutputLowered {
        /// The new limit.
        to: Tokens,
    },
    /// The cost exceeds the user's warning threshold.
    CostWarning {
        /// The cost so far.
        cost: MicroUsd,
    },
    /// The same turn was repeated.
    Loop {
        /// How often in a row.
        times: u32,
    },
    /// The run is over.
    Ended {
        /// The reason.
        reason: StopReason,
        /// Replies whose tool calls ran.
        steps: u32,
        /// Model calls; the last one brings the answer and is not a step.
        llm_calls: u32,
    },
    /// Tool calls were denied.
    Denied {
        /// The count.
        calls: usize,
        /// The names of the tools.
        tools: &'a str,
    },
    /// The session can be resumed after an early end.
    Resume {
        /// The command that does so.
        command: &'a str,
    },
    /// The usage of all calls.
    Costs {
        /// The cost, if the model has a price.
        cost: Option<MicroUsd>,
        /// The tokens.
        usage: TokenUsage,
    },
    /// The model has not answered yet.
    Waiting,
    /// A number of running tools.
    Running {
        /// The count.
        tools: usize,
    },
}

/// Formats a text in a language: first the English sentence, then the Spanish one.
macro_rules! text {
    ($lang:expr, $english:literal, $spanish:literal) => {
        match $lang {
            Language::En => format_args!($english).to_string(),
            Language::Es => format_args!($spanish).to_string(),
        }
    };
}

impl LogMessage<'_> {
    /// Returns the sentence in a language.
    #[allow(clippy::too_many_lines)] // one arm for each sentence
    pub fn render(&self, lang: Language) -> String {
        match *self {
            Self::Session { id, model, agent, resumed: false } => {
                text!(lang, "Session {id} · {model} · {agent}", "Sesión {id} · {model} · {agent}")
            }
            Self::Session { id, model, agent, resumed: true } => text!(
                lang,
                "Session resumed: {id} · {model} · {agent}",
                "Sesión reanudada: {id} · {model} · {agent}"
            ),
            Self::ModelCall { purpose, step, messages } => {
                let messages =
                    lang.count(messages, ["message", "messages"], ["mensaje", "mensajes"]);
                match purpose {
                    CallPurpose::Agent => text!(
                        lang,
                        "Step {step} → LLM call ({messages})",
                        "Paso {step} → llamada al LLM ({messages})"
                    ),
                    CallPurpose::Compaction => text!(
                        lang,
                        "Compaction → LLM call ({messages})",
                        "Compactación → llamada al LLM ({messages})"
                    ),
                    CallPurpose::Closing => text!(
                        lang,
                        "Final summary → LLM call without tools ({messages})",
                        "Resumen final → llamada al LLM sin herramientas ({messages})"
                    ),
                }
            }
            Self::Replied { tool_calls: 0 } => text!(lang, "LLM answered", "El LLM respondió"),
            Self::Replied { tool_calls } => {
                let calls = lang.count(
                    tool_calls,
                    ["tool call", "tool calls"],
                    ["llamada a herramienta", "llamadas a herramientas"],
                );
                text!(lang, "LLM answered with {calls}", "El LLM respondió con {calls}")
            }
            Self::CallFailed { fault, message } => {
                let fault = lang.fault(fault);
                text!(
                    lang,
                    "LLM call failed: {fault} ({message})",
                    "Falló la llamada al LLM: {fault} ({message})"
                )
            }
            Self::CallCancelled => text!(lang, "LLM call cancelled", "Llamada al LLM cancelada"),
            Self::Discarded => text!(
                lang,
                "The text above is discarded: the reply was incomplete",
                "El texto anterior se descarta: la respuesta no llegó completa"
            ),
            Self::Retry { attempt, wait } => {
                text!(lang, "Attempt {attempt} in {wait}", "Intento {attempt} en {wait}")
            }
            Self::IncompleteReply { reason } => match reason {
                IncompleteReply::Length => text!(
                    lang,
                    "Cut off by the output limit; asking for the rest",
                    "Cortado por el límite de salida; se pide el resto"
                ),
                IncompleteReply::Empty => text!(
                    lang,
                    "Empty reply; asking again",
                    "Respuesta vacía; se pregunta de nuevo"
                ),
                IncompleteReply::Pause => text!(
                    lang,
                    "Paused by the provider; continuing",
                    "Pausado por el proveedor; se continúa"
                ),
            },
            Self::Tool { status, error } => lang.tool_outcome(status, error),
            Self::Lines { lines } => lang.count(lines, ["line", "lines"], ["línea", "líneas"]),
            Self::Change { old, new } => text!(lang, "{old}→{new} lines", "{old}→{new} líneas"),
            Self::Range { from, to: Some(to) } => {
                text!(lang, "lines {from}–{to}", "líneas {from}–{to}")
            }
            Self::Range { from, to: None } => {
                text!(lang, "from line {from}", "desde la línea {from}")
            }
            Self::Search { pattern, path } => {
                text!(lang, "{pattern} in {path}", "{pattern} en {path}")
            }
            Self::Files { files } => lang.count(files, ["file", "files"], ["archivo", "archivos"]),
            Self::Hook { name, outcome, output } => {
                let output = if output.is_empty() { String::new() } else { format!(" ({output})") };
                match outcome {
                    HookOutcome::Passed => {
                        text!(lang, "Hook {name}: ✓{output}", "Hook {name}: ✓{output}")
                    }
                    HookOutcome::Blocked => {
                        text!(
                            lang,
                            "Hook {name}: blocked{output}",
                            "Hook {name}: bloqueado{output}"
                        )
                    }
                    HookOutcome::Failed => {
                        text!(lang, "Hook {name}: ✗{output}", "Hook {name}: ✗{output}")
                    }
                    HookOutcome::TimedOut => text!(
                        lang,
                        "Hook {name}: timed out{output}",
                        "Hook {name}: tiempo agotado{output}"
                    ),
                }
            }
            Self::Steering { kind: MessageTiming::Steering, text } => {
                text!(lang, "Message received: {text}", "Mensaje recibido: {text}")
            }
            Self::Steering { kind: MessageTiming::FollowUp, text } => {
                text!(lang, "Follow-up: {text}", "Continuación: {text}")
            }
            Self::Compacting { context } => {
                let tokens = lang.tokens(context);
                text!(
                    lang,
                    "Compacting the context ({tokens})",
                    "Compactando el contexto ({tokens})"
                )
            }
            Self::Compacted { context, by } => {
                let tokens = lang.tokens(context);
                match by {
                    SummaryAuthor::Model => {
                        text!(lang, "Compacted to {tokens}", "Compactado a {tokens}")
                    }
                    SummaryAuthor::Program => text!(
                        lang,
                        "Compacted to {tokens} without the LLM",
                        "Compactado a {tokens} sin el LLM"
                    ),
                    SummaryAuthor::None => text!(
                        lang,
                        "Not compacted; the run ends",
                        "Sin compactar; la ejecución termina"
                    ),
                }
            }
            Self::Closing { reason } => lang.limit(reason).to_owned(),
            Self::NoSummary { cause } => {
                let cause = match cause {
                    NoFinalSummary::Budget => lang.pick(
                        "the budget does not cover the call",
                        "el presupuesto no alcanza para la llamada",
                    ),
                    NoFinalSummary::Context => lang.pick(
                        "the call does not fit into the context window",
                        "la llamada no cabe en la ventana de contexto",
                    ),
                    NoFinalSummary::Time => lang.pick(
                        "there is no time left for the call",
                        "no queda tiempo para la llamada",
                    ),
                };
                text!(
                    lang,
                    "The run ends without a final summary: {cause}",
                    "La ejecución termina sin resumen final: {cause}"
                )
            }
            Self::OutputLowered { to } => {
                let tokens = lang.tokens(to);
                text!(
                    lang,
                    "The budget limits the reply to {tokens}",
                    "El presupuesto limita la respuesta a {tokens}"
                )
            }
            Self::CostWarning { cost } => {
                text!(lang, "{cost} spent so far", "{cost} gastados hasta ahora")
            }
            Self::Loop { times } => text!(
                lang,
                "The same tool calls {times} times in a row",
                "Las mismas llamadas a herramientas {times} veces seguidas"
            ),
            Self::Ended { reason, steps, llm_calls } => {
                let steps = lang.count(steps, ["step", "steps"], ["paso", "pasos"]);
                let calls = lang.count(
                    llm_calls,
                    ["LLM call", "LLM calls"],
                    ["llamada al LLM", "llamadas al LLM"],
                );
                format!("{} ({steps}) · {calls}", lang.run_ended(reason))
            }
            Self::Denied { calls: 1, tools } => text!(
                lang,
                "1 tool call was denied: {tools}",
                "Se denegó 1 llamada a una herramienta: {tools}"
            ),
            Self::Denied { calls, tools } => text!(
                lang,
                "{calls} tool calls were denied: {tools}",
                "Se denegaron {calls} llamadas a herramientas: {tools}"
            ),
            Self::Resume { command } => {
                text!(lang, "Continue with: {command}", "Para continuar: {command}")
            }
            Self::Costs { cost, usage } => lang.costs(cost, usage),
            Self::Waiting => text!(lang, "waiting for the LLM", "esperando al LLM"),
            Self::Running { tools } => {
                let tools = lang.count(tools, ["tool", "tools"], ["herramienta", "herramientas"]);
                text!(lang, "{tools} running", "{tools} en marcha")
            }
        }
    }
}

impl Language {
    fn pick(self, english: &'static str, spanish: &'static str) -> &'static str {
        match self {
            Self::En => english,
            Self::Es => spanish,
        }
    }

    /// Returns a count with its noun, of which each language has a singular and a plural.
    fn count(self, count: impl TryInto<u64>, english: [&str; 2], spanish: [&str; 2]) -> String {
        let [one, many] = match self {
            Self::En => english,
            Self::Es => spanish,
        };
        pluralize(count, one, many)
    }

    fn number(self, number: u64) -> String {
        group_thousands(number, self.pick(",", "."))
    }

    fn tokens(self, tokens: Tokens) -> String {
        format!("≈ {} tokens", self.number(tokens.0))
    }

    fn costs(self, cost: Option<MicroUsd>, usage: TokenUsage) -> String {
        let unknown = self.pick("price unknown", "precio desconocido");
        let cost = cost.map_or(unknown.to_owned(), |cost| cost.to_string());
        let [input, output, cached] =
            [usage.input_tokens, usage.output_tokens, usage.cached_input_tokens]
                .map(|tokens| self.number(tokens.0));
        let cached = match usage.cached_input_tokens.0 {
            0 => String::new(),
            _ => text!(self, " ({cached} cached)", " ({cached} en caché)"),
        };
        text!(
            self,
            "{cost} · {input} tokens in{cached}, {output} out",
            "{cost} · {input} tokens de entrada{cached}, {output} de salida"
        )
    }

    fn tool_outcome(self, status: ToolStatus, error: &str) -> String {
        let outcome = match status {
            ToolStatus::Ok => return "OK".to_owned(),
            ToolStatus::Failed => self.pick("Failed", "Falló"),
            ToolStatus::TimedOut => self.pick("Timed out", "Tiempo agotado"),
            ToolStatus::Unknown => self.pick("Unknown tool", "Herramienta desconocida"),
            ToolStatus::Malformed => self.pick("Malformed arguments", "Argumentos inválidos"),
            ToolStatus::Denied => self.pick("Denied", "Denegado"),
            ToolStatus::Truncated => {
                self.pick("Cut off by the output limit", "Cortado por el límite de salida")
            }
            ToolStatus::Skipped => self.pick("Skipped", "Omitido"),
            ToolStatus::Interrupted => self.pick("Interrupted", "Interrumpido"),
            ToolStatus::Abandoned => self.pick("Abandoned", "Abandonado"),
            ToolStatus::InDoubt => self.pick("Outcome unknown", "Resultado desconocido"),
        };
        match error {
            "" => outcome.to_owned(),
            // The mark before it already shows the failure.
            error if status == ToolStatus::Failed => error.to_owned(),
            error if error.to_lowercase().starts_with(&outcome.to_lowercase()) => error.to_owned(),
            error => {
                // The text for the model is English in every language, and has the outcome itself.
                let english = Self::En.tool_outcome(status, "");
                let rest = error.strip_prefix(&*english).and_then(|rest| rest.strip_prefix(": "));
                format!("{outcome}: {}", rest.unwrap_or(error))
            }
        }
    }

    fn fault(self, fault: FaultKind) -> &'static str {
        match fault {
            FaultKind::Connect => self.pick("no connection", "sin conexión"),
            FaultKind::Timeout => self.pick("timed out", "tiempo agotado"),
            FaultKind::RateLimited => self.pick("rate limited", "demasiadas peticiones"),
            FaultKind::Server => self.pick("provider error", "error del proveedor"),
            FaultKind::Truncated => self.pick("reply cut off", "respuesta cortada"),
            FaultKind::Protocol => self.pick("invalid reply", "respuesta inválida"),
            FaultKind::Overflow => self.pick("context too large", "contexto demasiado grande"),
            FaultKind::Auth => self.pick("not authorized", "sin autorización"),
            FaultKind::Quota => self.pick("no quota left", "sin cuota"),
            FaultKind::Refused => {
                self.pick("refused by the provider", "rechazado por el proveedor")
            }
            FaultKind::Request => self.pick("invalid request", "petición inválida"),
            FaultKind::NotAnApi => self.pick("not a model API", "no es una API de modelos"),
            FaultKind::Tls => self.pick("untrusted connection", "conexión que no es de confianza"),
            FaultKind::Blocked => self.pick("blocked by a hook", "bloqueado por un hook"),
        }
    }

    fn limit(self, reason: CloseReason) -> &'static str {
        match reason {
            CloseReason::MaxSteps => {
                self.pick("Step limit reached (max_steps)", "Límite de pasos alcanzado (max_steps)")
            }
            CloseReason::Timeout => {
                self.pick("Time limit reached (timeout)", "Límite de tiempo alcanzado (timeout)")
            }
            CloseReason::ContextFull => self.pick(
                "The context window is full (context_full)",
                "La ventana de contexto está llena (context_full)",
            ),
            CloseReason::BudgetExceeded => self.pick(
                "The budget does not cover another LLM call (budget_exceeded)",
                "El presupuesto no alcanza para otra llamada al LLM (budget_exceeded)",
            ),
            CloseReason::LoopDetected => self.pick(
                "The run repeats the same calls (loop_detected)",
                "La ejecución repite las mismas llamadas (loop_detected)",
            ),
        }
    }

    fn run_ended(self, reason: StopReason) -> String {
        match reason {
            StopReason::LlmDone => text!(self, "Agent completed", "Agente completado"),
            StopReason::Closed(_)
            | StopReason::Truncated
            | StopReason::EmptyResponse
            | StopReason::Refused
            | StopReason::InvalidToolCalls
            | StopReason::SchemaNotMet
            | StopReason::ChecksFailed
            | StopReason::EvaluationFailed => {
                text!(self, "Agent stopped: {reason}", "Agente detenido: {reason}")
            }
            StopReason::UserInterrupt(Signal::Interrupt) => {
                text!(self, "Interrupted by the user", "Interrumpido por el usuario")
            }
            StopReason::UserInterrupt(Signal::Terminate) => text!(self, "Terminated", "Terminado"),
            StopReason::UserInterrupt(Signal::Hangup) => {
                text!(self, "The terminal was closed", "Se cerró el terminal")
            }
            StopReason::UserInterrupt(Signal::Pipe) => {
                text!(self, "Standard output was closed", "Se cerró la salida estándar")
            }
            StopReason::LlmError(LlmFailure::Auth) => {
                text!(self, "Agent failed: not authorized", "El agente falló: sin autorización")
            }
            StopReason::LlmError(LlmFailure::Timeout) => text!(
                self,
                "Agent failed: the LLM timed out",
                "El agente falló: el LLM agotó el tiempo"
            ),
            StopReason::LlmError(LlmFailure::Other)
            | StopReason::StoreError
            | StopReason::InternalError => {
                text!(self, "Agent failed: {reason}", "El agente falló: {reason}")
            }
        }
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

    #[test]
    fn numbers_agree_with_their_nouns() {
        let call = |messages| {
            let message = LogMessage::ModelCall { purpose: CallPurpose::Agent, step: 1, messages };
            [message.render(Language::En), message.render(Language::Es)]
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
