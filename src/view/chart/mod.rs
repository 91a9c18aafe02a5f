//! The statechart of a run as a diagram: the output of `architect machine`.
//!
//! All formats are generated from the chart against which the machine is tested ([`Chart`]). `labels` makes its names
//! readable, and transitions between the same two states are one arrow.

mod dot;
mod labels;
mod mermaid;
mod models;
mod scxml;

use crate::machine::chart::{self, Chart, ChartError, ChartState, ChartTransition};
use crate::types::word_enum;

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
        /// A model in Promela, for the checker Spin.
        Promela = "promela",
        /// A module in TLA+, for the checker TLC.
        Tla = "tla",
    }
}

/// Returns the statechart of a run in a format.
///
/// # Errors
///
/// Fails if the built-in chart is invalid, which a test rules out.
pub fn render(format: StatechartFormat) -> Result<String, ChartError> {
    let chart = Chart::for_run()?;
    Ok(match format {
        StatechartFormat::Mermaid => mermaid::render(&chart),
        StatechartFormat::Dot => dot::render(&chart),
        StatechartFormat::Scxml => scxml::render(&chart),
        StatechartFormat::Json => chart::CHART_JSON.to_owned(),
        StatechartFormat::Promela => models::promela(&chart),
        StatechartFormat::Tla => models::tla(&chart),
    })
}

/// Returns an overview as a Mermaid diagram: the top-level states and the events between them.
///
/// # Errors
///
/// Fails if the built-in chart is invalid, which a test rules out.
pub fn render_overview() -> Result<String, ChartError> {
    Ok(mermaid::overview(&Chart::for_run()?))
}

/// All transitions between two states, drawn as one arrow.
struct ArrowGroup<'a> {
    from: &'a str,
    to: &'a str,
    arrows: Vec<&'a ChartTransition>,
}

impl ArrowGroup<'_> {
    /// Returns the labels of the arrow, one line for each event.
    fn labels(&self, chart: &Chart) -> Vec<String> {
        labels::arrow_labels(chart, &self.arrows)
    }
}

/// Returns the direct children of a state; for an empty path, the top-level states.
fn children<'a>(chart: &'a Chart, parent: &'a str) -> impl Iterator<Item = &'a ChartState> {
    chart.states.iter().filter(move |node| match node.path.rsplit_once('.') {
        Some((above, _)) => above == parent,
        None => parent.is_empty(),
    })
}

/// Returns the labels of the events that leave every state unchanged.
fn stay_labels(chart: &Chart) -> Vec<String> {
    let mut events: Vec<&str> = Vec::new();
    for arrow in chart.transitions.iter().filter(|arrow| stays_everywhere(chart, arrow)) {
        if !events.contains(&arrow.event.as_str()) {
            events.push(&arrow.event);
        }
    }
    events.into_iter().map(labels::event_label).collect()
}

/// Returns whether an event leaves every state unchanged.
fn stays_everywhere(chart: &Chart, arrow: &ChartTransition) -> bool {
    let stays = |leaf: &ChartState| {
        let mut arrows = chart.transitions_for(&leaf.path, &arrow.event).peekable();
        let is_handled = leaf.is_final || arrows.peek().is_some();
        is_handled && arrows.all(|it| it.from == leaf.path && it.to == it.from)
    };
    arrow.from == arrow.to && chart.leaf_states().all(stays)
}

/// Returns the transitions of a chart, grouped by their two states, in the order of each group's first transition.
/// Events that leave every state unchanged are left out.
fn group_arrows(chart: &Chart) -> Vec<ArrowGroup<'_>> {
    let mut groups: Vec<ArrowGroup<'_>> = Vec::new();
    for arrow in chart.transitions.iter().filter(|arrow| !stays_everywhere(chart, arrow)) {
        let (from, to) = (&*arrow.from, &*arrow.to);
        match groups.iter_mut().find(|group| (group.from, group.to) == (from, to)) {
            Some(group) => group.arrows.push(arrow),
            None => groups.push(ArrowGroup { from, to, arrows: vec![arrow] }),
        }
    }
    groups
}
