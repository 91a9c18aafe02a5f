//! Floor 4: hooks — the user's commands, and a library user's code, at fixed points of a run.
//!
//! [`Hooks`] holds them in order. At each point the run comes to, its hooks are shown an [`HookInput`] one after the other,
//! each with what the one before it changed, and each gives an [`Answer`]: go on, go on with a change, or no. A hook that
//! fails, hangs or breaks down hurts nothing else; whether it then counts as a no is said by its [`OnFailure`].
//!
//! A hook is anything that implements [`Hook`]. [`CommandHook`] is a command: it gets the occasion as JSON on its standard
//! input, and its exit code and its standard output are the answer. `post_edit` hooks are commands for one file. Commands
//! run in a [`HookShell`], which a [`Supervisor`](crate::exec::Supervisor) is.
//!
//! Three wrappers bring hooks to where things happen: [`HookedTools`] around a toolbox, [`HookedModel`] around a model
//! with [`PreCallHookRunner`] before its calls, [`HookedAnswerChecks`] around the checks of an answer. What begins and ends a
//! session is told to [`Hooks`] directly.

mod answer_checks;
mod command_hook;
mod file_placeholder;
mod hook;
mod hook_input;
mod hook_list;
mod hook_output;
mod hooked_model;
mod hooked_tools;
mod post_edit;
mod pre_call_hooks;
mod supervised_shell;

pub use crate::model::HookFailurePolicy;
pub use answer_checks::HookedAnswerChecks;
pub use command_hook::{CommandHook, HookCommand, HookShell, ShellOutput};
pub use file_placeholder::UnsafePlaceholder;
pub use hook::{Hook, HookError, HookMatcher};
pub use hook_input::{HookInput, HookSession};
pub use hook_list::{HookBlock, HookChainResult, HookResult, Hooks, HooksTooDeep};
pub use hook_output::{HookChanges, HookOutput};
pub use hooked_model::{HookedModel, with_hooks};
pub use hooked_tools::HookedTools;
pub use post_edit::PostEditHook;
pub use pre_call_hooks::PreCallHookRunner;
