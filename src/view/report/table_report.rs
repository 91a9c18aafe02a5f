//! A report of tables, for several runs.

use std::io::{self, Write};

use maud::{PreEscaped, html};

use super::sections::{ReportTable, TableRow};
use super::{html as page, markdown};
use crate::machine::RunStatus;
use crate::view::page::{PageFrame, section};

/// A report of tables.
#[derive(Clone, Debug)]
pub struct TableReport {
    /// The title.
    pub heading: String,
    /// The status of all runs together.
    pub status: RunStatus,
    /// The status as text.
    pub outcome: String,
    /// The key figures.
    pub key_figures: Vec<String>,
    /// Names and values at the end.
    pub facts: Vec<(&'static str, String)>,
    /// The tables.
    pub tables: Vec<ReportTable>,
    /// The last table, without its rows.
    pub last: ReportTable,
    /// The number of rows of the last table.
    pub last_count: usize,
}

/// The placeholder for the rows of the last table. Texts can't contain it, since `<` is escaped in them.
const ROWS_MARK: &str = "<!-- rows -->";

impl TableReport {
    /// Writes the report in Markdown, with these rows of the last table.
    ///
    /// # Errors
    ///
    /// Fails if a row can't be read or written.
    pub fn write_markdown(
        &self,
        to: &mut impl Write,
        rows: impl Iterator<Item = io::Result<TableRow>>,
    ) -> io::Result<()> {
        to.write_all(markdown::render_tables(self).as_bytes())?;
        for row in rows {
            to.write_all(markdown::row(&row?, self.last.code_columns).as_bytes())?;
        }
        Ok(())
    }

    /// Writes the report as a self-contained HTML page, with these rows of the last table.
    ///
    /// # Errors
    ///
    /// Fails if a row can't be read or written.
    pub fn write_html(
        &self,
        to: &mut impl Write,
        rows: impl Iterator<Item = io::Result<TableRow>>,
    ) -> io::Result<()> {
        let frame = PageFrame {
            title: &self.heading,
            heading: &self.heading,
            style: include_str!("report.css"),
            script: None,
            status: self.status,
            outcome: &self.outcome,
            key_figures: &self.key_figures,
            facts: &self.facts,
        };
        let last = page::table_of(&self.last, &PreEscaped(ROWS_MARK.to_owned()));
        let page = frame.render(&html! {
            @for table in &self.tables { (section(table.heading(), &page::table(table))) }
            (section(self.last.heading_for(self.last_count), &last))
        });
        let (before, after) = page.split_once(ROWS_MARK).unwrap_or((&page, ""));
        to.write_all(before.as_bytes())?;
        for row in rows {
            to.write_all(page::row(&row?, self.last.code_columns).into_string().as_bytes())?;
        }
        to.write_all(after.as_bytes())
    }
}
