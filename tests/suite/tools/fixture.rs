//! A workspace with its tools, for a test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use architect::exec::{SandboxPolicy, Supervisor, VariableFilter, clean_environment};
use architect::machine::CallIntent;
use architect::policy::{ConfirmMode, Repositories, UnwritablePaths};
use architect::port::{ApprovedCall, AuthorizationOutcome, Toolbox};
use architect::tools::{ToolRegistry, ToolSettings, standard_tools};
use architect::types::{ToolCall, ToolResult, ToolStatus};
use architect::workspace::WorkspaceRoot;
use serde_json::Value;
use tempfile::TempDir;

use crate::kit::effect::scope;

/// A workspace in a temporary folder, and the tools on it.
pub(crate) struct ToolFixture {
    _folder: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) supervisor: Supervisor,
    pub(crate) registry: ToolRegistry,
}

/// An approved call.
pub(crate) struct AuthorizedCall {
    pub(crate) job: ApprovedCall,
    pub(crate) intent: CallIntent,
    pub(crate) reason: Arc<str>,
}

/// Returns settings without confirmations.
pub(crate) fn yolo_settings() -> ToolSettings {
    ToolSettings { mode: ConfirmMode::Yolo, ..ToolSettings::default() }
}

impl ToolFixture {
    /// Returns a fixture in which everything is allowed and nothing confined.
    pub(crate) fn new() -> Self {
        Self::with(yolo_settings(), |_| {})
    }

    /// Returns a fixture with these settings, and a policy that `change` may modify.
    pub(crate) fn with(
        mut settings: ToolSettings,
        policy: impl FnOnce(&mut SandboxPolicy),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let temp = path.join("tmp");
        let workspace = path.join("w");
        for folder in [&temp, &workspace] {
            fs::create_dir(folder).unwrap();
        }
        let mut wanted = SandboxPolicy { temp: temp.clone(), ..SandboxPolicy::off(&workspace) };
        policy(&mut wanted);
        settings.guardrails.unwritable = UnwritablePaths::new(&wanted);
        let workspace = wanted.workspace.canonicalize().unwrap();
        settings.guardrails.repositories = Repositories::new(&workspace);
        let env =
            clean_environment(std::env::vars_os(), &VariableFilter { rule: &|_| None }, &temp);
        let supervisor = Supervisor::with_program(env!("CARGO_BIN_EXE_architect"), wanted, env);
        let root = WorkspaceRoot::open(&workspace).unwrap();
        let registry = ToolRegistry::new(standard_tools(&root, &supervisor, &settings), settings);
        Self { _folder: folder, path: workspace, supervisor, registry }
    }

    /// Writes a file of the workspace.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Reads a file of the workspace.
    pub(crate) fn read(&self, path: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path.join(path)).unwrap()).into_owned()
    }

    /// Returns the permissions of a file.
    pub(crate) fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.path.join(path)).unwrap().permissions().mode() & 0o7777
    }

    /// Authorizes a call.
    pub(crate) fn authorize(
        &self,
        tool: &str,
        arguments: &Value,
    ) -> Result<AuthorizedCall, ToolResult> {
        self.authorize_as("call-1", tool, arguments)
    }

    /// Authorizes a call with this id.
    pub(crate) fn authorize_as(
        &self,
        id: &str,
        tool: &str,
        arguments: &Value,
    ) -> Result<AuthorizedCall, ToolResult> {
        let call = ToolCall::new(id.into(), tool, &arguments.to_string());
        match self.registry.prepare(&call).authorize(&scope()) {
            AuthorizationOutcome::Approved { call: job, intent, reason, .. } => {
                Ok(AuthorizedCall { job, intent, reason })
            }
            AuthorizationOutcome::Rejected(result) => Err(result),
            AuthorizationOutcome::Abort | AuthorizationOutcome::Edited { .. } => panic!("aborted"),
        }
    }

    /// Makes a call.
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> ToolResult {
        match self.authorize(tool, arguments) {
            Ok(clear) => (clear.job)(&scope()),
            Err(result) => result,
        }
    }

    /// Makes a call that has to succeed, and returns the text of its result.
    pub(crate) fn ok(&self, tool: &str, arguments: &Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result.status, ToolStatus::Ok, "{}", result.text);
        result.text.to_string()
    }

    /// Makes a call that must not succeed, and returns the text of its result.
    pub(crate) fn err(&self, tool: &str, arguments: &Value) -> String {
        let result = self.call(tool, arguments);
        assert_ne!(result.status, ToolStatus::Ok, "{}", result.text);
        result.text.to_string()
    }
}
