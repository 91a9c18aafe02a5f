//! A tool, by the first byte, and the arguments of a call: they are accepted, or there is a result with an error.
#![no_main]

use architect::model::ToolCall;
use architect::port::Toolbox;
use architect_fuzz::ToolFixture;

thread_local!(static BENCH: ToolFixture = ToolFixture::new());

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&which, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    BENCH.with(|bench| {
        let specs = bench.registry.specs();
        let name = &specs[usize::from(which) % specs.len()].name;
        let call = ToolCall::new("c".into(), name, text);
        let access = bench.registry.access(&call);
        assert_eq!(access, bench.registry.access(&call));
        match bench.registry.judge(&call) {
            Ok(judged) => drop(judged),
            Err(answer) => assert!(!answer.text.is_empty()),
        }
    });
});
