//! The drawings of the statechart.

use architect::machine::EventKind;
use architect::machine::chart::{CHART_JSON, Chart, ChartTransition};
use architect::view::chart::{StatechartFormat, render};

#[test]
fn every_format_contains_every_state_and_transition() {
    let chart = Chart::for_run().unwrap();
    let [mermaid, dot, scxml] =
        [StatechartFormat::Mermaid, StatechartFormat::Dot, StatechartFormat::Scxml]
            .map(|format| render(format).unwrap());
    assert_eq!(scxml.matches("<transition ").count(), chart.transitions.len());
    for node in &chart.states {
        let id = node.path.replace('.', "_");
        for drawing in [&mermaid, &dot, &scxml] {
            assert!(drawing.contains(&id), "{id} is missing in {drawing}");
        }
    }
    // Transitions that leave every state unchanged are drawn once, as a note.
    let stays = |arrow: &&ChartTransition| arrow.event == EventKind::CommandEnded.as_str();
    let (staying, others): (Vec<_>, Vec<_>) = chart.transitions.iter().partition(stays);
    assert_eq!(staying.len(), chart.leaf_states().filter(|leaf| !leaf.is_final).count());
    for drawing in [&mermaid, &dot] {
        assert_eq!(drawing.matches("command ended").count(), 1, "{drawing}");
    }
    for arrow in others.into_iter().filter(|arrow| !arrow.from.is_empty()) {
        let [from, to] = [&arrow.from, &arrow.to].map(|path| path.replace('.', "_"));
        assert!(mermaid.contains(&format!("{from} --> {to}: ")), "{arrow:?}");
        let [from, to] =
            [&arrow.from, &arrow.to].map(|path| chart.initial_leaf(path).replace('.', "_"));
        assert!(dot.contains(&format!("{from} -> {to} [")), "{arrow:?}");
    }
}

#[test]
fn the_json_format_is_the_tested_chart() {
    assert_eq!(render(StatechartFormat::Json).unwrap(), CHART_JSON);
}
