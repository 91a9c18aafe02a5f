//! An answer of this wire format: a stream, a document, or something else.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| architect_fuzz::reply(
    "anthropic/claude-sonnet-5",
    "https://api.anthropic.com/v1/messages",
    data
));
