//! What a run shares with its sub-agents.

use std::sync::Arc;

use crate::llm::scripted::ScriptPosition;
use crate::mcp::McpServers;
use crate::tools::SharedQuota;

/// What a run shares with its sub-agents.
#[derive(Clone)]
pub(super) struct SharedResources {
    /// The MCP servers.
    pub(super) servers: Arc<McpServers>,
    /// The limits on changes, and what is used of them.
    pub(super) quota: SharedQuota,
    /// The position in a script or a recording.
    pub(super) script_position: ScriptPosition,
}
