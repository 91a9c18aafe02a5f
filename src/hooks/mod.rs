//! Layer 4: hooks at fixed points of a run, which are commands of the user or code of a library user.
//!
//! [`Hooks`] holds them in order. At each point of the run, they get a [`HookInput`] one after another, including the
//! changes of the previous ones, and return a [`HookOutput`]: continue, continue with changes, or block. A failing hook
//! affects nothing else; its [`HookFailurePolicy`] decides whether it blocks.
//!
//! A hook is a type that implements [`Hook`]. [`CommandHook`] is a command: it reads the input as JSON from its
//! standard input, and answers with its exit code and standard output. `post_edit` hooks are commands that run for each
//! changed file.
//!
//! Three wrappers run hooks: [`HookedTools`] around a toolbox, [`HookedModel`] around a model with
//! [`PreCallHookRunner`] before its calls, and [`HookedAnswerChecks`] after the checks of an answer. The start and the
//! end of a session are passed to [`Hooks`] directly.

mod command_hook;
mod error;
mod file_placeholder;
mod hook;
mod hook_input;
mod hook_list;
mod hook_output;
mod hooked_answer_checks;
mod hooked_model;
mod hooked_tools;

pub use crate::types::HookFailurePolicy;
pub use command_hook::CommandHook;
pub use error::HookError;
pub use file_placeholder::{UnsafePlaceholder, check_placeholder};
pub use hook::{Hook, HookMatcher};
pub use hook_input::{HookInput, HookSession};
pub use hook_list::{HookBlock, HookChainResult, Hooks, HooksTooDeep};
pub use hook_output::{HookChanges, HookOutput};
pub use hooked_answer_checks::HookedAnswerChecks;
pub use hooked_model::{HookedModel, PreCallHookRunner, with_hooks};
pub use hooked_tools::HookedTools;
