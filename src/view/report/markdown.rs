//! The report in Markdown, and what makes texts inert there.

use std::fmt::Write as _;

use super::Report;
use super::prose::{Block, Mark, Words, blocks};
use super::sections::{Facts, names, numbers, tables, title, verdict};
use crate::view::clean;

/// Returns the report in Markdown.
pub(super) fn render(report: &Report<'_>) -> String {
    let (sign, word) = verdict(report);
    let mut text = format!("# {sign} {}\n\n", inert(&title(report)));
    let _ = writeln!(text, "**{word}** · {}\n", inert(&numbers(report).join(" · ")));
    for (name, value) in names(report) {
        let _ = writeln!(text, "- {name}: {}", code(&value));
    }
    let _ = writeln!(text, "\n## Task\n\n{}", quoted(&report.about.task));
    let _ = writeln!(text, "## Answer\n\n{}", prose(&report.result.output));
    for facts in tables(report) {
        let _ = writeln!(text, "## {}\n\n{}", facts.title, table(&facts, usize::MAX));
    }
    text
}

/// Returns a table, with this many rows at the most.
pub(super) fn table(facts: &Facts, most: usize) -> String {
    let mut text = format!("| {} |\n", facts.head.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(facts.head.len()));
    for row in facts.rows.iter().take(most) {
        let cell = |(column, cell): (usize, &String)| match column < facts.names {
            _ if cell.is_empty() => String::new(),
            true => code(cell).replace('|', "\\|"),
            false => inert(cell),
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
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for line in clean::block(text).lines() {
        // What stands at the beginning of a line could make it a list, a heading, a table or a code block.
        let line = line.trim();
        let mark = if line.starts_with(['-', '+', '=', '>', '.', ')']) { "\\" } else { "" };
        let _ = writeln!(quoted, "> {mark}{}  ", inert(&numbered(line)));
    }
    quoted
}

/// A number with a full stop at the beginning of a line would begin a list.
fn numbered(line: &str) -> String {
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
    let text = clean::block(text);
    let mut prose = String::new();
    for block in blocks(&text) {
        match block {
            Block::Line { mark, words } => {
                let words: Vec<String> = words.into_iter().map(piece).collect();
                let _ = writeln!(prose, "{}{}", beginning(mark), words.concat());
            }
            Block::Code { language, lines } => {
                let longest = lines.iter().map(|line| longest_run(line)).max().unwrap_or(0);
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

fn beginning(mark: Mark<'_>) -> String {
    match mark {
        Mark::Plain => String::new(),
        Mark::Heading(level) => "#".repeat(level) + " ",
        Mark::Item { indent, number: None } => " ".repeat(indent) + "- ",
        Mark::Item { indent, number: Some(number) } => format!("{}{number}. ", " ".repeat(indent)),
        Mark::Quote => "> ".to_owned(),
    }
}

fn piece(words: Words<'_>) -> String {
    match words {
        Words::Plain(words) => inert(words),
        Words::Strong(words) => format!("**{}**", inert(words)),
        Words::Code(words) => code(words),
    }
}

/// Returns a line of plain words: nothing in it is Markdown, HTML, a link, a mention or a reference.
pub(super) fn inert(text: &str) -> String {
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
            inert.push_str(NOTHING);
        }
        before = c;
    }
    inert.replace("www.", "www&#8203;.").replace("GH-", "GH&#8203;-")
}

/// A space without width.
const NOTHING: &str = "&#8203;";

/// Returns a text as code.
pub(super) fn code(text: &str) -> String {
    let text = clean::line(text);
    let fence = "`".repeat(longest_run(&text) + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    match text.trim().is_empty() {
        true => String::new(),
        false => format!("{fence}{space}{text}{space}{fence}"),
    }
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_stay_plain() {
        assert_eq!(inert("a | b <b>@me</b>"), "a \\| b &lt;b&gt;@&#8203;me&lt;/b&gt;");
        assert_eq!(inert("see #12 at https://x"), "see #&#8203;12 at https:&#8203;//x");
        assert_eq!(code("a`b|c"), "``a`b|c``");
        assert_eq!(
            quoted("1. one\n- two\n# three"),
            "> 1\u{200b}. one  \n> \\- two  \n> #&#8203; three  \n"
        );
    }

    #[test]
    fn an_answer_keeps_its_structure_and_loses_what_could_do_something() {
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
    fn a_block_of_code_cannot_be_left_from_within() {
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
