//! What several runs have in common that work on one task.

use std::sync::Arc;

use crate::llm::scripted::ScriptPosition;
use crate::mcp::McpServers;
use crate::tools::SharedQuota;

/// What a run has in common with those that it dispatches.
#[derive(Clone)]
pub(super) struct SharedResources {
    /// Whose tools there are besides the own ones.
    pub(super) servers: Arc<McpServers>,
    /// How much of the limits on what they change is used.
    pub(super) quota: SharedQuota,
    /// Where a script or a recording stands.
    pub(super) script_position: ScriptPosition,
}
