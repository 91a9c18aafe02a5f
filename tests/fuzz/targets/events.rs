//! An event stream is parsed into the same events however it is split.
#![no_main]

use architect::net::sse::{SseError, SseParser};

type Events = Vec<(String, String)>;

fn events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Events, bool) {
    let (mut parser, mut events) = (SseParser::new(), Vec::new());
    let is_read = pieces.into_iter().all(|piece| {
        let take = |event: architect::net::sse::SseEvent<'_>| -> Result<(), SseError> {
            events.push((event.name.to_owned(), event.data.to_owned()));
            Ok(())
        };
        parser.push(piece, take).is_ok()
    });
    (events, is_read)
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&size, stream)) = data.split_first() else { return };
    assert_eq!(events(stream.chunks(size.max(1).into())), events(std::iter::once(stream)));
});
