//! One run, from its first effects to its end.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::checks::InOrder;
use super::ending::{Ending, tell_end};
use super::error::AppError;
use super::gates::Gates;
use super::hooks;
use super::mcp;
use super::model::InSession;
use super::outputs::Whole;
use super::schema::Schema;
use super::secrets::{masked, secrets};
use super::session::{First, Place, Start, Written};
use super::setup::{Effect, Setup};
use super::shared::Shared;
use super::staging::{Live, Staging};
use super::subagents::Crew;
use super::tools::{self, Means};
use crate::config::{quality_gates, rules};
use crate::hooks::{HookedChecks, HookedTools, Hooks, SessionFacts, around};
use crate::journal::{SessionId, Setting, Workspace};
use crate::llm::scripted::ScriptPosition;
use crate::machine::{Fold, Outcome, State, Status};
use crate::mcp::Servers;
use crate::model::{Digest, Rules};
use crate::port::{Cancel, Checks, HookPoint, Model, NoPrelude, Prelude, ToolSpec, Toolbox};
use crate::runner::{Brief, Driver, Hands, Ports};
use crate::tools::permission::Confirm;
use crate::tools::{Common, Planned};
use crate::view::{About, Show, Source};

/// What one run is to do.
#[derive(Debug)]
pub struct Order {
    /// What the user says; none lets a stored session go on as it was.
    pub task: Option<Arc<str>>,
    /// Where it is written down.
    pub place: Place,
    /// What whoever began it wants to find in its journal again.
    pub options: Value,
    /// What its calls are charged to.
    pub source: Source,
    /// The exit code of a partial run, where the user wants another one.
    pub exit_on_partial: Option<u8>,
}

/// Who sees a run, and who can be asked.
#[derive(Clone)]
pub struct Stage {
    /// Who sees it.
    pub show: Show,
    /// Who can be asked.
    pub confirm: Arc<dyn Confirm>,
    /// How commands are confined, where that is worth telling.
    pub sandbox: Option<Arc<str>>,
}

/// A run that is over.
pub struct Ended {
    /// The session that it was.
    pub session: SessionId,
    /// Where it stands.
    pub fold: Fold,
    /// What it would have done, when it was only to be described.
    pub planned: Vec<Planned>,
    /// How long its result may still take.
    pub ending: Ending,
}

impl Ended {
    /// Returns how the run ended.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.fold.state {
            State::Done(done) => Some(&done.outcome),
            _ => None,
        }
    }

    /// Returns whether the model said that it was done.
    pub fn is_success(&self) -> bool {
        self.outcome().is_some_and(|outcome| outcome.reason.status() == Status::Success)
    }
}

impl Setup {
    /// Drives a run to its end before a show. The end itself is for the caller to tell, since it may not be the only
    /// run.
    ///
    /// # Errors
    ///
    /// Fails when the run could not begin; nothing was sent then.
    pub fn run(&self, order: Order, stage: Stage) -> Result<Ended, AppError> {
        let live = Live(stage.show.clone());
        self.drive(order, stage, live, None)
    }

    /// Drives a run to its end, wherever it takes place. One that was dispatched by another one shares with that.
    pub(super) fn drive(
        &self,
        order: Order,
        stage: Stage,
        mut staging: impl Staging,
        shared: Option<Shared>,
    ) -> Result<Ended, AppError> {
        let Stage { show, confirm, sandbox } = stage;
        let session = order.place.session();
        let name: Arc<str> = session.to_string().into();
        let about = About { session_id: Arc::clone(&name), sandbox, ..self.about(&order) };
        let Order { task, place, options, .. } = order;
        let hooks = hooks::of(&self.config, &self.sandbox, self.facts(&name, &place))?;
        let secrets = secrets(&self.config, &self.world);
        let task = task.map(|task| Arc::from(masked(&task, &secrets)));
        let hidden = secrets.clone();
        let hooks = Arc::new(hooks.masking(move |text| hidden.mask(text.to_owned())));
        let fresh = || ScriptPosition::after(place.calls() as usize);
        let position = shared.as_ref().map_or_else(fresh, |shared| shared.position.clone());
        let asking = InSession { name: &name, position: position.clone(), record: &self.record };
        let nesting = staging.nesting();
        let model = staging.model(self.model.connect(&self.config, &self.world, &asking)?);
        let rules = self.rules(&name, &place);
        // Servers may take long to start, and the user may not want to wait for them.
        let asked = Cancel::new();
        let (hands, around) = staging.hands(place.at(), rules.bounds.parallel, &asked)?;
        let is_own = shared.is_none();
        let shared = match shared {
            Some(shared) => shared,
            None => self.share(&place, position, &asked)?,
        };
        let whole = place.outputs(session).map(Whole);
        let crew = is_own.then(|| Crew {
            setup: self.clone(),
            session,
            store: place.store().cloned(),
            options: options.clone(),
            confirm: Arc::clone(&confirm),
            shared: shared.clone(),
            nesting,
        });
        let means = Means { confirm, shared: &shared, whole, crew, secrets };
        let registry = Arc::new(tools::of(
            &self.config,
            &self.agent,
            &self.root,
            &self.sandbox,
            self.effect,
            means,
        )?);
        let brief = self.brief(&*registry, &shared.servers, &place);
        let first = First { task: task.clone(), rules, fixed: brief.bytes() };
        let start = place.begin(session, first, || self.setting(&brief, options))?;
        let Start { fold, outcomes, written } = start;

        let checks = self.checks();
        let toolbox: Arc<dyn Toolbox> = Arc::<crate::tools::Registry>::clone(&registry);
        let hooked = Hooked::new(Arc::clone(&hooks), model, toolbox, checks, &brief, task);
        let ports = Ports {
            tools: hooked.tools,
            checks: hooked.checks,
            prelude: hooked.prelude,
            observer: Box::new(show.watch(about)),
            ..Ports::new(hooked.model)
        };
        let ports = match written {
            None => ports,
            Some(Written { journal, mail }) => {
                Ports { journal: Box::new(journal), mailbox: Box::new(mail), ..ports }
            }
        };
        let clock = hands.clock();
        let fold = Driver::new(hands, around(ports), brief, fold).run(outcomes);
        let ending = Ending::of(&fold, &*clock);
        let telling = tell_end(&hooks, &fold, &asked);
        if is_own {
            shared.servers.stop(ending.left());
        }
        if let Some(telling) = telling {
            telling.wait(ending);
        }
        Ok(Ended { session, fold, planned: registry.planned(), ending })
    }

    /// Returns what the run will have in common with those that it dispatches.
    fn share(
        &self,
        place: &Place,
        position: ScriptPosition,
        asked: &Cancel,
    ) -> Result<Shared, AppError> {
        let servers = mcp::start(&self.config, &self.world, &self.sandbox, asked)?;
        let used = place.conversation().map(tools::used).unwrap_or_default();
        let account = Common::new(tools::limits(&self.config), used);
        Ok(Shared { servers: Arc::new(servers), account, position })
    }

    /// Returns what is known of a run before it begins, but for its session.
    pub fn about(&self, order: &Order) -> About {
        About {
            session_id: "".into(),
            agent: self.agent.name.as_str().into(),
            model: self.model.name(),
            workspace: self.root.path().to_string_lossy().into(),
            task: self.task(order),
            sandbox: None,
            began: Timestamp::now(),
            source: order.source,
            structured: self.schema.is_some(),
            exit_on_partial: order.exit_on_partial,
            earlier: order.place.earlier(),
        }
    }

    /// Returns the task as it may be shown.
    fn task(&self, order: &Order) -> Arc<str> {
        let task = order.task.as_deref().unwrap_or_default();
        secrets(&self.config, &self.world).mask_with_keys(task).into()
    }

    fn facts(&self, session: &Arc<str>, place: &Place) -> SessionFacts {
        SessionFacts {
            id: Arc::clone(session),
            workspace: self.root.path().to_owned(),
            agent: self.agent.name.as_str().into(),
            model: self.model.name(),
            is_resumed: place.is_stored(),
            depth: self.depth,
        }
    }

    /// The system prompt of a stored session stays as it was while its agent does, so that the provider's cache holds.
    /// That of an imported one was written by nobody knows whom.
    fn brief(&self, tools: &dyn Toolbox, servers: &Servers, place: &Place) -> Brief {
        let tools = tools.specs();
        let system = match place {
            Place::Stored(_, opened)
                if *opened.past.setting.agent == *self.agent.name.as_str()
                    && !opened.past.is_foreign() =>
            {
                Arc::clone(&opened.past.setting.system)
            }
            Place::Stored(..) | Place::New(..) | Place::Dispatched(..) | Place::Nowhere => {
                mcp::instructed(self.system(place), servers, &tools)
            }
        };
        Brief { system, tools, schema: self.schema.clone() }
    }

    fn rules(&self, session: &str, place: &Place) -> Rules {
        let seed = Digest::EMPTY.and(session.as_bytes()).0;
        let rules = rules(&self.config.settings, &self.agent, &self.model.facts, seed);
        // A session that others can reach may have a follow-up waiting.
        let checked = rules.checked || self.schema.is_some() || !matches!(place, Place::Nowhere);
        Rules { checked, from: place.limits_from(), ..rules }
    }

    fn setting(&self, brief: &Brief, options: Value) -> Result<Setting, AppError> {
        Ok(Setting {
            model: self.model.name(),
            agent: self.agent.name.as_str().into(),
            workspace: Workspace::look(self.root.path())?,
            system: Arc::clone(&brief.system),
            tools: Arc::clone(&brief.tools),
            schema: brief.schema.clone(),
            options,
        })
    }

    /// The schema first: it costs nothing. Then the commands.
    fn checks(&self) -> Arc<dyn Checks> {
        let mut checks: Vec<Arc<dyn Checks>> = Vec::new();
        if let Some(Ok(schema)) = self.schema.as_deref().map(Schema::new) {
            checks.push(Arc::new(schema));
        }
        let gates = quality_gates(&self.config.settings, &self.agent);
        if !gates.is_empty() && self.effect == Effect::Real {
            checks.push(Arc::new(Gates::new(gates, self.sandbox.clone())));
        }
        Arc::new(InOrder(checks))
    }
}

/// The ports that hooks are around.
struct Hooked {
    model: Box<dyn Model>,
    tools: Arc<dyn Toolbox>,
    checks: Arc<dyn Checks>,
    prelude: Arc<dyn Prelude>,
}

impl Hooked {
    /// Without hooks everything stays as it is.
    fn new(
        hooks: Arc<Hooks>,
        model: Box<dyn Model>,
        tools: Arc<dyn Toolbox>,
        checks: Arc<dyn Checks>,
        brief: &Brief,
        task: Option<Arc<str>>,
    ) -> Self {
        if !HookPoint::ALL.into_iter().any(|point| hooks.any_at(point)) {
            return Self { model, tools, checks, prelude: Arc::new(NoPrelude) };
        }
        let (system, specs): (_, Arc<[ToolSpec]>) =
            (Arc::clone(&brief.system), Arc::clone(&brief.tools));
        let task = task.unwrap_or_default();
        let (model, prelude) = around(model, Arc::clone(&hooks), task, system, specs);
        Self {
            model: Box::new(model),
            tools: Arc::new(HookedTools::new(tools, Arc::clone(&hooks))),
            checks: Arc::new(HookedChecks::new(checks, hooks)),
            prelude: Arc::new(prelude),
        }
    }
}
