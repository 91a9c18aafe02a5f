//! Output to a terminal, with arbitrary texts of models, tools and users.

use std::sync::Arc;

use architect::runner::SystemClock;
use architect::types::ReplyFinish;
use architect::view::human::{HumanLog, LogDetail, LogStyle, TerminalView};
use architect::view::{AnswerDestination, Language, ReportSink, TextSink};
use proptest::prelude::*;
use serde_json::json;

use super::fixture::{SharedBuffer, ViewFixture, call_turn, text_turn, turn_ending_with};

/// The only control sequences: those of the status area, and colours.
const OURS: [&str; 11] = [
    "\u{1b}[?2026h",
    "\u{1b}[?2026l",
    "\u{1b}[1G",
    "\u{1b}[2K",
    "\u{1b}[1A",
    "\u{1b}[0m",
    "\u{1b}[1m",
    "\u{1b}[2m",
    "\u{1b}[31m",
    "\u{1b}[32m",
    "\u{1b}[33m",
];

/// Texts with other control sequences.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("\u{1b}]0;title\u{7}".to_owned()),
        Just("\u{1b}]52;c;aGk=\u{1b}\\".to_owned()),
        Just("\u{1b}[2J\u{1b}[H\u{1b}[?25l".to_owned()),
        Just("\u{9b}5A\u{90}x\u{9c}".to_owned()),
        Just("\u{202e}\u{2066}\u{200f}\u{61c}".to_owned()),
        Just("\u{2028}\u{feff}\u{e0041}".to_owned()),
        Just("\r\u{8}\u{7f}\u{0}\u{b}".to_owned()),
        Just("ünïcödé 🔧\n\tline".to_owned()),
        any::<String>().prop_map(|text| text.replace("\u{1b}[", "\u{1b}")),
    ];
    prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat())
}

fn is_allowed(c: char) -> bool {
    let reversing = matches!(c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c == '\n' || c == '\t' || !(c.is_control() || reversing)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Fault X9, and the invariant that the bytes on a terminal are of a closed set.
    #[test]
    fn nothing_but_the_log_itself_drives_the_terminal(
        texts in prop::collection::vec(hostile(), 7),
        is_styled: bool,
    ) {
        let page = SharedBuffer::default();
        let style = LogStyle { lang: Language::En, has_color: is_styled, shows_costs: true, detail: LogDetail::Short };
        let clock = Arc::new(SystemClock::start());
        let log = HumanLog::live(page.clone(), style, clock, || TerminalView::new(80, 24)).unwrap();
        let answer = TextSink::new(page.clone(), AnswerDestination::Terminal).unwrap();
        let arguments = json!({ "path": texts[0], "command": texts[1], "say": texts[2], texts[3].as_str(): 1 });
        let arguments = arguments.to_string();
        let tools = [("c1", "fail"), ("c2", "run_command"), ("c3", "edit_file"), ("c4", texts[4].as_str())];
        let tools = tools.map(|(id, name)| (id, name, arguments.as_str()));
        // An answer that is shown while it arrives, and one that is not.
        let last = match is_styled {
            true => text_turn(&texts[6]),
            false => turn_ending_with(&texts[6], ReplyFinish::Stop),
        };
        let mut fixture = ViewFixture::new(vec![call_turn(&texts[5], &tools), last]);
        // A blank text is not an answer.
        fixture.turns.extend([text_turn("Well."), text_turn("Well.")]);
        fixture.info.session_id = texts[3].as_str().into();
        fixture.info.model = texts[4].as_str().into();
        let outputs: Vec<Box<dyn ReportSink>> = vec![Box::new(log), Box::new(answer)];
        fixture.run(outputs).1.unwrap();
        let mut text = page.text();
        for ours in OURS {
            text = text.replace(ours, "");
        }
        let wrong: Vec<char> = text.chars().filter(|c| !is_allowed(*c)).collect();
        prop_assert!(wrong.is_empty(), "{wrong:?} in {text:?}");
    }
}

#[test]
fn a_terminal_log_streams_text_and_shows_durations() {
    let page = SharedBuffer::default();
    let style = LogStyle { has_color: true, ..LogStyle::default() };
    let clock = Arc::new(SystemClock::start());
    let log = HumanLog::live(page.clone(), style, clock, || TerminalView::new(80, 24)).unwrap();
    let turns = vec![call_turn("I look.", &[("c1", "ls", "{}")]), text_turn("Done.")];
    ViewFixture::new(turns).run(vec![Box::new(log)]).1.unwrap();
    // The status area is drawn by the wall clock.
    let text = written_lines(&page.text()).replace('\u{1b}', "␛");
    insta::assert_snapshot!(text, @r#"
    ␛[2m▶ Session s-1 · scripted/demo · build␛[0m

    🔄 ␛[1mStep 1 → LLM call (1 message)␛[0m
    I look.
       ␛[32m✓␛[0m LLM answered with 1 tool call␛[2m  800 ms␛[0m

       🔧 ␛[1mls␛[0m
          ␛[32m✓␛[0m OK

    🔄 ␛[1mStep 2 → LLM call (3 messages)␛[0m
    Done.
       ␛[32m✓␛[0m LLM answered␛[2m  400 ms␛[0m
    ✅ ␛[1mAgent completed (1 step) · 2 LLM calls␛[0m
    "#);
}

/// Returns the lines that stay on a terminal, with their colours.
fn written_lines(text: &str) -> String {
    let mut lines = vec![String::new()];
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |end| end + 1);
        let (code, length) = if c == '\u{1b}' { (&rest[..end], end) } else { ("", c.len_utf8()) };
        match code {
            "" if c == '\n' => lines.push(String::new()),
            "" => lines.last_mut().unwrap().push(c),
            "\u{1b}[1G" => lines.last_mut().unwrap().clear(),
            "\u{1b}[2K" | "\u{1b}[?2026h" | "\u{1b}[?2026l" => {}
            up if up.ends_with('A') => {
                let up: usize = up[2..up.len() - 1].parse().unwrap();
                lines.truncate(lines.len() - up);
                lines.last_mut().unwrap().clear();
            }
            color => lines.last_mut().unwrap().push_str(color),
        }
        rest = &rest[length..];
    }
    lines.join("\n")
}
