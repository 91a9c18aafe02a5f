//! What several runs have in common that work on one task.

use std::sync::Arc;

use crate::llm::scripted::ScriptPosition;
use crate::mcp::Servers;
use crate::tools::Common;

/// What a run has in common with those that it dispatches.
#[derive(Clone)]
pub(super) struct Shared {
    /// Whose tools there are besides the own ones.
    pub(super) servers: Arc<Servers>,
    /// How much of the limits on what they change is used.
    pub(super) account: Common,
    /// Where a script or a recording stands.
    pub(super) position: ScriptPosition,
}
