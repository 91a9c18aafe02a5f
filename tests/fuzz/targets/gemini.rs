//! An answer of this wire format: a stream, a document, or something else.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| architect_fuzz::reply(
    "gemini/gemini-3.7-flash",
    "https://generativelanguage.googleapis.com/v1beta/models/gemini-3.7-flash:streamGenerateContent",
    data
));
