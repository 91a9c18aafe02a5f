//! The statechart with the ways that a session took, as a drawing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Trace;
use super::account::plus;
use crate::machine::StateKind;
use crate::machine::chart::Chart;
use crate::model::Span;
use crate::view::markup::escaped;

/// A state at the top of the chart, with all that is within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Top {
    Preparing,
    Compacting,
    Calling,
    Executing,
    Closing,
    Done,
}

/// A point of the drawing, or a way from one to another.
#[derive(Clone, Copy)]
struct Point {
    x: f64,
    y: f64,
}

/// Half the size of a state's box.
const BOX: Point = Point { x: 78.0, y: 29.0 };

/// How far the middle of an arrow lies beside the straight line, so that the one back lies on the other side.
const BEND: f64 = 22.0;

impl Top {
    const ALL: [Self; 6] = [
        Self::Preparing,
        Self::Compacting,
        Self::Calling,
        Self::Executing,
        Self::Closing,
        Self::Done,
    ];

    fn of(state: StateKind) -> Self {
        match state {
            StateKind::Preparing => Self::Preparing,
            StateKind::CompactingSending | StateKind::CompactingWaiting => Self::Compacting,
            StateKind::CallingSending | StateKind::CallingWaiting | StateKind::CallingChecking => {
                Self::Calling
            }
            StateKind::Executing => Self::Executing,
            StateKind::ClosingPreparing | StateKind::ClosingSending => Self::Closing,
            StateKind::Done => Self::Done,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Preparing => "Preparing",
            Self::Compacting => "Compacting",
            Self::Calling => "Calling",
            Self::Executing => "Executing",
            Self::Closing => "Closing",
            Self::Done => "Done",
        }
    }

    /// Returns the state with this path, or around it.
    fn named(path: &str) -> Option<Self> {
        let top = path.split('.').next()?;
        Self::ALL.into_iter().find(|state| state.name() == top)
    }

    /// Returns the middle of its box: the loop in the middle, the way out on the right.
    fn place(self) -> Point {
        let (x, y) = match self {
            Self::Compacting => (100.0, 50.0),
            Self::Preparing => (100.0, 225.0),
            Self::Calling => (390.0, 115.0),
            Self::Executing => (390.0, 335.0),
            Self::Done => (670.0, 115.0),
            Self::Closing => (670.0, 335.0),
        };
        Point { x, y }
    }
}

/// Returns the drawing: every state, the ways that were taken with how often, and faintly those that were not.
pub(super) fn draw(trace: &Trace) -> String {
    let mut taken: BTreeMap<(Top, Top), (u32, Vec<String>)> = BTreeMap::new();
    let mut within: BTreeMap<Top, u32> = BTreeMap::new();
    for edge in &trace.edges {
        let (from, to) = (Top::of(edge.from), Top::of(edge.to));
        if from == to {
            *within.entry(from).or_default() += edge.count;
            continue;
        }
        let (count, events) = taken.entry((from, to)).or_default();
        *count += edge.count;
        events.push(format!("{} {}×", edge.event, edge.count));
    }
    let mut svg = String::from(
        "<svg class=\"chart\" viewBox=\"0 0 770 390\" role=\"img\" aria-label=\"The ways that were taken from state to state\">\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"9\" markerHeight=\"9\" \
         markerUnits=\"userSpaceOnUse\" orient=\"auto-start-reverse\"><path d=\"M0 0 8 4 0 8z\"/></marker></defs>\n",
    );
    for (from, to) in idle(&taken.keys().copied().collect::<Vec<_>>()) {
        let (path, _) = arrow(from, to);
        let _ = writeln!(svg, "<path class=\"idle\" d=\"{path}\"/>");
    }
    for (&(from, to), (count, events)) in &taken {
        let (path, middle) = arrow(from, to);
        let title = escaped(&format!("{} → {}: {}", from.name(), to.name(), events.join(", ")));
        let _ = writeln!(
            svg,
            "<g class=\"way\"><title>{title}</title><path d=\"{path}\" marker-end=\"url(#tip)\"/>\
             <text class=\"count\" x=\"{:.1}\" y=\"{:.1}\">{count}×</text></g>",
            middle.x,
            middle.y + 5.0
        );
    }
    for top in Top::ALL {
        state(&mut svg, trace, top, within.get(&top).copied().unwrap_or(0));
    }
    svg + "</svg>\n"
}

/// Returns the ways of the statechart from one state at the top to another that are not among these.
fn idle(taken: &[(Top, Top)]) -> Vec<(Top, Top)> {
    let arrows = Chart::of_run().map(|chart| chart.arrows).unwrap_or_default();
    let way = |from: &str, to: &str| Some((Top::named(from)?, Top::named(to)?));
    let mut ways: Vec<(Top, Top)> =
        arrows.iter().filter_map(|arrow| way(&arrow.from, &arrow.to)).collect();
    ways.sort_unstable();
    ways.dedup();
    ways.retain(|way| way.0 != way.1 && !taken.contains(way));
    ways
}

fn state(svg: &mut String, trace: &Trace, top: Top, within: u32) {
    let Point { x, y } = top.place();
    let of = trace.states.iter().filter(|state| Top::of(state.state) == top);
    let time = of.fold(Span::ZERO, |sum, state| plus(sum, state.time));
    let is_end = Top::of(trace.state) == top;
    let class = match (trace.states.iter().any(|state| Top::of(state.state) == top), is_end) {
        (_, true) => "state end",
        (true, false) => "state",
        (false, false) => "state idle",
    };
    let (left, upper) = (x - BOX.x, y - BOX.y);
    let (width, height) = (BOX.x * 2.0, BOX.y * 2.0);
    let _ = write!(
        svg,
        "<g class=\"{class}\"><rect x=\"{left}\" y=\"{upper}\" width=\"{width}\" height=\"{height}\" rx=\"9\"/>\
         <text class=\"name\" x=\"{x}\" y=\"{}\">{}</text>",
        y - 4.0,
        top.name()
    );
    let within = if within > 0 { format!(" · {within} within") } else { String::new() };
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{}\">{time}{within}</text></g>", y + 16.0);
}

/// Returns the path of an arrow, and its middle.
fn arrow(from: Top, to: Top) -> (String, Point) {
    let (a, b) = (from.place(), to.place());
    let (dx, dy) = (b.x - a.x, b.y - a.y);
    let length = dx.hypot(dy).max(1.0);
    let (bend_x, bend_y) = (dy / length * BEND * 2.0, -dx / length * BEND * 2.0);
    let control =
        Point { x: f64::midpoint(a.x, b.x) + bend_x, y: f64::midpoint(a.y, b.y) + bend_y };
    let (start, end) = (border(a, control), border(b, control));
    let middle = Point {
        x: (start.x + 2.0 * control.x + end.x) / 4.0,
        y: (start.y + 2.0 * control.y + end.y) / 4.0,
    };
    let path = format!(
        "M{:.1} {:.1}Q{:.1} {:.1} {:.1} {:.1}",
        start.x, start.y, control.x, control.y, end.x, end.y
    );
    (path, middle)
}

/// Returns where the way from the middle of a box towards a point leaves the box.
fn border(middle: Point, towards: Point) -> Point {
    let (dx, dy) = (towards.x - middle.x, towards.y - middle.y);
    let scale = (BOX.x / dx.abs().max(0.001)).min(BOX.y / dy.abs().max(0.001));
    Point { x: middle.x + dx * scale, y: middle.y + dy * scale }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_of_the_machine_has_its_place() {
        for state in StateKind::ALL {
            assert_eq!(Top::named(state.name()), Some(Top::of(state)));
        }
    }

    #[test]
    fn an_arrow_begins_and_ends_at_the_borders_of_the_boxes() {
        for from in Top::ALL {
            let Point { x, y } = from.place();
            let Point { x: bx, y: by } = border(from.place(), Point { x: 385.0, y: 195.0 });
            let on_side = (bx - x).abs() - BOX.x;
            let on_top = (by - y).abs() - BOX.y;
            assert!(on_side.abs() < 0.01 || on_top.abs() < 0.01, "{}", from.name());
        }
    }

    #[test]
    fn there_are_no_ways_but_those_of_the_statechart() {
        let all = idle(&[]);
        assert!(all.contains(&(Top::Calling, Top::Executing)));
        assert!(!all.contains(&(Top::Done, Top::Calling)));
        assert_eq!(idle(&all), []);
    }
}
