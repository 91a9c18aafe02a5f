//! The final answer, and what stands for it where there is none.

use architect::model::{Fault, FaultKind, Finish, Limits, Span, Time};
use architect::view::{Output, Place, Text};

use super::stage::{Page, Stage, Turn, breaks, calls, ends, says};

fn answered(stage: Stage, place: Place) -> (String, u8) {
    let page = Page::default();
    let text: Box<dyn Output> = Box::new(Text::new(page.clone(), place).unwrap());
    let (result, finished) = stage.play(vec![text]);
    finished.unwrap();
    (page.text(), result.exit_code)
}

fn in_a_pipe(turns: Vec<Turn>) -> (String, u8) {
    answered(Stage::new(turns), Place::Elsewhere)
}

/// Returns a stage on which a tool is called again and again.
fn busy(steps: u32, last: Turn) -> Stage {
    let call =
        |step| calls("", &[(&format!("c{step}"), "ls", &format!("{{\"path\":\"{step}\"}}"))]);
    let mut stage = Stage::new((0..steps).map(call).chain([last]).collect());
    stage.rules.limits = Limits { max_steps: steps, ..Limits::default() };
    stage
}

#[test]
fn remarks_and_attempts_that_do_not_count_are_no_answer() {
    let turns = vec![
        breaks("Half an", Fault::new(FaultKind::Truncated, "the stream ended early")),
        calls("I look first.", &[("c1", "ls", "{}")]),
        says("The greeting is mended."),
    ];
    assert_eq!(in_a_pipe(turns), ("The greeting is mended.\n".to_owned(), 0));
}

#[test]
fn an_answer_is_made_harmless_on_a_terminal_and_in_a_pipe_that_may_end_on_one() {
    let turns = || Stage::new(vec![says("a\u{1b}[2Jb\n")]);
    assert_eq!(answered(turns(), Place::Elsewhere).0, "a\\u{1b}[2Jb\n");
    assert_eq!(answered(turns(), Place::Terminal).0, "a\\u{1b}[2Jb\n");
}

#[test]
fn an_answer_that_was_shown_while_it_arrived_does_not_appear_twice() {
    let shown = Stage::new(vec![says("Done.")]);
    assert_eq!(answered(shown, Place::SharedTerminal).0, "");
    let not_streamed = Stage::new(vec![ends("Done.", Finish::Stop)]);
    assert_eq!(answered(not_streamed, Place::SharedTerminal).0, "Done.\n");
    let pieces = Stage::new(vec![ends("One, ", Finish::Length), says("two.")]);
    assert_eq!(answered(pieces, Place::SharedTerminal).0, "One, two.\n");
}

#[test]
fn without_a_last_word_the_output_says_why_and_how_far_it_came() {
    let silent = breaks("", Fault::new(FaultKind::Server, "500"));
    let (text, code) = answered(busy(3, silent), Place::Elsewhere);
    assert_eq!((text.as_str(), code), ("The agent stopped (max_steps). Steps completed: 3.\n", 2));
    let word = ends("I did three things.", Finish::Stop);
    assert_eq!(answered(busy(3, word), Place::Elsewhere), ("I did three things.\n".to_owned(), 2));
}

#[test]
fn a_fatal_fault_is_told_with_its_exit_code() {
    let fatal = |kind| in_a_pipe(vec![breaks("", Fault::new(kind, "no such key"))]);
    let text = "Unrecoverable LLM error: no such key\n".to_owned();
    assert_eq!(fatal(FaultKind::Auth), (text.clone(), 4));
    assert_eq!(fatal(FaultKind::Quota), (text, 1));
}

#[test]
fn an_interrupt_is_told_with_its_exit_code() {
    let mut stage = Stage::new(vec![says("Never heard.")]);
    stage.interrupted = Some(Time::START.after(Span::millis(100)));
    stage.about.exit_on_partial = Some(9);
    let told = answered(stage, Place::Elsewhere);
    assert_eq!(told, ("Interrupted by the user.\n".to_owned(), 130));
}

#[test]
fn a_partial_run_has_the_exit_code_that_the_user_wants_for_it() {
    let mut stage = busy(1, ends("Half of it.", Finish::Stop));
    stage.about.exit_on_partial = Some(0);
    assert_eq!(answered(stage, Place::Elsewhere).1, 0);
}
