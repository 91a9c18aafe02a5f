//! The report as a page that needs nothing else.

use std::fmt::Write as _;

use super::Report;
use super::prose::{Block, Mark, Words, blocks};
use super::sections::{Facts, names, numbers, tables, title, verdict};
use crate::machine::Status;
use crate::view::clean;
use crate::view::markup::escaped;

/// The page loads nothing and runs nothing, whatever stands in it.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = include_str!("report.css");

/// Returns the report as a page.
pub(super) fn render(report: &Report<'_>) -> String {
    let (sign, word) = verdict(report);
    let kind = match report.result.status {
        Status::Success => "success",
        Status::Partial => "partial",
        Status::Failed => "failed",
    };
    let title = escaped(&title(report));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{sign} {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    let _ = writeln!(page, "<header class=\"{kind}\">\n<h1>{title}</h1>");
    let _ = writeln!(page, "<p class=\"numbers\"><strong>{sign} {word}</strong>");
    for number in numbers(report) {
        let _ = writeln!(page, "<span>{}</span>", escaped(&number));
    }
    page.push_str("</p>\n</header>\n");
    section(&mut page, "Answer", &prose(&report.result.output));
    section(&mut page, "Task", &text(&report.about.task));
    for facts in tables(report) {
        let count =
            if facts.names > 0 { format!(" ({})", facts.rows.len()) } else { String::new() };
        section(&mut page, &format!("{}{count}", facts.title), &table(&facts));
    }
    page.push_str("<footer>\n<dl>\n");
    for (name, value) in names(report) {
        let _ = writeln!(page, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(&value));
    }
    page.push_str("</dl>\n</footer>\n</main>\n</body>\n</html>\n");
    page
}

fn section(page: &mut String, title: &str, content: &str) {
    let _ = writeln!(page, "<section>\n<h2>{}</h2>\n{content}</section>", escaped(title));
}

/// Returns a text with its line ends.
fn text(text: &str) -> String {
    format!("<div class=\"text\">{}</div>\n", escaped(clean::block(text).trim()))
}

/// Returns what a model wrote in Markdown, with what reports keep of it.
fn prose(text: &str) -> String {
    let text = clean::block(text);
    let mut html = String::from("<div class=\"prose\">\n");
    for block in blocks(&text) {
        match block {
            Block::Line { words, .. } if words.is_empty() => {}
            Block::Line { mark, words } => {
                let words: Vec<String> = words.into_iter().map(piece).collect();
                let words = words.concat();
                let _ = match mark {
                    Mark::Plain => writeln!(html, "<p>{words}</p>"),
                    Mark::Heading(level) => {
                        // Below the title of the page and of the section.
                        let level = (level + 2).min(6);
                        writeln!(html, "<h{level}>{words}</h{level}>")
                    }
                    Mark::Item { indent, number } => {
                        let depth = (indent / 2).min(4);
                        let sign = number.map_or("•".to_owned(), |number| format!("{number}."));
                        writeln!(
                            html,
                            "<p class=\"item in{depth}\"><i>{sign}</i><span>{words}</span></p>"
                        )
                    }
                    Mark::Quote => writeln!(html, "<blockquote>{words}</blockquote>"),
                };
            }
            Block::Code { lines, .. } => {
                let _ = writeln!(html, "<pre>{}</pre>", escaped(&lines.join("\n")));
            }
        }
    }
    html + "</div>\n"
}

fn piece(words: Words<'_>) -> String {
    match words {
        Words::Plain(words) => escaped(words),
        Words::Strong(words) => format!("<strong>{}</strong>", escaped(words)),
        Words::Code(words) => format!("<code>{}</code>", escaped(words)),
    }
}

fn table(facts: &Facts) -> String {
    let mut html = String::from("<div class=\"wide\">\n");
    // A single name is a path, which may be long; with two of them the first is a tool.
    let kind = if facts.names == 2 { " class=\"calls\"" } else { "" };
    let _ = write!(html, "<table{kind}>\n<thead><tr>");
    for name in facts.head {
        let _ = write!(html, "<th>{name}</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &facts.rows {
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let cell = escaped(cell);
            let _ = match column < facts.names {
                true => write!(html, "<td><code>{cell}</code></td>"),
                false => write!(html, "<td>{cell}</td>"),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
    html
}
