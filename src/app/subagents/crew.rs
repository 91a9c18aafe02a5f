//! Who can be dispatched, and what they share with who dispatches them.

use std::sync::Arc;

use serde_json::Value;

use super::Nesting;
use crate::app::setup::Setup;
use crate::app::shared::Shared;
use crate::config::{Agent, Problem};
use crate::journal::{SessionId, Store};
use crate::model::wildcard;
use crate::tools::permission::Confirm;

/// Who can be dispatched from one run, and what they share with it.
pub(in crate::app) struct Crew {
    /// The set-up of the dispatching run.
    pub(in crate::app) setup: Setup,
    /// Its session.
    pub(in crate::app) session: SessionId,
    /// Where sub-agents are written down, if at all.
    pub(in crate::app) store: Option<Store>,
    /// What the session remembers, for going on with a sub-agent's session by itself.
    pub(in crate::app) options: Value,
    /// Who can be asked.
    pub(in crate::app) confirm: Arc<dyn Confirm>,
    /// What they share.
    pub(in crate::app) shared: Shared,
    /// By which clock they go.
    pub(in crate::app) nesting: Nesting,
}

impl Crew {
    /// Returns the agents that can be dispatched.
    pub(super) fn agents(&self) -> impl Iterator<Item = Agent> + '_ {
        self.setup.config.agents()
    }

    /// Returns an agent as it works when it is dispatched: with tools that its dispatcher has too.
    ///
    /// # Errors
    ///
    /// Fails when there is no such agent, with the one that is most like it.
    pub(super) fn agent(&self, name: &str, inherited: &[Arc<str>]) -> Result<Agent, Problem> {
        let agent = self.setup.config.agent(name)?;
        let has = |tool: &&Arc<str>| agent.allowed_tools.iter().any(|own| wildcard(own, tool));
        let allowed_tools = inherited.iter().filter(has).map(ToString::to_string).collect();
        // The strictest mode is the first one.
        let confirm_mode = agent.confirm_mode.min(self.setup.agent.confirm_mode);
        Ok(Agent { allowed_tools, confirm_mode, ..agent })
    }
}
