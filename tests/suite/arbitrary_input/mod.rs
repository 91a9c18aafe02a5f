//! Parsers return a value or an error for arbitrary input, without a panic and within a bounded time.
//!
//! Replies of models are mangled beside their readers (`llm/mangled.rs`), journals in `journal/damage.rs`. The same
//! readers run under libFuzzer in `tests/fuzz`.

mod patches;
mod permissions;

use std::fs;

use architect::config::{ConfigSources, load};
use architect::exec::{SandboxPolicy, Supervisor};
use architect::llm::scripted::Script;
use architect::net::sse::{SseError, SseParser};
use architect::port::Toolbox;
use architect::tools::{ToolRegistry, ToolSettings, standard_tools};
use architect::types::{CallId, ToolCall};
use architect::workflow::scenario::Scenario;
use architect::workspace::WorkspaceRoot;
use proptest::prelude::*;

fn proptest_config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Returns the events of a stream that comes in these pieces, and whether it was read to its end.
fn events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<(String, String)>, bool) {
    let (mut parser, mut events) = (SseParser::new(), Vec::new());
    for piece in pieces {
        let pushed = parser.push(piece, |event| -> Result<(), SseError> {
            events.push((event.name.to_owned(), event.data.to_owned()));
            Ok(())
        });
        if pushed.is_err() {
            return (events, false);
        }
    }
    (events, true)
}

/// Text that consists mostly of words which a reader knows.
fn almost_valid(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    let word = prop_oneof![
        4 => prop::sample::select(words).prop_map(str::to_owned),
        1 => ".{0,6}",
        1 => Just("\n".to_owned()),
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(proptest_config(1_000))]

    /// Faults L38 and L41: where a stream is split changes nothing.
    #[test]
    fn an_event_stream_says_the_same_however_it_is_split(
        text in almost_valid(&["data:", "data: ", "event: a", "id", ":", "\r", "\n", "\r\n", "\u{feff}", "é", "retry: 1"]),
        junk in prop::collection::vec(any::<u8>(), 0..8),
        at: usize,
        size in 1..9_usize,
    ) {
        let mut bytes = text.into_bytes();
        let at = at % (bytes.len() + 1);
        bytes.splice(at..at, junk);
        prop_assert_eq!(events(bytes.chunks(size)), events(std::iter::once(&bytes[..])));
    }

    /// Faults L44 to L46: whatever the arguments of a call are, there is an answer.
    #[test]
    fn any_arguments_of_a_call_are_checked_without_a_panic(
        text in almost_valid(&[
            "{", "}", "[", "]", ",", ":", "\"", "\"path\"", "\"command\"", "\"content\"", "\"old_str\"", "null", "-1",
            "1e999", "true", "\"a.txt\"", "\"../a\"", "\\ud800", "\"ls; $(x)\"",
        ]),
        tool in prop::sample::select(vec!["read_file", "write_file", "edit_file", "list_files", "run_command", "x"]),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let root = WorkspaceRoot::open(folder.path()).unwrap();
        let supervisor = Supervisor::in_process(SandboxPolicy::off(folder.path()), Vec::new());
        let settings = ToolSettings::default();
        let registry = ToolRegistry::new(standard_tools(&root, &supervisor, &settings), settings);
        let call = ToolCall::new(CallId::from("c"), tool, &text);
        let mut call = registry.prepare(&call);
        call.access();
        if let Some(answer) = call.rejection() {
            prop_assert!(!answer.text.is_empty());
        }
    }

    /// Faults K1 and K6: a configuration is read, or refused with its line.
    #[test]
    fn any_configuration_is_read_or_refused(
        text in almost_valid(&[
            "[llm]\n", "[hooks.stop]\n", "[[hooks.stop]]\n", "model = ", "name = ", "command = ", "\"a\"", "1", "-1",
            "nan", "[", "]", "{", "}", "=", "limits.max_steps = 3\n", "permissions.deny = [\"run_command(rm *)\"]\n",
        ]),
        junk in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(&path, [text.as_bytes(), &junk].concat()).unwrap();
        let sources = ConfigSources { cwd: folder.path().to_owned(), file: Some(path), ..ConfigSources::default() };
        if let Err(error) = load(&sources) {
            prop_assert!(!error.problems.is_empty());
        }
    }

    #[test]
    fn any_script_and_any_scenario_is_read_or_refused(
        text in almost_valid(&[
            "[[turn]]\n", "[turn]\n", "[expect]\n", "[[at]]\n", "text = 'a'\n", "prompt = 'p'\n", "event = 'retry'\n",
            "steer = 's'\n", "calls = [{ name = 'x', raw = '{' }]\n", "usage = { input = -1 }\n", "exit_code = 300\n",
            "{\"text\":", "\"a\"", "}", "error = { kind = 'server' }\n", "files = { a = false }\n",
        ]),
    ) {
        let _ = Script::from_toml("s", &text);
        let _ = Script::from_lines("s", &text);
        if let Err(error) = Scenario::parse("s.toml".as_ref(), &text) {
            prop_assert!(error.to_string().starts_with("s.toml:"));
        }
    }
}

/// Faults L46 and R13: nesting is refused long before it fills the stack.
#[test]
fn deep_nesting_is_refused() {
    let deep = "[".repeat(300_000);
    assert!(Script::from_toml("s", &format!("a = {deep}")).is_err());
    assert!(Script::from_lines("s", &deep).is_err());
    assert!(Scenario::parse("s.toml".as_ref(), &format!("a = {deep}")).is_err());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    fs::write(&file, format!("a = {deep}")).unwrap();
    assert!(load(&ConfigSources { file: Some(file), ..ConfigSources::default() }).is_err());
}
