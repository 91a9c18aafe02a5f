//! A tool, by the first byte, and the arguments of a call: they are accepted, or there is a result with an error.
#![no_main]

use architect::port::Toolbox;
use architect::types::ToolCall;
use architect_fuzz::ToolFixture;

thread_local!(static FIXTURE: ToolFixture = ToolFixture::new());

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&which, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    FIXTURE.with(|fixture| {
        let specs = fixture.registry.specs();
        let name = &specs[usize::from(which) % specs.len()].name;
        let call = ToolCall::new("c".into(), name, text);
        let access = || fixture.registry.prepare(&call).access();
        assert_eq!(access(), access());
        if let Some(result) = fixture.registry.prepare(&call).rejection() {
            assert!(!result.text.is_empty());
        }
    });
});
