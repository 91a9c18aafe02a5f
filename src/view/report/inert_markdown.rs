//! Markdown of a model, made safe for a document: HTML, links and images become plain text.

use pulldown_cmark::{
    CodeBlockKind, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd, TextMergeStream,
};

use crate::view::sanitize;

/// Languages of code blocks that some viewers render as drawings.
const RENDERED_LANGUAGES: [&str; 5] = ["mermaid", "math", "geojson", "topojson", "stl"];

/// The maximum depth of nested quotes, lists and items. Deeper ones are shown at this depth.
const MAX_DEPTH: usize = 12;

/// Parses a text into events without HTML, links and images. All texts in them are sanitized.
pub(super) fn inert_events(text: &str) -> impl Iterator<Item = Event<'_>> {
    let mut events = Vec::new();
    let mut targets = Vec::new();
    let mut depth = 0;
    let mut is_code = false;
    for event in TextMergeStream::new(Parser::new_ext(text, Options::ENABLE_TABLES)) {
        match event {
            Event::Start(Tag::Link { link_type: LinkType::Autolink | LinkType::Email, .. }) => {
                targets.push(None);
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                targets.push(Some(dest_url));
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                if let Some(target) = targets.pop().flatten() {
                    push_text(&mut events, &format!(" ({target})"));
                }
            }
            Event::Start(Tag::HtmlBlock) => events.push(Event::Start(Tag::Paragraph)),
            Event::End(TagEnd::HtmlBlock) => {
                events.pop_if(|last| *last == Event::SoftBreak);
                events.push(Event::End(TagEnd::Paragraph));
            }
            Event::Html(line) => {
                push_text(&mut events, &line);
                events.push(Event::SoftBreak);
            }
            Event::Start(Tag::CodeBlock(kind)) => {
                is_code = true;
                let kind = CodeBlockKind::Fenced(language(kind));
                events.push(Event::Start(Tag::CodeBlock(kind)));
            }
            Event::End(TagEnd::CodeBlock) => {
                is_code = false;
                events.push(Event::End(TagEnd::CodeBlock));
            }
            Event::Text(code) if is_code => events.push(Event::Text(sanitized(&code))),
            Event::Code(code) => events.push(Event::Code(sanitized(&code))),
            Event::Text(text) | Event::InlineHtml(text) => {
                push_text(&mut events, &text);
            }
            Event::Start(ref tag @ (Tag::BlockQuote(_) | Tag::List(_) | Tag::Item)) => {
                depth += 1;
                if depth <= MAX_DEPTH {
                    events.push(Event::Start(tag.clone()));
                }
            }
            Event::End(ref tag @ (TagEnd::BlockQuote(_) | TagEnd::List(_) | TagEnd::Item)) => {
                if depth <= MAX_DEPTH {
                    events.push(Event::End(*tag));
                }
                depth -= 1;
            }
            event => events.push(event),
        }
    }
    TextMergeStream::new(events.into_iter())
}

/// Adds a text, with a line break for each line end except the last.
fn push_text(events: &mut Vec<Event<'_>>, text: &str) {
    for (index, line) in sanitize::multiline(text).lines().enumerate() {
        if index > 0 {
            events.push(Event::SoftBreak);
        }
        events.push(Event::Text(line.to_owned().into()));
    }
}

fn sanitized(text: &str) -> CowStr<'static> {
    sanitize::multiline(text).into_owned().into()
}

/// Returns the language of a code block, if it is a plain word that viewers don't render.
fn language(kind: CodeBlockKind<'_>) -> CowStr<'_> {
    match kind {
        CodeBlockKind::Fenced(word)
            if word.chars().all(|c| c.is_ascii_alphanumeric() || "+-_#".contains(c))
                && !RENDERED_LANGUAGES.contains(&&*word) =>
        {
            word
        }
        CodeBlockKind::Fenced(_) | CodeBlockKind::Indented => "".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_words_are_languages() {
        let of = |word: &'static str| language(CodeBlockKind::Fenced(word.into())).into_string();
        assert_eq!(["rust", "mermaid", "<b>", "c++"].map(of), ["rust", "", "", "c++"]);
    }

    #[test]
    fn texts_are_sanitized_after_entities_were_decoded() {
        let events: Vec<_> = inert_events("a&#x202e;b&#10;c `\u{202e}`").collect();
        let text: String = events
            .iter()
            .map(|event| match event {
                Event::Text(text) | Event::Code(text) => text,
                _ => "|",
            })
            .collect();
        assert_eq!(text, "|a\\u{202e}b|c \\u{202e}|");
    }

    #[test]
    fn nesting_is_limited() {
        let text = ">".repeat(1_000) + " x";
        assert!(inert_events(&text).count() < 2 * MAX_DEPTH + 4);
    }
}
