//! Floor 4: hooks — the user's commands, and a library user's code, at fixed points of a run.
//!
//! [`Hooks`] holds them in order. At each point the run comes to, its hooks are shown an [`Occasion`] one after the other,
//! each with what the one before it changed, and each gives an [`Answer`]: go on, go on with a change, or no. A hook that
//! fails, hangs or breaks down hurts nothing else; whether it then counts as a no is said by its [`OnFailure`].
//!
//! A hook is anything that implements [`Hook`]. [`ShellHook`] is a command: it gets the occasion as JSON on its standard
//! input, and its exit code and its standard output are the answer. `post_edit` hooks are commands for one file. Commands
//! run in a [`Shell`], which a [`Supervisor`](crate::exec::Supervisor) is.
//!
//! Three wrappers bring hooks to where things happen: [`HookedTools`] around a toolbox, [`HookedModel`] around a model
//! with [`HookedPrelude`] before its calls, [`HookedChecks`] around the checks of an answer. What begins and ends a
//! session is told to [`Hooks`] directly.

mod answer;
mod checks;
mod edit;
mod hook;
mod list;
mod model;
mod occasion;
mod place;
mod prelude;
mod shell;
mod supervised;
mod tools;

pub use answer::{Answer, Changes};
pub use checks::HookedChecks;
pub use edit::EditHook;
pub use hook::{Hook, HookError, OnFailure, Place};
pub use list::{Blocked, Heard, Hooks, Passage, TooDeep};
pub use model::{HookedModel, around};
pub use occasion::{Occasion, SessionFacts};
pub use place::UnclearPlace;
pub use prelude::HookedPrelude;
pub use shell::{Line, Ran, Shell, ShellHook};
pub use tools::HookedTools;
