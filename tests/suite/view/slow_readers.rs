//! Slow and stalled readers, readers that disconnect, and processes that end midway.

use std::io::{self, PipeReader, Read};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use architect::machine::StopReason;
use architect::view::{JsonFormat, JsonSink, OutputError, ReportSink, Reporter, RunResult};
use serde_json::Value;

use super::fixture::{SharedBuffer, ViewFixture, call_turn, text_turn};

/// The size of a text that fits into no pipe, in bytes.
const LARGE: usize = 10 << 20;

fn large() -> ViewFixture {
    ViewFixture::new(vec![text_turn(&"x".repeat(LARGE))])
}

/// Reads everything, with pauses at the beginning.
fn read_slowly(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
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

fn streamed(out: impl io::Write + Send + 'static) -> Vec<Box<dyn ReportSink>> {
    vec![Box::new(JsonSink::new(out, JsonFormat::Stream).unwrap())]
}

fn last_line(stream: &[u8]) -> Value {
    let text = std::str::from_utf8(stream).unwrap();
    assert!(text.ends_with('\n'));
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn a_slow_reader_gets_every_byte_and_the_result_last() {
    let (reader, writer) = io::pipe().unwrap();
    let reading = read_slowly(reader);
    large().run(streamed(writer)).1.unwrap();
    let last = last_line(&reading.join().unwrap());
    assert_eq!(last["type"], "result");
    assert_eq!(last["output"].as_str().unwrap().len(), LARGE);
}

/// The parent process may have made standard output non-blocking.
#[test]
fn a_non_blocking_descriptor_gets_every_byte() {
    let (reader, writer) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    let reading = read_slowly(reader);
    large().run(streamed(writer)).1.unwrap();
    assert_eq!(last_line(&reading.join().unwrap())["type"], "result");
}

/// Fault G7.
#[test]
fn a_closed_pipe_ends_the_run_with_its_exit_code() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let call = |id: &str| call_turn("", &[(id, "ls", "{}")]);
    let turns = (0..40).map(|turn| call(&format!("c{turn}"))).chain([text_turn("Done.")]).collect();
    let mut fixture = ViewFixture::new(turns);
    fixture.rules.loop_detection.end_at = 1_000;
    let stream = JsonSink::new(writer, JsonFormat::Stream).unwrap();
    let reporter = Reporter::new(vec![Box::new(WaitingOutput(stream))]);
    fixture.run_with(&reporter);
    let result = reporter.results(StopReason::InternalError, "").remove(0);
    assert_eq!((result.stop_reason.unwrap().name(), result.exit_code), ("user_interrupt", 141));
    assert_eq!(reporter.finish(&result, None), Err(OutputError::ReaderGone));
}

/// Gives the writing thread the time to notice that there is no reader: the run itself takes none.
struct WaitingOutput<O>(O);

impl<O: ReportSink> ReportSink for WaitingOutput<O> {
    fn on_event(
        &mut self,
        event: &architect::view::public_events::PublicEvent,
    ) -> Result<(), architect::port::Disconnected> {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            let done = self.0.on_event(event);
            if done.is_err() || event.seq < 3 || Instant::now() > until {
                return done;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn on_result(&mut self, result: &RunResult) -> Result<(), architect::port::Disconnected> {
        self.0.on_result(result)
    }

    fn finish(self: Box<Self>, patience: Option<Duration>) -> Result<(), OutputError> {
        Box::new(self.0).finish(patience)
    }
}

/// Fault G8.
#[test]
fn a_stalled_reader_delays_neither_the_run_nor_its_end() {
    let (reader, writer): (PipeReader, _) = io::pipe().unwrap();
    let reporter = Reporter::new(streamed(writer));
    let begun = Instant::now();
    large().run_with(&reporter);
    let result = reporter.results(StopReason::InternalError, "").remove(0);
    let patience = Some(Duration::from_millis(50));
    assert_eq!(reporter.finish(&result, patience), Err(OutputError::Stalled));
    // Waiting for this reader would never end.
    assert!(begun.elapsed() < Duration::from_secs(30));
    drop(reader);
}

/// A signal ends the wait for a reader only if no run is active.
#[test]
fn a_signal_ends_the_wait_for_a_reader_only_after_the_run() {
    use architect::types::Signal;

    let (reader, writer): (PipeReader, _) = io::pipe().unwrap();
    let reporter = Reporter::new(streamed(writer));
    reporter.on_signal(Signal::Interrupt);
    let watcher = reporter.observe_run(super::fixture::run_info());
    reporter.on_signal(Signal::Interrupt);
    assert_eq!(reporter.signal(), None, "those were for the run");
    drop(watcher);
    large().run_with(&reporter);
    let result = reporter.results(StopReason::InternalError, "").remove(1);
    reporter.on_signal(Signal::Terminate);
    let begun = Instant::now();
    assert_eq!(reporter.finish(&result, None), Err(OutputError::Stalled));
    assert_eq!(reporter.signal(), Some(Signal::Terminate));
    assert!(begun.elapsed() < Duration::from_secs(10));
    drop(reader);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_not_a_closed_pipe() {
    use architect::view::OptionalSink;

    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (_, finished) = ViewFixture::new(vec![text_turn("Done.")]).run(streamed(full()));
    assert!(matches!(finished, Err(OutputError::Failed(_))), "{finished:?}");
    let log = OptionalSink::new(JsonSink::new(full(), JsonFormat::Stream).unwrap(), "log file");
    let (result, finished) = ViewFixture::new(vec![text_turn("Done.")]).run(vec![Box::new(log)]);
    assert_eq!((result.exit_code, finished), (0, Ok(())));
}

/// Fault G12: a panic of the driver itself, at the third call of a script that has two.
#[test]
fn a_run_that_panics_still_has_its_last_line() {
    let page = SharedBuffer::default();
    let reporter = Reporter::new(streamed(page.clone()));
    let turns =
        vec![call_turn("", &[("c1", "edit_file", "{}")]), call_turn("", &[("c2", "ls", "{}")])];
    let broken = catch_unwind(AssertUnwindSafe(|| ViewFixture::new(turns).run_with(&reporter)));
    assert!(broken.is_err());
    let results = reporter.results(StopReason::InternalError, "it broke down");
    let result = RunResult::join(&results, 0).unwrap();
    reporter.finish(&result, None).unwrap();
    let last = last_line(page.text().as_bytes());
    assert_eq!(last["stop_reason"], "internal_error");
    assert_eq!(last["output"], "Internal error: it broke down");
    assert_eq!((&last["steps"], &last["llm_calls"]), (&2.into(), &3.into()));
    assert_eq!(last["files_modified"][0]["path"], "a.txt");
}

/// Fault G4.
#[test]
fn a_terminated_process_still_has_its_last_line() {
    let page = SharedBuffer::default();
    let reporter = Reporter::new(streamed(page.clone()));
    let _watcher = reporter.observe_run(super::fixture::run_info());
    let signal = architect::types::Signal::Interrupt;
    reporter.report_shutdown(StopReason::UserInterrupt(signal));
    let last = last_line(page.text().as_bytes());
    assert_eq!((&last["type"], &last["exit_code"]), (&"result".into(), &130.into()));
}

#[test]
fn a_run_that_does_not_start_has_a_result_document() {
    let page = SharedBuffer::default();
    let reporter =
        Reporter::new(vec![Box::new(JsonSink::new(page.clone(), JsonFormat::Document).unwrap())]);
    let result = RunResult::not_started("config.toml:3:1: unknown key 'lmm'; did you mean 'llm'?");
    reporter.finish(&result, None).unwrap();
    let document: Value = serde_json::from_str(&page.text()).unwrap();
    assert_eq!(document["exit_code"], 3);
    assert_eq!(document["status"], "failed");
    assert_eq!(document["stop_reason"], Value::Null);
    assert!(document["error"].as_str().unwrap().contains("did you mean 'llm'?"));
}
