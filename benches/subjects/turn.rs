//! A whole run in one process: a model asks for two tools in each reply, and they read two small files.

use std::sync::Arc;

use architect::exec::{SandboxPolicy, Supervisor};
use architect::runner::{Executor, Ports};
use architect::tools::{ToolRegistry, ToolSettings, standard_tools};
use architect::types::{ContextLimits, LoopDetection, RunLimits, RunRules, Tokens};
use architect::workspace::WorkspaceRoot;

use model::{call, model, reply, text};

#[allow(dead_code)] // tests use more of it
#[path = "../../tests/kit/model.rs"]
mod model;
#[allow(dead_code)]
#[path = "../../tests/kit/run.rs"]
mod run;

/// A workspace with the tools for it.
pub(crate) struct TurnFixture {
    tools: Arc<ToolRegistry>,
    _folder: tempfile::TempDir,
}

impl TurnFixture {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.txt", "b.txt"] {
            std::fs::write(folder.path().join(name), "some text\n".repeat(20)).unwrap();
        }
        let root = WorkspaceRoot::open(folder.path()).unwrap();
        let supervisor = Supervisor::in_process(SandboxPolicy::off(folder.path()), Vec::new());
        let settings = ToolSettings::default();
        let tools =
            Arc::new(ToolRegistry::new(standard_tools(&root, &supervisor, &settings), settings));
        Self { tools, _folder: folder }
    }

    /// Runs this number of turns. Nothing is ever summarized, so that the history grows.
    pub(crate) fn run(&self, turns: u32, executor: impl Executor + 'static) {
        let rules = RunRules {
            loop_detection: LoopDetection { warn_at: u32::MAX, end_at: u32::MAX },
            limits: RunLimits { max_steps: u32::MAX, ..RunLimits::default() },
            context: ContextLimits { window: Tokens(1_000_000_000), ..ContextLimits::default() },
            ..RunRules::default()
        };
        let mut requests = 0;
        let model = model(move |_| {
            let number = requests;
            requests += 1;
            let read = |path: &str| {
                let (id, arguments) =
                    (format!("call_{number}_{path}"), format!("{{\"path\":\"{path}.txt\"}}"));
                call(&id, "read_file", &arguments)
            };
            match number < turns {
                true => reply([read("a"), read("b")]),
                false => text("Done."),
            }
        });
        let ports = Ports { tools: self.tools.clone(), ..Ports::new(model) };
        let machine = run::run(executor, rules, ports);
        assert_eq!(run::done(&machine).run.steps, turns);
    }
}
