//! The Spanish catalogue.

use super::{Message, grouped};
use crate::machine::{CloseReason, LlmFailure, NoSummary, Purpose, StopReason};
use crate::model::{FaultKind, Micros, Signal, Tokens, ToolStatus, count};
use crate::port::HookOutcome;
use crate::view::public::{Steering, SummaryBy, Unfinished, Used};

/// Returns a sentence in Spanish.
pub(super) fn say(message: &Message<'_>) -> String {
    match *message {
        Message::Session { id, model, agent, resumed } => {
            let session = if resumed { "Continúa la sesión" } else { "Sesión" };
            format!("{session} {id} · {model} · {agent}")
        }
        Message::Call { purpose, step, messages } => {
            let messages = count(messages, "mensaje", "mensajes");
            match purpose {
                Purpose::Agent => format!("Paso {step} → llamada al LLM ({messages})"),
                Purpose::Compaction => format!("Resumen → llamada al LLM ({messages})"),
                Purpose::Closing => {
                    format!("Cierre → se pide al LLM que resuma, sin herramientas ({messages})")
                }
            }
        }
        Message::Answered { tool_calls: 0 } => "El LLM respondió".to_owned(),
        Message::Answered { tool_calls } => {
            let calls = count(tool_calls, "llamada a herramienta", "llamadas a herramientas");
            format!("El LLM respondió con {calls}")
        }
        Message::CallFailed { fault, message } => {
            format!("Falló la llamada al LLM: {} ({message})", fault_name(fault))
        }
        Message::CallCancelled => "Llamada al LLM cancelada".to_owned(),
        Message::Discarded => {
            "El texto anterior no cuenta; su respuesta no llegó completa".to_owned()
        }
        Message::Retry { attempt, wait } => format!("Intento {attempt} en {wait}"),
        Message::Unfinished { why } => match why {
            Unfinished::Length => "Cortado por el límite de salida; se pide el resto",
            Unfinished::Empty => "Respuesta vacía; se pregunta de nuevo",
            Unfinished::Pause => "Pausado por el proveedor; se continúa",
        }
        .to_owned(),
        Message::Tool { status, error } => tool(status, error),
        Message::Lines { lines } => count(lines, "línea", "líneas"),
        Message::Change { old, new } => format!("{old}→{new} líneas"),
        Message::Range { from, to: Some(to) } => format!("líneas {from}–{to}"),
        Message::Range { from, to: None } => format!("desde la línea {from}"),
        Message::Within { what, place } => format!("{what} en {place}"),
        Message::Files { files } => count(files, "archivo", "archivos"),
        Message::Hook { name, outcome, said } => {
            let said = if said.is_empty() { String::new() } else { format!(" ({said})") };
            match outcome {
                HookOutcome::Passed => format!("Hook {name}: ✓{said}"),
                HookOutcome::Blocked => format!("Hook {name}: bloqueado{said}"),
                HookOutcome::Failed => format!("Hook {name}: ✗{said}"),
                HookOutcome::TimedOut => format!("Hook {name}: tiempo agotado{said}"),
            }
        }
        Message::Steering { kind: Steering::Steering, text } => format!("Mensaje recibido: {text}"),
        Message::Steering { kind: Steering::FollowUp, text } => format!("Continuación: {text}"),
        Message::Compacting { context } => {
            format!("Compactando el contexto ({})", tokens(context))
        }
        Message::Compacted { context, by } => match by {
            SummaryBy::Model => format!("Compactado a {}", tokens(context)),
            SummaryBy::Program => format!("Compactado a {} sin el LLM", tokens(context)),
            SummaryBy::Nobody => "Sin compactar; la ejecución termina".to_owned(),
        },
        Message::Closing { reason } => limit(reason).to_owned(),
        Message::NoSummary { cause } => {
            let why = match cause {
                NoSummary::Budget => "el presupuesto no alcanza para la llamada de cierre",
                NoSummary::Context => "la llamada de cierre no cabe en la ventana de contexto",
                NoSummary::Time => "no queda tiempo para la llamada de cierre",
            };
            format!("La ejecución termina sin resumen: {why}")
        }
        Message::OutputLowered { to } => {
            format!("El presupuesto limita la respuesta a {}", tokens(to))
        }
        Message::Spent { cost } => format!("{cost} gastados hasta ahora"),
        Message::Loop { times } => {
            format!("Las mismas llamadas a herramientas {times} veces seguidas")
        }
        Message::Ended { reason, steps, llm_calls } => {
            let steps = count(steps, "paso", "pasos");
            let calls = count(llm_calls, "llamada al LLM", "llamadas al LLM");
            format!("{} ({steps}) · {calls}", ended(reason))
        }
        Message::Denied { calls: 1, tools } => {
            format!("Se denegó 1 llamada a una herramienta: {tools}")
        }
        Message::Denied { calls, tools } => {
            format!("Se denegaron {calls} llamadas a herramientas: {tools}")
        }
        Message::Resume { command } => format!("Para continuar: {command}"),
        Message::Costs { cost, used } => costs(cost, used),
        Message::Waiting => "esperando al LLM".to_owned(),
        Message::Running { tools } => {
            format!("{} en marcha", count(tools, "herramienta", "herramientas"))
        }
    }
}

fn costs(cost: Option<Micros>, used: Used) -> String {
    let cost = cost.map_or("precio desconocido".to_owned(), |cost| cost.to_string());
    let (input, output) = (used.input_tokens.0, used.output_tokens.0);
    let cached = match used.cached_input_tokens.0 {
        0 => String::new(),
        cached => format!(" ({} en caché)", grouped(cached, ".")),
    };
    let (input, output) = (grouped(input, "."), grouped(output, "."));
    format!("{cost} · {input} tokens de entrada{cached}, {output} de salida")
}

fn tokens(tokens: Tokens) -> String {
    format!("≈ {} tokens", grouped(tokens.0, "."))
}

fn tool(status: ToolStatus, error: &str) -> String {
    let what = match status {
        ToolStatus::Ok => return "OK".to_owned(),
        ToolStatus::Failed => "Falló",
        ToolStatus::TimedOut => "Tiempo agotado",
        ToolStatus::Unknown => "Herramienta desconocida",
        ToolStatus::Malformed => "Argumentos inválidos",
        ToolStatus::Denied => "Denegado",
        ToolStatus::Cut => "Cortado por el límite de salida",
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

fn limit(reason: CloseReason) -> &'static str {
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

fn ended(reason: StopReason) -> String {
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
