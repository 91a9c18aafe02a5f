//! Tools on demand: those that no request describes.
//!
//! A request then has two tools in their place: [`SEARCH_TOOLS`] returns descriptions of deferred tools, and [`CALL_TOOL`]
//! calls one by its name. So the tools of a request, and with them the prompt cache of the provider, stay the same however
//! many are found.
//!
//! Only the model knows [`CALL_TOOL`]: [`DeferredToolsModel`] turns each of its calls into a call of the tool that it names,
//! before anything else sees the reply, and back for the next request. The policy, hooks, events and the journal know the
//! real tool.

mod call_tool;
mod search_tools;

use std::sync::Arc;

use super::tool::Tool;
use crate::port::ToolSpec;

pub(crate) use call_tool::DeferredToolsModel;

/// The name of the tool that finds deferred tools.
pub const SEARCH_TOOLS: &str = "search_tools";

/// The name of the tool that calls a deferred tool.
pub const CALL_TOOL: &str = "call_tool";

/// A deferred tool.
#[derive(Clone, Debug)]
pub(super) struct DeferredTool {
    /// Its server, under which it is listed.
    pub server: Arc<str>,
    /// Its description, for a search.
    pub spec: ToolSpec,
}

/// Returns the two tools in place of these, with the size of a search result in bytes.
pub(super) fn tools(deferred: &Arc<[DeferredTool]>, budget: Option<usize>) -> [Arc<dyn Tool>; 2] {
    [
        search_tools::search_tools(Arc::clone(deferred), budget).into(),
        Arc::new(call_tool::CallTool::new(Arc::clone(deferred))),
    ]
}
