//! A whole run in one process: a model asks for two tools in each reply, and they read two small files.

use std::sync::Arc;

use architect::exec::{SandboxPolicy, Supervisor};
use architect::machine::{Conversation, Machine, State};
use architect::model::{
    ContextLimits, ConversationItem, Fault, LoopDetection, MessageOrigin, Reply, ReplyFinish,
    ReplyPart, RunLimits, RunRules, Tokens, ToolCall, Usage,
};
use architect::port::{EffectContext, Model, ModelCall, ModelRequest, ReplyDelta, Toolbox};
use architect::runner::{Driver, Executor, Ports, RequestContext};
use architect::tools::{ToolRegistry, ToolSettings, standard_tools};
use architect::workspace::WorkspaceRoot;

/// A workspace with the tools for it.
pub(crate) struct TurnFixture {
    tools: Arc<ToolRegistry>,
    _folder: tempfile::TempDir,
}

/// A model that costs nothing: it asks for two files so many times, and is done.
struct ReadingModel {
    turns: u32,
    asked: u32,
}

struct ImmediateReply(Reply);

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

    /// Makes a run of so many turns. Nothing is ever summed up, so that the history grows.
    pub(crate) fn run(&self, turns: u32, hands: impl Executor) {
        let rules = RunRules {
            loop_detection: LoopDetection { warn_at: u32::MAX, end_at: u32::MAX },
            limits: RunLimits { max_steps: u32::MAX, ..RunLimits::default() },
            context: ContextLimits { window: Tokens(1_000_000_000), ..ContextLimits::default() },
            ..RunRules::default()
        };
        let model = ReadingModel { turns, asked: 0 };
        let tools: Arc<dyn Toolbox> = self.tools.clone();
        let brief =
            RequestContext { system: "Be brief.".into(), tools: tools.specs(), schema: None };
        let ports = Ports { tools, ..Ports::new(Box::new(model)) };
        let task = ConversationItem::user(MessageOrigin::Task, "Read.");
        let (fold, first) = Machine::start(rules, Conversation::new(brief.request_bytes()), task);
        let fold = Driver::new(hands, ports, brief, fold).run(first);
        let State::Done(done) = &fold.state else { panic!("not done") };
        assert_eq!(done.run.steps, turns);
    }
}

impl Model for ReadingModel {
    fn prepare(&mut self, _: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let number = self.asked;
        self.asked += 1;
        let call = |path: &str| {
            let id = format!("call_{number}_{path}");
            let arguments = format!("{{\"path\":\"{path}.txt\"}}");
            ReplyPart::Call(ToolCall::new(id.as_str().into(), "read_file", &arguments))
        };
        let (parts, finish) = match number < self.turns {
            true => ([call("a"), call("b")].into(), ReplyFinish::ToolCalls),
            false => ([ReplyPart::Text("Done.".into())].into(), ReplyFinish::Stop),
        };
        Ok(Box::new(ImmediateReply(Reply { parts, finish, usage: Usage::default(), model: None })))
    }
}

impl ModelCall for ImmediateReply {
    fn run(
        self: Box<Self>,
        _: &EffectContext,
        _: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        Ok(self.0)
    }
}
