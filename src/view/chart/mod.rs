//! The statechart of a run, drawn: what `architect machine` prints.
//!
//! All four formats come from the one chart that the machine is tested against ([`Chart`]); none of them is drawn by
//! hand. `words` makes its names readable, and arrows that lead from one state to the same other one are one arrow.

mod dot;
mod labels;
mod mermaid;
mod scxml;

use crate::machine::chart::{self, Chart, ChartError, ChartState, ChartTransition};
use crate::model::word_enum;

word_enum! {
    /// A format of the statechart.
    #[derive(Default)]
    pub enum StatechartFormat {
        /// A Mermaid state diagram, for Markdown.
        #[default]
        Mermaid = "mermaid",
        /// A Graphviz graph.
        Dot = "dot",
        /// State Chart XML, the W3C's exchange format.
        Scxml = "scxml",
        /// The chart itself: an XState v5 configuration.
        Json = "json",
    }
}

/// Returns the statechart of a run in a format.
///
/// # Errors
///
/// Fails when the chart that was built into the program is damaged; a test sees to it that it isn't.
pub fn render(format: StatechartFormat) -> Result<String, ChartError> {
    let chart = Chart::for_run()?;
    Ok(match format {
        StatechartFormat::Mermaid => mermaid::render(&chart),
        StatechartFormat::Dot => dot::render(&chart),
        StatechartFormat::Scxml => scxml::render(&chart),
        StatechartFormat::Json => chart::CHART_JSON.to_owned(),
    })
}

/// Returns an overview as a Mermaid diagram: the states at the top, and the events that lead from one to another.
///
/// # Errors
///
/// Fails when the chart that was built into the program is damaged; a test sees to it that it isn't.
pub fn render_overview() -> Result<String, ChartError> {
    Ok(mermaid::overview(&Chart::for_run()?))
}

/// All arrows between two states, drawn as one.
struct ArrowGroup<'a> {
    from: &'a str,
    to: &'a str,
    arrows: Vec<&'a ChartTransition>,
}

impl ArrowGroup<'_> {
    /// Returns what leads along the arrows, a line for each event.
    fn labels(&self, chart: &Chart) -> Vec<String> {
        labels::arrow_labels(chart, &self.arrows)
    }
}

/// Returns the states directly within another one, or at the top.
fn children<'a>(chart: &'a Chart, parent: &'a str) -> impl Iterator<Item = &'a ChartState> {
    chart.states.iter().filter(move |node| match node.path.rsplit_once('.') {
        Some((above, _)) => above == parent,
        None => parent.is_empty(),
    })
}

/// Returns the arrows of a chart, those between the same two states together, in the order of the first of them.
fn group_arrows(chart: &Chart) -> Vec<ArrowGroup<'_>> {
    let mut bundles: Vec<ArrowGroup<'_>> = Vec::new();
    for arrow in &chart.transitions {
        match bundles.iter_mut().find(|bundle| bundle.from == arrow.from && bundle.to == arrow.to) {
            Some(bundle) => bundle.arrows.push(arrow),
            None => {
                bundles.push(ArrowGroup { from: &arrow.from, to: &arrow.to, arrows: vec![arrow] });
            }
        }
    }
    bundles
}
