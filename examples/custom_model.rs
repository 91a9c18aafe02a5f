//! A model of one's own: anything that turns a request into a reply.

#![allow(clippy::print_stdout)] // an example shows what it does

use architect::Agent;
use architect::port::{EffectContext, Model, ModelCall, ModelRequest, ReplyDelta};
use architect::types::{ConversationItem, Fault, Reply, ReplyFinish, Usage};

/// Replies with the user's words, in upper case.
struct Shouting;

struct ShoutingCall(String);

impl Model for Shouting {
    fn prepare(&mut self, request: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let last = request.entries.iter().rev().find_map(|entry| match &entry.item {
            ConversationItem::User(message) => Some(message.text.to_uppercase()),
            ConversationItem::Assistant(_) | ConversationItem::Exchange(_) => None,
        });
        Ok(Box::new(ShoutingCall(last.unwrap_or_default())))
    }
}

impl ModelCall for ShoutingCall {
    fn run(
        self: Box<Self>,
        _: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        sink(ReplyDelta::Text(self.0.clone()));
        Ok(Reply::text_only(&self.0, ReplyFinish::Stop, Usage::default()))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let workspace = tempfile::tempdir()?;
    let agent = Agent::builder()
        .custom_model("example/shouting", || Shouting)
        .workspace(workspace.path())
        .build()?;
    println!("{}", agent.run("Can you hear me?")?.output);
    Ok(())
}
