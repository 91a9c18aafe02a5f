//! Runs of the agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use architect::port::{
    CancellationToken, EffectContext, Model, ModelCall, ModelRequest, ReplyDelta,
};
use architect::types::{Fault, FaultKind, MicroUsd, Price, Reply};
use architect::{AgentBuilder, AppError, FunctionTool, RunResult, set_supervisor};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::call::{CallFailure, HostFunction};
use crate::chat::{ChatRequest, fault};
use crate::{parse, to_json, value_error};

/// An agent that can run any number of tasks.
#[pyclass(frozen, module = "architect._native")]
pub(crate) struct Agent(architect::Agent);

/// The options of an agent, as its Python part passes them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentOptions {
    model: String,
    price: Option<DollarPrice>,
    workspace: Option<PathBuf>,
    agent: Option<String>,
    system_prompt: Option<String>,
    budget: Option<f64>,
    max_steps: Option<u32>,
    sessions: Option<PathBuf>,
    output_schema: Option<Value>,
    /// The program that supervises commands; commands are off without it.
    supervisor: Option<PathBuf>,
    settings: Vec<(String, String)>,
}

/// Dollars for a million tokens of each kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DollarPrice {
    input: f64,
    output: f64,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
}

/// A tool: name, description, schema, whether it only reads, time limit in seconds, function.
type ToolParts = (String, String, String, bool, Option<f64>, Py<PyAny>);

/// The output of a run: the document of its result, and the exception of the signal that interrupted it, if one did.
type RunOutput = (String, Option<Py<PyAny>>);

/// Interval at which a waiting thread checks for a signal in Python.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

#[pymethods]
impl Agent {
    #[new]
    fn new(
        options: &str,
        model: Option<Py<PyAny>>,
        tools: Vec<ToolParts>,
        on_event: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let options: AgentOptions = parse("options", options)?;
        let mut builder = options.builder(model)?;
        for tool in tools {
            builder = builder.tool(function_tool(tool)?);
        }
        if let Some(callback) = on_event {
            builder = builder.on_json_event(move |event| {
                Python::try_attach(|py| {
                    if let Err(error) = callback.call1(py, (event,)) {
                        error.write_unraisable(py, Some(callback.bind(py)));
                    }
                });
            });
        }
        builder.build().map(Self).map_err(app_error)
    }

    fn run(&self, py: Python<'_>, task: String) -> PyResult<RunOutput> {
        self.drive(py, move |agent| agent.run(&task))
    }

    fn resume(
        &self,
        py: Python<'_>,
        session: String,
        message: Option<String>,
    ) -> PyResult<RunOutput> {
        self.drive(py, move |agent| agent.resume(&session, message.as_deref()))
    }
}

impl Agent {
    /// Runs a task on a new thread, while the current one waits for the end and for signals. The first signal whose
    /// Python handler raises an exception interrupts the run; after the second one, `drive` returns without waiting for
    /// the end.
    fn drive(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&architect::Agent) -> Result<RunResult, AppError> + Send + 'static,
    ) -> PyResult<RunOutput> {
        let token = CancellationToken::new();
        let agent = self.0.cancelled_by(&token);
        let (sender, mut results) = channel();
        thread::Builder::new().name("architect-run".to_owned()).spawn(move || {
            // The receiver is gone after a second signal.
            let _ = sender.send(run(&agent));
        })?;
        let mut interruption: Option<PyErr> = None;
        loop {
            let waiting = &mut results;
            match py.detach(move || waiting.recv_timeout(SIGNAL_INTERVAL)) {
                Ok(result) => {
                    let document = to_json(&result.map_err(app_error)?)?;
                    let exception = interruption.map(|error| error.into_value(py).into_any());
                    return Ok((document, exception));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let Err(error) = py.check_signals() else { continue };
                    if interruption.is_some() {
                        return Err(error);
                    }
                    let token = &token;
                    py.detach(move || token.cancel());
                    interruption = Some(error);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err("the run broke down"));
                }
            }
        }
    }
}

impl AgentOptions {
    fn builder(self, model: Option<Py<PyAny>>) -> PyResult<AgentBuilder> {
        let mut builder = architect::Agent::builder();
        builder = match model {
            None => builder.model(&self.model),
            Some(function) => {
                let function = Arc::new(HostFunction(function));
                builder.custom_model(&self.model, move || PythonModel(Arc::clone(&function)))
            }
        };
        if let Some(price) = self.price {
            builder = builder.price(price.in_micros()?);
        }
        if let Some(folder) = self.workspace {
            builder = builder.workspace(folder);
        }
        if let Some(name) = &self.agent {
            builder = builder.agent(name);
        }
        if let Some(prompt) = &self.system_prompt {
            builder = builder.system_prompt(prompt);
        }
        if let Some(dollars) = self.budget {
            builder = builder.budget(dollars);
        }
        if let Some(steps) = self.max_steps {
            builder = builder.max_steps(steps);
        }
        if let Some(folder) = self.sessions {
            builder = builder.sessions(folder);
        }
        if let Some(schema) = self.output_schema {
            builder = builder.output_schema(schema);
        }
        if let Some(program) = self.supervisor {
            set_supervisor(program);
            builder = builder.commands();
        }
        for (key, value) in &self.settings {
            builder = builder.setting(key, value);
        }
        Ok(builder)
    }
}

impl DollarPrice {
    fn in_micros(&self) -> PyResult<Price> {
        let micros = |dollars: f64| {
            let amount = MicroUsd::from_dollars(dollars).map(|amount| amount.0);
            amount.ok_or_else(|| value_error("invalid price", dollars))
        };
        Ok(Price {
            input: micros(self.input)?,
            output: micros(self.output)?,
            cached_input: micros(self.cached_input.unwrap_or(self.input))?,
            cache_write: micros(self.cache_write.unwrap_or(self.input))?,
            long_input: None,
        })
    }
}

fn app_error(error: AppError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

fn function_tool(parts: ToolParts) -> PyResult<FunctionTool> {
    /// The return value of a tool's Python part.
    #[derive(Deserialize)]
    struct Outcome {
        is_ok: bool,
        text: String,
    }

    let (name, description, schema, is_read_only, time_limit, function) = parts;
    let function = HostFunction(function);
    let schema = parse("schema", &schema)?;
    let run = move |arguments: Value, cancel: &CancellationToken| {
        let text = match function.call(&arguments.to_string(), cancel) {
            Ok(text) => text,
            Err(CallFailure::Cancelled) => return Err("the call was cancelled".to_owned()),
            Err(CallFailure::Lost(error)) => return Err(error),
        };
        match serde_json::from_str(&text) {
            Ok(Outcome { is_ok: true, text }) => Ok(text),
            Ok(Outcome { is_ok: false, text }) => Err(text),
            Err(error) => Err(format!("its result is invalid: {error}")),
        }
    };
    let tool = FunctionTool::with_schema(&name, &description, schema, run).map_err(app_error)?;
    let tool = if is_read_only { tool.read_only() } else { tool };
    let Some(seconds) = time_limit else { return Ok(tool) };
    let limit = Duration::try_from_secs_f64(seconds);
    Ok(tool.time_limit(limit.map_err(|error| value_error("invalid time limit", error))?))
}

/// A model that is a function of the user.
struct PythonModel(Arc<HostFunction>);

struct PythonModelCall {
    function: Arc<HostFunction>,
    request: ChatRequest,
}

impl Model for PythonModel {
    fn prepare(&mut self, request: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let request = ChatRequest::new(request);
        Ok(Box::new(PythonModelCall { function: Arc::clone(&self.0), request }))
    }
}

impl ModelCall for PythonModelCall {
    fn run(
        self: Box<Self>,
        context: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        let returned = self.function.call(self.request.json(), &context.cancel);
        let text = returned.map_err(|failure| match failure {
            CallFailure::Cancelled => fault(FaultKind::Connect, "the call was cancelled"),
            CallFailure::Lost(error) => fault(FaultKind::Request, &error),
        })?;
        let reply = self.request.parse_reply(&text)?;
        sink(ReplyDelta::Started);
        if reply.has_text() {
            sink(ReplyDelta::Text(reply.text().to_string()));
        }
        Ok(reply)
    }
}
