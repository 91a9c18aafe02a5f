//! `dispatch_subagent`: another agent works on a part of the task.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::child::{self, Errand};
use super::crew::Crew;
use crate::config::Agent;
use crate::journal::SessionId;
use crate::machine::Intent;
use crate::model::{Access, Span};
use crate::port::ToolSpec;
use crate::tools::{Context, Kind, Output, Plan, Prepared, Tool, parse, spec};

/// The name of the tool.
const NAME: &str = "dispatch_subagent";

/// Lets another agent work.
struct Dispatch {
    crew: Arc<Crew>,
    /// The tools of the dispatching agent.
    inherited: Vec<Arc<str>>,
    spec: ToolSpec,
}

/// What the model says.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The agent that does it.
    agent: String,
    /// What it is to do, with all that it has to know: it sees nothing of this conversation.
    task: String,
    /// After how many steps it has to stop and report. Default: as many as its settings allow.
    max_steps: Option<u32>,
}

struct Call {
    crew: Arc<Crew>,
    agent: Agent,
    task: Arc<str>,
    session: SessionId,
}

/// Returns the tool with which an agent that has these tools dispatches others.
pub(in crate::app) fn dispatching(crew: Crew, inherited: Vec<Arc<str>>) -> Box<dyn Tool> {
    Box::new(Dispatch::new(crew, inherited))
}

impl Dispatch {
    fn new(crew: Crew, inherited: Vec<Arc<str>>) -> Self {
        let agents: Vec<Agent> = crew.agents().collect();
        let listed = agents.iter().map(|agent| {
            let what = if agent.description.is_empty() { "" } else { ": " };
            format!("\n- {}{what}{}", agent.name, agent.description)
        });
        let description = format!(
            "Lets another agent work on a part of the task, on its own and with a fresh view, and returns its report. \
             Good for reading much of which little matters, and for a second opinion. Agents that only read work side \
             by side when they are dispatched in one reply. The agents:{}",
            listed.collect::<String>()
        );
        let mut spec = spec::<Arguments>(NAME, &description);
        let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
        spec.schema["properties"]["agent"]["enum"] = json!(names);
        Self { crew: Arc::new(crew), inherited, spec }
    }
}

impl Tool for Dispatch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn Prepared>, String> {
        let Arguments { agent, task, max_steps } = parse(&self.spec, arguments)?;
        let invalid = |why: String| format!("Invalid arguments for {NAME}: {why}.");
        let agent = self.crew.agent(&agent, &self.inherited);
        let agent = agent.map_err(|problem| invalid(problem.trouble.to_string()))?;
        if task.trim().is_empty() {
            return Err(invalid("task is empty".to_owned()));
        }
        let max_steps = max_steps.unwrap_or(agent.max_steps).min(agent.max_steps);
        Ok(Box::new(Call {
            crew: Arc::clone(&self.crew),
            agent: Agent { max_steps, ..agent },
            task: task.into(),
            session: SessionId::fresh(),
        }))
    }
}

impl Prepared for Call {
    fn kind(&self) -> Kind {
        Kind::Delegates
    }

    /// Agents that change nothing, and never ask, may work side by side.
    fn access(&self) -> Access {
        let asks = !self.crew.setup.config.settings.permissions.ask.is_empty();
        if self.agent.only_reads() && !asks { Access::read("") } else { Access::Exclusive }
    }

    fn summary(&self) -> String {
        format!("{}: {}", self.agent.name, self.task)
    }

    fn limit(&self) -> Span {
        Span(child::LONGEST.0 + Span::secs(60).0)
    }

    fn plan(&mut self) -> Result<Plan, Output> {
        let session = self.crew.store.as_ref().map(|_| self.session.to_string().into());
        Ok(Plan { intent: Intent::Delegated { session }, changes: Vec::new() })
    }

    fn run(self: Box<Self>, context: &Context<'_>) -> Output {
        let Self { crew, agent, task, session } = *self;
        let errand = Errand { agent, task, session, call: context.call };
        child::run(&crew, errand, context.scope)
    }
}
