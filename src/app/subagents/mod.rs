//! Sub-agents: a tool with which an agent delegates a part of its task to another agent.
//!
//! ```text
//!  dispatch_subagent ─▶ SubagentContext (agents, tools) ─▶ RunSetup (within the budget share) ─▶ Driver ─▶ report
//! ```
//!
//! A sub-agent is a run like any other: with the same machine, its own journal, hooks and rules. It is never allowed
//! more than its dispatcher: it gets only tools that both agents have, the stricter of both confirmation modes, and a
//! share of the remaining money, tokens and time, and it counts towards the same limits on files, lines and commands.
//! It has no sub-agents itself. A sub-agent that may change files works in the files of its dispatcher, alone, or in
//! its own worktree (`isolation`).

mod dispatch;
mod isolation;
mod subagent_run;
mod usage_meter;

pub(crate) use dispatch::DISPATCH;
pub(super) use dispatch::DispatchTool;
pub(crate) use isolation::APPLIED_NOTE;
pub(super) use isolation::{OneQuestion, SubagentWorktrees};
pub(super) use subagent_run::SubagentContext;
