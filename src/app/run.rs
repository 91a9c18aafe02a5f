//! One run, from its first effects to its end.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::checkpoints::SessionCheckpoints;
use super::configured_checks::{CheckSequence, QualityGates, SchemaCheck, UnfinishedCalls};
use super::configured_servers::{self, ToolDeferral};
use super::configured_tools;
use super::end_hooks::{RunDeadline, run_end_hooks};
use super::error::AppError;
use super::run_environment::{RunEnvironment, SubagentClock};
use super::run_io::{RunIo, RunRequest, SharedResources};
use super::run_setup::RunSetup;
use super::secrets::{collect_secrets, mask_message};
use super::session::{RunSession, SessionResults, SessionTarget};
use super::subagents::{OneQuestion, SubagentContext, SubagentWorktrees};
use super::undo::complete_pending_restore;
use crate::config::{quality_gates, run_rules};
use crate::hooks::{HookedAnswerChecks, Hooks, with_hooks};
use crate::journal::{FileJournal, SessionId, SessionSetup, WorkspaceIdentity};
use crate::llm::scripted::ScriptPosition;
use crate::machine::{Machine, RunOutcome, RunStatus};
use crate::mcp::McpServers;
use crate::net::Secrets;
use crate::port::{
    AnswerChecks, CancelRegistration, CancellationToken, HookPoint, ToolSpec, Toolbox,
};
use crate::runner::{Driver, Ports, RequestContext};
use crate::tools::{ExecutionMode, PlannedCall, SharedQuota, ToolRegistry};
use crate::types::{Digest, RunRules, RunTime, pluralize};
use crate::view::{Reporter, RunInfo};
use crate::workspace::image::{AttachedImages, ImageSource};

/// A finished run.
pub struct FinishedRun {
    /// The session.
    pub session: SessionId,
    /// The final state.
    pub machine: Machine,
    /// The calls that a dry run would have made.
    pub planned: Vec<PlannedCall>,
    /// The deadline for processing the result.
    pub deadline: RunDeadline,
}

impl FinishedRun {
    /// Returns the outcome of the run.
    pub fn outcome(&self) -> Option<&RunOutcome> {
        self.machine.state.outcome()
    }

    /// Returns whether the run ended with success.
    pub fn is_success(&self) -> bool {
        self.outcome().is_some_and(|outcome| outcome.reason.status() == RunStatus::Success)
    }
}

/// The time that background commands get to end: they are terminated, and killed soon after. The supervisors kill the
/// rest when this process ends.
const STOP_TIMEOUT: Duration = Duration::from_secs(4);

impl RunSetup {
    /// Runs to the end with reporting. The caller reports the result, since it may not be the only run.
    ///
    /// # Errors
    ///
    /// Fails if the run could not begin; in that case, nothing was sent.
    pub fn run(&self, request: RunRequest, io: RunIo) -> Result<FinishedRun, AppError> {
        self.drive(None, request, io, None)
    }

    /// Runs to the end in this environment.
    ///
    /// # Errors
    ///
    /// Fails if the run could not begin; in that case, nothing was sent.
    pub fn run_in(
        &self,
        environment: RunEnvironment,
        request: RunRequest,
        io: RunIo,
    ) -> Result<FinishedRun, AppError> {
        self.drive(Some(environment), request, io, None)
    }

    /// Returns the given environment; by default that of the command, with the registration of the caller's interrupts.
    /// `at` is the time of the run's begin, and `parallel` the maximum number of concurrent tools.
    fn environment(
        &self,
        given: Option<RunEnvironment>,
        (at, parallel): (RunTime, u32),
        reporter: &Reporter,
        stopped: &CancellationToken,
    ) -> Result<(RunEnvironment, Option<CancelRegistration>), AppError> {
        Ok(match (given, &self.interrupts) {
            (Some(environment), _) => (environment, None),
            (None, None) => (RunEnvironment::real(at, parallel, reporter, stopped)?, None),
            (None, Some(interrupts)) => {
                let (environment, registration) =
                    RunEnvironment::interrupted_by(interrupts, at, parallel, stopped);
                (environment, Some(registration))
            }
        })
    }

    /// Opens the session, builds the ports, drives the machine, and finishes. The default environment is that of the
    /// command. The run of a sub-agent shares resources with the dispatching run.
    pub(super) fn drive(
        &self,
        environment: Option<RunEnvironment>,
        request: RunRequest,
        io: RunIo,
        shared: Option<SharedResources>,
    ) -> Result<FinishedRun, AppError> {
        let session = request.target.session();
        let name: Arc<str> = session.to_string().into();
        let (session_id, sandbox) = (Arc::clone(&name), io.sandbox.clone());
        let info = RunInfo { session_id, sandbox, ..self.run_info(&request) };
        let RunRequest { task, images, target, options, .. } = request;
        let is_subagent = shared.is_some();
        if let (Some(store), None, false) = (target.store(), target.opened(), is_subagent) {
            complete_pending_restore(store, self.root.path(), &self.config, &self.env)?;
        }
        let secrets = collect_secrets(&self.config, &self.env);
        let hooks = self.hooks(&name, target.opened().is_some(), secrets.clone())?;
        let finished_calls = target.opened().map_or(0, |opened| opened.history.finished_calls);
        let begin = || ScriptPosition::after(finished_calls as usize);
        let position = shared.as_ref().map_or_else(begin, |own| own.script_position.clone());
        let recorder = self.recorder.as_ref();
        let model =
            self.model.connect(&self.config, &self.env, &name, position.clone(), recorder)?;
        let rules = self.session_rules(&name, &target);
        // Servers may take long to start, and the user may interrupt that.
        let stopped = CancellationToken::new();
        let at = target.opened().map_or(RunTime::START, |opened| opened.history.at);
        let parallel = rules.bounds.parallel_calls;
        let (environment, _interruptible) =
            self.environment(environment, (at, parallel), &io.reporter, &stopped)?;
        let RunEnvironment { executor, subagent_clock, ports } = environment;
        let most = rules.limits.timeout.map(Duration::from);
        let images = self.attach_images(images, &secrets, &stopped, most)?;
        let task = task.map(|task| {
            let mut text = mask_message(&task, &secrets);
            images.add_lines_to(&mut text);
            Arc::from(text)
        });

        let shared = match shared {
            Some(shared) => shared,
            None => self.start_shared(&target, position, &stopped, &io)?,
        };
        let subagents = (!is_subagent)
            .then(|| self.subagents((session, &target), &options, &io, &shared, subagent_clock));
        let worktrees = subagents.as_ref().and_then(|own| own.worktrees.clone());
        let results = target.store().map(|store| SessionResults(store.outputs(session)));
        let deferral = ToolDeferral { window: rules.context.window, earlier: kept_tools(&target) };
        let known = secrets.clone();
        let registry = self.tool_registry(&io, &shared, results, subagents, secrets, &deferral)?;
        let (registry, reporter) = (Arc::new(registry), io.reporter);
        let model = registry.with_deferred_calls(model);

        let requests = storable_settings(model.request_settings(), &known);
        let checkpoints = target.store().filter(|_| !is_subagent);
        let checkpoints =
            checkpoints.and_then(|store| SessionCheckpoints::new(self, store, session, &target));
        let context = self.request_context(&registry, &shared.servers, &target);
        let setup = || self.session_setting(&context, requests, options);
        let RunSession { machine, output, journal } = target.begin(
            session,
            (task.clone(), images.images),
            rules,
            context.request_bytes(),
            setup,
        )?;

        let queue = journal.as_ref().map(FileJournal::queue);
        let own = Ports {
            tools: Arc::<ToolRegistry>::clone(&registry),
            checks: self.answer_checks(&registry, known),
            observer: Box::new(reporter.observe_run(info)),
            ..Ports::new(model)
        };
        let own = with_checkpoints(with_journal(own, journal), checkpoints);
        let ports = with_hooks_around(ports(own), &hooks, &context, task);

        let clock = executor.clock();
        let machine = Driver::new(executor, ports, context, machine).run(output);

        if let Some(unread) = queue.map(|queue| queue.unread()).filter(|unread| *unread > 0) {
            let unread = pluralize(unread, "message", "messages");
            log::warn!(
                "{unread} not read before the end: architect resume {session} delivers what is left"
            );
        }
        let deadline = RunDeadline::for_run(&machine, &*clock);
        registry.finish(deadline.remaining().map_or(STOP_TIMEOUT, |left| left.min(STOP_TIMEOUT)));
        if let Some(worktrees) = worktrees {
            worktrees.forget_applied();
            reporter.add_unapplied_work(worktrees.report_unapplied_work());
        }
        run_end_hooks(&hooks, &machine, &stopped, deadline, || {
            if !is_subagent {
                shared.servers.stop(deadline.remaining());
            }
        });
        Ok(FinishedRun { session, machine, planned: registry.planned_calls(), deadline })
    }

    /// Returns the resources that the run shares with its sub-agents.
    fn start_shared(
        &self,
        target: &SessionTarget,
        script_position: ScriptPosition,
        stopped: &CancellationToken,
        io: &RunIo,
    ) -> Result<SharedResources, AppError> {
        let servers =
            configured_servers::start_servers(&self.config, &self.env, &self.sandbox, stopped, io)?;
        let used = target.opened().map(|opened| &opened.history.machine.conversation);
        let used = used.map(configured_tools::used_quota).unwrap_or_default();
        let quota = SharedQuota::new(configured_tools::quota_limits(&self.config), used);
        Ok(SharedResources { servers: Arc::new(servers), quota, script_position })
    }

    /// Returns the agents that the run can dispatch, with their worktrees if they can have some.
    fn subagents(
        &self,
        (session, target): (SessionId, &SessionTarget),
        options: &Value,
        io: &RunIo,
        shared: &SharedResources,
        clock: SubagentClock,
    ) -> SubagentContext {
        let worktrees = match (clock, self.execution) {
            (SubagentClock::Real, ExecutionMode::Real) => {
                SubagentWorktrees::new(&self.env, self.root.path(), target.opened()).map(Arc::new)
            }
            _ => None,
        };
        SubagentContext {
            worktrees,
            setup: self.clone(),
            session,
            store: target.store().cloned(),
            options: options.clone(),
            confirm: Arc::new(OneQuestion::new(Arc::clone(&io.confirm))),
            reporter: io.reporter.clone(),
            shared: shared.clone(),
            clock,
        }
    }

    /// Prepares the user's images for the model, within a time limit.
    fn attach_images(
        &self,
        images: Vec<ImageSource>,
        secrets: &Secrets,
        stopped: &CancellationToken,
        most: Option<Duration>,
    ) -> Result<AttachedImages, AppError> {
        let limits = self.model.images;
        if limits.is_none() && !images.is_empty() {
            let name = self.model.name();
            match self.model.is_definable() {
                true => log::warn!(
                    "the model {name} is not known to take images, and gets their names and sizes as text; if it takes \
                     them, define it with `images = true` in [models.NAME], and name it --model NAME"
                ),
                false => log::warn!(
                    "the model {name} takes no images, and gets their names and sizes as text"
                ),
            }
        }
        let masked = |it: ImageSource| ImageSource { name: secrets.mask_all(&it.name), ..it };
        let images = images.into_iter().map(masked).collect();
        AttachedImages::prepare_all(images, limits, stopped, most)
            .map_err(|(name, cause)| AppError::Image { name, cause })
    }

    /// Returns the information about a run before it begins, without the session ID.
    pub fn run_info(&self, request: &RunRequest) -> RunInfo {
        let task = request.task.as_deref().unwrap_or_default();
        let (prior_usage, prior_models) = request.target.earlier_usage();
        RunInfo {
            session_id: "".into(),
            agent: self.agent.name.as_str().into(),
            model: self.model.name(),
            effort: self.model.effort(&self.config),
            workspace: self.root.path().to_string_lossy().into(),
            task: collect_secrets(&self.config, &self.env).mask_all(task).into(),
            sandbox: None,
            started_at: Timestamp::now(),
            cost_source: request.source,
            has_schema: self.schema.is_some(),
            exit_on_partial: request.exit_on_partial,
            is_new_fork: request.target.is_new_fork(),
            prior_usage,
            prior_models,
        }
    }

    /// Keeps the system prompt of a stored session while its agent stays the same, so that the provider's cache stays
    /// valid. The prompt of an imported session is of unknown origin, and is replaced.
    fn request_context(
        &self,
        registry: &ToolRegistry,
        servers: &McpServers,
        target: &SessionTarget,
    ) -> RequestContext {
        let kept = target.opened().map(|opened| &opened.history).filter(|history| {
            *history.setup.agent == *self.agent.name.as_str() && !history.is_imported_setup()
        });
        let system = if let Some(history) = kept {
            Arc::clone(&history.setup.system)
        } else {
            let prompt = self.system_prompt(target.store().is_some());
            configured_servers::with_server_instructions(prompt, servers, registry)
        };
        RequestContext { system, tools: registry.specs(), schema: self.schema.clone() }
    }

    fn session_rules(&self, session: &str, target: &SessionTarget) -> RunRules {
        let seed = Digest::EMPTY.with_bytes(session.as_bytes()).0;
        let settings = &self.config.settings;
        let rules = run_rules(settings, &self.agent, &self.model.limits, seed);
        let rules = self.model.add_to_rules(settings, rules);
        let opened = target.opened();
        RunRules {
            // A stored session may have a waiting follow-up message from another process.
            has_checks: rules.has_checks || self.schema.is_some() || target.store().is_some(),
            limit_baseline: opened.map(|opened| opened.limit_baseline).unwrap_or_default(),
            ..rules
        }
    }

    fn session_setting(
        &self,
        context: &RequestContext,
        requests: Value,
        options: Value,
    ) -> Result<SessionSetup, AppError> {
        Ok(SessionSetup {
            model: self.model.name(),
            agent: self.agent.name.as_str().into(),
            workspace: WorkspaceIdentity {
                origin: self.origin.clone(),
                ..WorkspaceIdentity::inspect(self.root.path())?
            },
            system: Arc::clone(&context.system),
            tools: Arc::clone(&context.tools),
            schema: context.schema.clone(),
            requests,
            options,
        })
    }

    /// Returns the checks of an answer. Free checks come first, then the commands.
    fn answer_checks(&self, tools: &Arc<ToolRegistry>, secrets: Secrets) -> Arc<dyn AnswerChecks> {
        let mut checks: Vec<Arc<dyn AnswerChecks>> =
            vec![Arc::new(UnfinishedCalls(Arc::clone(tools)))];
        if let Some(Ok(schema)) = self.schema.as_deref().map(SchemaCheck::new) {
            checks.push(Arc::new(schema));
        }
        let gates = quality_gates(&self.config.settings, &self.agent);
        if !gates.is_empty() && self.execution == ExecutionMode::Real {
            checks.push(Arc::new(QualityGates::new(gates, self.sandbox.clone(), secrets)));
        }
        Arc::new(CheckSequence(checks))
    }
}

/// Returns the settings of requests for storage; null if they contain a key, as an option of the user may.
fn storable_settings(settings: Value, secrets: &Secrets) -> Value {
    let text = settings.to_string();
    if secrets.mask_all(&text) == text { settings } else { Value::Null }
}

/// Returns the tools of a stored session's requests.
fn kept_tools(target: &SessionTarget) -> Option<&[ToolSpec]> {
    let history = target.opened().map(|opened| &opened.history);
    history.filter(|history| !history.is_imported_setup()).map(|history| &*history.setup.tools)
}

/// Returns the ports with a journal, if there is one.
fn with_journal(ports: Ports, journal: Option<FileJournal>) -> Ports {
    let Some(journal) = journal else { return ports };
    Ports { messages: Box::new(journal.queue()), journal: Box::new(journal), ..ports }
}

/// Returns the ports with checkpoints, if the session has some.
fn with_checkpoints(ports: Ports, checkpoints: Option<SessionCheckpoints>) -> Ports {
    match checkpoints {
        Some(checkpoints) => Ports { checkpoints: Arc::new(checkpoints), ..ports },
        None => ports,
    }
}

/// Returns the ports with hooks around them; unchanged if there are no hooks.
fn with_hooks_around(
    ports: Ports,
    hooks: &Arc<Hooks>,
    context: &RequestContext,
    task: Option<Arc<str>>,
) -> Ports {
    if !HookPoint::ALL.into_iter().any(|point| hooks.has_hooks_at(point)) {
        return ports;
    }
    let texts = (task.unwrap_or_default(), Arc::clone(&context.system));
    let (model, tools, pre_call_hooks) = with_hooks((ports.model, ports.tools), hooks, texts);
    Ports {
        model: Box::new(model),
        tools: Arc::new(tools),
        checks: Arc::new(HookedAnswerChecks::new(ports.checks, Arc::clone(hooks))),
        pre_call_hooks: Arc::new(pre_call_hooks),
        ..ports
    }
}
