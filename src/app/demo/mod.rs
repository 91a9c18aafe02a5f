//! The demonstration: a real run on a throw-away workspace, with a model that plays a script.
//!
//! Everything except the model is real: files, tools, confinement, the journal. No configuration is read, no key is
//! needed, and nothing is left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::error::AppError;
use super::process_env::ProcessEnv;
use super::resolved_model::ResolvedModel;
use super::run_io::RunRequest;
use super::run_setup::RunSetup;
use super::session::{SessionTarget, open_store};
use crate::config::{ConfigSources, load};
use crate::exec::CommandSpec;
use crate::llm::scripted::Script;
use crate::port::CancellationToken;
use crate::view::CostSource;

/// The files of the workspace.
const FILES: [(&str, &str); 3] = [
    ("AGENTS.md", include_str!("workspace/AGENTS.md")),
    ("convert.sh", include_str!("workspace/convert.sh")),
    ("test.sh", include_str!("workspace/test.sh")),
];

/// The script of the model's replies.
const SCRIPT: &str = include_str!("script.toml");

/// The user's message.
const TASK: &str = "The test fails. Find out why, and fix it.";

/// The command that tests the workspace, and its time limit.
const TEST_COMMAND: (&str, Duration) = ("sh test.sh", Duration::from_secs(30));

/// A workspace with a failing test, and everything that a run needs to fix it.
pub struct Demo {
    /// The set-up of the run.
    pub setup: RunSetup,
    folder: TempDir,
}

impl Demo {
    /// Creates the workspace.
    ///
    /// # Errors
    ///
    /// Fails if the workspace can't be created.
    pub fn new(world: ProcessEnv) -> Result<Self, AppError> {
        let failed = |error: std::io::Error| {
            AppError::system_error("make the workspace of the demonstration", &error)
        };
        let folder =
            tempfile::Builder::new().prefix("architect-demo-").tempdir().map_err(failed)?;
        let workspace = folder.path().join("workspace");
        fs::create_dir(&workspace).map_err(failed)?;
        for (name, content) in FILES {
            fs::write(workspace.join(name), content).map_err(failed)?;
        }
        let sessions = folder.path().join("sessions");
        let sets = [
            "indexer.cache_ttl=0".to_owned(),
            "agents.build.confirm_mode=yolo".to_owned(),
            format!("sessions.dir={}", sessions.display()),
        ];
        let config =
            load(&ConfigSources { cwd: workspace, sets: sets.into(), ..ConfigSources::default() })?;
        let script = Script::from_toml("the demonstration", SCRIPT)?;
        let model = ResolvedModel::scripted("scripted/demo", script);
        let setup = RunSetup::new(config, world, "build", model)?;
        Ok(Self { setup, folder })
    }

    /// Returns the workspace.
    pub fn workspace(&self) -> &Path {
        &self.setup.config.workspace
    }

    /// Returns the request of the demonstration.
    ///
    /// # Errors
    ///
    /// Fails if its session can't be stored.
    pub fn run_request(&self) -> Result<RunRequest, AppError> {
        let store = open_store(&self.setup.config, &self.setup.env)?;
        Ok(RunRequest::new(TASK, SessionTarget::New(store, None), CostSource::Agent))
    }

    /// Runs the test of the workspace; returns whether it passes, and its output.
    ///
    /// # Errors
    ///
    /// Fails if the test can't be run.
    pub fn run_test(&self) -> Result<(bool, String), AppError> {
        let (line, timeout) = TEST_COMMAND;
        let command = CommandSpec { timeout: Some(timeout), ..self.setup.sandbox.command(line) };
        let outcome = self.setup.sandbox.model.run(&command, &CancellationToken::new())?;
        let printed = [outcome.stdout.text(), outcome.stderr.text()].concat();
        Ok((outcome.end.is_success(), printed))
    }

    /// Returns the command that tests the workspace.
    pub fn test_command(&self) -> &'static str {
        TEST_COMMAND.0
    }

    /// Keeps the workspace on disk, and returns its folder.
    pub fn keep_workspace(self) -> PathBuf {
        let Self { setup, folder } = self;
        drop(folder.keep());
        setup.config.workspace
    }
}
