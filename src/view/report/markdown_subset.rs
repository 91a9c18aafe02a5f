//! What a model wrote in Markdown, as far as reports keep it: paragraphs, headings, lists, quotations, strong words and
//! code. Everything else (HTML, links, images, tables) is plain words.

/// One line of an answer, or a block of code.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MarkdownBlock<'a> {
    /// A line of words.
    Line {
        /// What it begins with.
        prefix: LinePrefix<'a>,
        /// What it says.
        content: Vec<InlineText<'a>>,
    },
    /// Code, word for word.
    Code {
        /// Its language, if that is a plain word.
        language: &'a str,
        /// Its lines.
        lines: Vec<&'a str>,
    },
}

/// What makes a line more than words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinePrefix<'a> {
    /// Nothing.
    None,
    /// It is a heading of this level.
    Heading(usize),
    /// It is an item of a list.
    Item {
        /// How many spaces stand before it.
        indent: usize,
        /// Its number, if it has one.
        number: Option<&'a str>,
    },
    /// It is a quotation.
    Quote,
}

/// A piece of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InlineText<'a> {
    /// Plain words.
    Plain(&'a str),
    /// Strong words.
    Strong(&'a str),
    /// Code.
    Code(&'a str),
}

/// The beginning of a block of code.
struct CodeFence<'a> {
    mark: char,
    length: usize,
    language: &'a str,
}

/// Languages that some viewers draw instead of showing them.
const RENDERED_LANGUAGES: [&str; 5] = ["mermaid", "math", "geojson", "topojson", "stl"];

/// Returns the blocks of a text.
pub(super) fn parse_blocks(text: &str) -> Vec<MarkdownBlock<'_>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        blocks.push(if let Some(fence) = CodeFence::parse(line) {
            let lines = lines.by_ref().take_while(|line| !fence.is_closed_by(line)).collect();
            MarkdownBlock::Code { language: fence.language, lines }
        } else {
            let (mark, rest) = split_prefix(line);
            MarkdownBlock::Line { prefix: mark, content: parse_inline(rest) }
        });
    }
    blocks
}

impl<'a> CodeFence<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim_start();
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let (length, rest) = leading_run(line, mark);
        let language = rest.trim();
        let is_word = language.chars().all(|c| c.is_ascii_alphanumeric() || "+-_#".contains(c));
        let language =
            if is_word && !RENDERED_LANGUAGES.contains(&language) { language } else { "" };
        let is_fence = length >= 3 && !(mark == '`' && rest.contains('`'));
        is_fence.then_some(Self { mark, length, language })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let (length, rest) = leading_run(line.trim(), self.mark);
        length >= self.length && rest.is_empty()
    }
}

/// Splits what makes a line more than words from its words.
fn split_prefix(line: &str) -> (LinePrefix<'_>, &str) {
    let (indent, text) = leading_run(line, ' ');
    let (hashes, after_hashes) = leading_run(text, '#');
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let numbered = [". ", ") "].iter().find_map(|mark| text[digits..].strip_prefix(mark));
    let bullet = ["- ", "* ", "+ "].iter().find_map(|mark| text.strip_prefix(mark));
    match (after_hashes.strip_prefix(' '), bullet, numbered, text.strip_prefix('>')) {
        (Some(rest), ..) if (1..=6).contains(&hashes) => (LinePrefix::Heading(hashes), rest),
        (_, Some(rest), ..) => (LinePrefix::Item { indent, number: None }, rest),
        (_, _, Some(rest), _) if (1..=9).contains(&digits) => {
            (LinePrefix::Item { indent, number: Some(&text[..digits]) }, rest)
        }
        (.., Some(rest)) => (LinePrefix::Quote, rest.trim_start()),
        _ => (LinePrefix::None, text),
    }
}

/// Returns the pieces of a line.
fn parse_inline(line: &str) -> Vec<InlineText<'_>> {
    let mut words = Vec::new();
    let mut rest = line;
    let mut from = 0;
    while let Some(at) = rest[from..].find('`').map(|at| from + at) {
        let (length, after) = leading_run(&rest[at..], '`');
        if let Some(end) = closing(after, length) {
            push_strong(&rest[..at], &mut words);
            words.push(InlineText::Code(after[..end].trim()));
            rest = &after[end + length..];
            from = 0;
        } else {
            from = at + length;
        }
    }
    push_strong(rest, &mut words);
    words
}

/// Returns where a run of this many backticks begins.
fn closing(text: &str, length: usize) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text[from..].find('`').map(|at| from + at) {
        let (found, _) = leading_run(&text[at..], '`');
        if found == length {
            return Some(at);
        }
        from = at + found;
    }
    None
}

/// Adds words in which `**` means something, if it comes in pairs.
fn push_strong<'a>(text: &'a str, words: &mut Vec<InlineText<'a>>) {
    let pieces: Vec<&str> = text.split("**").collect();
    if pieces.len().is_multiple_of(2) {
        words.push(InlineText::Plain(text));
        return;
    }
    for (index, piece) in pieces.into_iter().enumerate().filter(|(_, piece)| !piece.is_empty()) {
        words.push(if index % 2 == 1 {
            InlineText::Strong(piece)
        } else {
            InlineText::Plain(piece)
        });
    }
}

/// Returns how often a text begins with a character, and what comes after it.
fn leading_run(text: &str, c: char) -> (usize, &str) {
    let rest = text.trim_start_matches(c);
    (text.len() - rest.len(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_prefixes() {
        let mark = |line| split_prefix(line).0;
        assert_eq!(split_prefix("## Two"), (LinePrefix::Heading(2), "Two"));
        assert_eq!(split_prefix("  - a"), (LinePrefix::Item { indent: 2, number: None }, "a"));
        assert_eq!(
            split_prefix("12. a"),
            (LinePrefix::Item { indent: 0, number: Some("12") }, "a")
        );
        assert_eq!(split_prefix("> a"), (LinePrefix::Quote, "a"));
        assert_eq!([mark("#12"), mark("-1"), mark("1.5"), mark("")], [LinePrefix::None; 4]);
    }

    #[test]
    fn inline_text_is_plain_strong_or_code() {
        use InlineText::{Code, Plain, Strong};
        let expected = vec![Plain("a "), Strong("b"), Plain(" "), Code("c`d"), Plain(" e")];
        assert_eq!(parse_inline("a **b** ``c`d`` e"), expected);
        assert_eq!(parse_inline("2**3 ` x"), vec![Plain("2**3 ` x")]);
    }

    #[test]
    fn code_ends_at_its_own_fence_or_with_the_text() {
        let code = |language, lines: &[&'static str]| MarkdownBlock::Code {
            language,
            lines: lines.into(),
        };
        assert_eq!(parse_blocks("~~~rust\n```\n~~~"), [code("rust", &["```"])]);
        assert_eq!(parse_blocks("```mermaid\ngraph"), [code("", &["graph"])]);
        assert_eq!(parse_blocks("```<b>\n```"), [code("", &[])]);
    }
}
