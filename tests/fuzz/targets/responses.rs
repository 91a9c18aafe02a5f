//! An answer of this wire format: a stream, a document, or something else.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| architect_fuzz::reply(
    "openai/gpt-5.5",
    "https://api.openai.com/v1/responses",
    data
));
