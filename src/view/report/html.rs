//! The report as a self-contained HTML page.

use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{Event, HeadingLevel, Tag, TagEnd, html::push_html};

use super::RunReport;
use super::inert_markdown::inert_events;
use super::sections::{ReportTable, failure, key_figures, names, outcome, tables, title};
use crate::view::page::{PageFrame, section, step_changes};
use crate::view::sanitize;

/// Returns the report as a page.
pub(super) fn render(report: &RunReport<'_>) -> String {
    let (sign, word) = outcome(report);
    let heading = title(report);
    let frame = PageFrame {
        title: &format!("{sign} {heading}"),
        heading: &heading,
        style: include_str!("report.css"),
        script: None,
        status: report.result.status,
        outcome: &format!("{sign} {word}"),
        key_figures: &key_figures(report),
        facts: &names(report),
    };
    let task = sanitize::multiline(&report.info.task);
    frame.render(&html! {
        @if let Some(error) = failure(report) {
            (section("Reason", &html! { div.text { (sanitize::multiline(error).trim()) } }))
        }
        (section("Answer", &prose(&report.result.output)))
        (section("Task", &html! { div.text { (task.trim()) } }))
        @for facts in tables(report) { (section(facts.heading(), &table(&facts))) }
        @if !report.changes.is_empty() {
            (section(format!("Changes ({})", report.changes.len()), &step_changes(report.changes)))
        }
    })
}

/// Converts Markdown of a model to HTML, keeping its line ends. HTML of the model is not interpreted.
fn prose(text: &str) -> Markup {
    let events = inert_events(text).map(|event| match event {
        Event::SoftBreak => Event::HardBreak,
        // Escaped by the same rules as the rest of the page, including quotation marks.
        Event::Text(text) => Event::InlineHtml(html! { (text) }.into_string().into()),
        Event::Start(Tag::Heading { level, id, classes, attrs }) => {
            Event::Start(Tag::Heading { level: lower(level), id, classes, attrs })
        }
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lower(level))),
        event => event,
    });
    let mut prose = String::new();
    push_html(&mut prose, events);
    html! { div.prose { (PreEscaped(prose)) } }
}

/// Returns the level of a heading below the title of the page and the title of the section.
fn lower(level: HeadingLevel) -> HeadingLevel {
    HeadingLevel::try_from(level as usize + 2).unwrap_or(HeadingLevel::H6)
}

/// Returns a table.
pub(super) fn table(facts: &ReportTable) -> Markup {
    table_of(facts, &html! { @for cells in &facts.rows { (row(cells, facts.code_columns)) } })
}

/// Returns a table with these rows.
pub(super) fn table_of(facts: &ReportTable, rows: &Markup) -> Markup {
    // A single code column is a path, which may be long. Of two code columns, the first is the name of a tool.
    html! {
        div.wide {
            table class=[(facts.code_columns == 2).then_some("calls")] {
                thead { tr { @for name in facts.header { th { (name) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// Returns a row of a table. The first columns are names.
pub(super) fn row(cells: &[String], code_columns: usize) -> Markup {
    html! {
        tr { @for (column, cell) in cells.iter().enumerate() {
            td { @if column < code_columns { code { (cell) } } @else { (cell) } }
        } }
    }
}
