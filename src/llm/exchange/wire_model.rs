//! A model over HTTP.

use std::sync::Arc;

use serde_json::Value;

use super::call::PreparedModelCall;
use super::prefix_check::PrefixCheck;
use super::request_target::RequestTarget;
use crate::llm::decode::CallIds;
use crate::llm::encode::{EncodedConversation, MessageWriter, RequestHasher};
use crate::llm::wire::{RequestFrame, Result, ToolChoice};
use crate::machine::CallPurpose;
use crate::net::{HttpRequest, Method, RequestBody};
use crate::port::{Model, ModelCall, ModelRequest, RequestDigest, ToolSpec};
use crate::types::{Fault, FaultKind};

/// A model over HTTP. It keeps the encoded conversation, and encodes only new entries, which it recognizes by their
/// ids. So an instance serves one conversation.
pub(crate) struct WireModel {
    target: Arc<RequestTarget>,
    conversation: EncodedConversation,
    call_ids: CallIds,
    heads: Vec<EncodedHead>,
    prefix_check: PrefixCheck,
    /// The tools of the last request with tools.
    tools: Arc<[ToolSpec]>,
}

/// The encoded part of a request before the conversation, with its inputs.
struct EncodedHead {
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
    schema: Option<Arc<Value>>,
    bytes: Arc<Vec<u8>>,
    hasher: RequestHasher,
}

/// Requests with and without tools, before and after a change by a hook.
const MAX_CACHED_HEADS: usize = 4;

impl WireModel {
    /// Returns a model for a target.
    pub(crate) fn new(target: RequestTarget) -> Self {
        Self {
            target: Arc::new(target),
            conversation: EncodedConversation::default(),
            call_ids: CallIds::default(),
            heads: Vec::new(),
            prefix_check: PrefixCheck::default(),
            tools: [].into(),
        }
    }

    /// Returns the bytes of conversation encoded so far.
    #[cfg(test)]
    pub(crate) fn encoded_bytes(&self) -> u64 {
        self.conversation.encoded_bytes()
    }

    /// Returns the bytes of conversations and tails hashed so far.
    #[cfg(test)]
    pub(crate) fn hashed_bytes(&self) -> u64 {
        self.heads.iter().map(|head| head.hasher.hashed_bytes()).sum()
    }

    /// Encodes the next request, and returns it with its head and its digest.
    pub(super) fn encode_request(
        &mut self,
        request: &ModelRequest<'_>,
    ) -> (HttpRequest, Arc<Vec<u8>>, RequestDigest) {
        let (target, call_ids) = (Arc::clone(&self.target), &mut self.call_ids);
        let wire = &target.wire;
        let part = self.conversation.encode(request.entries, |item, writer| {
            call_ids.add_entry(item);
            wire.encode_item(item, writer);
        });
        let (tools, tool_choice) = self.select_tools(request);
        let frame = RequestFrame {
            system: request.system,
            tools: &tools,
            tool_choice,
            can_think: wire.can_think(&mut request.entries.iter().rev().map(|entry| &entry.item)),
            schema: request.schema.map(|schema| &**schema),
        };
        let (head, hasher) = self.encode_head(request, &tools, &frame);
        let mut tail = Vec::with_capacity(256);
        let mut writer = MessageWriter::new(&mut tail, part.open_group);
        if let Some(instruction) = request.instruction {
            wire.encode_user(instruction, &mut writer);
        }
        writer.close(wire.has_cache_marks() && request.instruction.is_none());
        wire.encode_tail(&frame, request.max_output, &mut tail);
        let digest = hasher.digest(&head, &part, &tail);
        let body = RequestBody::new().with(Arc::clone(&head));
        let body = body.with_part(part.bytes, part.end).with(tail);
        let (url, headers) = (target.url.clone(), target.headers.clone());
        (HttpRequest { method: Method::POST, url, headers, body }, head, digest)
    }

    /// Returns the tools to define, and whether they may be called. If earlier calls require definitions, these are the
    /// last tools, so that the prefix of the request stays the same.
    fn select_tools(&mut self, request: &ModelRequest<'_>) -> (Arc<[ToolSpec]>, ToolChoice) {
        if !request.tools.is_empty() {
            self.tools = Arc::clone(request.tools);
        }
        if request.tools.is_empty()
            && self.target.wire.needs_tool_definitions()
            && self.call_ids.has_calls()
        {
            if self.tools.is_empty() {
                self.tools = [placeholder_tool()].into();
            }
            return (Arc::clone(&self.tools), ToolChoice::Disabled);
        }
        (Arc::clone(request.tools), ToolChoice::Auto)
    }

    fn encode_head(
        &mut self,
        request: &ModelRequest<'_>,
        tools: &Arc<[ToolSpec]>,
        frame: &RequestFrame<'_>,
    ) -> (Arc<Vec<u8>>, &mut RequestHasher) {
        let same = |head: &EncodedHead| {
            same_arc(&head.system, request.system)
                && same_arc(&head.tools, tools)
                && head.schema.as_ref() == request.schema
        };
        let index = self.heads.iter().position(same).unwrap_or_else(|| {
            let mut bytes = Vec::new();
            self.target.wire.encode_head(frame, &mut bytes);
            if self.heads.len() == MAX_CACHED_HEADS {
                self.heads.remove(0);
            }
            self.heads.push(EncodedHead {
                system: Arc::clone(request.system),
                tools: Arc::clone(tools),
                schema: request.schema.cloned(),
                hasher: RequestHasher::new(&bytes),
                bytes: Arc::new(bytes),
            });
            self.heads.len() - 1
        });
        let head = &mut self.heads[index];
        (Arc::clone(&head.bytes), &mut head.hasher)
    }
}

impl Model for WireModel {
    fn prepare(&mut self, request: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>> {
        if request.entries.is_empty() && request.instruction.is_none() {
            return Err(Fault::new(FaultKind::Request, "the request is empty"));
        }
        let (http_request, head, digest) = self.encode_request(request);
        let warning = match request.purpose {
            CallPurpose::Agent => self.prefix_check.check(&head, request.entries),
            CallPurpose::Compaction | CallPurpose::Closing => None,
        };
        Ok(Box::new(PreparedModelCall {
            target: Arc::clone(&self.target),
            call_ids: self.call_ids.for_reply(request.entries),
            attempt: request.attempt,
            request: http_request,
            digest,
            warning,
        }))
    }

    fn request_settings(&self) -> Value {
        self.target.settings.clone()
    }
}

/// Returns a placeholder for the tools of earlier calls, for a session that is resumed only for its final summary.
fn placeholder_tool() -> ToolSpec {
    ToolSpec {
        name: "none".into(),
        description: "There is no tool.".into(),
        schema: serde_json::json!({"type": "object", "properties": {}}),
    }
}

/// Returns whether two shared values are equal, comparing the pointers first; `==` of an [`Arc`] does that for sized
/// values only.
fn same_arc<T: ?Sized + PartialEq>(a: &Arc<T>, b: &Arc<T>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::llm::tests::fixtures::{tool_exchange, wires};
    use crate::llm::wire::Wire;
    use crate::machine::{ConversationEntry, EntryId};
    use crate::net::{HeaderMap, HttpClient, HttpOptions, Secrets};
    use crate::types::{ConversationItem, MessageOrigin, ReplyPart, Tokens, ToolCall, ToolStatus};

    fn model() -> WireModel {
        let [_, (_, chat), ..] = wires();
        model_of(chat)
    }

    fn model_of(wire: Arc<dyn Wire>) -> WireModel {
        let options = HttpOptions::default();
        let transport = Arc::new(HttpClient::new(&options).unwrap());
        let target = RequestTarget {
            wire,
            transport,
            model: "openai-chat/m".into(),
            url: "http://localhost".to_owned(),
            headers: HeaderMap::new(),
            masker: Secrets::default(),
            key_source: None,
            signer: None,
            has_replaced_keys: AtomicBool::new(false),
            may_truncate: false,
            settings: Value::Null,
        };
        WireModel::new(target)
    }

    /// Returns one step of a conversation.
    fn step(id: u64) -> ConversationEntry {
        let call = ToolCall::new(format!("c{id}").as_str().into(), "read_file", r#"{"path":"a"}"#);
        let text = ReplyPart::Text("I will look.".into());
        let item = tool_exchange(vec![text], [call], ToolStatus::Ok, &"x".repeat(1_000));
        ConversationEntry { id: EntryId(id), item }
    }

    fn with_ask<T>(
        entries: &[ConversationEntry],
        tools: &Arc<[ToolSpec]>,
        of: impl FnOnce(&ModelRequest<'_>) -> T,
    ) -> T {
        of(&ModelRequest {
            model: 0,
            purpose: CallPurpose::Agent,
            attempt: 1,
            system: &"be good".into(),
            tools,
            entries,
            input_bound: Tokens::ZERO,
            instruction: None,
            max_output: None,
            schema: None,
        })
    }

    fn conversation(steps: u64) -> Vec<ConversationEntry> {
        let task = ConversationEntry {
            id: EntryId(0),
            item: ConversationItem::user(MessageOrigin::Task, "do it"),
        };
        std::iter::once(task).chain((1..=steps).map(step)).collect()
    }

    #[test]
    fn each_request_extends_the_previous_one() {
        let (mut model, all, tools) = (model(), conversation(200), [].into());
        let (mut before, mut encoded): (Vec<u8>, u64) = (Vec::new(), 0);
        for count in 1..=all.len() {
            let sent = with_ask(&all[..count], &tools, |request| {
                model.encode_request(request).0.body.to_vec()
            });
            // Only the end of the request may differ.
            let end = before.len().saturating_sub(16);
            assert_eq!(&sent[..end], &before[..end]);
            assert!(serde_json::from_slice::<Value>(&sent).is_ok());
            let step = model.encoded_bytes() - encoded;
            assert!(step < 1_300, "step {count} encodes {step} bytes");
            (before, encoded) = (sent, model.encoded_bytes());
        }
    }

    /// Every wire encodes and hashes only the new entries of a step, whatever the length of the conversation.
    #[test]
    fn a_step_encodes_only_new_entries_on_every_wire() {
        let (all, tools) = (conversation(200), [].into());
        for (name, wire) in wires() {
            let mut model = model_of(wire);
            let steps: Vec<u64> = (1..=all.len())
                .map(|count| {
                    let before = (model.encoded_bytes(), model.hashed_bytes());
                    let (sent, digest) = with_ask(&all[..count], &tools, |request| {
                        let (sent, _, digest) = model.encode_request(request);
                        (sent.body.to_vec(), digest)
                    });
                    assert!(sent.len() > 1_000 * (count - 1), "{name}: everything is sent");
                    let whole: [u8; 32] = Sha256::digest(&sent).into();
                    assert_eq!((digest.sha256.0, digest.bytes), (whole, sent.len() as u64));
                    let hashed = model.hashed_bytes() - before.1;
                    assert!(hashed < 1_800, "{name}: step {count} hashes {hashed} bytes");
                    model.encoded_bytes() - before.0
                })
                .collect();
            // The numbers differ in their digits.
            let (least, most) = (steps[2..].iter().min(), steps[2..].iter().max());
            assert!(most.unwrap() - least.unwrap() <= 8, "{name}: {least:?} to {most:?}");
            assert!(*most.unwrap() < 1_500, "{name}: {most:?}");
        }
    }

    #[test]
    fn a_compaction_request_encodes_nothing_again() {
        let (mut model, all, none) = (model(), conversation(20), [].into());
        let tool = ToolSpec { name: "t".into(), description: "d".into(), schema: Value::Null };
        let tools: Arc<[ToolSpec]> = [tool].into();
        let before =
            with_ask(&all, &tools, |request| model.encode_request(request).0.body.to_vec());
        let encoded = model.encoded_bytes();
        let digest = |model: &mut WireModel, entries: &[ConversationEntry]| {
            with_ask(entries, &tools, |request| {
                let (sent, _, digest) = model.encode_request(request);
                assert_eq!(digest.sha256.0, <[u8; 32]>::from(Sha256::digest(sent.body.to_vec())));
                digest
            })
        };
        let summary = with_ask(&all[..10], &none, |request| {
            let request = ModelRequest { instruction: Some("summarize"), ..*request };
            model.encode_request(&request).0.body.to_vec()
        });
        let summary: Value = serde_json::from_slice(&summary).unwrap();
        let last = summary["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(*last, serde_json::json!({"role": "user", "content": "summarize"}));
        assert!(summary.get("tools").is_none());
        assert_eq!(
            with_ask(&all, &tools, |request| model.encode_request(request).0.body.to_vec()),
            before
        );
        assert_eq!(model.encoded_bytes(), encoded);
        // The hash begins again if entries are replaced by others, or fewer are sent.
        let all_digest = digest(&mut model, &all);
        let compacted: Vec<_> = [&all[..1], &[step(99)], &all[10..]].concat();
        assert_ne!(digest(&mut model, &compacted), all_digest);
        digest(&mut model, &compacted[..3]);
        assert_eq!(digest(&mut model, &all), all_digest);
    }

    #[test]
    fn encoded_heads_are_cached_by_their_inputs() {
        let (mut model, none) = (model(), [].into());
        let entries = conversation(1);
        let head = |model: &mut WireModel, system: &str| {
            with_ask(&entries, &none, |request| {
                model.encode_request(&ModelRequest { system: &system.into(), ..*request }).1
            })
        };
        let first = head(&mut model, "a");
        assert!(Arc::ptr_eq(&first, &head(&mut model, "a")));
        assert_ne!(first, head(&mut model, "b"));
        for number in 0..9 {
            head(&mut model, &number.to_string());
        }
        assert_eq!(model.heads.len(), MAX_CACHED_HEADS);
    }
}
