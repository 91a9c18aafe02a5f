//! The statechart as a drawing, with the transitions of a session.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::Trace;
use super::time_account::add;
use crate::machine::StateKind;
use crate::machine::chart::Chart;
use crate::types::TimeSpan;

/// A point of the drawing, or a vector.
#[derive(Clone, Copy)]
struct Point {
    x: f64,
    y: f64,
}

/// Half of the size of a state's box.
const BOX_HALF_SIZE: Point = Point { x: 78.0, y: 29.0 };

/// The distance of an arrow's middle from the straight line, by which two opposite arrows are on different sides.
const ARROW_BEND: f64 = 22.0;

/// The top-level states of the chart, with the centers of their boxes: the loop in the middle, the end on the right.
const STATES: [(&str, Point); 6] = [
    ("Preparing", Point { x: 100.0, y: 225.0 }),
    ("Compacting", Point { x: 100.0, y: 50.0 }),
    ("Calling", Point { x: 390.0, y: 115.0 }),
    ("Executing", Point { x: 390.0, y: 335.0 }),
    ("Closing", Point { x: 670.0, y: 335.0 }),
    ("Done", Point { x: 670.0, y: 115.0 }),
];

/// An index into [`STATES`].
type TopState = usize;

/// Returns the top-level state of a path.
fn top_state(path: &str) -> Option<TopState> {
    let top = path.split('.').next()?;
    STATES.iter().position(|(name, _)| *name == top)
}

/// Returns the two states of a transition.
fn top_states(from: &str, to: &str) -> Option<(TopState, TopState)> {
    Some((top_state(from)?, top_state(to)?))
}

/// Returns the drawing: every state, the taken transitions with their counts, and the unused ones in a faint color.
pub(super) fn render(trace: &Trace) -> Markup {
    let mut taken: BTreeMap<(TopState, TopState), (u32, Vec<String>)> = BTreeMap::new();
    let mut within = [0; STATES.len()];
    for edge in &trace.edges {
        let Some((from, to)) = top_states(edge.from.as_str(), edge.to.as_str()) else { continue };
        if from == to {
            within[from] += edge.count;
            continue;
        }
        let (count, events) = taken.entry((from, to)).or_default();
        *count += edge.count;
        events.push(format!("{} {}×", edge.event, edge.count));
    }
    let unused = unused_edges(&taken.keys().copied().collect::<Vec<_>>());
    html! {
        svg.chart viewBox="0 0 770 390" role="img" aria-label="Transitions between the states" {
            defs {
                marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9"
                    markerHeight="9" markerUnits="userSpaceOnUse" orient="auto-start-reverse" {
                    path d="M0 0 8 4 0 8z" {}
                }
            }
            @for (from, to) in unused { path.idle d=(arrow(from, to).0) {} }
            @for (&(from, to), (count, events)) in &taken {
                @let (path, middle) = arrow(from, to);
                g.way {
                    title { (STATES[from].0) " → " (STATES[to].0) ": " (events.join(", ")) }
                    path d=(path) marker-end="url(#tip)" {}
                    text.count x=(format!("{:.1}", middle.x)) y=(format!("{:.1}", middle.y + 5.0)) {
                        (count) "×"
                    }
                }
            }
            @for (top, within) in within.into_iter().enumerate() { (state(trace, top, within)) }
        }
    }
}

/// Returns the unused transitions between top-level states.
fn unused_edges(taken: &[(TopState, TopState)]) -> Vec<(TopState, TopState)> {
    let arrows = Chart::for_run().map(|chart| chart.transitions).unwrap_or_default();
    let mut ways: Vec<(TopState, TopState)> =
        arrows.iter().filter_map(|arrow| top_states(&arrow.from, &arrow.to)).collect();
    ways.sort_unstable();
    ways.dedup();
    ways.retain(|way| way.0 != way.1 && !taken.contains(way));
    ways
}

fn state(trace: &Trace, top: TopState, within: u32) -> Markup {
    let (name, Point { x, y }) = STATES[top];
    let is_top = |state: StateKind| top_state(state.as_str()) == Some(top);
    let entered = || trace.states.iter().filter(|state| is_top(state.state));
    let time = entered().fold(TimeSpan::ZERO, |sum, state| add(sum, state.time));
    let is_current = is_top(trace.state);
    html! {
        g.state.end[is_current].idle[!is_current && entered().next().is_none()] {
            rect x=(x - BOX_HALF_SIZE.x) y=(y - BOX_HALF_SIZE.y) width=(BOX_HALF_SIZE.x * 2.0)
                height=(BOX_HALF_SIZE.y * 2.0) rx="9" {}
            text.name x=(x) y=(y - 4.0) { (name) }
            text x=(x) y=(y + 16.0) {
                (time) @if within > 0 { " · " (within) " within" }
            }
        }
    }
}

/// Returns the path of an arrow, and its middle.
fn arrow(from: TopState, to: TopState) -> (String, Point) {
    let (a, b) = (STATES[from].1, STATES[to].1);
    let (dx, dy) = (b.x - a.x, b.y - a.y);
    let length = dx.hypot(dy).max(1.0);
    let (bend_x, bend_y) = (dy / length * ARROW_BEND * 2.0, -dx / length * ARROW_BEND * 2.0);
    let control =
        Point { x: f64::midpoint(a.x, b.x) + bend_x, y: f64::midpoint(a.y, b.y) + bend_y };
    let (start, end) = (box_border(a, control), box_border(b, control));
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

/// Returns the point at which the line from the center of a box to another point crosses its border.
fn box_border(middle: Point, towards: Point) -> Point {
    let (dx, dy) = (towards.x - middle.x, towards.y - middle.y);
    let scale = (BOX_HALF_SIZE.x / dx.abs().max(0.001)).min(BOX_HALF_SIZE.y / dy.abs().max(0.001));
    Point { x: middle.x + dx * scale, y: middle.y + dy * scale }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_of_the_machine_has_its_place() {
        for state in StateKind::ALL {
            assert!(top_state(state.as_str()).is_some(), "{}", state.as_str());
        }
    }

    #[test]
    fn an_arrow_begins_and_ends_at_the_borders_of_the_boxes() {
        for (name, center) in STATES {
            let Point { x, y } = center;
            let Point { x: bx, y: by } = box_border(center, Point { x: 385.0, y: 195.0 });
            let on_side = (bx - x).abs() - BOX_HALF_SIZE.x;
            let on_top = (by - y).abs() - BOX_HALF_SIZE.y;
            assert!(on_side.abs() < 0.01 || on_top.abs() < 0.01, "{name}");
        }
    }

    #[test]
    fn only_edges_of_the_statechart_are_drawn() {
        let all = unused_edges(&[]);
        assert!(all.contains(&top_states("Calling", "Executing").unwrap()));
        assert!(!all.contains(&top_states("Done", "Calling").unwrap()));
        assert_eq!(unused_edges(&all), []);
    }
}
