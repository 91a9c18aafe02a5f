//! A tool of a server.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::call_result::{self, CallResult};
use super::connection::ReplyDeadline;
use super::elicitation::UserQuestions;
use super::http::MirroredArgument;
use super::server::McpServer;
use super::tool_description::{ListedTool, ToolHints};
use super::validate::CompiledSchema;
use crate::policy::{Confirmer, Elicitation};
use crate::port::{EffectContext, EffectNotice, ToolSpec};
use crate::tools::first_big_integer;
use crate::types::{CallId, TimeSpan, ToolStatus};

/// A tool of a server, fixed for the run. Clones share the tool.
#[derive(Clone)]
pub struct ServerTool(Arc<PinnedTool>);

struct PinnedTool {
    spec: ToolSpec,
    compiled: CompiledSchema,
    remote: String,
    hints: ToolHints,
    mirrors: Vec<MirroredArgument>,
    server: Arc<McpServer>,
}

/// The minimum time between two progress messages of a call.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// The maximum number of times that a server may defer a call, and the pause before each repetition.
const MAX_DEFERRALS: usize = 10;
const DEFERRAL_PAUSE: Duration = Duration::from_millis(250);

/// The time limit for the user to answer the questions of a call.
const USER_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The time after a server's own limits at which a call is abandoned.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(20);

impl ServerTool {
    pub(super) fn new(name: &str, described: ListedTool, server: Arc<McpServer>) -> Self {
        let ListedTool { remote, description, schema, hints, mirrors, .. } = described;
        let spec = ToolSpec { name: name.into(), description: description.into(), schema };
        let compiled = CompiledSchema::default();
        Self(Arc::new(PinnedTool { spec, compiled, remote, hints, mirrors, server }))
    }

    /// Returns the description for the model.
    pub fn spec(&self) -> &ToolSpec {
        &self.0.spec
    }

    /// Returns the name of the tool's server.
    pub fn server(&self) -> &str {
        &self.0.server.spec.name
    }

    /// Returns the name of the tool on its server.
    pub fn remote_name(&self) -> &str {
        &self.0.remote
    }

    /// Returns the time limit of a call, which exceeds the server's own limits.
    pub fn timeout(&self) -> TimeSpan {
        let user = if self.0.server.setup.has_user { USER_TIMEOUT } else { Duration::ZERO };
        let timeout = self.0.server.spec.timeout.saturating_add(TIMEOUT_MARGIN);
        TimeSpan::from(timeout.saturating_add(user))
    }

    /// Parses the arguments of a call, a JSON object that matches the server's schema.
    ///
    /// # Errors
    ///
    /// Fails with a message for the model.
    pub fn parse_arguments(&self, text: &str) -> Result<Map<String, Value>, String> {
        let name = &self.0.spec.name;
        let arguments: Map<String, Value> = serde_json::from_str(text)
            .map_err(|error| format!("Invalid arguments for {name}: {error}."))?;
        if let Some(number) = first_big_integer(text) {
            return Err(format!(
                "Invalid arguments for {name}: the integer {number} has more than 64 bits, and would not arrive exactly."
            ));
        }
        match self.0.compiled.check(name, &self.0.spec.schema, &arguments) {
            Ok(()) => Ok(arguments),
            Err(wrong) => Err(format!("Invalid arguments for {name}: {wrong}.")),
        }
    }

    /// Makes a call, and waits for its result. The server's questions go to the given user.
    pub fn call(
        &self,
        arguments: Map<String, Value>,
        call: &CallId,
        scope: &EffectContext,
        user: &dyn Confirmer,
    ) -> CallResult {
        let PinnedTool { spec, remote, hints, mirrors, server, .. } = &*self.0;
        if scope.cancel.is_cancelled() {
            return CallResult::without_images(ToolStatus::Interrupted, "interrupted");
        }
        let last_report = Cell::new(None::<Instant>);
        let progress = |text: &str| {
            if last_report.get().is_none_or(|before| before.elapsed() >= PROGRESS_INTERVAL) {
                last_report.set(Some(Instant::now()));
                let text = format!("{}: {text}", spec.name).into();
                scope.notify(EffectNotice::Progress { text });
            }
        };
        let headers: Vec<_> =
            mirrors.iter().filter_map(|mirror| mirror.header_for(&arguments)).collect();
        // By the ID, a server can recognize a repeated call.
        let meta = json!({ "architect/callId": call.as_str() });
        let mut params = json!({ "name": remote, "arguments": {}, "_meta": meta });
        params["arguments"] = Value::Object(arguments);
        let ask = |question: &Elicitation| user.answer(question, call, scope);
        let questions = UserQuestions::new(&server.spec.name, &ask);
        let questions = server.setup.has_user.then_some(&questions);
        let wait = ReplyDeadline::new(server.spec.timeout, &scope.cancel, &progress);
        let wait = ReplyDeadline { questions, ..wait };
        let is_harmless = hints.idempotent || hints.read_only;
        let mut rounds = 0;
        loop {
            let result = match server.call(&params, &headers, is_harmless, &wait) {
                Ok(result) => result,
                Err(error) => return CallResult::failed(&server.spec.name, &error),
            };
            rounds += 1;
            if let (Some(asks), Some(questions), true) =
                (call_result::user_questions(&result), questions, rounds < MAX_DEFERRALS)
            {
                let answer = |(key, ask): (&str, &Value)| (key.to_owned(), questions.answer(ask));
                params["inputResponses"] = Value::Object(asks.into_iter().map(answer).collect());
                if let Some(state) = result.get("requestState") {
                    params["requestState"] = state.clone();
                }
                continue;
            }
            match call_result::retry_fields(&result) {
                Some(state)
                    if rounds < MAX_DEFERRALS
                        && !scope.cancel.wait_for(DEFERRAL_PAUSE.min(wait.remaining())) =>
                {
                    params["requestState"] = state.into();
                }
                _ => return CallResult::from_result(&result, server.setup.limits.result_bytes),
            }
        }
    }
}
