//! Sub-agents: a tool with which one agent lets another one work on a part of its task.
//!
//! ```text
//!  dispatch_subagent ─▶ SubagentContext (agents, tools) ─▶ RunSetup (within the budget share) ─▶ Driver ─▶ report
//! ```
//!
//! A sub-agent is a run like any other: the same machine, a journal of its own, hooks, rules. What it may do is never
//! more than what its dispatcher may do: it has only tools that both agents have, the stricter of both confirmation
//! modes, a share of what is left of money, tokens and time, and it counts against the same limits on files, lines and
//! commands. It has no sub-agents itself. One that may change something works in the files of its dispatcher, alone, or in
//! a worktree of its own (`isolation`).

mod dispatch;
mod isolation;
mod subagent_run;
mod usage_meter;

pub(crate) use dispatch::DISPATCH;
pub(super) use dispatch::DispatchTool;
pub(crate) use isolation::APPLIED_NOTE;
pub(super) use isolation::{OneQuestion, SubagentWorktrees};
pub(super) use subagent_run::SubagentContext;
