//! Why a run could not be set up.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::context::DiffError;
use super::undo::UndoError;
use crate::config::{ConfigError, ConfigProblem};
use crate::exec::ExecError;
use crate::hooks::HooksTooDeep;
use crate::journal::JournalError;
use crate::llm::model_table::ModelTableError;
use crate::llm::{ConnectError, ModelSpecError, PlaybackError};
use crate::workspace::checkpoint::CheckpointError;
use crate::workspace::image::ImageError;

/// Why a run could not be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AppError {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No model is chosen.
    #[error("no model is chosen")]
    NoModel,
    /// An image of the user can't be sent.
    #[error("could not use the image {name}: {cause}")]
    Image {
        /// The name of the image.
        name: String,
        /// Why.
        cause: ImageError,
    },
    /// What is chosen names no model.
    #[error(transparent)]
    Model(#[from] ModelSpecError),
    /// The table of prices cannot be used.
    #[error(transparent)]
    PriceTable(#[from] ModelTableError),
    /// The model cannot be reached as it is set up.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A model that the user defines has to name one.
    #[error("models.{0} has no `model`; set it to PROVIDER/NAME")]
    IncompleteModel(String),
    /// A model can't replace itself.
    #[error("llm.fallback has {0} twice, or {0} is the model itself")]
    RepeatedFallback(String),
    /// A run with a budget needs a price.
    #[error("the run has a budget, and the price of {0} is unknown")]
    NoPrice(String),
    /// The workspace cannot be used.
    #[error("could not open the workspace {}: {cause}", .path.display())]
    Workspace {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// The current folder contains the user's home, and was not named as the workspace.
    #[error("the workspace would be {}, which contains your home folder", .0.display())]
    HomeAsWorkspace(PathBuf),
    /// A tool has a name that another tool has, or that providers refuse.
    #[error(
        "invalid tool name '{0}': it has to be unique, of letters, digits, '_' and '-', at most 64"
    )]
    ToolName(String),
    /// The agent stores no sessions, so there is nothing to resume.
    #[error("this agent stores no sessions: name a folder with `AgentBuilder::sessions`")]
    NoSessions,
    /// The program can't be started as a supervisor of commands.
    #[error(
        "commands need a supervisor: call `architect::supervisor_main` first in `main`, or name one with `set_supervisor`"
    )]
    NoSupervisor,
    /// The schema of a tool's arguments is invalid.
    #[error("the schema of the tool '{name}' is not a JSON Schema: {cause}")]
    ToolSchema {
        /// The tool.
        name: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The schema of the answer is invalid.
    #[error("the schema of the answer {0}")]
    InvalidSchema(String),
    /// The session can't be stored or resumed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A state of the workspace can't be recorded, read or restored.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// There is nothing to restore, or it is not possible.
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// Commands cannot be run as configured.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// What changed in the workspace can't be determined.
    #[error("could not read the changes from git: {0}")]
    Diff(#[from] DiffError),
    /// A server of tools that is required can't be had.
    #[error("{0}")]
    McpServer(String),
    /// Hooks start this program again and again.
    #[error(transparent)]
    HookDepth(#[from] HooksTooDeep),
    /// The system refuses something that every run needs.
    #[error("could not {what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        cause: String,
    },
}

impl AppError {
    /// Returns whether the user can fix it: arguments, configuration, names. Otherwise it is a failure of the system.
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Exec(error) => matches!(error, ExecError::Unconfined(_)),
            Self::Journal(error) => {
                use JournalError::{Damaged, Index, Io, Misnamed};
                !matches!(error, Io(_) | Index(_) | Damaged { .. } | Misnamed { .. })
            }
            Self::Checkpoint(_) | Self::System { .. } => false,
            Self::Undo(error) => error.is_user_error(),
            _ => true,
        }
    }

    pub(super) fn system_error(what: &'static str, cause: &dyn std::fmt::Display) -> Self {
        Self::System { what, cause: cause.to_string() }
    }
}

impl From<ConfigProblem> for AppError {
    fn from(problem: ConfigProblem) -> Self {
        Self::Config(ConfigError { problems: vec![problem] })
    }
}

impl From<PlaybackError> for AppError {
    fn from(script: PlaybackError) -> Self {
        Self::Connect(script.into())
    }
}
