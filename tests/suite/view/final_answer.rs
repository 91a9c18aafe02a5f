//! The final answer, and the sentence in place of a missing one.

use architect::types::{Fault, FaultKind, ReplyFinish, RunLimits, RunTime, TimeSpan};
use architect::view::{AnswerDestination, ReportSink, TextSink};

use crate::kit::model::FakeCall;

use super::fixture::{
    SharedBuffer, ViewFixture, call_turn, fault_turn, text_turn, turn_ending_with,
};

fn print_answer(fixture: ViewFixture, place: AnswerDestination) -> (String, u8) {
    let page = SharedBuffer::default();
    let text: Box<dyn ReportSink> = Box::new(TextSink::new(page.clone(), place).unwrap());
    let (result, finished) = fixture.run(vec![text]);
    finished.unwrap();
    (page.text(), result.exit_code)
}

fn in_a_pipe(turns: Vec<FakeCall>) -> (String, u8) {
    print_answer(ViewFixture::new(turns), AnswerDestination::NonTerminal)
}

/// Returns a fixture in which a tool is called again and again.
fn busy(steps: u32, last: FakeCall) -> ViewFixture {
    let call =
        |step| call_turn("", &[(&format!("c{step}"), "ls", &format!("{{\"path\":\"{step}\"}}"))]);
    let mut fixture = ViewFixture::new((0..steps).map(call).chain([last]).collect());
    fixture.rules.limits = RunLimits { max_steps: steps, ..RunLimits::default() };
    fixture
}

#[test]
fn remarks_and_attempts_that_do_not_count_are_no_answer() {
    let turns = vec![
        fault_turn("Half an", Fault::new(FaultKind::Truncated, "the stream ended early")),
        call_turn("I look first.", &[("c1", "ls", "{}")]),
        text_turn("The greeting is edited."),
    ];
    assert_eq!(in_a_pipe(turns), ("The greeting is edited.\n".to_owned(), 0));
}

#[test]
fn an_answer_is_escaped_on_a_terminal_and_in_a_pipe() {
    let turns = || ViewFixture::new(vec![text_turn("a\u{1b}[2Jb\n")]);
    assert_eq!(print_answer(turns(), AnswerDestination::NonTerminal).0, "a\\u{1b}[2Jb\n");
    assert_eq!(print_answer(turns(), AnswerDestination::Terminal).0, "a\\u{1b}[2Jb\n");
}

#[test]
fn a_streamed_answer_is_not_printed_twice() {
    let shown = ViewFixture::new(vec![text_turn("Done.")]);
    assert_eq!(print_answer(shown, AnswerDestination::SharedTerminal).0, "");
    let not_streamed = ViewFixture::new(vec![turn_ending_with("Done.", ReplyFinish::Stop)]);
    assert_eq!(print_answer(not_streamed, AnswerDestination::SharedTerminal).0, "Done.\n");
    let pieces =
        ViewFixture::new(vec![turn_ending_with("One, ", ReplyFinish::Length), text_turn("two.")]);
    assert_eq!(print_answer(pieces, AnswerDestination::SharedTerminal).0, "One, two.\n");
}

#[test]
fn without_a_last_word_the_output_says_why_and_how_far_it_came() {
    let silent = fault_turn("", Fault::new(FaultKind::Server, "500"));
    let (text, code) = print_answer(busy(3, silent), AnswerDestination::NonTerminal);
    assert_eq!((text.as_str(), code), ("The agent stopped (max_steps). Steps completed: 3.\n", 2));
    let word = turn_ending_with("I did three things.", ReplyFinish::Stop);
    assert_eq!(
        print_answer(busy(3, word), AnswerDestination::NonTerminal),
        ("I did three things.\n".to_owned(), 2)
    );
}

#[test]
fn a_fatal_fault_has_its_message_and_exit_code() {
    let fatal = |kind| in_a_pipe(vec![fault_turn("", Fault::new(kind, "no such key"))]);
    let text = "Unrecoverable LLM error: no such key\n".to_owned();
    assert_eq!(fatal(FaultKind::Auth), (text.clone(), 4));
    assert_eq!(fatal(FaultKind::Quota), (text, 1));
}

#[test]
fn an_interrupt_has_its_message_and_exit_code() {
    let mut fixture = ViewFixture::new(vec![text_turn("Never sent.")]);
    fixture.interrupted = Some(RunTime::START.after(TimeSpan::from_millis(100)));
    fixture.info.exit_on_partial = Some(9);
    let printed = print_answer(fixture, AnswerDestination::NonTerminal);
    assert_eq!(printed, ("Interrupted by the user.\n".to_owned(), 130));
}

#[test]
fn the_user_can_choose_the_exit_code_of_a_partial_run() {
    let mut fixture = busy(1, turn_ending_with("Half of it.", ReplyFinish::Stop));
    fixture.info.exit_on_partial = Some(0);
    assert_eq!(print_answer(fixture, AnswerDestination::NonTerminal).1, 0);
}
