//! Deferred tools: tools that are found on demand instead of being described in requests.
//!
//! Requests describe two tools in their place: [`SEARCH_TOOLS`] returns descriptions of deferred tools, and
//! [`CALL_TOOL`] calls one by its name. So the tools of a request, and with them the prompt cache of the provider, stay
//! the same however many tools are found.
//!
//! Only the model uses [`CALL_TOOL`]: [`DeferredToolsModel`] replaces each such call in a reply by a call of the named
//! tool, before any other part sees it, and reverses that for the next request. The policy, hooks, events and the
//! journal see the real tool.

mod call_tool;
mod search_tools;

use std::sync::Arc;

use super::tool::Tool;
use crate::port::ToolSpec;

pub(crate) use call_tool::DeferredToolsModel;

/// The name of the tool that searches deferred tools.
pub const SEARCH_TOOLS: &str = "search_tools";

/// The name of the tool that calls a deferred tool.
pub const CALL_TOOL: &str = "call_tool";

/// A deferred tool.
#[derive(Clone, Debug)]
pub(super) struct DeferredTool {
    /// The server that provides the tool; tools are listed by server.
    pub server: Arc<str>,
    /// The specification, which is searched.
    pub spec: ToolSpec,
}

/// Returns the two tools that replace these; `budget` is the maximum size of a search result in bytes.
pub(super) fn tools(deferred: &Arc<[DeferredTool]>, budget: Option<usize>) -> [Arc<dyn Tool>; 2] {
    [
        search_tools::search_tools(Arc::clone(deferred), budget).into(),
        Arc::new(call_tool::CallTool::new(Arc::clone(deferred))),
    ]
}
