//! An agent for programs that embed it: a builder for everything that a run needs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::error::AppError;
use super::function_tool::FunctionTool;
use super::process_env::ProcessEnv;
use super::resolved_model::ResolvedModel;
use super::run_environment::{RunEnvironment, SubagentClock};
use super::run_io::{RunIo, RunRequest};
use super::run_setup::RunSetup;
use super::session::{SessionTarget, open_store, restart_limits, subtract_time_used};
use crate::config::{Config, ConfigSources, ProjectTrust, load};
use crate::exec::helper;
use crate::journal::{DamagePolicy, JournalError, SessionStore};
use crate::llm::scripted::Script;
use crate::machine::Event;
use crate::port::{CancellationToken, Disconnected, HookPoint, Model, Observer, RunEvent};
use crate::runner::{DriverInput, Ports, SystemClock, ThreadExecutor};
use crate::types::{Price, RunTime, Signal};
use crate::view::public_events::PublicEvent;
use crate::view::{CostSource, ReportSink, Reporter, RunResult};

/// The built-in agent that runs by default.
const DEFAULT_AGENT: &str = "build";

/// The maximum number of tools that run at the same time; the configuration may allow fewer.
const MAX_PARALLEL_TOOLS: u32 = 8;

/// An agent: a model, a workspace, tools and limits. It can run any number of tasks.
///
/// An agent reads no configuration of the user, shows nothing, asks no one, and installs no signal handlers. Calls that
/// need confirmation are denied. Sessions are not stored unless [`AgentBuilder::sessions`] names a folder for them.
#[derive(Clone)]
pub struct Agent {
    setup: RunSetup,
    store: Option<SessionStore>,
    on_event: Option<EventCallback>,
    on_json_event: Option<JsonCallback>,
    cancel: CancellationToken,
}

/// Builds an [`Agent`]. Only the model is required.
#[derive(Default)]
pub struct AgentBuilder {
    /// The model; `None` for the model of the setting `llm.model`.
    model: Option<ResolvedModel>,
    price: Option<Price>,
    agent: Option<String>,
    system_prompt: Option<Arc<str>>,
    tools: Vec<FunctionTool>,
    settings: Vec<String>,
    schema: Option<Value>,
    is_stored: bool,
    on_event: Option<EventCallback>,
    on_json_event: Option<JsonCallback>,
}

type EventCallback = Arc<dyn Fn(&RunEvent<'_>) + Send + Sync>;

type JsonCallback = Arc<dyn Fn(&str) + Send + Sync>;

/// Whether there is a supervisor of commands: this program, which runs [`supervisor_main`], or another one.
static HAS_SUPERVISOR: AtomicBool = AtomicBool::new(false);

/// Runs the supervisor of commands if this process was started as one, and returns its exit code.
///
/// Commands of the model run under a separate process, which is this program started again. A program whose agents may
/// run commands must call this function first in its `main`, and return the code if there is one.
pub fn supervisor_main() -> Option<ExitCode> {
    HAS_SUPERVISOR.store(true, Ordering::Relaxed);
    helper::is_requested(std::env::args_os().nth(1).as_deref()).then(helper::main)
}

/// Sets the program that supervises commands in place of this one: the command `architect` of this release. This is for
/// programs that can't call [`supervisor_main`], such as interpreters. Only the first call has an effect.
pub fn set_supervisor(program: impl Into<PathBuf>) {
    helper::set_program(program.into());
    HAS_SUPERVISOR.store(true, Ordering::Relaxed);
}

impl Agent {
    /// Returns a builder.
    pub fn builder() -> AgentBuilder {
        AgentBuilder::default()
    }

    /// Runs a task to its end. A run that ends early is also a result: see [`RunResult::status`].
    ///
    /// # Errors
    ///
    /// Fails if the run could not begin; in that case, nothing was sent.
    pub fn run(&self, task: &str) -> Result<RunResult, AppError> {
        let target = SessionTarget::new(self.store.clone());
        self.drive(RunRequest::new(task, target, CostSource::Agent))
    }

    /// Resumes a stored session, optionally with another message. The limits of steps and time begin again; those of
    /// money and tokens count the whole session.
    ///
    /// # Errors
    ///
    /// Fails if this agent stores no sessions, or if the session does not exist, is open elsewhere or is damaged.
    pub fn resume(&self, session: &str, message: Option<&str>) -> Result<RunResult, AppError> {
        let store = self.store.as_ref().ok_or(AppError::NoSessions)?;
        let mut opened =
            store.reopen(session.parse().map_err(JournalError::from)?, DamagePolicy::Refuse)?;
        restart_limits(&mut opened, message.is_some());
        let mut agent = self.clone();
        subtract_time_used(&mut agent.setup.config.settings.limits, &opened);
        let target = SessionTarget::Stored(store.clone(), Box::new(opened));
        let request = RunRequest::new(message.unwrap_or_default(), target, CostSource::Agent);
        agent.drive(RunRequest { task: message.map(Arc::from), ..request })
    }

    /// Returns the same agent; its runs end as interrupted when this token is cancelled.
    pub fn cancelled_by(&self, token: &CancellationToken) -> Self {
        Self { cancel: token.clone(), ..self.clone() }
    }

    fn drive(&self, request: RunRequest) -> Result<RunResult, AppError> {
        let at = request.target.opened().map_or(RunTime::START, |opened| opened.history.at);
        let clock = Arc::new(SystemClock::resume(at));
        let on_event = self.on_event.clone();
        let executor = ThreadExecutor::new(clock, MAX_PARALLEL_TOOLS);
        let inbox = executor.inbox();
        let _cancellable = self.cancel.on_cancel(move || {
            inbox.send(DriverInput::Event(Event::Interrupt { signal: Signal::Interrupt }));
        });
        let environment = RunEnvironment {
            executor: Box::new(executor),
            subagent_clock: SubagentClock::Real,
            ports: Box::new(|ports| match on_event {
                None => ports,
                Some(callback) => {
                    let observer = CallbackObserver { callback, inner: ports.observer };
                    Ports { observer: Box::new(observer), ..ports }
                }
            }),
        };
        let json = self.on_json_event.clone().map(|it| Box::new(JsonCallbackSink(it)) as Box<_>);
        let reporter = Reporter::new(json.into_iter().collect());
        self.setup.run_in(environment, request, RunIo::unattended(reporter.clone()))?;
        Ok(reporter.last_result())
    }
}

impl AgentBuilder {
    /// Sets the model, as `provider/name`. Its key comes from the environment, as with the command line program.
    pub fn model(self, name: &str) -> Self {
        Self { model: None, ..self }.setting("llm.model", name)
    }

    /// Sets a model that plays a script.
    pub fn scripted_model(self, script: Script) -> Self {
        let model = ResolvedModel::scripted("scripted/model", script);
        Self { model: Some(model), ..self }
    }

    /// Sets a model of the embedding program. `connect` returns it for each run, including those of sub-agents.
    pub fn custom_model<M: Model + 'static>(
        self,
        name: &str,
        connect: impl Fn() -> M + Send + Sync + 'static,
    ) -> Self {
        let model = ResolvedModel::custom(name, move || Box::new(connect()));
        Self { model: Some(model), ..self }
    }

    /// Sets the price of a model of the embedding program, for budgets and the costs of the result.
    pub fn price(self, price: Price) -> Self {
        Self { price: Some(price), ..self }
    }

    /// Sets the folder that the agent works on. Default: the current folder, unless it contains the user's home.
    pub fn workspace(self, folder: impl Into<PathBuf>) -> Self {
        self.setting("workspace.root", &folder.into().to_string_lossy())
    }

    /// Adds a tool.
    pub fn tool(mut self, tool: FunctionTool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Sets the maximum cost of a session, in US dollars. The model needs a known price.
    pub fn budget(self, dollars: f64) -> Self {
        self.setting("limits.budget_usd", &dollars.to_string())
    }

    /// Sets the maximum number of replies with tool calls in a run.
    pub fn max_steps(self, steps: u32) -> Self {
        self.setting("limits.max_steps", &steps.to_string())
    }

    /// Sets the agent: a built-in one (`build`, `plan`, `review`). Default: `build`.
    pub fn agent(self, name: &str) -> Self {
        Self { agent: Some(name.to_owned()), ..self }
    }

    /// Sets the system prompt, in place of the agent's own.
    pub fn system_prompt(self, prompt: &str) -> Self {
        Self { system_prompt: Some(prompt.into()), ..self }
    }

    /// Lets the model run commands, confined as configured. Needs [`supervisor_main`].
    pub fn commands(self) -> Self {
        self.setting("commands.enabled", "true")
    }

    /// Stores sessions in this folder, so that they can be resumed.
    pub fn sessions(self, folder: impl Into<PathBuf>) -> Self {
        let stored = Self { is_stored: true, ..self };
        stored.setting("sessions.dir", &folder.into().to_string_lossy())
    }

    /// Calls this function with each event of a run, on the thread of [`Agent::run`].
    pub fn on_event(self, callback: impl Fn(&RunEvent<'_>) + Send + Sync + 'static) -> Self {
        Self { on_event: Some(Arc::new(callback)), ..self }
    }

    /// Calls this function with each event of a run as a JSON document, as `--output-format stream-json` prints it, on
    /// the thread of [`Agent::run`].
    pub fn on_json_event(self, callback: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { on_json_event: Some(Arc::new(callback)), ..self }
    }

    /// Sets the JSON Schema of the final answer. The answer is then JSON: see [`RunResult::structured_output`].
    pub fn output_schema(self, schema: Value) -> Self {
        Self { schema: Some(schema), ..self }
    }

    /// Sets any key of the configuration, as `--set` does.
    pub fn setting(mut self, key: &str, value: &str) -> Self {
        self.settings.push(format!("{key}={value}"));
        self
    }

    /// Returns the agent.
    ///
    /// # Errors
    ///
    /// Fails if no model is chosen or it can't be reached with its settings, if a setting is invalid, if the workspace
    /// can't be opened, and if commands would run without [`supervisor_main`].
    pub fn build(self) -> Result<Agent, AppError> {
        let env = ProcessEnv::current()
            .map_err(|error| AppError::system_error("read the environment", &error))?;
        let mut sets = vec!["commands.enabled=false".to_owned()];
        sets.extend(self.settings);
        let config = load(&ConfigSources {
            cwd: env.cwd.clone(),
            trust: ProjectTrust::Withheld,
            sets,
            ..ConfigSources::default()
        })?;
        if runs_commands(&config) && !HAS_SUPERVISOR.load(Ordering::Relaxed) {
            return Err(AppError::NoSupervisor);
        }
        let model = match self.model {
            None => ResolvedModel::from_config(&config, &env)?,
            Some(mut model) => {
                model.limits.price = self.price.or(model.limits.price);
                model.with_known_price(&config)?.with_other_models(&config, &env)?
            }
        };
        model.check(&config, &env)?;
        let store = self.is_stored.then(|| open_store(&config, &env)).transpose()?;
        let agent = self.agent.as_deref().unwrap_or(DEFAULT_AGENT);
        let mut setup = RunSetup::new(config, env, agent, model)?.with_tools(self.tools)?;
        if let Some(prompt) = self.system_prompt {
            setup.agent.system_prompt = prompt;
        }
        if let Some(schema) = self.schema {
            setup = setup.with_schema(schema)?;
        }
        let Self { on_event, on_json_event, .. } = self;
        Ok(Agent { setup, store, on_event, on_json_event, cancel: CancellationToken::new() })
    }
}

/// Returns whether runs with this configuration start processes.
fn runs_commands(config: &Config) -> bool {
    let settings = &config.settings;
    let has_hooks =
        HookPoint::ALL.into_iter().any(|point| settings.hooks.enabled_at(point).next().is_some());
    settings.commands.enabled
        || has_hooks
        || !settings.guardrails.quality_gates.is_empty()
        || !settings.mcp.servers.is_empty()
}

/// Calls a function with each event, and then an inner observer.
struct CallbackObserver {
    callback: EventCallback,
    inner: Box<dyn Observer>,
}

impl Observer for CallbackObserver {
    fn on_event(&mut self, event: &RunEvent<'_>) -> Result<(), Disconnected> {
        (self.callback)(event);
        self.inner.on_event(event)
    }
}

/// Passes the events of a run to a function, as JSON.
struct JsonCallbackSink(JsonCallback);

impl ReportSink for JsonCallbackSink {
    fn on_event(&mut self, event: &PublicEvent) -> Result<(), Disconnected> {
        (self.0)(&serde_json::to_string(event).map_err(|_| Disconnected)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;
    use crate::port::lock;

    fn builder(workspace: &std::path::Path, script: &str) -> AgentBuilder {
        let script = Script::from_toml("script", script).unwrap();
        Agent::builder().scripted_model(script).workspace(workspace)
    }

    #[test]
    fn a_cancelled_token_interrupts_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let script = "[[turn]]\ntext = 'Too late.'\ndelay_ms = 60_000";
        let agent = builder(folder.path(), script).build().unwrap();
        let token = CancellationToken::new();
        let canceller = token.clone();
        let _cancel = std::thread::spawn(move || canceller.cancel());
        let result = agent.cancelled_by(&token).run("Wait.").unwrap();
        assert_eq!((result.exit_code, &*result.output), (130, "Interrupted by the user."));
    }

    #[test]
    fn events_are_seen_as_json_and_the_answer_has_its_schema() {
        let folder = tempfile::tempdir().unwrap();
        let types = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&types);
        let agent = builder(folder.path(), "[[turn]]\ntext = '{\"n\": 1}'")
            .output_schema(json!({"type": "object", "required": ["n"]}))
            .on_json_event(move |event| {
                let event: Value = serde_json::from_str(event).unwrap();
                lock(&seen).push(event["type"].as_str().unwrap().to_owned());
            });
        let result = agent.build().unwrap().run("Count.").unwrap();
        assert_eq!(result.structured_output, Some(json!({"n": 1})));
        let types = lock(&types);
        assert_eq!((&*types[0], &**types.last().unwrap()), ("agent_start", "agent_end"));
    }
}
