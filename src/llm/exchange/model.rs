//! A model behind a wire format.

use std::sync::Arc;

use serde_json::Value;

use super::call::Call;
use super::carrier::Carrier;
use super::steady::Steady;
use crate::llm::decode::Names;
use crate::llm::encode::{Pen, Script};
use crate::llm::fault::Masks;
use crate::llm::wire::{Calls, Frame, Wire};
use crate::machine::Purpose;
use crate::model::{Fault, FaultKind};
use crate::net::{Body, HeaderMap, Method, Request};
use crate::port::{Ask, Model, ModelCall, ToolSpec};

/// A model behind a wire format. It keeps what it has encoded, and encodes only what is new; entries are known by their
/// ids, so that it serves one conversation.
pub(crate) struct WireModel {
    wire: Arc<dyn Wire>,
    carrier: Arc<dyn Carrier>,
    target: Arc<Target>,
    script: Script,
    names: Names,
    heads: Vec<Head>,
    steady: Steady,
    /// The tools that were last given to the model.
    tools: Arc<[ToolSpec]>,
}

/// Where requests go, and with which headers.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    /// What must not be shown.
    pub(crate) masks: Masks,
    /// Where the key comes from that is sent, for who has to fix it; none for a recording.
    pub(crate) key: Option<SentKey>,
    /// Warns when the provider counts far fewer tokens than were sent: some servers cut off silently what does not fit.
    pub(crate) may_truncate: bool,
}

/// Where the key of a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SentKey {
    /// This variable.
    Of(String),
    /// No key is sent, since none of these variables is set.
    Missing(Vec<String>),
}

impl SentKey {
    /// Returns what follows a message of the provider that refuses a key.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Of(variable) => format!("; the key is the one in {variable}"),
            Self::Missing(variables) if variables.is_empty() => {
                "; no key was sent (--api-key-env NAME names the variable that holds one)"
                    .to_owned()
            }
            Self::Missing(variables) => format!(
                "; no key was sent: the variable {} is not set (--api-key-env NAME names another one)",
                variables.join(" or ")
            ),
        }
    }
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
            steady: Steady::default(),
            tools: [].into(),
        }
    }

    /// Returns how many bytes of conversation were ever encoded.
    #[cfg(test)]
    pub(crate) fn encoded(&self) -> u64 {
        self.script.encoded()
    }

    /// Writes the next request down.
    pub(super) fn request(&mut self, ask: &Ask<'_>) -> Request {
        let (wire, names) = (Arc::clone(&self.wire), &mut self.names);
        let part = self.script.of(ask.entries, |item, pen| {
            names.note(item);
            wire.item(item, pen);
        });
        let (tools, calls) = self.tools(ask);
        let ask = &Ask { tools: &tools, ..*ask };
        let head = self.head(ask);
        let mut tail = Vec::with_capacity(256);
        let mut pen = Pen::new(&mut tail, part.open);
        if let Some(instruction) = ask.instruction {
            wire.user(instruction, &mut pen);
        }
        pen.close(wire.marks() && ask.instruction.is_none());
        wire.tail(&Frame { calls, ..frame(ask) }, ask.max_output, &mut tail);
        Request {
            method: Method::POST,
            url: self.target.url.clone(),
            headers: self.target.headers.clone(),
            body: Body::new().and(head).and_part(part.bytes, part.end).and(tail),
        }
    }

    /// Returns the tools that go along, and whether they may be called. Where those of earlier calls have to be defined,
    /// they are the same as before, so that the beginning of the request stays the same too.
    fn tools(&mut self, ask: &Ask<'_>) -> (Arc<[ToolSpec]>, Calls) {
        if !ask.tools.is_empty() {
            self.tools = Arc::clone(ask.tools);
        }
        if ask.tools.is_empty() && self.wire.defines_tools() && self.names.any() {
            if self.tools.is_empty() {
                self.tools = [no_tool()].into();
            }
            return (Arc::clone(&self.tools), Calls::Off);
        }
        (Arc::clone(ask.tools), Calls::Allowed)
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
        self.wire.head(&frame(ask), &mut bytes);
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
        let warning = match ask.purpose {
            Purpose::Agent => {
                let (tools, _) = self.tools(ask);
                let head = self.head(&Ask { tools: &tools, ..*ask });
                self.steady.see(&head, ask.entries)
            }
            Purpose::Compaction | Purpose::Closing => None,
        };
        Ok(Box::new(Call {
            wire: Arc::clone(&self.wire),
            carrier: Arc::clone(&self.carrier),
            target: Arc::clone(&self.target),
            names: self.names.after(ask.entries),
            attempt: ask.attempt,
            request,
            warning,
        }))
    }
}

fn frame<'a>(ask: &Ask<'a>) -> Frame<'a> {
    let schema = ask.schema.map(|schema| &**schema);
    Frame { system: ask.system, tools: ask.tools, calls: Calls::Allowed, schema }
}

/// Stands for tools that nobody knows any more, where a session is resumed for its last words.
fn no_tool() -> ToolSpec {
    ToolSpec {
        name: "none".into(),
        description: "There is no tool.".into(),
        schema: serde_json::json!({"type": "object", "properties": {}}),
    }
}

/// Returns whether two shared values are the same; the pointers mostly tell.
fn same_arc<T: ?Sized + PartialEq>(a: &Arc<T>, b: &Arc<T>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::specimen::{exchange, wires};
    use crate::machine::{Entry, EntryId};
    use crate::model::{Item, Origin, Part, ToolCall, ToolStatus};
    use crate::net::{Client, Limits, Options, ProxyChoice, Roots};

    fn model() -> WireModel {
        let [_, (_, chat), ..] = wires();
        model_of(chat)
    }

    fn model_of(wire: Arc<dyn Wire>) -> WireModel {
        let options =
            Options { limits: Limits::default(), proxy: ProxyChoice::Direct, roots: Roots::System };
        let target = Target {
            url: "http://localhost".to_owned(),
            headers: HeaderMap::new(),
            masks: Masks::default(),
            key: None,
            may_truncate: false,
        };
        WireModel::new(wire, Arc::new(Client::new(&options).unwrap()), target)
    }

    /// A step's worth of conversation.
    fn step(id: u64) -> Entry {
        let call = ToolCall::new(format!("c{id}").as_str().into(), "read_file", r#"{"path":"a"}"#);
        let said = Part::Text("I will look.".into());
        let item = exchange(vec![said], [call], ToolStatus::Ok, &"x".repeat(1_000));
        Entry { id: EntryId(id), item }
    }

    fn asked<T>(entries: &[Entry], tools: &Arc<[ToolSpec]>, of: impl FnOnce(&Ask<'_>) -> T) -> T {
        of(&Ask {
            purpose: Purpose::Agent,
            attempt: 1,
            system: &"be good".into(),
            tools,
            entries,
            instruction: None,
            max_output: None,
            schema: None,
        })
    }

    fn conversation(steps: u64) -> Vec<Entry> {
        let task = Entry { id: EntryId(0), item: Item::user(Origin::Task, "do it") };
        std::iter::once(task).chain((1..=steps).map(step)).collect()
    }

    #[test]
    fn what_was_sent_before_is_the_beginning_of_what_is_sent_now() {
        let (mut model, all, tools) = (model(), conversation(200), [].into());
        let (mut before, mut encoded): (Vec<u8>, u64) = (Vec::new(), 0);
        for count in 1..=all.len() {
            let sent = asked(&all[..count], &tools, |ask| model.request(ask).body.to_vec());
            // Only what closes the request may differ.
            let end = before.len().saturating_sub(16);
            assert_eq!(&sent[..end], &before[..end]);
            assert!(serde_json::from_slice::<Value>(&sent).is_ok());
            let step = model.encoded() - encoded;
            assert!(step < 1_300, "step {count} encodes {step} bytes");
            (before, encoded) = (sent, model.encoded());
        }
    }

    /// What a step has to write down anew is what is new, on every wire, however long the conversation is.
    #[test]
    fn a_step_costs_what_is_new_in_it_on_every_wire() {
        let (all, tools) = (conversation(200), [].into());
        for (name, wire) in wires() {
            let mut model = model_of(wire);
            let steps: Vec<u64> = (1..=all.len())
                .map(|count| {
                    let before = model.encoded();
                    let sent = asked(&all[..count], &tools, |ask| model.request(ask).body.to_vec());
                    assert!(sent.len() > 1_000 * (count - 1), "{name}: everything is sent");
                    model.encoded() - before
                })
                .collect();
            // They differ by the digits of their number.
            let (least, most) = (steps[2..].iter().min(), steps[2..].iter().max());
            assert!(most.unwrap() - least.unwrap() <= 8, "{name}: {least:?} to {most:?}");
            assert!(*most.unwrap() < 1_500, "{name}: {most:?}");
        }
    }

    #[test]
    fn a_summary_of_the_older_part_costs_no_encoding_and_changes_nothing() {
        let (mut model, all, none) = (model(), conversation(20), [].into());
        let tool = ToolSpec { name: "t".into(), description: "d".into(), schema: Value::Null };
        let tools: Arc<[ToolSpec]> = [tool].into();
        let before = asked(&all, &tools, |ask| model.request(ask).body.to_vec());
        let encoded = model.encoded();
        let summary = asked(&all[..10], &none, |ask| {
            let ask = Ask { instruction: Some("sum up"), ..*ask };
            model.request(&ask).body.to_vec()
        });
        let summary: Value = serde_json::from_slice(&summary).unwrap();
        let last = summary["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(*last, serde_json::json!({"role": "user", "content": "sum up"}));
        assert!(summary.get("tools").is_none());
        assert_eq!(asked(&all, &tools, |ask| model.request(ask).body.to_vec()), before);
        assert_eq!(model.encoded(), encoded);
    }

    #[test]
    fn heads_are_kept_for_what_they_were_written_for() {
        let (mut model, none) = (model(), [].into());
        let entries = conversation(1);
        let head = |model: &mut WireModel, system: &str| {
            asked(&entries, &none, |ask| model.head(&Ask { system: &system.into(), ..*ask }))
        };
        let first = head(&mut model, "a");
        assert!(Arc::ptr_eq(&first, &head(&mut model, "a")));
        assert_ne!(first, head(&mut model, "b"));
        for number in 0..9 {
            head(&mut model, &number.to_string());
        }
        assert_eq!(model.heads.len(), HEADS);
    }
}
