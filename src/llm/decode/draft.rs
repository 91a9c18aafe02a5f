//! A reply as it was read, before it is judged complete.

use std::sync::Arc;

use super::Names;
use crate::model::{Arguments, Finish, Opaque, Part, Reply, Tokens, ToolCall, Usage};
use crate::port::Delta;

/// What a wire found in a reply, in the order of the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) finish: Finish,
    /// What the provider says the call used; none when it does not say, or says nonsense.
    pub(crate) usage: Option<Usage>,
    pub(crate) model: Option<String>,
}

/// One piece of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Text for the user.
    Text(String),
    /// A tool call as the provider wrote it.
    Call { id: String, name: String, arguments: String },
    /// Something that goes back as it came.
    Opaque(String),
}

/// What a reply said since it was last told; told once for each piece that arrives, not for each token.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    /// How many bytes of a reply have come, those of calls included.
    heard: usize,
}

/// Bytes per thousand tokens, where a provider does not count.
const RATIO: usize = 3_500;

/// What a provider may count beside what was sent: its own instructions for tools and the like.
const UNSEEN: u64 = 100_000;

impl Draft {
    /// Returns the reply. `wire` marks what goes back unchanged; `sent` is how many bytes the request had, for an
    /// estimate where the provider does not say what was used.
    pub(crate) fn seal(self, wire: &Arc<str>, names: &Names, sent: usize) -> Reply {
        let usage = self.usage.filter(|usage| is_sane(usage, sent));
        let usage = usage.unwrap_or_else(|| estimate(sent, self.written()));
        let ids = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Call { id, .. } => Some(id.as_str()),
            Piece::Text(_) | Piece::Opaque(_) => None,
        });
        let mut ids = names.settle(ids).into_iter();
        let mut parts = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            parts.extend(match piece {
                Piece::Text(text) if text.is_empty() => None,
                Piece::Text(text) => Some(Part::Text(text.as_str().into())),
                Piece::Call { name, arguments, .. } => {
                    ids.next().map(|id| Part::Call(ToolCall::new(id, name, arguments)))
                }
                Piece::Opaque(json) => {
                    let opaque = Opaque { wire: Arc::clone(wire), json: json.as_str().into() };
                    Some(Part::Opaque(opaque))
                }
            });
        }
        if self.finish == Finish::Length {
            cut_last(&mut parts);
        }
        let model = self.model.map(Arc::from);
        Reply { parts: parts.into(), finish: self.finish, usage, model }
    }

    fn written(&self) -> usize {
        let length = |piece: &Piece| match piece {
            Piece::Text(text) | Piece::Opaque(text) => text.len(),
            Piece::Call { name, arguments, .. } => name.len() + arguments.len(),
        };
        self.pieces.iter().map(length).sum()
    }
}

impl Said {
    /// Takes note of a piece of a call, of which nobody is told before it is whole.
    pub(crate) fn silently(&mut self, piece: &str) {
        self.heard += piece.len();
    }

    /// Returns about how much has come of a reply.
    pub(crate) fn heard(&self) -> Tokens {
        estimate(0, self.heard).output
    }

    /// Tells what was said, and forgets it.
    pub(crate) fn tell(&mut self, sink: &mut dyn FnMut(Delta)) {
        self.heard += self.text.len() + self.reasoning.len();
        if !self.reasoning.is_empty() {
            sink(Delta::Reasoning(std::mem::take(&mut self.reasoning)));
        }
        if !self.text.is_empty() {
            sink(Delta::Text(std::mem::take(&mut self.text)));
        }
    }
}

/// Marks the last call, which is the one that the output limit cut off, if any. Arguments of which nothing came look like
/// none; such a call may have been cut off before them.
fn cut_last(parts: &mut [Part]) {
    if let Some(Part::Call(call)) = parts.last_mut() {
        *call = match call.arguments.text().trim() {
            "{}" => ToolCall { arguments: Arguments::Cut { text: "".into() }, ..call.clone() },
            _ => call.clone().cut_short(),
        };
    }
}

/// Returns whether these numbers can be true: no token is shorter than a byte, and no request is without any. (Some
/// proxies count none where they stream.)
fn is_sane(usage: &Usage, sent: usize) -> bool {
    (1..=sent as u64 + UNSEEN).contains(&usage.input.0)
        && usage.cached_input + usage.cache_write <= usage.input
        && usage.reasoning <= usage.output
}

/// Returns what a call probably used.
pub(crate) fn estimate(sent: usize, written: usize) -> Usage {
    let tokens = |bytes: usize| Tokens((bytes.saturating_mul(1_000)).div_ceil(RATIO) as u64);
    Usage { input: tokens(sent), output: tokens(written), estimated: true, ..Usage::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str) -> Piece {
        let (id, name) = (String::new(), "grep".to_owned());
        Piece::Call { id, name, arguments: arguments.to_owned() }
    }

    fn draft(pieces: Vec<Piece>, finish: Finish) -> Draft {
        Draft { pieces, finish, usage: None, model: None }
    }

    fn seal(draft: Draft) -> Reply {
        draft.seal(&"wire".into(), &Names::default(), 7_000)
    }

    fn usage(input: u64, cached: u64) -> Usage {
        Usage { input: Tokens(input), cached_input: Tokens(cached), ..Usage::default() }
    }

    /// Fault L53.
    #[test]
    fn the_call_that_the_limit_cut_off_is_marked_and_those_before_it_are_not() {
        let reply = seal(draft(vec![call("{"), call("{\"a")], Finish::Length));
        let arguments: Vec<_> = reply.calls().map(|call| &call.arguments).collect();
        assert!(matches!(arguments[0], Arguments::Malformed { .. }));
        assert_eq!(*arguments[1], Arguments::Cut { text: "{\"a".into() });
        let last = |arguments| {
            let reply = seal(draft(vec![call(arguments)], Finish::Length));
            reply.calls().next().unwrap().arguments.clone()
        };
        assert!(matches!(last(r#"{"a":1}"#), Arguments::Complete { .. }));
        assert_eq!([last(""), last("{}")], [(); 2].map(|()| Arguments::Cut { text: "".into() }));
    }

    /// Fault L55.
    #[test]
    fn what_a_provider_does_not_say_or_cannot_mean_is_estimated() {
        let text = || vec![Piece::Text("x".repeat(350))];
        let reply = seal(draft(text(), Finish::Stop));
        assert_eq!((reply.usage.input, reply.usage.output), (Tokens(2_000), Tokens(100)));
        assert!(reply.usage.estimated);
        for (told, is_believed) in [
            (usage(300, 100), true),
            (usage(300, 301), false),
            (usage(200_000, 0), false),
            (usage(0, 0), false),
        ] {
            let reply = seal(Draft { usage: Some(told), ..draft(text(), Finish::Stop) });
            assert_eq!(!reply.usage.estimated, is_believed, "{told:?}");
        }
    }

    #[test]
    fn nothing_is_told_twice_and_nothing_empty() {
        let mut said = Said { text: "a".to_owned(), ..Said::default() };
        let mut told = Vec::new();
        said.tell(&mut |delta| told.push(delta));
        said.tell(&mut |delta| told.push(delta));
        assert_eq!(told, [Delta::Text("a".to_owned())]);
    }

    #[test]
    fn empty_text_is_no_part() {
        let pieces = vec![Piece::Text(String::new()), Piece::Opaque("{}".to_owned())];
        assert_eq!(seal(draft(pieces, Finish::Stop)).parts.len(), 1);
    }
}
