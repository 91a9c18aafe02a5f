//! The agents that a run can dispatch, and what they share with it.

use std::sync::Arc;

use serde_json::Value;

use crate::app::environment::SubagentClock;
use crate::app::run::SharedResources;
use crate::app::run_setup::RunSetup;
use crate::config::{AgentDefinition, ConfigProblem};
use crate::journal::{SessionId, SessionStore};
use crate::model::matches_wildcard;
use crate::policy::Confirmer;

/// The agents that a run can dispatch, and what they share with it.
pub(in crate::app) struct SubagentContext {
    /// The set-up of the dispatching run.
    pub(in crate::app) setup: RunSetup,
    /// Its session.
    pub(in crate::app) session: SessionId,
    /// Where the sessions of sub-agents are stored, if at all.
    pub(in crate::app) store: Option<SessionStore>,
    /// The stored options of the session, with which a sub-agent's session can be resumed by itself.
    pub(in crate::app) options: Value,
    /// Asks for confirmations.
    pub(in crate::app) confirm: Arc<dyn Confirmer>,
    /// What they share.
    pub(in crate::app) shared: SharedResources,
    /// The clock of their runs.
    pub(in crate::app) clock: SubagentClock,
}

impl SubagentContext {
    /// Returns an agent as it works when it is dispatched: with tools that its dispatcher has too.
    ///
    /// # Errors
    ///
    /// Fails when there is no such agent, with the one that is most like it.
    pub(super) fn agent(
        &self,
        name: &str,
        inherited: &[Arc<str>],
    ) -> Result<AgentDefinition, ConfigProblem> {
        let agent = self.setup.config.agent(name)?;
        let has =
            |tool: &&Arc<str>| agent.allowed_tools.iter().any(|own| matches_wildcard(own, tool));
        let allowed_tools = inherited.iter().filter(has).map(ToString::to_string).collect();
        // The strictest mode is the first one.
        let confirm_mode = agent.confirm_mode.min(self.setup.agent.confirm_mode);
        Ok(AgentDefinition { allowed_tools, confirm_mode, ..agent })
    }
}
