//! Tools that a test determines.

use std::sync::Arc;

use architect::machine::CallIntent;
use architect::port::{AuthorizationOutcome, EffectContext, PreparedCall, ToolSpec, Toolbox};
use architect::types::{CallAccess, TimeSpan, ToolCall, ToolResult, ToolStatus};

type Run = dyn Fn(&ToolCall, &EffectContext) -> ToolResult + Send + Sync;
type Authorize = dyn Fn(&ToolCall) -> Result<CallIntent, ToolResult> + Send + Sync;

/// A set of tools. By default, each call reads the same file and may run.
pub(crate) struct FakeTools {
    names: Vec<&'static str>,
    access: Box<dyn Fn(&ToolCall) -> CallAccess + Send + Sync>,
    authorize: Arc<Authorize>,
    run: Arc<Run>,
}

impl FakeTools {
    /// Returns tools with these names, whose calls run this function.
    pub(crate) fn new(
        names: &[&'static str],
        run: impl Fn(&ToolCall, &EffectContext) -> ToolResult + Send + Sync + 'static,
    ) -> Self {
        Self {
            names: names.to_vec(),
            access: Box::new(|_| CallAccess::read("a")),
            authorize: Arc::new(|_| Ok(CallIntent::ReadOnly)),
            run: Arc::new(run),
        }
    }

    /// Sets the access of a call.
    pub(crate) fn with_access(
        mut self,
        access: impl Fn(&ToolCall) -> CallAccess + Send + Sync + 'static,
    ) -> Self {
        self.access = Box::new(access);
        self
    }

    /// Sets the intent of a call, which a resume needs, or the result of its refusal.
    pub(crate) fn with_authorization(
        mut self,
        authorize: impl Fn(&ToolCall) -> Result<CallIntent, ToolResult> + Send + Sync + 'static,
    ) -> Self {
        self.authorize = Arc::new(authorize);
        self
    }
}

/// Returns the result of a successful call.
pub(crate) fn ok(call: &ToolCall, text: &str) -> ToolResult {
    ToolResult::new(call.id.clone(), ToolStatus::Ok, text)
}

/// Returns an argument that is a text.
pub(crate) fn argument(call: &ToolCall, name: &str) -> Option<String> {
    let arguments: serde_json::Value = serde_json::from_str(call.arguments.text()).ok()?;
    arguments[name].as_str().map(str::to_owned)
}

impl Toolbox for FakeTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        let spec = |name: &&str| ToolSpec {
            name: (*name).into(),
            description: "A tool.".into(),
            schema: serde_json::json!({ "type": "object" }),
        };
        self.names.iter().map(spec).collect()
    }

    fn prepare(&self, call: &ToolCall) -> Box<dyn PreparedCall> {
        Box::new(FakeCall {
            access: (self.access)(call),
            call: call.clone(),
            authorize: Arc::clone(&self.authorize),
            run: Arc::clone(&self.run),
        })
    }
}

struct FakeCall {
    access: CallAccess,
    call: ToolCall,
    authorize: Arc<Authorize>,
    run: Arc<Run>,
}

impl PreparedCall for FakeCall {
    fn access(&mut self) -> CallAccess {
        self.access.clone()
    }

    fn rejection(&mut self) -> Option<ToolResult> {
        (self.authorize)(&self.call).err()
    }

    fn authorize(self: Box<Self>, _: &EffectContext) -> AuthorizationOutcome {
        match (self.authorize)(&self.call) {
            Err(result) => AuthorizationOutcome::Rejected(result),
            Ok(intent) => AuthorizationOutcome::Approved {
                call: Box::new(move |scope| (self.run)(&self.call, scope)),
                timeout: TimeSpan::from_secs(60),
                intent,
                reason: "test".into(),
            },
        }
    }
}
