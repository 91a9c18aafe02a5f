//! The report in Markdown, for a file or for GitHub, and the escaping of text in it.

use std::fmt::Write as _;

use pulldown_cmark::{CodeBlockKind, Event, Tag, TagEnd};

use super::RunReport;
use super::inert_markdown::inert_events;
use super::sections::{ReportTable, failure, key_figures, names, outcome, tables, title};
use super::table_report::TableReport;
use crate::view::sanitize;
use crate::view::trace::StepChange;

/// Returns the report in Markdown.
pub(super) fn render(report: &RunReport<'_>) -> String {
    let mut text = beginning(report, "#");
    text.push_str(&fact_list(&names(report)));
    let _ = writeln!(text, "\n## Task\n\n{}", quote(&report.info.task));
    let _ = writeln!(text, "## Answer\n\n{}", prose(&report.result.output));
    for facts in tables(report) {
        let _ = writeln!(text, "## {}\n\n{}", facts.title, table(&facts, usize::MAX));
    }
    if !report.changes.is_empty() {
        let _ = writeln!(text, "## Changes\n\n{}", step_changes(report.changes, usize::MAX));
    }
    text
}

/// Returns a report of tables in Markdown, without the rows of the last table.
pub(super) fn render_tables(report: &TableReport) -> String {
    let mut text = format!("# {}\n\n", escape(&report.heading));
    let figures = escape(&report.key_figures.join(" · "));
    let _ = writeln!(text, "**{}** · {figures}\n", report.outcome);
    text.push_str(&fact_list(&report.facts));
    for facts in &report.tables {
        let _ =
            writeln!(text, "\n## {}\n\n{}", facts.heading(), table(facts, usize::MAX).trim_end());
    }
    let heading = report.last.heading_for(report.last_count);
    let _ = write!(text, "\n## {heading}\n\n{}", table(&report.last, usize::MAX));
    text
}

/// Length limit of a reason, in characters.
const MAX_REASON: usize = 1_000;

/// Length limit of a comment, in bytes. GitHub accepts 65 536 characters.
const MAX_COMMENT: usize = 60_000;

/// The limits of a comment's parts.
#[derive(Clone, Copy)]
struct CommentSize {
    /// Length limit of the task, in characters.
    task: usize,
    /// Length limit of the answer, in characters.
    answer: usize,
    /// The maximum number of rows of each table.
    rows: usize,
    /// Size limit of the patches, in bytes.
    patches: usize,
}

/// The sizes of a comment, from large to small. The first one that fits is used.
const SIZES: [CommentSize; 5] = [
    CommentSize { task: 2_000, answer: 30_000, rows: 200, patches: 20_000 },
    CommentSize { task: 1_000, answer: 15_000, rows: 60, patches: 8_000 },
    CommentSize { task: 500, answer: 6_000, rows: 20, patches: 2_000 },
    CommentSize { task: 200, answer: 2_000, rows: 5, patches: 0 },
    CommentSize { task: 100, answer: 500, rows: 1, patches: 0 },
];

/// A mark in the comment, by which a later run finds it and replaces it.
const MARKER: &str = "<!-- architect-report -->";

/// Returns the report as a GitHub comment.
pub(super) fn render_comment(report: &RunReport<'_>) -> String {
    let mut sizes = SIZES.into_iter().map(|size| comment_within(report, size));
    let fitting = sizes.by_ref().find(|text| text.len() <= MAX_COMMENT);
    let least = CommentSize { task: 0, answer: 0, rows: 0, patches: 0 };
    fitting.unwrap_or_else(|| comment_within(report, least))
}

fn comment_within(report: &RunReport<'_>, size: CommentSize) -> String {
    let mut text = format!("{MARKER}\n{}", beginning(report, "###"));
    let _ = writeln!(text, "{}", prose(&sanitize::truncate(&report.result.output, size.answer)));
    for facts in tables(report) {
        let _ = writeln!(text, "<details>\n<summary>{}</summary>\n", facts.heading());
        let _ = writeln!(text, "{}\n</details>\n", table(&facts, size.rows));
    }
    if !report.changes.is_empty() {
        let count = report.changes.len();
        let _ = writeln!(text, "<details>\n<summary>Changes ({count})</summary>\n");
        let _ = writeln!(text, "{}\n</details>\n", step_changes(report.changes, size.patches));
    }
    let _ = writeln!(text, "<details>\n<summary>Task and run</summary>\n");
    let _ = writeln!(text, "{}", quote(&sanitize::truncate(&report.info.task, size.task)));
    text.push_str(&fact_list(&names(report)));
    text.push_str("\n</details>\n");
    text
}

/// Returns the heading of a run, its key figures, and the reason for a failure, if any.
fn beginning(report: &RunReport<'_>, level: &str) -> String {
    let (sign, word) = outcome(report);
    let figures = escape(&key_figures(report).join(" · "));
    let reason = failure(report).map(|error| sanitize::headline(error, MAX_REASON));
    let reason = reason.map(|reason| format!("Reason: {}\n\n", escape(&reason)));
    let title = escape(&title(report));
    format!("{level} {sign} {title}\n\n**{word}** · {figures}\n\n{}", reason.unwrap_or_default())
}

/// Returns a list of names and values.
fn fact_list(facts: &[(&str, String)]) -> String {
    facts.iter().map(|(name, value)| format!("- {name}: {}\n", code_span(value))).collect()
}

/// Returns a table with at most `most` rows.
fn table(facts: &ReportTable, most: usize) -> String {
    let mut text = format!("| {} |\n", facts.header.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(facts.header.len()));
    text.extend(facts.rows.iter().take(most).map(|cells| row(cells, facts.code_columns)));
    if let Some(more @ 1..) = facts.rows.len().checked_sub(most) {
        let _ = writeln!(text, "\n… and {more} more");
    }
    text
}

/// Returns a row of a table. The first columns are names.
pub(super) fn row(cells: &[String], code_columns: usize) -> String {
    let cell = |(column, cell): (usize, &String)| match column < code_columns {
        _ if cell.is_empty() => String::new(),
        true => cell_code_span(cell),
        false => escape(cell),
    };
    let cells: Vec<String> = cells.iter().enumerate().map(cell).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Returns the changes of files, step by step, with their patches, in about `left` bytes.
fn step_changes(changes: &[StepChange], mut left: usize) -> String {
    let mut blocks = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        let path = change.path.to_string();
        let Some(rest) = left.checked_sub(path.len() + change.patch.len()) else {
            blocks.push(format!("… and {} more\n", changes.len() - index));
            break;
        };
        left = rest;
        let StepChange { step, added, removed, .. } = change;
        blocks.push(format!("Step {step}: {} +{added} −{removed}\n", code_span(&path)));
        if !change.patch.is_empty() {
            let patch = sanitize::multiline(&change.patch);
            let (fence, patch) = (code_fence(&patch), patch.trim_end_matches('\n'));
            blocks.push(format!("{fence}diff\n{patch}\n{fence}\n"));
        }
    }
    blocks.join("\n")
}

/// Returns plain text as a quotation.
fn quote(text: &str) -> String {
    let line = |line: &str| format!("> {}  \n", escape_line_start(&escape(line.trim())));
    sanitize::multiline(text).lines().map(line).collect()
}

/// Converts Markdown of a model to Markdown without active content.
fn prose(text: &str) -> String {
    let mut writer = MarkdownWriter::default();
    inert_events(text).for_each(|event| writer.write(event));
    writer.finish_line();
    writer.text
}

/// Writes the events of a Markdown document as text.
#[derive(Default)]
struct MarkdownWriter {
    text: String,
    line: String,
    /// The prefixes of lines for the open quotes and items: the prefix of the first line, until it is written, and of
    /// the other lines.
    prefixes: Vec<(Option<String>, String)>,
    /// The number of the next item of each open list; `None` for bullets.
    lists: Vec<Option<u64>>,
    /// The language and the text of the open code block.
    code: Option<(String, String)>,
    columns: usize,
}

impl MarkdownWriter {
    fn write(&mut self, event: Event<'_>) {
        match event {
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => self.line.push_str(&escape(&text)),
            },
            Event::Code(code) if self.columns > 0 => self.line.push_str(&cell_code_span(&code)),
            Event::Code(code) => self.line.push_str(&code_span(&code)),
            Event::Start(Tag::Emphasis) | Event::End(TagEnd::Emphasis) => self.line.push('*'),
            Event::Start(Tag::Strong) | Event::End(TagEnd::Strong) => self.line.push_str("**"),
            Event::SoftBreak => self.finish_line(),
            Event::HardBreak => {
                self.line.push('\\');
                self.finish_line();
            }
            Event::Rule => {
                self.separate();
                self.push_line("---");
            }
            Event::Start(Tag::Paragraph | Tag::Table(_)) => self.separate(),
            Event::Start(Tag::Heading { level, .. }) => {
                self.separate();
                self.line = "#".repeat(level as usize) + " ";
            }
            Event::Start(Tag::BlockQuote(_)) => {
                self.separate();
                self.prefixes.push((Some("> ".to_owned()), "> ".to_owned()));
            }
            Event::Start(Tag::List(first)) => {
                // Only a list that begins with one may directly follow the text of its item.
                match self.lists.is_empty() || first.is_some_and(|first| first != 1) {
                    true => self.separate(),
                    false => self.finish_line(),
                }
                self.lists.push(first);
            }
            Event::Start(Tag::Item) => {
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    Some(None) | None => "- ".to_owned(),
                };
                let indent = " ".repeat(marker.len());
                self.prefixes.push((Some(marker), indent));
            }
            Event::End(TagEnd::Item | TagEnd::BlockQuote(_)) => {
                self.finish_line();
                if self.is_first_line() {
                    self.push_line("");
                }
                self.prefixes.pop();
            }
            Event::End(TagEnd::List(_)) => drop(self.lists.pop()),
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                self.separate();
                self.code = Some((language.into_string(), String::new()));
            }
            Event::End(TagEnd::CodeBlock) => {
                if let Some((language, text)) = self.code.take() {
                    let fence = code_fence(&text);
                    self.push_line(&format!("{fence}{language}"));
                    text.lines().for_each(|line| self.push_line(line));
                    self.push_line(&fence);
                }
            }
            Event::Start(Tag::TableCell) => {
                self.line.push_str("| ");
                self.columns += 1;
            }
            Event::End(TagEnd::TableCell) => self.line.push(' '),
            Event::End(TagEnd::TableHead | TagEnd::TableRow) => {
                self.line.push('|');
                self.finish_line();
                let columns = std::mem::take(&mut self.columns);
                if event == Event::End(TagEnd::TableHead) {
                    self.push_line(&format!("|{}", "---|".repeat(columns)));
                }
            }
            Event::End(_) => self.finish_line(),
            // Not produced with the enabled extensions.
            _ => {}
        }
    }

    /// Ends the line, with an empty line before the next block.
    fn separate(&mut self) {
        self.finish_line();
        if !self.text.is_empty() && !self.is_first_line() {
            self.push_line("");
        }
    }

    /// Returns whether the innermost quote or item has no line yet.
    fn is_first_line(&self) -> bool {
        self.prefixes.last().is_some_and(|(first, _)| first.is_some())
    }

    fn finish_line(&mut self) {
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.push_line(&escape_line_start(&line));
        }
    }

    fn push_line(&mut self, line: &str) {
        for (first, rest) in &mut self.prefixes {
            self.text.push_str(first.take().as_deref().unwrap_or(rest));
        }
        if line.is_empty() {
            self.text.truncate(self.text.trim_end_matches(' ').len());
        }
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// Escapes the beginning of a plain line that would make it a list item, a heading, a quote or a rule.
fn escape_line_start(line: &str) -> String {
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = line.split_at(digits);
    match rest.chars().next() {
        Some('-' | '+' | '=') if digits == 0 => format!("\\{line}"),
        Some('.' | ')') if digits > 0 => format!("{number}\\{rest}"),
        _ => line.to_owned(),
    }
}

/// Escapes a plain line, so that it has no Markdown, HTML, link, mention or reference.
fn escape(text: &str) -> String {
    let mut inert = String::with_capacity(text.len() + 16);
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let after = &text[at + c.len_utf8()..];
        match c {
            // Within a word, an underscore has no meaning.
            '_' if before.is_alphanumeric() && after.starts_with(char::is_alphanumeric) => {
                inert.push(c);
            }
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '$' => inert.extend(['\\', c]),
            '<' => inert.push_str("&lt;"),
            '>' => inert.push_str("&gt;"),
            '&' => inert.push_str("&amp;"),
            c => inert.push(c),
        }
        // A zero-width space keeps names, numbers and addresses from becoming mentions, references and links.
        if matches!(c, '@' | '#') || (c == ':' && after.starts_with("//")) {
            inert.push_str(ZERO_WIDTH_SPACE);
        }
        before = c;
    }
    inert.replace("www.", "www&#8203;.").replace("GH-", "GH&#8203;-")
}

/// The zero-width space.
const ZERO_WIDTH_SPACE: &str = "&#8203;";

/// Returns a text as inline code.
fn code_span(text: &str) -> String {
    let text = sanitize::line(text);
    let fence = "`".repeat(longest_backtick_run(&text) + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    match text.trim().is_empty() {
        true => String::new(),
        false => format!("{fence}{space}{text}{space}{fence}"),
    }
}

/// Returns a text as inline code in a table.
fn cell_code_span(text: &str) -> String {
    code_span(text).replace('|', "\\|")
}

/// Returns a fence for a code block that contains this text. No line of the text closes it.
pub(crate) fn code_fence(text: &str) -> String {
    "`".repeat(longest_backtick_run(text).max(2) + 1)
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
            "> 1\\. one  \n> \\- two  \n> #&#8203; three  \n"
        );
    }

    #[test]
    fn an_answer_keeps_its_structure_without_active_markup() {
        let answer =
            "## Done\n- **one** `a<b>`\n1. [x](http://y) ![i](z)\n<script>@me</script>\n| a |";
        insta::assert_snapshot!(prose(answer), @r#"
    ## Done

    - **one** `a<b>`

    1. x (http:&#8203;//y) i (z)

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
