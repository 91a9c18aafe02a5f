//! The report in Markdown, and what makes texts inert there.

use std::fmt::Write as _;

use super::RunReport;
use super::markdown_subset::{InlineText, LinePrefix, MarkdownBlock, parse_blocks};
use super::sections::{ReportTable, key_figures, names, outcome, tables, title};
use crate::view::sanitize;

/// Returns the report in Markdown.
pub(super) fn render(report: &RunReport<'_>) -> String {
    let (sign, word) = outcome(report);
    let mut text = format!("# {sign} {}\n\n", escape(&title(report)));
    let _ = writeln!(text, "**{word}** · {}\n", escape(&key_figures(report).join(" · ")));
    for (name, value) in names(report) {
        let _ = writeln!(text, "- {name}: {}", code_span(&value));
    }
    let _ = writeln!(text, "\n## Task\n\n{}", quote(&report.info.task));
    let _ = writeln!(text, "## Answer\n\n{}", prose(&report.result.output));
    for facts in tables(report) {
        let _ = writeln!(text, "## {}\n\n{}", facts.title, table(&facts, usize::MAX));
    }
    text
}

/// Returns a table, with this many rows at the most.
pub(super) fn table(facts: &ReportTable, most: usize) -> String {
    let mut text = format!("| {} |\n", facts.header.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(facts.header.len()));
    for row in facts.rows.iter().take(most) {
        let cell = |(column, cell): (usize, &String)| match column < facts.code_columns {
            _ if cell.is_empty() => String::new(),
            true => code_span(cell).replace('|', "\\|"),
            false => escape(cell),
        };
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    if let Some(more @ 1..) = facts.rows.len().checked_sub(most) {
        let _ = writeln!(text, "\n… and {more} more");
    }
    text
}

/// Returns a text as a quotation of plain words.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::new();
    for line in sanitize::multiline(text).lines() {
        // What stands at the beginning of a line could make it a list, a heading, a table or a code block.
        let line = line.trim();
        let mark = if line.starts_with(['-', '+', '=', '>', '.', ')']) { "\\" } else { "" };
        let _ = writeln!(quoted, "> {mark}{}  ", escape(&escape_number(line)));
    }
    quoted
}

/// A number with a full stop at the beginning of a line would begin a list.
fn escape_number(line: &str) -> String {
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    match line[digits..].chars().next() {
        Some(mark @ ('.' | ')')) if digits > 0 => {
            format!("{}\u{200b}{mark}{}", &line[..digits], &line[digits + 1..])
        }
        _ => line.to_owned(),
    }
}

/// Returns what a model wrote in Markdown, with what reports keep of it.
pub(super) fn prose(text: &str) -> String {
    let text = sanitize::multiline(text);
    let mut prose = String::new();
    for block in parse_blocks(&text) {
        match block {
            MarkdownBlock::Line { prefix: mark, content: words } => {
                let words: Vec<String> = words.into_iter().map(inline).collect();
                let _ = writeln!(prose, "{}{}", line_prefix(mark), words.concat());
            }
            MarkdownBlock::Code { language, lines } => {
                let longest =
                    lines.iter().map(|line| longest_backtick_run(line)).max().unwrap_or(0);
                let fence = "`".repeat(longest.max(2) + 1);
                let _ = writeln!(prose, "{fence}{language}");
                for line in lines {
                    let _ = writeln!(prose, "{line}");
                }
                let _ = writeln!(prose, "{fence}");
            }
        }
    }
    prose
}

fn line_prefix(mark: LinePrefix<'_>) -> String {
    match mark {
        LinePrefix::None => String::new(),
        LinePrefix::Heading(level) => "#".repeat(level) + " ",
        LinePrefix::Item { indent, number: None } => " ".repeat(indent) + "- ",
        LinePrefix::Item { indent, number: Some(number) } => {
            format!("{}{number}. ", " ".repeat(indent))
        }
        LinePrefix::Quote => "> ".to_owned(),
    }
}

fn inline(words: InlineText<'_>) -> String {
    match words {
        InlineText::Plain(words) => escape(words),
        InlineText::Strong(words) => format!("**{}**", escape(words)),
        InlineText::Code(words) => code_span(words),
    }
}

/// Returns a line of plain words: nothing in it is Markdown, HTML, a link, a mention or a reference.
pub(super) fn escape(text: &str) -> String {
    let mut inert = String::with_capacity(text.len() + 16);
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let after = &text[at + c.len_utf8()..];
        match c {
            // Within a word it means nothing.
            '_' if before.is_alphanumeric() && after.starts_with(char::is_alphanumeric) => {
                inert.push(c);
            }
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '$' => inert.extend(['\\', c]),
            '<' => inert.push_str("&lt;"),
            '>' => inert.push_str("&gt;"),
            '&' => inert.push_str("&amp;"),
            c => inert.push(c),
        }
        // Something invisible keeps names, numbers and addresses from becoming mentions, references and links.
        if matches!(c, '@' | '#') || (c == ':' && after.starts_with("//")) {
            inert.push_str(ZERO_WIDTH_SPACE);
        }
        before = c;
    }
    inert.replace("www.", "www&#8203;.").replace("GH-", "GH&#8203;-")
}

/// A space without width.
const ZERO_WIDTH_SPACE: &str = "&#8203;";

/// Returns a text as code.
pub(super) fn code_span(text: &str) -> String {
    let text = sanitize::line(text);
    let fence = "`".repeat(longest_backtick_run(&text) + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    match text.trim().is_empty() {
        true => String::new(),
        false => format!("{fence}{space}{text}{space}{fence}"),
    }
}

fn longest_backtick_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_stay_plain() {
        assert_eq!(escape("a | b <b>@me</b>"), "a \\| b &lt;b&gt;@&#8203;me&lt;/b&gt;");
        assert_eq!(escape("see #12 at https://x"), "see #&#8203;12 at https:&#8203;//x");
        assert_eq!(code_span("a`b|c"), "``a`b|c``");
        assert_eq!(
            quote("1. one\n- two\n# three"),
            "> 1\u{200b}. one  \n> \\- two  \n> #&#8203; three  \n"
        );
    }

    #[test]
    fn an_answer_keeps_its_structure_without_active_markup() {
        let answer =
            "## Done\n- **one** `a<b>`\n1. [x](http://y) ![i](z)\n<script>@me</script>\n| a |";
        insta::assert_snapshot!(prose(answer), @r#"
    ## Done
    - **one** `a<b>`
    1. \[x\](http:&#8203;//y) !\[i\](z)
    &lt;script&gt;@&#8203;me&lt;/script&gt;
    \| a \|
    "#);
    }

    #[test]
    fn code_cannot_close_its_own_fence() {
        let answer = "~~~rust\n```\n@me\n~~~\n# after\n```mermaid\ngraph";
        insta::assert_snapshot!(prose(answer), @r#"
    ````rust
    ```
    @me
    ````
    # after
    ```
    graph
    ```
    "#);
    }
}
