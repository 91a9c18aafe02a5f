//! Readers who are slow, stall or go away, and processes that end in the middle.

use std::io::{self, PipeReader, Read};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use architect::machine::StopReason;
use architect::view::{Json, Lost, Output, Patience, RunResult, Show, StreamJson};
use serde_json::Value;

use super::stage::{Page, Stage, calls, says};

/// More than any pipe holds.
const LARGE: usize = 10 << 20;

fn large() -> Stage {
    Stage::new(vec![says(&"x".repeat(LARGE))])
}

/// Reads everything, with pauses at the beginning.
fn slowly(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let (mut all, mut piece) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            match from.read(&mut piece).unwrap() {
                0 => return all,
                read => all.extend_from_slice(&piece[..read]),
            }
            if all.len() < 1 << 20 {
                thread::sleep(Duration::from_millis(2));
            }
        }
    })
}

fn streamed(out: impl io::Write + Send + 'static) -> Vec<Box<dyn Output>> {
    vec![Box::new(StreamJson::new(out).unwrap())]
}

fn last_line(stream: &[u8]) -> Value {
    let text = std::str::from_utf8(stream).unwrap();
    assert!(text.ends_with('\n'));
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn a_slow_reader_gets_every_byte_and_the_result_last() {
    let (reader, writer) = io::pipe().unwrap();
    let reading = slowly(reader);
    large().play(streamed(writer)).1.unwrap();
    let last = last_line(&reading.join().unwrap());
    assert_eq!(last["type"], "result");
    assert_eq!(last["output"].as_str().unwrap().len(), LARGE);
}

/// Whoever starts the process may have made its standard output one that does not block.
#[test]
fn a_descriptor_that_does_not_block_gets_every_byte() {
    let (reader, writer) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    let reading = slowly(reader);
    large().play(streamed(writer)).1.unwrap();
    assert_eq!(last_line(&reading.join().unwrap())["type"], "result");
}

/// Fault G7.
#[test]
fn a_reader_who_goes_away_ends_the_run_with_the_exit_code_of_a_closed_pipe() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let call = |id: &str| calls("", &[(id, "ls", "{}")]);
    let turns = (0..40).map(|turn| call(&format!("c{turn}"))).chain([says("Done.")]).collect();
    let mut stage = Stage::new(turns);
    stage.rules.loops.end = 1_000;
    let stream = StreamJson::new(writer).unwrap();
    let show = Show::new(vec![Box::new(Awaited(stream))]);
    stage.play_in(&show);
    let result = show.results(StopReason::InternalError, "").remove(0);
    assert_eq!((result.stop_reason.unwrap().name(), result.exit_code), ("user_interrupt", 141));
    assert_eq!(show.finish(&result, Patience::UntilRead), Err(Lost::Gone));
}

/// Gives the writing thread the time to notice that nobody reads: the run itself takes none.
struct Awaited<O>(O);

impl<O: Output> Output for Awaited<O> {
    fn event(
        &mut self,
        event: &architect::view::public::PublicEvent,
    ) -> Result<(), architect::port::Gone> {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            let done = self.0.event(event);
            if done.is_err() || event.seq < 3 || Instant::now() > until {
                return done;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn result(&mut self, result: &RunResult) -> Result<(), architect::port::Gone> {
        self.0.result(result)
    }

    fn finish(self: Box<Self>, patience: Patience) -> Result<(), Lost> {
        Box::new(self.0).finish(patience)
    }
}

/// Fault G8.
#[test]
fn a_reader_who_stalls_holds_up_neither_the_run_nor_its_end() {
    let (reader, writer): (PipeReader, _) = io::pipe().unwrap();
    let show = Show::new(streamed(writer));
    let begun = Instant::now();
    large().play_in(&show);
    let result = show.results(StopReason::InternalError, "").remove(0);
    let patience = Patience::AtMost(Duration::from_millis(50));
    assert_eq!(show.finish(&result, patience), Err(Lost::Stalled));
    // Whoever waited for this reader would wait for ever.
    assert!(begun.elapsed() < Duration::from_secs(30));
    drop(reader);
}

/// A signal is about the wait for a reader when no run is left that it could be about.
#[test]
fn a_signal_ends_the_wait_for_a_reader_after_the_run_alone() {
    use architect::model::Signal;

    let (reader, writer): (PipeReader, _) = io::pipe().unwrap();
    let show = Show::new(streamed(writer));
    show.signalled(Signal::Interrupt);
    let watcher = show.watch(super::stage::about());
    show.signalled(Signal::Interrupt);
    assert_eq!(show.signal(), None, "those were for the run");
    drop(watcher);
    large().play_in(&show);
    let result = show.results(StopReason::InternalError, "").remove(1);
    show.signalled(Signal::Terminate);
    let begun = Instant::now();
    assert_eq!(show.finish(&result, Patience::UntilRead), Err(Lost::Stalled));
    assert_eq!(show.signal(), Some(Signal::Terminate));
    assert!(begun.elapsed() < Duration::from_secs(10));
    drop(reader);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_no_reader_who_went_away() {
    use architect::view::Optional;

    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (_, finished) = Stage::new(vec![says("Done.")]).play(streamed(full()));
    assert!(matches!(finished, Err(Lost::Failed(_))), "{finished:?}");
    let log = Optional::new(StreamJson::new(full()).unwrap(), "log file");
    let (result, finished) = Stage::new(vec![says("Done.")]).play(vec![Box::new(log)]);
    assert_eq!((result.exit_code, finished), (0, Ok(())));
}

/// Fault G12: a panic of the driver itself, at the third call of a script that has two.
#[test]
fn a_run_that_breaks_down_still_has_its_last_line() {
    let page = Page::default();
    let show = Show::new(streamed(page.clone()));
    let turns = vec![calls("", &[("c1", "edit_file", "{}")]), calls("", &[("c2", "ls", "{}")])];
    let broken = catch_unwind(AssertUnwindSafe(|| Stage::new(turns).play_in(&show)));
    assert!(broken.is_err());
    let results = show.results(StopReason::InternalError, "it broke down");
    let result = RunResult::joined(&results, 0).unwrap();
    show.finish(&result, Patience::UntilRead).unwrap();
    let last = last_line(page.text().as_bytes());
    assert_eq!(last["stop_reason"], "internal_error");
    assert_eq!(last["output"], "Internal error: it broke down");
    assert_eq!((&last["steps"], &last["llm_calls"]), (&2.into(), &3.into()));
    assert_eq!(last["files_modified"][0]["path"], "a.txt");
}

/// Fault G4.
#[test]
fn a_process_that_ends_at_once_still_has_its_last_line() {
    let page = Page::default();
    let show = Show::new(streamed(page.clone()));
    let _watcher = show.watch(super::stage::about());
    let signal = architect::model::Signal::Interrupt;
    show.farewell(StopReason::UserInterrupt(signal));
    let last = last_line(page.text().as_bytes());
    assert_eq!((&last["type"], &last["exit_code"]), (&"result".into(), &130.into()));
}

#[test]
fn a_run_that_does_not_begin_has_a_document_too() {
    let page = Page::default();
    let show = Show::new(vec![Box::new(Json::new(page.clone()).unwrap())]);
    let result = RunResult::refused("config.toml:3:1: unknown key 'lmm'; did you mean 'llm'?");
    show.finish(&result, Patience::UntilRead).unwrap();
    let document: Value = serde_json::from_str(&page.text()).unwrap();
    assert_eq!(document["exit_code"], 3);
    assert_eq!(document["status"], "failed");
    assert_eq!(document["stop_reason"], Value::Null);
    assert!(document["error"].as_str().unwrap().contains("did you mean 'llm'?"));
}
