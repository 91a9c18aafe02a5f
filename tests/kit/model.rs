//! A model that a test determines, request by request.

use architect::port::{EffectContext, Model, ModelCall, ModelRequest, ReplyDelta};
use architect::types::{
    Fault, FaultKind, Reply, ReplyFinish, ReplyPart, TimeSpan, ToolCall, Usage,
};

type RunCall =
    dyn FnOnce(&EffectContext, &mut dyn FnMut(ReplyDelta)) -> Result<Reply, Fault> + Send;

/// One call of a model.
pub(crate) struct FakeCall(Box<RunCall>);

impl FakeCall {
    /// Returns a call that does this.
    pub(crate) fn new(
        run: impl FnOnce(&EffectContext, &mut dyn FnMut(ReplyDelta)) -> Result<Reply, Fault>
        + Send
        + 'static,
    ) -> Self {
        Self(Box::new(run))
    }

    /// Returns a call that fails.
    pub(crate) fn failing(kind: FaultKind) -> Self {
        Self::new(move |_, _| Err(Fault::new(kind, "it failed")))
    }

    /// Returns a call that waits, streams the pieces of text, and ends.
    pub(crate) fn streaming(
        wait: TimeSpan,
        pieces: Vec<String>,
        end: Result<Reply, Fault>,
    ) -> Self {
        Self::new(move |scope, sink| {
            scope.sleep(wait);
            pieces.into_iter().for_each(|piece| sink(ReplyDelta::Text(piece)));
            end
        })
    }
}

/// A call that returns the reply at once.
impl From<Reply> for FakeCall {
    fn from(reply: Reply) -> Self {
        Self::new(|_, _| Ok(reply))
    }
}

impl ModelCall for FakeCall {
    fn run(
        self: Box<Self>,
        scope: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        (self.0)(scope, sink)
    }
}

struct FakeModel<F>(F);

impl<F, C> Model for FakeModel<F>
where
    F: FnMut(&ModelRequest<'_>) -> C + Send,
    C: Into<FakeCall>,
{
    fn prepare(&mut self, request: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        Ok(Box::new((self.0)(request).into()))
    }
}

/// Returns a model that answers each request by this function.
pub(crate) fn model<C: Into<FakeCall> + 'static>(
    answer: impl FnMut(&ModelRequest<'_>) -> C + Send + 'static,
) -> Box<dyn Model> {
    Box::new(FakeModel(answer))
}

/// Returns a model that makes these calls one after the other, and panics if it is asked for more.
pub(crate) fn scripted(calls: impl IntoIterator<Item = FakeCall>) -> Box<dyn Model> {
    let mut calls: Vec<FakeCall> = calls.into_iter().collect();
    calls.reverse();
    model(move |_| calls.pop().unwrap())
}

/// Returns a reply without usage; it ends with tool calls if it has any.
pub(crate) fn reply(parts: impl IntoIterator<Item = ReplyPart>) -> Reply {
    let parts: Vec<ReplyPart> = parts.into_iter().collect();
    let finish = match parts.iter().any(|part| matches!(part, ReplyPart::Call(_))) {
        true => ReplyFinish::ToolCalls,
        false => ReplyFinish::Stop,
    };
    Reply { parts: parts.into(), finish, usage: Usage::default(), model: None }
}

/// Returns a reply with this text alone.
pub(crate) fn text(text: &str) -> Reply {
    reply([ReplyPart::Text(text.into())])
}

/// Returns a tool call as a part of a reply.
pub(crate) fn call(id: &str, name: &str, arguments: &str) -> ReplyPart {
    ReplyPart::Call(ToolCall::new(id.into(), name, arguments))
}

/// Returns the bytes of the texts that a request has, the constant part excepted.
pub(crate) fn text_bytes(request: &ModelRequest<'_>) -> usize {
    use architect::types::ConversationItem::{Assistant, Exchange, User};
    let bytes = request.entries.iter().map(|entry| match &entry.item {
        User(message) => message.text.len(),
        Assistant(reply) => reply.text().len(),
        Exchange(exchange) => exchange.results().iter().map(|result| result.text.len()).sum(),
    });
    bytes.sum()
}
