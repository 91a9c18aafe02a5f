//! Floor 2: the ports — what the runner needs of the world, as traits with plain errors.
//!
//! Adapters implement them one floor up or higher; the runner knows nothing else. Each port is as narrow as its one
//! user, and each can be replaced by a few lines in a test.

mod cancel;
mod checks;
mod clock;
mod journal;
mod mailbox;
mod model;
mod notice;
mod observer;
mod prelude;
mod scope;
mod toolbox;
mod unique;

pub use cancel::{Cancel, OnCancel};
pub use checks::{Checks, NoChecks};
pub use clock::Clock;
pub use journal::{CallTimes, Journal, NoJournal, Record, StoreError};
pub use mailbox::{Mailbox, NoMail};
pub use model::{Ask, Delta, Model, ModelCall, ToolSpec};
pub use notice::{HookOutcome, HookPoint, HookRun, Notice};
pub use observer::{Gone, Nobody, Observer, Seen};
pub use prelude::{NoPrelude, Prelude};
pub use scope::{Line, Scope, Sleep, Voice, Word};
pub use toolbox::{Job, NoTools, Toolbox, Vetted};
pub use unique::unique;
