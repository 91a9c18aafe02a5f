//! Records exchanges with models, and replays them.
//!
//! A recording is a JSON Lines file that can be read, searched with `jq`, compared with `diff`, and edited. The `type`
//! of a line is the type of its record, and `n` is the number of the exchange, counted from one:
//!
//! | `type` | fields | written |
//! |---|---|---|
//! | `recording` | `version`: 1 | first |
//! | `request` | `n`, `model` (`provider/name`), `method`, `url`, `headers`, `same`, `body` | before it is sent |
//! | `answer` | `n`, `status`, `headers` | after its head was received |
//! | `piece` | `n`, and `text`, or `hex` for bytes that are not text | for each event of a stream, or for each line |
//! | `end` | `n` | at the end of the response, or after a complete reply |
//! | `error` | `n`, `error` | after a network error |
//!
//! The body of a request consists of the first `same` bytes of the previous body, followed by `body`, so that a
//! conversation is stored once. A recording contains neither times nor keys: headers with keys and irrelevant response
//! headers are left out, and text in a body that looks like a key is replaced by `***`.
//!
//! [`Recorder`] writes recordings, [`Recording`] reads them, and [`Player`] replays them in order.

mod mismatch;
mod player;
mod record;
mod recorder;
mod recording;

pub use player::OnMismatch;
pub use recorder::{RecordError, Recorder};
pub use recording::Recording;

pub(super) use player::{Player, ReplayModel};
