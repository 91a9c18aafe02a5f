//! Recordings of what models were asked and what they answered, and playing them back.
//!
//! A recording is a file of JSON Lines that can be read, searched with `jq`, compared with `diff` and cut by hand. Each
//! line is one object; its `type` says what it is, and `n` is the number of the exchange that it belongs to, from one:
//!
//! | `type` | what it has | when it is written |
//! |---|---|---|
//! | `recording` | `version`: 1 | first |
//! | `request` | `n`, `model` (`provider/name`), `method`, `url`, `headers`, `same`, `body` | before it is sent |
//! | `answer` | `n`, `status`, `headers` | when its head has arrived |
//! | `piece` | `n`, and `text`, or `hex` where it is no text | for each event of a stream, for each line otherwise |
//! | `end` | `n` | when the answer has ended, or the reply in it was complete |
//! | `error` | `n`, `error` | when the way there or back failed |
//!
//! A request's body begins with the first `same` bytes of the body before it, and goes on with `body`: a conversation is
//! written down once, however often it is sent. There are neither times nor keys in a recording: headers that carry a key
//! are left out, so are those of an answer that no reply depends on, and what looks like a key in a body is `***`.
//!
//! [`Recorder`] writes recordings, [`Recording`] reads them, and [`Player`] answers from them in the order in which they
//! were made.

mod mismatch;
mod model;
mod player;
mod record;
mod recorder;
mod recording;

pub use player::OnMismatch;
pub use recorder::{RecordError, Recorder};
pub use recording::{Recording, RecordingError};

pub(super) use model::ReplayModel;
pub(super) use player::Player;
