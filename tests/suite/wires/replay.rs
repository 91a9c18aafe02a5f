//! Recording and replaying: replies, faults, and differing requests.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use architect::llm::scripted::ScriptPosition;
use architect::llm::{ConnectError, ModelConnectionSettings, OnMismatch, Recorder, Recording};
use architect::types::FaultKind;
use tempfile::TempDir;

use super::caller::{KEY, WireCaller, long_timeouts};
use super::recorded_streams::{Recording as Stream, Wire, all};
use crate::kit::chat::{delta, end, event, finish, text};
use crate::kit::server::{ScriptedReply, Server};

const MODEL: &str = "openai-chat/fake";

/// A folder with a recording.
struct RecordingFile(TempDir);

impl RecordingFile {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("run.jsonl")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    /// Returns settings with a recorder.
    fn recording(&self, settings: ModelConnectionSettings) -> ModelConnectionSettings {
        ModelConnectionSettings {
            recorder: Some(Recorder::create(Path::new("/nowhere"), &self.path()).unwrap()),
            ..settings
        }
    }

    /// Returns a model that replays, with one message of the user.
    fn player(&self, settings: &ModelConnectionSettings) -> WireCaller {
        let settings =
            ModelConnectionSettings { api_base: None, recorder: None, ..settings.clone() };
        play(&self.path(), &settings).unwrap()
    }
}

/// Replays without network and key.
fn play(path: &Path, settings: &ModelConnectionSettings) -> Result<WireCaller, ConnectError> {
    WireCaller::with_env(&format!("replay/{}", path.display()), settings, &|_| None)
}

/// Calls twice, the second time with the results of the first call.
fn record_and_replay(caller: &mut WireCaller) -> Vec<String> {
    let mut seen = Vec::new();
    for _ in 0..2 {
        let what = caller.call();
        seen.push(format!("{:?} {:?}", what.streamed(), what.reply));
        if let Ok(reply) = what.reply {
            caller.add_reply(reply);
        }
    }
    seen
}

#[test]
fn a_recording_is_replayed_on_every_wire() {
    for recording in Wire::ALL.into_iter().flat_map(all) {
        let tape = RecordingFile::new();
        let answers = [recording.in_chunks(100), recording.in_chunks(9)];
        let server = Server::new(answers);
        let settings = tape.recording(long_timeouts(&server, ""));
        let model = recording.wire.model();
        let lived = record_and_replay(&mut WireCaller::new(model, &settings));
        assert_eq!(Recording::load(&tape.path()).unwrap().first_model(), model);
        let strict = ModelConnectionSettings { on_mismatch: OnMismatch::Fail, ..settings };
        assert_eq!(record_and_replay(&mut tape.player(&strict)), lived, "{}", recording.name);
        assert_eq!(server.requests().len(), 2, "a replay sends nothing");
    }
}

/// A recording does not depend on time or place.
#[test]
fn recording_a_replay_gives_the_same_recording() {
    for name in ["thinking", "tools", "text"] {
        for wire in Wire::ALL {
            let Some(stream) = all(wire).into_iter().find(|r: &Stream| r.name.ends_with(name))
            else {
                continue;
            };
            let (first, second) = (RecordingFile::new(), RecordingFile::new());
            let server = Server::new([stream.in_chunks(50), stream.in_chunks(1)]);
            let settings = first.recording(long_timeouts(&server, ""));
            record_and_replay(&mut WireCaller::new(wire.model(), &settings));
            let again = second.recording(ModelConnectionSettings { api_base: None, ..settings });
            record_and_replay(&mut play(&first.path(), &again).unwrap());
            assert_eq!(first.text(), second.text(), "{}", stream.name);
        }
    }
}

#[test]
fn faults_are_replayed() {
    let tape = RecordingFile::new();
    let answers = [
        ScriptedReply::with_headers(
            429,
            &[("retry-after", "7"), ("set-cookie", "a=b")],
            "{\"error\":\"slow\"}",
        ),
        ScriptedReply::open_stream()
            .chunk(&delta(&serde_json::json!({"content": "so far"})))
            .close(),
        ScriptedReply::closed(),
        ScriptedReply::silence(),
        ScriptedReply::open_stream().bytes(b"9\r\ndata: \xff\n\n\r\n".to_vec()).end(),
    ];
    let server = Server::new(answers);
    let mut settings = tape.recording(long_timeouts(&server, "/v1"));
    // The fourth answer never comes.
    settings.timeout = Duration::from_secs(2);
    let faults =
        |caller: &mut WireCaller| -> Vec<_> { (0..5).map(|_| caller.call().fault()).collect() };
    let lived = faults(&mut WireCaller::new(MODEL, &settings));
    assert_eq!(lived[0].retry_after.unwrap().0, 7_000_000);
    assert_eq!(faults(&mut tape.player(&settings)), lived);
    assert!(!tape.text().contains("cookie"));
}

/// Fault L13: even if the server sends the key.
#[test]
fn a_recording_has_no_key_and_is_private() {
    let tape = RecordingFile::new();
    let quoting =
        format!("{{\"error\":{{\"message\":\"bad key {KEY} or sk-abcdefghijkl12345678\"}}}}");
    let words = delta(&serde_json::json!({"content": format!("the key is {KEY}")}));
    let stream = [words.as_str(), &finish("stop"), &end()].concat();
    let cut = ScriptedReply::open_stream();
    let cut = stream
        .as_bytes()
        .chunks(5)
        .fold(cut, |reply, piece| reply.bytes(crate::kit::server::chunk(piece)));
    let server = Server::new([ScriptedReply::with_length(401, &quoting), cut.end()]);
    let mut caller = WireCaller::new(MODEL, &tape.recording(long_timeouts(&server, "/v1")));
    caller.add_user_message(&format!("use {KEY}"));
    caller.call().fault();
    assert_eq!(&*caller.call().reply().text(), "the key is ***");
    let text = tape.text();
    assert!(text.contains("use ***") && text.contains("the key is ***"), "{text}");
    assert!(!text.contains(KEY) && !text.contains("abcdefghijkl"), "{text}");
    let mode = fs::metadata(tape.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_conversation_is_recorded_once() {
    let tape = RecordingFile::new();
    let server = Server::repeating([text("and so on")]);
    let mut caller = WireCaller::new(MODEL, &tape.recording(long_timeouts(&server, "/v1")));
    let mut sizes = vec![tape.text().len()];
    for _ in 0..30 {
        caller.add_user_message(&"x".repeat(1_000));
        let reply = caller.call().reply();
        caller.add_reply(reply);
        sizes.push(tape.text().len());
    }
    let grown: Vec<usize> = sizes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(grown[29] < grown[1] + 200, "{grown:?}");
}

#[test]
fn the_first_difference_is_a_warning_or_a_fault() {
    let tape = RecordingFile::new();
    let server = Server::new([text("one"), text("two")]);
    let settings = tape.recording(long_timeouts(&server, "/v1"));
    record_and_replay(&mut WireCaller::new(MODEL, &settings));
    let strict = ModelConnectionSettings { on_mismatch: OnMismatch::Fail, ..settings.clone() };
    let mut other = tape.player(&strict);
    other.add_user_message("quickly");
    let fault = other.call().fault();
    assert_eq!(fault.kind, FaultKind::Request);
    let place = "request 1 differs from the recorded one at messages/1/content: \
        \"do it quickly\" instead of \"do it\"";
    assert!(fault.message.contains(place), "{}", fault.message);
    let mut other =
        tape.player(&ModelConnectionSettings { position: ScriptPosition::default(), ..settings });
    other.add_user_message("quickly");
    assert_eq!(&*other.call().reply().text(), "one");
}

#[test]
fn a_second_run_continues_the_recording() {
    let tape = RecordingFile::new();
    let server = Server::new([text("one"), text("two")]);
    let settings = tape.recording(long_timeouts(&server, "/v1"));
    record_and_replay(&mut WireCaller::new(MODEL, &settings));
    let mut player =
        tape.player(&ModelConnectionSettings { position: ScriptPosition::after(1), ..settings });
    assert_eq!(&*player.call().reply().text(), "two");
    let fault = player.call().fault();
    assert_eq!(fault.kind, FaultKind::Request);
    assert!(fault.message.contains("ends after 2 requests"), "{}", fault.message);
}

#[test]
fn an_invalid_recording_is_reported_on_connect() {
    let tape = RecordingFile::new();
    let refused = |text: &str| {
        fs::write(tape.path(), text).unwrap();
        play(&tape.path(), &ModelConnectionSettings::default()).err().unwrap().to_string()
    };
    assert!(refused("").ends_with("run.jsonl:1: nothing was recorded"));
    assert!(refused(&event(&serde_json::json!({}))).contains("run.jsonl:1: expected"));
    let missing =
        play(Path::new("/nowhere/run.jsonl"), &ModelConnectionSettings::default()).err().unwrap();
    assert!(missing.to_string().starts_with("could not read the recording /nowhere/run.jsonl"));
    assert!(Recorder::create(Path::new("/w"), Path::new("/nowhere/run.jsonl")).is_err());
}
