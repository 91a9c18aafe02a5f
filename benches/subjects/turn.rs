//! A whole run in one process: a model asks for two tools in each reply, and they read two small files.

use std::sync::Arc;

use architect::exec::{Policy, Supervisor};
use architect::machine::{Conversation, Fold, State};
use architect::model::{
    ContextRules, Fault, Finish, Item, Limits, LoopRules, Origin, Part, Reply, Rules, Tokens,
    ToolCall, Usage,
};
use architect::port::{Ask, Delta, Model, ModelCall, Scope, Toolbox};
use architect::runner::{Brief, Driver, Hands, Ports};
use architect::tools::{Registry, Settings, standard};
use architect::workspace::Root;

/// A workspace with the tools for it.
pub(crate) struct Stage {
    tools: Arc<Registry>,
    _folder: tempfile::TempDir,
}

/// A model that costs nothing: it asks for two files so many times, and is done.
struct Reader {
    turns: u32,
    asked: u32,
}

struct Says(Reply);

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.txt", "b.txt"] {
            std::fs::write(folder.path().join(name), "some text\n".repeat(20)).unwrap();
        }
        let root = Root::open(folder.path()).unwrap();
        let supervisor = Supervisor::in_process(Policy::off(folder.path()), Vec::new());
        let settings = Settings::default();
        let tools = Arc::new(Registry::new(standard(&root, &supervisor, &settings), settings));
        Self { tools, _folder: folder }
    }

    /// Makes a run of so many turns. Nothing is ever summed up, so that the history grows.
    pub(crate) fn run(&self, turns: u32, hands: impl Hands) {
        let rules = Rules {
            loops: LoopRules { warn: u32::MAX, end: u32::MAX },
            limits: Limits { max_steps: u32::MAX, ..Limits::default() },
            context: ContextRules { window: Tokens(1_000_000_000), ..ContextRules::default() },
            ..Rules::default()
        };
        let model = Reader { turns, asked: 0 };
        let tools: Arc<dyn Toolbox> = self.tools.clone();
        let brief = Brief { system: "Be brief.".into(), tools: tools.specs(), schema: None };
        let ports = Ports { tools, ..Ports::new(Box::new(model)) };
        let task = Item::user(Origin::Task, "Read.");
        let (fold, first) = Fold::start(rules, Conversation::new(brief.bytes()), task);
        let fold = Driver::new(hands, ports, brief, fold).run(first);
        let State::Done(done) = &fold.state else { panic!("not done") };
        assert_eq!(done.run.steps, turns);
    }
}

impl Model for Reader {
    fn prepare(&mut self, _: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let number = self.asked;
        self.asked += 1;
        let call = |path: &str| {
            let id = format!("call_{number}_{path}");
            let arguments = format!("{{\"path\":\"{path}.txt\"}}");
            Part::Call(ToolCall::new(id.as_str().into(), "read_file", &arguments))
        };
        let (parts, finish) = match number < self.turns {
            true => ([call("a"), call("b")].into(), Finish::ToolCalls),
            false => ([Part::Text("Done.".into())].into(), Finish::Stop),
        };
        Ok(Box::new(Says(Reply { parts, finish, usage: Usage::default(), model: None })))
    }
}

impl ModelCall for Says {
    fn run(self: Box<Self>, _: &Scope, _: &mut dyn FnMut(Delta)) -> Result<Reply, Fault> {
        Ok(self.0)
    }
}
