//! The Spanish catalogue.

use super::{LogMessage, group_thousands};
use crate::machine::{CallPurpose, CloseReason, LlmFailure, NoFinalSummary, StopReason};
use crate::model::{FaultKind, MicroUsd, Signal, Tokens, ToolStatus, pluralize};
use crate::port::HookOutcome;
use crate::view::public::{IncompleteReply, MessageTiming, SummaryAuthor, TokenUsage};

/// Returns a sentence in Spanish.
pub(super) fn render(message: &LogMessage<'_>) -> String {
    match *message {
        LogMessage::Session { id, model, agent, resumed } => {
            let session = if resumed { "Continúa la sesión" } else { "Sesión" };
            format!("{session} {id} · {model} · {agent}")
        }
        LogMessage::ModelCall { purpose, step, messages } => {
            let messages = pluralize(messages, "mensaje", "mensajes");
            match purpose {
                CallPurpose::Agent => format!("Paso {step} → llamada al LLM ({messages})"),
                CallPurpose::Compaction => format!("Resumen → llamada al LLM ({messages})"),
                CallPurpose::Closing => {
                    format!("Cierre → se pide al LLM que resuma, sin herramientas ({messages})")
                }
            }
        }
        LogMessage::Replied { tool_calls: 0 } => "El LLM respondió".to_owned(),
        LogMessage::Replied { tool_calls } => {
            let calls = pluralize(tool_calls, "llamada a herramienta", "llamadas a herramientas");
            format!("El LLM respondió con {calls}")
        }
        LogMessage::CallFailed { fault, message } => {
            format!("Falló la llamada al LLM: {} ({message})", fault_name(fault))
        }
        LogMessage::CallCancelled => "Llamada al LLM cancelada".to_owned(),
        LogMessage::Discarded => {
            "El texto anterior no cuenta; su respuesta no llegó completa".to_owned()
        }
        LogMessage::Retry { attempt, wait } => format!("Intento {attempt} en {wait}"),
        LogMessage::IncompleteReply { reason: why } => match why {
            IncompleteReply::Length => "Cortado por el límite de salida; se pide el resto",
            IncompleteReply::Empty => "Respuesta vacía; se pregunta de nuevo",
            IncompleteReply::Pause => "Pausado por el proveedor; se continúa",
        }
        .to_owned(),
        LogMessage::Tool { status, error } => tool_outcome(status, error),
        LogMessage::Lines { lines } => pluralize(lines, "línea", "líneas"),
        LogMessage::Change { old, new } => format!("{old}→{new} líneas"),
        LogMessage::Range { from, to: Some(to) } => format!("líneas {from}–{to}"),
        LogMessage::Range { from, to: None } => format!("desde la línea {from}"),
        LogMessage::Search { pattern: what, path: place } => format!("{what} en {place}"),
        LogMessage::Files { files } => pluralize(files, "archivo", "archivos"),
        LogMessage::Hook { name, outcome, output: said } => {
            let said = if said.is_empty() { String::new() } else { format!(" ({said})") };
            match outcome {
                HookOutcome::Passed => format!("Hook {name}: ✓{said}"),
                HookOutcome::Blocked => format!("Hook {name}: bloqueado{said}"),
                HookOutcome::Failed => format!("Hook {name}: ✗{said}"),
                HookOutcome::TimedOut => format!("Hook {name}: tiempo agotado{said}"),
            }
        }
        LogMessage::Steering { kind: MessageTiming::Steering, text } => {
            format!("Mensaje recibido: {text}")
        }
        LogMessage::Steering { kind: MessageTiming::FollowUp, text } => {
            format!("Continuación: {text}")
        }
        LogMessage::Compacting { context } => {
            format!("Compactando el contexto ({})", tokens(context))
        }
        LogMessage::Compacted { context, by } => match by {
            SummaryAuthor::Model => format!("Compactado a {}", tokens(context)),
            SummaryAuthor::Program => format!("Compactado a {} sin el LLM", tokens(context)),
            SummaryAuthor::None => "Sin compactar; la ejecución termina".to_owned(),
        },
        LogMessage::Closing { reason } => limit_name(reason).to_owned(),
        LogMessage::NoSummary { cause } => {
            let why = match cause {
                NoFinalSummary::Budget => "el presupuesto no alcanza para la llamada de cierre",
                NoFinalSummary::Context => "la llamada de cierre no cabe en la ventana de contexto",
                NoFinalSummary::Time => "no queda tiempo para la llamada de cierre",
            };
            format!("La ejecución termina sin resumen: {why}")
        }
        LogMessage::OutputLowered { to } => {
            format!("El presupuesto limita la respuesta a {}", tokens(to))
        }
        LogMessage::CostWarning { cost } => format!("{cost} gastados hasta ahora"),
        LogMessage::Loop { times } => {
            format!("Las mismas llamadas a herramientas {times} veces seguidas")
        }
        LogMessage::Ended { reason, steps, llm_calls } => {
            let steps = pluralize(steps, "paso", "pasos");
            let calls = pluralize(llm_calls, "llamada al LLM", "llamadas al LLM");
            format!("{} ({steps}) · {calls}", run_ended(reason))
        }
        LogMessage::Denied { calls: 1, tools } => {
            format!("Se denegó 1 llamada a una herramienta: {tools}")
        }
        LogMessage::Denied { calls, tools } => {
            format!("Se denegaron {calls} llamadas a herramientas: {tools}")
        }
        LogMessage::Resume { command } => format!("Para continuar: {command}"),
        LogMessage::Costs { cost, usage: used } => costs(cost, used),
        LogMessage::Waiting => "esperando al LLM".to_owned(),
        LogMessage::Running { tools } => {
            format!("{} en marcha", pluralize(tools, "herramienta", "herramientas"))
        }
    }
}

fn costs(cost: Option<MicroUsd>, used: TokenUsage) -> String {
    let cost = cost.map_or("precio desconocido".to_owned(), |cost| cost.to_string());
    let (input, output) = (used.input_tokens.0, used.output_tokens.0);
    let cached = match used.cached_input_tokens.0 {
        0 => String::new(),
        cached => format!(" ({} en caché)", group_thousands(cached, ".")),
    };
    let (input, output) = (group_thousands(input, "."), group_thousands(output, "."));
    format!("{cost} · {input} tokens de entrada{cached}, {output} de salida")
}

fn tokens(tokens: Tokens) -> String {
    format!("≈ {} tokens", group_thousands(tokens.0, "."))
}

fn tool_outcome(status: ToolStatus, error: &str) -> String {
    let what = match status {
        ToolStatus::Ok => return "OK".to_owned(),
        ToolStatus::Failed => "Falló",
        ToolStatus::TimedOut => "Tiempo agotado",
        ToolStatus::Unknown => "Herramienta desconocida",
        ToolStatus::Malformed => "Argumentos inválidos",
        ToolStatus::Denied => "Denegado",
        ToolStatus::Truncated => "Cortado por el límite de salida",
        ToolStatus::Skipped => "Omitido",
        ToolStatus::Interrupted => "Interrumpido",
        ToolStatus::Abandoned => "Abandonado",
        ToolStatus::InDoubt => "Resultado desconocido",
    };
    match error {
        "" => what.to_owned(),
        // The mark before it says that it failed.
        error if status == ToolStatus::Failed => error.to_owned(),
        error if error.to_lowercase().starts_with(&what.to_lowercase()) => error.to_owned(),
        error => format!("{what}: {error}"),
    }
}

fn fault_name(fault: FaultKind) -> &'static str {
    match fault {
        FaultKind::Connect => "sin conexión",
        FaultKind::Timeout => "tiempo agotado",
        FaultKind::RateLimited => "demasiadas peticiones",
        FaultKind::Server => "falló el proveedor",
        FaultKind::Truncated => "la respuesta quedó cortada",
        FaultKind::Protocol => "la respuesta no se entiende",
        FaultKind::Overflow => "el contexto no cabe",
        FaultKind::Auth => "sin autorización",
        FaultKind::Quota => "sin cuota",
        FaultKind::Refused => "rechazado por el proveedor",
        FaultKind::Request => "la petición es incorrecta",
        FaultKind::NotAnApi => "esto no es una API de modelos",
        FaultKind::Tls => "la conexión no es de confianza",
        FaultKind::Blocked => "bloqueado por un hook",
    }
}

fn limit_name(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::MaxSteps => "Límite de pasos alcanzado (max_steps)",
        CloseReason::Timeout => "Se acabó el tiempo (timeout)",
        CloseReason::ContextFull => "La ventana de contexto está llena (context_full)",
        CloseReason::BudgetExceeded => {
            "El presupuesto no alcanza para otra llamada al LLM (budget_exceeded)"
        }
        CloseReason::LoopDetected => "La ejecución se repite (loop_detected)",
    }
}

fn run_ended(reason: StopReason) -> String {
    match reason {
        StopReason::LlmDone => "Agente completado".to_owned(),
        StopReason::Closed(_)
        | StopReason::Truncated
        | StopReason::EmptyResponse
        | StopReason::Refused
        | StopReason::InvalidToolCalls
        | StopReason::SchemaNotMet
        | StopReason::ChecksFailed
        | StopReason::EvaluationFailed => format!("Agente detenido: {reason}"),
        StopReason::UserInterrupt(Signal::Interrupt) => "Interrumpido por el usuario".to_owned(),
        StopReason::UserInterrupt(Signal::Terminate) => "Terminado".to_owned(),
        StopReason::UserInterrupt(Signal::Hangup) => "Se cerró el terminal".to_owned(),
        StopReason::UserInterrupt(Signal::Pipe) => "Ya nadie lee la salida".to_owned(),
        StopReason::LlmError(LlmFailure::Auth) => "El agente falló: sin autorización".to_owned(),
        StopReason::LlmError(LlmFailure::Timeout) => {
            "El agente falló: el LLM agotó el tiempo".to_owned()
        }
        StopReason::LlmError(LlmFailure::Other)
        | StopReason::StoreError
        | StopReason::InternalError => format!("El agente falló: {reason}"),
    }
}
