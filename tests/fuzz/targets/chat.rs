//! An answer of this wire format: a stream, a document, or something else.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| architect_fuzz::reply(
    "openai-chat/gpt-4o",
    "https://api.openai.com/v1/chat/completions",
    data
));
