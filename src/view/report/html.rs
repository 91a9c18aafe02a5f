//! The report as a page that needs nothing else.

use std::fmt::Write as _;

use super::RunReport;
use super::markdown_subset::{InlineText, LinePrefix, MarkdownBlock, parse_blocks};
use super::sections::{ReportTable, key_figures, names, outcome, tables, title};
use crate::machine::RunStatus;
use crate::view::html_escape::escape;
use crate::view::sanitize;

/// The page loads nothing and runs nothing, whatever stands in it.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = include_str!("report.css");

/// Returns the report as a page.
pub(super) fn render(report: &RunReport<'_>) -> String {
    let (sign, word) = outcome(report);
    let kind = match report.result.status {
        RunStatus::Success => "success",
        RunStatus::Partial => "partial",
        RunStatus::Failed => "failed",
    };
    let title = escape(&title(report));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_SECURITY_POLICY}\">\n\
         <title>{sign} {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    let _ = writeln!(page, "<header class=\"{kind}\">\n<h1>{title}</h1>");
    let _ = writeln!(page, "<p class=\"numbers\"><strong>{sign} {word}</strong>");
    for number in key_figures(report) {
        let _ = writeln!(page, "<span>{}</span>", escape(&number));
    }
    page.push_str("</p>\n</header>\n");
    section(&mut page, "Answer", &prose(&report.result.output));
    section(&mut page, "Task", &text(&report.info.task));
    for facts in tables(report) {
        let count =
            if facts.code_columns > 0 { format!(" ({})", facts.rows.len()) } else { String::new() };
        section(&mut page, &format!("{}{count}", facts.title), &table(&facts));
    }
    page.push_str("<footer>\n<dl>\n");
    for (name, value) in names(report) {
        let _ = writeln!(page, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value));
    }
    page.push_str("</dl>\n</footer>\n</main>\n</body>\n</html>\n");
    page
}

fn section(page: &mut String, title: &str, content: &str) {
    let _ = writeln!(page, "<section>\n<h2>{}</h2>\n{content}</section>", escape(title));
}

/// Returns a text with its line ends.
fn text(text: &str) -> String {
    format!("<div class=\"text\">{}</div>\n", escape(sanitize::multiline(text).trim()))
}

/// Returns what a model wrote in Markdown, with what reports keep of it.
fn prose(text: &str) -> String {
    let text = sanitize::multiline(text);
    let mut html = String::from("<div class=\"prose\">\n");
    for block in parse_blocks(&text) {
        match block {
            MarkdownBlock::Line { content: words, .. } if words.is_empty() => {}
            MarkdownBlock::Line { prefix: mark, content: words } => {
                let words: Vec<String> = words.into_iter().map(inline).collect();
                let words = words.concat();
                let _ = match mark {
                    LinePrefix::None => writeln!(html, "<p>{words}</p>"),
                    LinePrefix::Heading(level) => {
                        // Below the title of the page and of the section.
                        let level = (level + 2).min(6);
                        writeln!(html, "<h{level}>{words}</h{level}>")
                    }
                    LinePrefix::Item { indent, number } => {
                        let depth = (indent / 2).min(4);
                        let sign = number.map_or("•".to_owned(), |number| format!("{number}."));
                        writeln!(
                            html,
                            "<p class=\"item in{depth}\"><i>{sign}</i><span>{words}</span></p>"
                        )
                    }
                    LinePrefix::Quote => writeln!(html, "<blockquote>{words}</blockquote>"),
                };
            }
            MarkdownBlock::Code { lines, .. } => {
                let _ = writeln!(html, "<pre>{}</pre>", escape(&lines.join("\n")));
            }
        }
    }
    html + "</div>\n"
}

fn inline(words: InlineText<'_>) -> String {
    match words {
        InlineText::Plain(words) => escape(words),
        InlineText::Strong(words) => format!("<strong>{}</strong>", escape(words)),
        InlineText::Code(words) => format!("<code>{}</code>", escape(words)),
    }
}

fn table(facts: &ReportTable) -> String {
    let mut html = String::from("<div class=\"wide\">\n");
    // A single name is a path, which may be long; with two of them the first is a tool.
    let kind = if facts.code_columns == 2 { " class=\"calls\"" } else { "" };
    let _ = write!(html, "<table{kind}>\n<thead><tr>");
    for name in facts.header {
        let _ = write!(html, "<th>{name}</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &facts.rows {
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let cell = escape(cell);
            let _ = match column < facts.code_columns {
                true => write!(html, "<td><code>{cell}</code></td>"),
                false => write!(html, "<td>{cell}</td>"),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
    html
}
