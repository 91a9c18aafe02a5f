//! One run, from its first effects to its end.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::checks::CheckSequence;
use super::end_hooks::{RunDeadline, start_end_hooks};
use super::environment::{Environment, RealEnvironment};
use super::error::AppError;
use super::hooks;
use super::mcp;
use super::quality_gates::QualityGates;
use super::resolved_model::ModelSession;
use super::run_setup::RunSetup;
use super::schema_check::SchemaCheck;
use super::secrets::{collect_secrets, mask_message};
use super::session::{RunSession, SessionStart, SessionTarget, StoredSession};
use super::session_results::SessionResults;
use super::shared_resources::SharedResources;
use super::subagents::SubagentContext;
use super::tool_registry::{self, ToolDeps};
use crate::config::{quality_gates, run_rules};
use crate::hooks::{HookSession, HookedAnswerChecks, HookedTools, Hooks, with_hooks};
use crate::journal::{SessionId, SessionSetup, WorkspaceIdentity};
use crate::llm::scripted::ScriptPosition;
use crate::machine::{Machine, RunOutcome, RunStatus, State};
use crate::mcp::McpServers;
use crate::model::{Digest, RunRules};
use crate::port::{
    AnswerChecks, CancellationToken, HookPoint, Model, NoPreCallHooks, PreCallHooks, ToolSpec,
    Toolbox,
};
use crate::runner::{Driver, Executor, Ports, RequestContext};
use crate::tools::ExecutionMode;
use crate::tools::permission::Confirmer;
use crate::tools::{PlannedCall, SharedQuota};
use crate::view::{CostSource, Reporter, RunInfo};

/// What one run is to do.
#[derive(Debug)]
pub struct RunRequest {
    /// What the user says; none lets a stored session go on as it was.
    pub task: Option<Arc<str>>,
    /// Where it is written down.
    pub target: SessionTarget,
    /// What whoever began it wants to find in its journal again.
    pub options: Value,
    /// What its calls are charged to.
    pub source: CostSource,
    /// The exit code of a partial run, where the user wants another one.
    pub exit_on_partial: Option<u8>,
}

/// Who sees a run, and who can be asked.
#[derive(Clone)]
pub struct RunIo {
    /// Who sees it.
    pub reporter: Reporter,
    /// Who can be asked.
    pub confirm: Arc<dyn Confirmer>,
    /// How commands are confined, where that is worth telling.
    pub sandbox: Option<Arc<str>>,
}

/// A run that is over.
pub struct FinishedRun {
    /// The session that it was.
    pub session: SessionId,
    /// Where it stands.
    pub machine: Machine,
    /// What it would have done, when it was only to be described.
    pub planned: Vec<PlannedCall>,
    /// How long its result may still take.
    pub deadline: RunDeadline,
}

impl FinishedRun {
    /// Returns how the run ended.
    pub fn outcome(&self) -> Option<&RunOutcome> {
        match &self.machine.state {
            State::Done(done) => Some(&done.outcome),
            _ => None,
        }
    }

    /// Returns whether the model said that it was done.
    pub fn is_success(&self) -> bool {
        self.outcome().is_some_and(|outcome| outcome.reason.status() == RunStatus::Success)
    }
}

impl RunSetup {
    /// Drives a run to its end before a show. The end itself is for the caller to tell, since it may not be the only
    /// run.
    ///
    /// # Errors
    ///
    /// Fails when the run could not begin; nothing was sent then.
    pub fn run(&self, order: RunRequest, stage: RunIo) -> Result<FinishedRun, AppError> {
        let live = RealEnvironment(stage.reporter.clone());
        self.drive(order, stage, live, None)
    }

    /// Drives a run to its end, wherever it takes place. One that was dispatched by another one shares with that.
    pub(super) fn drive(
        &self,
        order: RunRequest,
        stage: RunIo,
        mut staging: impl Environment,
        shared: Option<SharedResources>,
    ) -> Result<FinishedRun, AppError> {
        let RunIo { reporter: show, confirm, sandbox } = stage;
        let session = order.target.session();
        let name: Arc<str> = session.to_string().into();
        let about = RunInfo { session_id: Arc::clone(&name), sandbox, ..self.run_info(&order) };
        let RunRequest { task, target: place, options, .. } = order;
        let hooks =
            hooks::build_hooks(&self.config, &self.sandbox, self.session_facts(&name, &place))?;
        let secrets = collect_secrets(&self.config, &self.env);
        let task = task.map(|task| Arc::from(mask_message(&task, &secrets)));
        let hidden = secrets.clone();
        let hooks = Arc::new(hooks.with_mask(move |text| hidden.mask(text.to_owned())));
        let fresh = || ScriptPosition::after(place.finished_calls() as usize);
        let position = shared.as_ref().map_or_else(fresh, |shared| shared.script_position.clone());
        let asking =
            ModelSession { name: &name, position: position.clone(), recorder: &self.recorder };
        let nesting = staging.subagent_clock();
        let model = staging.wrap_model(self.model.connect(&self.config, &self.env, &asking)?);
        let rules = self.session_rules(&name, &place);
        // Servers may take long to start, and the user may not want to wait for them.
        let asked = CancellationToken::new();
        let (hands, around) =
            staging.executor(place.start_time(), rules.bounds.parallel_calls, &asked)?;
        let is_own = shared.is_none();
        let shared = match shared {
            Some(shared) => shared,
            None => self.start_shared(&place, position, &asked)?,
        };
        let whole = place.stored_outputs(session).map(SessionResults);
        let crew = is_own.then(|| SubagentContext {
            setup: self.clone(),
            session,
            store: place.store().cloned(),
            options: options.clone(),
            confirm: Arc::clone(&confirm),
            shared: shared.clone(),
            clock: nesting,
        });
        let means = ToolDeps { confirm, shared: &shared, results: whole, subagents: crew, secrets };
        let registry = Arc::new(tool_registry::build_registry(
            &self.config,
            &self.agent,
            &self.root,
            &self.sandbox,
            self.execution,
            means,
        )?);
        let brief = self.request_context(&*registry, &shared.servers, &place);
        let first = SessionStart { task: task.clone(), rules, fixed_bytes: brief.request_bytes() };
        let start = place.begin(session, first, || self.session_setting(&brief, options))?;
        let RunSession { machine: fold, output: outcomes, stored: written } = start;

        let checks = self.answer_checks();
        let toolbox: Arc<dyn Toolbox> = Arc::<crate::tools::ToolRegistry>::clone(&registry);
        let hooked = HookedPorts::new(Arc::clone(&hooks), model, toolbox, checks, &brief, task);
        let ports = Ports {
            tools: hooked.tools,
            checks: hooked.checks,
            pre_call_hooks: hooked.pre_call_hooks,
            observer: Box::new(show.observe_run(about)),
            ..Ports::new(hooked.model)
        };
        let ports = match written {
            None => ports,
            Some(StoredSession { journal, messages: mail }) => {
                Ports { journal: Box::new(journal), messages: Box::new(mail), ..ports }
            }
        };
        let clock = hands.clock();
        let fold = Driver::new(hands, around(ports), brief, fold).run(outcomes);
        let ending = RunDeadline::for_run(&fold, &*clock);
        let telling = start_end_hooks(&hooks, &fold, &asked);
        if is_own {
            shared.servers.stop(ending.remaining());
        }
        if let Some(telling) = telling {
            telling.wait(ending);
        }
        Ok(FinishedRun {
            session,
            machine: fold,
            planned: registry.planned_calls(),
            deadline: ending,
        })
    }

    /// Returns what the run will have in common with those that it dispatches.
    fn start_shared(
        &self,
        place: &SessionTarget,
        position: ScriptPosition,
        asked: &CancellationToken,
    ) -> Result<SharedResources, AppError> {
        let servers = mcp::start_servers(&self.config, &self.env, &self.sandbox, asked)?;
        let used = place.conversation().map(tool_registry::used_quota).unwrap_or_default();
        let account = SharedQuota::new(tool_registry::quota_limits(&self.config), used);
        Ok(SharedResources {
            servers: Arc::new(servers),
            quota: account,
            script_position: position,
        })
    }

    /// Returns what is known of a run before it begins, but for its session.
    pub fn run_info(&self, order: &RunRequest) -> RunInfo {
        RunInfo {
            session_id: "".into(),
            agent: self.agent.name.as_str().into(),
            model: self.model.name(),
            workspace: self.root.path().to_string_lossy().into(),
            task: self.masked_task(order),
            sandbox: None,
            started_at: Timestamp::now(),
            cost_source: order.source,
            has_schema: self.schema.is_some(),
            exit_on_partial: order.exit_on_partial,
            prior_usage: order.target.earlier_usage(),
        }
    }

    /// Returns the task as it may be shown.
    fn masked_task(&self, order: &RunRequest) -> Arc<str> {
        let task = order.task.as_deref().unwrap_or_default();
        collect_secrets(&self.config, &self.env).mask_all(task).into()
    }

    fn session_facts(&self, session: &Arc<str>, place: &SessionTarget) -> HookSession {
        HookSession {
            id: Arc::clone(session),
            workspace: self.root.path().to_owned(),
            agent: self.agent.name.as_str().into(),
            model: self.model.name(),
            is_resumed: place.is_resumed(),
            depth: self.hook_depth,
        }
    }

    /// The system prompt of a stored session stays as it was while its agent does, so that the provider's cache holds.
    /// That of an imported one was written by nobody knows whom.
    fn request_context(
        &self,
        tools: &dyn Toolbox,
        servers: &McpServers,
        place: &SessionTarget,
    ) -> RequestContext {
        let tools = tools.specs();
        let system = match place {
            SessionTarget::Stored(_, opened)
                if *opened.history.setup.agent == *self.agent.name.as_str()
                    && !opened.history.is_imported_setup() =>
            {
                Arc::clone(&opened.history.setup.system)
            }
            SessionTarget::Stored(..)
            | SessionTarget::New(..)
            | SessionTarget::Child(..)
            | SessionTarget::Ephemeral => {
                mcp::with_server_instructions(self.system_prompt(place), servers, &tools)
            }
        };
        RequestContext { system, tools, schema: self.schema.clone() }
    }

    fn session_rules(&self, session: &str, place: &SessionTarget) -> RunRules {
        let seed = Digest::EMPTY.with_bytes(session.as_bytes()).0;
        let rules = run_rules(&self.config.settings, &self.agent, &self.model.limits, seed);
        // A session that others can reach may have a follow-up waiting.
        let checked =
            rules.has_checks || self.schema.is_some() || !matches!(place, SessionTarget::Ephemeral);
        RunRules { has_checks: checked, limit_baseline: place.limit_base(), ..rules }
    }

    fn session_setting(
        &self,
        brief: &RequestContext,
        options: Value,
    ) -> Result<SessionSetup, AppError> {
        Ok(SessionSetup {
            model: self.model.name(),
            agent: self.agent.name.as_str().into(),
            workspace: WorkspaceIdentity::inspect(self.root.path())?,
            system: Arc::clone(&brief.system),
            tools: Arc::clone(&brief.tools),
            schema: brief.schema.clone(),
            options,
        })
    }

    /// The schema first: it costs nothing. Then the commands.
    fn answer_checks(&self) -> Arc<dyn AnswerChecks> {
        let mut checks: Vec<Arc<dyn AnswerChecks>> = Vec::new();
        if let Some(Ok(schema)) = self.schema.as_deref().map(SchemaCheck::new) {
            checks.push(Arc::new(schema));
        }
        let gates = quality_gates(&self.config.settings, &self.agent);
        if !gates.is_empty() && self.execution == ExecutionMode::Real {
            checks.push(Arc::new(QualityGates::new(gates, self.sandbox.clone())));
        }
        Arc::new(CheckSequence(checks))
    }
}

/// The ports that hooks are around.
struct HookedPorts {
    model: Box<dyn Model>,
    tools: Arc<dyn Toolbox>,
    checks: Arc<dyn AnswerChecks>,
    pre_call_hooks: Arc<dyn PreCallHooks>,
}

impl HookedPorts {
    /// Without hooks everything stays as it is.
    fn new(
        hooks: Arc<Hooks>,
        model: Box<dyn Model>,
        tools: Arc<dyn Toolbox>,
        checks: Arc<dyn AnswerChecks>,
        brief: &RequestContext,
        task: Option<Arc<str>>,
    ) -> Self {
        if !HookPoint::ALL.into_iter().any(|point| hooks.has_hooks_at(point)) {
            return Self { model, tools, checks, pre_call_hooks: Arc::new(NoPreCallHooks) };
        }
        let (system, specs): (_, Arc<[ToolSpec]>) =
            (Arc::clone(&brief.system), Arc::clone(&brief.tools));
        let task = task.unwrap_or_default();
        let (model, prelude) = with_hooks(model, Arc::clone(&hooks), task, system, specs);
        Self {
            model: Box::new(model),
            tools: Arc::new(HookedTools::new(tools, Arc::clone(&hooks))),
            checks: Arc::new(HookedAnswerChecks::new(checks, hooks)),
            pre_call_hooks: Arc::new(prelude),
        }
    }
}
