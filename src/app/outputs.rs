//! The whole of long results, kept beside the journal.

use std::sync::Arc;

use crate::journal::Outputs;
use crate::model::CallId;
use crate::tools::{Kept, Results};

/// Keeps the whole of long results beside the journal of their session.
#[derive(Debug)]
pub(super) struct Whole(pub(super) Outputs);

impl Results for Whole {
    fn keep(&self, call: &CallId, text: Arc<str>) {
        // The model can have it again by asking the tool again.
        if let Err(error) = self.0.keep(call, &text) {
            log::warn!("the whole result of a call is lost: {error}");
        }
    }

    fn page(&self, call: &CallId, first: u64, lines: u64) -> Option<Kept> {
        let page = self.0.page(call, first, lines);
        let page = page.inspect_err(|error| log::warn!("{error}")).ok()??;
        Some(Kept { text: page.text, total: page.lines })
    }
}
