//! Tokens and money, reply by reply, as columns.

use std::fmt::Write as _;

use super::Trace;
use super::timeline::{CallEnd, CallSpan};
use crate::model::Micros;
use crate::view::markup::escaped;

/// What one reply used.
struct Used {
    title: String,
    cached: u64,
    fresh: u64,
    output: u64,
    /// All that was spent by then.
    spent: u64,
}

/// Returns the columns; nothing when no reply came.
pub(super) fn draw(trace: &Trace) -> String {
    let mut spent = 0;
    let used: Vec<Used> = trace
        .calls
        .iter()
        .enumerate()
        .filter_map(|(index, call)| used(index, call, &mut spent))
        .collect();
    let mut html = String::new();
    let Some(most) = used.iter().map(|used| used.cached + used.fresh + used.output).max() else {
        return html;
    };
    let _ = writeln!(
        html,
        "<figure><figcaption>Tokens of each reply, from the first to the last, {most} at the most: <b class=\"k-cached\">cached input</b> \
         <b class=\"k-fresh\">input</b> <b class=\"k-output\">output</b></figcaption>\n<div class=\"columns\">"
    );
    for column in &used {
        let _ = write!(html, "<span title=\"{}\">", escaped(&column.title));
        for (class, tokens) in
            [("k-output", column.output), ("k-fresh", column.fresh), ("k-cached", column.cached)]
        {
            let _ = write!(
                html,
                "<i class=\"{class}\" style=\"height:{}%\"></i>",
                percent(tokens, most)
            );
        }
        html.push_str("</span>\n");
    }
    html.push_str("</div></figure>\n");
    if let Some(total) = trace.cost.filter(|cost| *cost > Micros::ZERO) {
        let _ = writeln!(
            html,
            "<figure><figcaption>Money spent so far, reply by reply, {total} in the end</figcaption>\n<div class=\"columns low\">"
        );
        for column in &used {
            let so_far = Micros(column.spent);
            let height = percent(column.spent, total.0);
            let title = escaped(&format!("{}: {so_far}", column.title));
            let _ = writeln!(
                html,
                "<span title=\"{title}\"><i class=\"k-cost\" style=\"height:{height}%\"></i></span>"
            );
        }
        html.push_str("</div></figure>\n");
    }
    html
}

fn used(index: usize, call: &CallSpan, spent: &mut u64) -> Option<Used> {
    let CallEnd::Replied { input_tokens, output_tokens, cached_input_tokens, cost } = &call.end
    else {
        return None;
    };
    *spent += cost.map_or(0, |cost| cost.0);
    Some(Used {
        title: format!(
            "request {}: {input_tokens} input ({cached_input_tokens} cached), {output_tokens} output",
            index + 1
        ),
        cached: *cached_input_tokens,
        fresh: input_tokens.saturating_sub(*cached_input_tokens),
        output: *output_tokens,
        spent: *spent,
    })
}

/// Returns a part of a whole in hundredths, with one digit behind the point.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let tenths = u128::from(part.min(whole)) * 1000 / u128::from(whole.max(1));
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_never_more_than_the_whole() {
        assert_eq!(percent(1, 3), "33.3");
        assert_eq!(percent(5, 3), "100.0");
        assert_eq!(percent(0, 0), "0.0");
    }
}
