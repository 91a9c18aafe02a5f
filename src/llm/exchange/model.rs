//! A model behind a wire format.

use std::sync::Arc;

use serde_json::Value;

use super::call::Call;
use super::carrier::Carrier;
use crate::llm::decode::Names;
use crate::llm::encode::{Pen, Script};
use crate::llm::fault::Masks;
use crate::llm::wire::{Frame, Wire};
use crate::model::{Fault, FaultKind};
use crate::net::{Body, HeaderMap, Method, Request};
use crate::port::{Ask, Model, ModelCall, ToolSpec};

/// A model behind a wire format. It keeps what it has encoded, and encodes only what is new.
pub(crate) struct WireModel {
    wire: Arc<dyn Wire>,
    carrier: Arc<dyn Carrier>,
    target: Arc<Target>,
    script: Script,
    names: Names,
    heads: Vec<Head>,
}

/// Where requests go, and with which headers.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    /// What must not be shown.
    pub(crate) masks: Masks,
    /// Warns when the provider counts far fewer tokens than were sent: some servers cut off silently what does not fit.
    pub(crate) may_truncate: bool,
}

/// Everything before the conversation, as it was encoded for these values.
struct Head {
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
    schema: Option<Arc<Value>>,
    bytes: Arc<Vec<u8>>,
}

/// With tools and without, and after a hook has changed them.
const HEADS: usize = 4;

impl WireModel {
    /// Returns a model behind a wire.
    pub(crate) fn new(wire: Arc<dyn Wire>, carrier: Arc<dyn Carrier>, target: Target) -> Self {
        Self {
            wire,
            carrier,
            target: Arc::new(target),
            script: Script::default(),
            names: Names::default(),
            heads: Vec::new(),
        }
    }

    /// Returns how many bytes of conversation were ever encoded.
    #[cfg(test)]
    pub(crate) fn encoded(&self) -> u64 {
        self.script.encoded()
    }

    /// Writes the next request down.
    pub(super) fn request(&mut self, ask: &Ask<'_>) -> Request {
        let head = self.head(ask);
        let (wire, names) = (&*self.wire, &mut self.names);
        let part = self.script.of(ask.entries, |item, pen| {
            names.note(item);
            wire.item(item, pen);
        });
        let mut tail = Vec::with_capacity(256);
        let mut pen = Pen::new(&mut tail, part.open);
        if let Some(instruction) = ask.instruction {
            wire.user(instruction, &mut pen);
        }
        pen.close(wire.marks() && ask.instruction.is_none());
        wire.tail(ask.max_output, &mut tail);
        Request {
            method: Method::POST,
            url: self.target.url.clone(),
            headers: self.target.headers.clone(),
            body: Body::new().and(head).and_part(part.bytes, part.end).and(tail),
        }
    }

    fn head(&mut self, ask: &Ask<'_>) -> Arc<Vec<u8>> {
        let same = |head: &Head| {
            same_arc(&head.system, ask.system)
                && same_arc(&head.tools, ask.tools)
                && match (&head.schema, ask.schema) {
                    (Some(a), Some(b)) => same_arc(a, b),
                    (None, None) => true,
                    _ => false,
                }
        };
        if let Some(head) = self.heads.iter().find(|head| same(head)) {
            return Arc::clone(&head.bytes);
        }
        let mut bytes = Vec::new();
        let schema = ask.schema.map(|schema| &**schema);
        let frame = Frame { system: ask.system, tools: ask.tools, schema };
        self.wire.head(&frame, &mut bytes);
        let bytes = Arc::new(bytes);
        if self.heads.len() == HEADS {
            self.heads.remove(0);
        }
        self.heads.push(Head {
            system: Arc::clone(ask.system),
            tools: Arc::clone(ask.tools),
            schema: ask.schema.cloned(),
            bytes: Arc::clone(&bytes),
        });
        bytes
    }
}

impl Model for WireModel {
    fn prepare(&mut self, ask: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        if ask.entries.is_empty() && ask.instruction.is_none() {
            return Err(Fault::new(FaultKind::Request, "there is nothing to ask"));
        }
        let request = self.request(ask);
        Ok(Box::new(Call {
            wire: Arc::clone(&self.wire),
            carrier: Arc::clone(&self.carrier),
            target: Arc::clone(&self.target),
            names: self.names.after(ask.entries),
            attempt: ask.attempt,
            request,
        }))
    }
}

/// Returns whether two shared values are the same; the pointers mostly tell.
fn same_arc<T: ?Sized + PartialEq>(a: &Arc<T>, b: &Arc<T>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}
