//! Recording exchanges with models, and replaying them.
//!
//! A recording is a file in JSON Lines, made to be read, searched with `jq`, compared with `diff` and edited. The
//! `type` of a line is the type of its record, and `n` is the number of the exchange, counted from one:
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
//! The body of a request is the first `same` bytes of the previous body and then `body`, so that a conversation is
//! stored once. A recording has neither times nor keys: headers with keys and irrelevant response headers are left out,
//! and text in a body that looks like a key is replaced by `***`.
//!
//! [`Recorder`] writes recordings, [`Recording`] reads them, and [`Player`] replays them in order.

mod mismatch;
mod player;
mod record;
mod recorder;
mod recording;

pub use player::OnMismatch;
pub use recorder::{RecordError, Recorder};
pub use recording::{Recording, RecordingError};

pub(super) use player::{Player, ReplayModel};
