//! Errors in setting up a run.

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

/// An error in setting up a run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AppError {
    /// The configuration is invalid.
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
        /// The reason.
        cause: ImageError,
    },
    /// The chosen name is not a model.
    #[error(transparent)]
    Model(#[from] ModelSpecError),
    /// The table of prices cannot be used.
    #[error(transparent)]
    PriceTable(#[from] ModelTableError),
    /// The model can't be reached with its settings.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A model definition lacks the model.
    #[error("models.{0} has no `model`; set it to PROVIDER/NAME")]
    IncompleteModel(String),
    /// A model and its fallbacks must all be different.
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
        /// The error of the system.
        cause: io::Error,
    },
    /// The current folder contains the user's home, and was not explicitly named as the workspace.
    #[error("the workspace would be {}, which contains your home folder", .0.display())]
    HomeAsWorkspace(PathBuf),
    /// The name of a tool is taken, or providers refuse it.
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
        /// The problem with the schema.
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
    /// The session can't be undone.
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// Commands cannot be run as configured.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The changes in the workspace can't be determined.
    #[error("could not read the changes from git: {0}")]
    Diff(#[from] DiffError),
    /// A required MCP server is unavailable.
    #[error("{0}")]
    McpServer(String),
    /// Hooks start this program recursively, too deeply.
    #[error(transparent)]
    HookDepth(#[from] HooksTooDeep),
    /// The system refuses something that every run needs.
    #[error("could not {what}: {cause}")]
    System {
        /// The action that failed.
        what: &'static str,
        /// The error of the system.
        cause: String,
    },
}

impl AppError {
    /// Returns whether the user can fix the error, as with arguments, configuration and names. Otherwise the system has
    /// failed.
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

    pub(crate) fn system_error(what: &'static str, cause: &dyn std::fmt::Display) -> Self {
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
