//! The statistics as a self-contained page, with plots as inline SVG.

use maud::{Markup, html};

use super::Statistics;
use super::sections::{PlotBar, StatisticsSection, headline, key_figures, sections};
use crate::machine::RunStatus;
use crate::view::page::{PageFrame, section};

/// The height of a bar, including the space below it.
const BAR_HEIGHT: usize = 22;

/// The left edge of bars, and the maximum width of a bar.
const BAR_START: usize = 190;
const MAX_BAR_WIDTH: f64 = 380.0;

/// Returns the page.
pub(super) fn render(statistics: &Statistics) -> String {
    let outcome = headline(statistics);
    let figures = key_figures(statistics).into_iter();
    let figures: Vec<String> = figures.map(|(name, value)| format!("{name}: {value}")).collect();
    let frame = PageFrame {
        title: "Statistics of sessions",
        heading: "Statistics of sessions",
        style: include_str!("stats.css"),
        script: None,
        status: RunStatus::Success,
        outcome: &outcome,
        key_figures: &figures,
        facts: &[],
    };
    frame.render(&html! {
        @for part in sections(statistics) { (section(part.title, &content(&part))) }
    })
}

fn content(part: &StatisticsSection) -> Markup {
    html! {
        @if let Some((caption, bars)) = &part.plot { (plot(caption, bars)) }
        div.wide {
            table {
                thead { tr { @for (column, name) in part.header.iter().enumerate() {
                    th.number[column >= part.names] { (name) }
                } } }
                tbody { @for row in &part.rows {
                    tr { @for (column, cell) in row.iter().enumerate() {
                        td.number[column >= part.names] { (cell) }
                    } }
                } }
            }
        }
    }
}

/// Returns bars, the greatest as wide as the plot; nothing if all values are zero.
fn plot(caption: &str, bars: &[PlotBar]) -> Markup {
    let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    if most <= 0.0 {
        return html! {};
    }
    let height = bars.len() * BAR_HEIGHT;
    html! {
        figure {
            figcaption { (caption) }
            svg.plot viewBox={ "0 0 720 " (height) } role="img" aria-label=(caption) {
                @for (index, bar) in bars.iter().enumerate() {
                    @let width = bar.value / most * MAX_BAR_WIDTH;
                    @let line = index * BAR_HEIGHT + 15;
                    text.label x=(BAR_START - 8) y=(line) text-anchor="end" { (bar.label) }
                    rect x=(BAR_START) y=(index * BAR_HEIGHT + 3) width=(format!("{width:.1}")) height="15" rx="2" {}
                    text.value x=(format!("{:.1}", 198.0 + width)) y=(line) { (bar.text) }
                }
            }
        }
    }
}
