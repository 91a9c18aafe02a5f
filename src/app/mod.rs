//! Composition: the only module that knows every adapter.
//!
//! ```text
//!  Config ──▶ RunSetup (model, tools, sandbox) ──▶ RunSession (new, stored) ──▶ Ports ──▶ Driver ──▶ FinishedRun
//! ```
//!
//! [`RunSetup::new`] finds all problems before anything begins; [`RunSetup::run`] opens the session, builds the ports,
//! drives the machine and finishes. Nothing here reads the environment of the process: variables and folders come in as
//! a [`ProcessEnv`]. [`Agent`] is the façade for programs that embed the agent.

mod agent;
mod checkpoints;
mod commit_watch;
mod config_check;
mod configured_checks;
mod configured_hooks;
mod configured_servers;
mod configured_tools;
pub mod context;
pub mod demo;
mod end_hooks;
mod error;
mod function_tool;
mod hidden_paths;
mod probe;
mod process_env;
mod resolved_model;
mod run;
mod run_environment;
mod run_interrupts;
mod run_io;
mod run_setup;
mod sandbox;
mod secrets;
mod session;
mod skill_file;
mod skills;
mod stats;
mod subagents;
mod telemetry;
mod trace;
mod trajectory;
mod undo;
mod verification;
mod what_if;
mod worktree;

pub use crate::tools::ExecutionMode;
pub use agent::{Agent, AgentBuilder, set_supervisor, supervisor_main};
pub use commit_watch::CommitWatch;
pub use config_check::{check_agents, check_config};
pub use end_hooks::RunDeadline;
pub use error::AppError;
pub use function_tool::FunctionTool;
pub use probe::{ProbeScope, ServerFinding, ServerProbe, probe_model, probe_servers};
pub use process_env::ProcessEnv;
pub use resolved_model::{
    KnownModel, KnownModels, ModelWrapper, ResolvedModel, available_models, known_models,
    model_table,
};
pub use run::FinishedRun;
pub use run_environment::{PortsOverride, RunEnvironment, SubagentClock};
pub use run_interrupts::RunInterrupts;
pub use run_io::{RunIo, RunRequest};
pub use run_setup::RunSetup;
pub use sandbox::{Sandbox, finish_interrupted, foreign_workspace_warning, watch_writes};
pub use secrets::{collect_secrets, mask_message};
pub(crate) use session::usage_before;
pub use session::{SessionTarget, open_store, restart_limits, subtract_time_used};
pub use skill_file::SkillFile;
pub use skills::{Skill, SkillScope, SkillSources, SkillStatus, UserSkills};
pub use stats::session_statistics;
pub(crate) use subagents::{APPLIED_NOTE, DISPATCH as DISPATCH_TOOL};
pub use telemetry::start_telemetry;
pub use trace::{recorded_step_changes, trace_session};
pub use trajectory::session_trajectory;
pub use undo::{
    CompletedRestore, KeptFiles, RecordedChanges, RecordedWorkspace, UndoError, UndoSession,
    UndoTarget, UndoneSession, complete_pending_restore, has_changed_files, undo_whole_session,
};
pub use verification::{
    RecordProblem, RequestComparison, RequestDifference, SessionVerification, WrongHash,
    verify_session,
};
pub use what_if::{
    ChangedDecision, FinalSummaryBound, SessionUsage, WhatIfDivergence, WhatIfReport, what_if,
};
pub use worktree::{SandboxedGit, open_worktrees, worktree_result};
