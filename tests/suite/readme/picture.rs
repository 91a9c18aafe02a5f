//! The picture of the statechart in the documentation of the crate: its states at fixed places, the arrows from the chart.
//!
//! `UPDATE=1 cargo test readme` writes it again.

use std::env;
use std::fs;

use architect::view::chart::render_overview;

use super::pages::root;

const PATH: &str = "statecharts/overview.svg";

/// The centres of the states.
const PLACES: [(&str, [f64; 2]); 6] = [
    ("Preparing", [400.0, 40.0]),
    ("Compacting", [110.0, 190.0]),
    ("Calling", [400.0, 210.0]),
    ("Executing", [690.0, 190.0]),
    ("Closing", [215.0, 410.0]),
    ("Done", [610.0, 420.0]),
];

/// Half of the width and height of a state.
const HALF: [f64; 2] = [52.0, 17.0];

const HEAD: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 460" style="background: white; max-width: 50rem" role="img" aria-label="The statechart of a run">
<defs><marker id="chart-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8Z" fill="#777"/></marker></defs>
"##;

/// An arrow as a curve, with its label.
struct Arrow {
    curve: String,
    label: String,
}

/// Returns the point where the line to another point leaves a state.
fn border([x, y]: [f64; 2], [to_x, to_y]: [f64; 2]) -> [f64; 2] {
    let (dx, dy) = (to_x - x, to_y - y);
    let reach = |half: f64, distance: f64| (half + 3.0) / distance.abs().max(0.001);
    let scale = reach(HALF[0], dx).min(reach(HALF[1], dy));
    [x + dx * scale, y + dy * scale]
}

fn arrow(from: &str, to: &str, events: &str) -> Arrow {
    let place = |name: &str| PLACES.iter().find(|(state, _)| *state == name).unwrap().1;
    let ([x, y], [to_x, to_y]) = (place(from), place(to));
    let length = (to_x - x).hypot(to_y - y);
    // These would go through another state, or another arrow through their label.
    let (bend, middle) = match (from, to) {
        ("Preparing", "Closing") => (length * 0.2, 0.7),
        ("Calling", "Compacting") => (length * -0.12, 0.3),
        _ => (-(length * 0.12).max(36.0), 0.5),
    };
    let control = [
        f64::midpoint(x, to_x) - (to_y - y) / length * bend,
        f64::midpoint(y, to_y) + (to_x - x) / length * bend,
    ];
    let (start, end) = (border([x, y], control), border([to_x, to_y], control));
    let at = |axis: usize| {
        let rest = 1.0 - middle;
        rest * rest * start[axis]
            + 2.0 * rest * middle * control[axis]
            + middle * middle * end[axis]
    };
    let lines: Vec<_> = events.split(", ").collect();
    let mut offset = lines.iter().fold(-2.0, |offset, _| offset - 6.0);
    let label = lines.iter().map(|line| {
        offset += 12.0;
        format!("<text x=\"{:.0}\" y=\"{:.0}\">{line}</text>\n", at(0), at(1) + offset)
    });
    let [start, control, end] = [start, control, end].map(|[x, y]| format!("{x:.0} {y:.0}"));
    Arrow { label: label.collect(), curve: format!("<path d=\"M{start}Q{control} {end}\"/>\n") }
}

fn picture() -> String {
    let overview = render_overview().unwrap();
    let arrows = overview.lines().filter_map(|line| {
        let (from, rest) = line.trim().split_once(" --> ")?;
        let (to, events) = rest.split_once(": ")?;
        Some(arrow(from, to, events))
    });
    let arrows: Vec<Arrow> = arrows.collect();
    let part = |part: fn(&Arrow) -> &str| arrows.iter().map(part).collect::<String>();
    let (curves, labels) = (part(|arrow| &arrow.curve), part(|arrow| &arrow.label));
    let states = PLACES.map(|(name, [x, y])| {
        let ([width, height], [left, top]) = (HALF.map(|half| half * 2.0), [x - HALF[0], y - HALF[1]]);
        format!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#eef3fb\" stroke=\"#456\"/>\n\
             <text x=\"{x}\" y=\"{}\" font-size=\"14\">{name}</text>\n",
            y + 5.0
        )
    });
    format!(
        "{HEAD}<g fill=\"none\" stroke=\"#777\" marker-end=\"url(#chart-arrow)\">\n{curves}</g>\n\
         <g font-family=\"sans-serif\" font-size=\"11\" text-anchor=\"middle\" fill=\"black\">\n\
         <g stroke=\"white\" stroke-width=\"4\" paint-order=\"stroke\">\n{labels}</g>\n{}</g>\n</svg>\n",
        states.concat()
    )
}

#[test]
fn the_picture_of_the_chart_is_up_to_date() {
    let (path, fresh) = (root().join(PATH), picture());
    if env::var_os("UPDATE").is_some() {
        fs::write(path, fresh).unwrap();
    } else {
        let stored = fs::read_to_string(path).unwrap();
        assert!(stored == fresh, "{PATH} is not up to date; run `UPDATE=1 cargo test readme`");
    }
}
