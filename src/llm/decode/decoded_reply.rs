//! The result of reading a reply.

use std::sync::Arc;

use super::{CallIds, SurrogateJoiner};
use crate::net::Secrets;
use crate::port::ReplyDelta;
use crate::types::{
    OpaqueBlock, Reply, ReplyFinish, ReplyPart, Tokens, ToolArguments, ToolCall, Usage,
};

/// A reply as decoded by a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecodedReply {
    pub(crate) parts: Vec<DecodedPart>,
    pub(crate) finish: ReplyFinish,
    /// The usage reported by the provider; `None` if it is missing or invalid.
    pub(crate) usage: Option<Usage>,
    pub(crate) model: Option<String>,
}

/// A part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DecodedPart {
    /// Text for the user.
    Text(String),
    /// A tool call, as the provider sent it.
    Call { id: String, name: String, arguments: String },
    /// A block that is sent back unchanged, as JSON.
    Opaque(String),
}

/// The text of a reply since the last flush. It is flushed for each received chunk, not for each token.
#[derive(Debug, Default)]
pub(crate) struct DeltaBuffer {
    text: String,
    reasoning: String,
    /// The number of bytes of calls since the last flush.
    call_bytes: usize,
    /// Whether all text is dropped.
    is_discarded: bool,
    /// The number of bytes of the reply received so far, including calls.
    received_bytes: usize,
    /// The secrets that are masked in the text.
    secrets: Secrets,
    /// The joiner of surrogate pairs that are split between events.
    pub(crate) surrogates: SurrogateJoiner,
}

/// The assumed number of bytes per thousand tokens, for estimates if the provider reports no usage.
const BYTES_PER_THOUSAND_TOKENS: usize = 3_500;

/// The maximum plausible number of input tokens added by the provider, for example for tools.
const MAX_HIDDEN_INPUT: u64 = 100_000;

impl DecodedReply {
    /// Returns the reply. `wire` identifies opaque blocks; `sent` is the size of the request in bytes, for estimating
    /// missing usage.
    pub(crate) fn into_reply(self, wire: &Arc<str>, ids_in_use: &CallIds, sent: usize) -> Reply {
        let usage = self.usage.filter(|usage| is_plausible(usage, sent));
        let usage = usage.unwrap_or_else(|| estimate_usage(sent, self.output_bytes()));
        let finish = self.finish;
        let ids = self.parts.iter().filter_map(|part| match part {
            DecodedPart::Call { id, .. } => Some(id.as_str()),
            DecodedPart::Text(_) | DecodedPart::Opaque(_) => None,
        });
        let mut ids = ids_in_use.assign(ids).into_iter();
        let mut parts = Vec::with_capacity(self.parts.len());
        // Each text is freed once it has been copied.
        for part in self.parts {
            parts.push(match part {
                DecodedPart::Text(text) if text.is_empty() => continue,
                DecodedPart::Text(text) => ReplyPart::Text(text.into()),
                DecodedPart::Call { name, arguments, .. } => {
                    let Some(id) = ids.next() else { continue };
                    ReplyPart::Call(ToolCall::new(id, &name, &arguments))
                }
                DecodedPart::Opaque(json) => {
                    let (wire, json) = (Arc::clone(wire), json.into());
                    ReplyPart::Opaque(OpaqueBlock { wire, json })
                }
            });
        }
        let is_cut =
            matches!(finish, ReplyFinish::Length | ReplyFinish::ContextFull | ReplyFinish::Refused);
        if is_cut {
            mark_last_truncated(&mut parts);
        }
        let model = self.model.map(Arc::from);
        Reply { parts: parts.into(), finish, usage, model }
    }

    /// Masks secrets in all texts: a provider, or a proxy before it, may repeat the key.
    pub(crate) fn mask(mut self, secrets: &Secrets) -> Self {
        let mask = |text: &mut String| *text = secrets.mask(std::mem::take(text));
        for part in &mut self.parts {
            match part {
                DecodedPart::Text(text) | DecodedPart::Opaque(text) => mask(text),
                DecodedPart::Call { id, name, arguments } => {
                    [id, name, arguments].into_iter().for_each(mask);
                }
            }
        }
        self.model.iter_mut().for_each(mask);
        if let ReplyFinish::Other(reason) = &mut self.finish {
            *reason = secrets.mask(reason.to_string()).into();
        }
        self
    }

    fn output_bytes(&self) -> usize {
        let length = |part: &DecodedPart| match part {
            DecodedPart::Text(text) | DecodedPart::Opaque(text) => text.len(),
            DecodedPart::Call { name, arguments, .. } => name.len() + arguments.len(),
        };
        self.parts.iter().map(length).sum()
    }
}

impl DeltaBuffer {
    /// Returns an empty buffer that masks secrets.
    pub(crate) fn new(secrets: Secrets) -> Self {
        Self { secrets, ..Self::default() }
    }

    /// Returns a buffer that drops everything, for a reply that is received as a whole.
    pub(crate) fn discarded() -> Self {
        Self { is_discarded: true, ..Self::default() }
    }

    /// Adds text.
    pub(crate) fn add_text(&mut self, delta: &str) {
        if !self.is_discarded {
            self.text.push_str(delta);
        }
    }

    /// Adds reasoning.
    pub(crate) fn add_reasoning(&mut self, delta: &str) {
        if !self.is_discarded {
            self.reasoning.push_str(delta);
        }
    }

    /// Counts a delta of a call, which is reported only once it is complete.
    pub(crate) fn add_hidden(&mut self, delta: &str) {
        self.call_bytes += delta.len();
    }

    /// Returns an estimate of the tokens received so far.
    pub(crate) fn received_tokens(&self) -> Tokens {
        estimate_usage(0, self.received_bytes).output
    }

    /// Reports the text, and clears it. The beginning of a secret at the end is kept until the rest is received.
    pub(crate) fn flush(&mut self, sink: &mut dyn FnMut(ReplyDelta)) {
        self.report(sink, Secrets::unfinished);
    }

    /// Reports the rest of the text.
    pub(crate) fn finish(&mut self, sink: &mut dyn FnMut(ReplyDelta)) {
        self.report(sink, |_, _| 0);
    }

    fn report(
        &mut self,
        sink: &mut dyn FnMut(ReplyDelta),
        kept_length: impl Fn(&Secrets, &str) -> usize,
    ) {
        let secrets = &self.secrets;
        let mut take = |text: &mut String, delta: fn(String) -> ReplyDelta| {
            let mut new = secrets.mask(std::mem::take(text));
            *text = new.split_off(new.len() - kept_length(secrets, &new));
            self.received_bytes += new.len();
            if !new.is_empty() {
                sink(delta(new));
            }
        };
        take(&mut self.reasoning, ReplyDelta::Reasoning);
        take(&mut self.text, ReplyDelta::Text);
        let call_bytes = std::mem::take(&mut self.call_bytes);
        self.received_bytes += call_bytes;
        if call_bytes > 0 {
            sink(ReplyDelta::Call(call_bytes));
        }
    }
}

/// Marks the last call as truncated by a limit or a filter. Arguments are empty if nothing of them was received, so a
/// call without arguments may be truncated, too.
fn mark_last_truncated(parts: &mut [ReplyPart]) {
    if let Some(ReplyPart::Call(call)) = parts.last_mut() {
        *call = match call.arguments.text().trim() {
            "{}" => {
                ToolCall { arguments: ToolArguments::Truncated { text: "".into() }, ..call.clone() }
            }
            _ => call.clone().mark_truncated(),
        };
    }
}

/// Returns whether the usage is plausible: a token has at least one byte, and every request has input. (Some proxies
/// report zero for streams.)
fn is_plausible(usage: &Usage, sent: usize) -> bool {
    (1..=sent as u64 + MAX_HIDDEN_INPUT).contains(&usage.input.0)
        && usage.cached_input + usage.cache_write <= usage.input
        && usage.reasoning <= usage.output
}

/// Returns an estimate of the usage of a call.
pub(crate) fn estimate_usage(sent: usize, written: usize) -> Usage {
    let tokens = |bytes: usize| {
        Tokens((bytes.saturating_mul(1_000)).div_ceil(BYTES_PER_THOUSAND_TOKENS) as u64)
    };
    Usage { input: tokens(sent), output: tokens(written), is_estimated: true, ..Usage::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Secret;

    fn call(arguments: &str) -> DecodedPart {
        let (id, name) = (String::new(), "grep".to_owned());
        DecodedPart::Call { id, name, arguments: arguments.to_owned() }
    }

    fn decoded(parts: Vec<DecodedPart>, finish: ReplyFinish) -> DecodedReply {
        DecodedReply { parts, finish, usage: None, model: None }
    }

    fn into_reply(decoded: DecodedReply) -> Reply {
        decoded.into_reply(&"wire".into(), &CallIds::default(), 7_000)
    }

    fn usage(input: u64, cached: u64) -> Usage {
        Usage { input: Tokens(input), cached_input: Tokens(cached), ..Usage::default() }
    }

    /// Fault L53.
    #[test]
    fn only_the_truncated_call_is_marked() {
        let reply = into_reply(decoded(vec![call("{"), call("{\"a")], ReplyFinish::Length));
        let arguments: Vec<_> = reply.calls().map(|call| &call.arguments).collect();
        assert!(matches!(arguments[0], ToolArguments::Malformed { .. }));
        assert_eq!(*arguments[1], ToolArguments::Truncated { text: "{\"a".into() });
        let last = |arguments| {
            let reply = into_reply(decoded(vec![call(arguments)], ReplyFinish::Length));
            reply.calls().next().unwrap().arguments.clone()
        };
        assert!(matches!(last(r#"{"a":1}"#), ToolArguments::Complete { .. }));
        assert_eq!(
            [last(""), last("{}")],
            [(); 2].map(|()| ToolArguments::Truncated { text: "".into() })
        );
        // A filter or a full window ends a reply like a limit.
        for finish in [ReplyFinish::Refused, ReplyFinish::ContextFull] {
            let reply = into_reply(decoded(vec![call("")], finish));
            let call = reply.calls().next().unwrap();
            assert_eq!(call.arguments, ToolArguments::Truncated { text: "".into() });
        }
    }

    /// Fault L55.
    #[test]
    fn missing_or_implausible_usage_is_estimated() {
        let text = || vec![DecodedPart::Text("x".repeat(350))];
        let reply = into_reply(decoded(text(), ReplyFinish::Stop));
        assert_eq!((reply.usage.input, reply.usage.output), (Tokens(2_000), Tokens(100)));
        assert!(reply.usage.is_estimated);
        for (usage, is_plausible) in [
            (usage(300, 100), true),
            (usage(300, 301), false),
            (usage(200_000, 0), false),
            (usage(0, 0), false),
        ] {
            let reply = into_reply(DecodedReply {
                usage: Some(usage),
                ..decoded(text(), ReplyFinish::Stop)
            });
            assert_eq!(!reply.usage.is_estimated, is_plausible, "{usage:?}");
        }
    }

    #[test]
    fn deltas_are_flushed_once_and_never_empty() {
        let mut buffer = DeltaBuffer { text: "a".to_owned(), ..DeltaBuffer::default() };
        let mut deltas = Vec::new();
        buffer.flush(&mut |delta| deltas.push(delta));
        buffer.flush(&mut |delta| deltas.push(delta));
        assert_eq!(deltas, [ReplyDelta::Text("a".to_owned())]);
    }

    #[test]
    fn a_secret_in_parts_is_masked() {
        let secrets = Secrets::from_keys([Secret::new("sk-canary-1").unwrap()]);
        let mut buffer = DeltaBuffer::new(secrets);
        let mut shown = String::new();
        for part in ["a s", "k-can", "ary-", "1 b sk", " c sk-can"] {
            buffer.add_text(part);
            buffer.flush(&mut |delta| {
                let ReplyDelta::Text(text) = delta else { panic!() };
                shown.push_str(&text);
            });
        }
        assert_eq!(shown, "a *** b sk c ");
        let mut rest = Vec::new();
        buffer.finish(&mut |delta| rest.push(delta));
        assert_eq!(rest, [ReplyDelta::Text("sk-can".to_owned())]);
    }

    #[test]
    fn empty_text_is_no_part() {
        let parts = vec![DecodedPart::Text(String::new()), DecodedPart::Opaque("{}".to_owned())];
        assert_eq!(into_reply(decoded(parts, ReplyFinish::Stop)).parts.len(), 1);
    }
}
