//! Long results, stored whole beside the journal.

use std::sync::Arc;

use crate::journal::SessionOutputs;
use crate::model::CallId;
use crate::tools::{OutputStore, ResultPage};

/// Stores long results whole beside the journal of their session.
#[derive(Debug)]
pub(super) struct SessionResults(pub(super) SessionOutputs);

impl OutputStore for SessionResults {
    fn store(&self, call: &CallId, text: Arc<str>) {
        // The model can have it again by asking the tool again.
        if let Err(error) = self.0.store(call, &text) {
            log::warn!("the whole result of a call is lost: {error}");
        }
    }

    fn page(&self, call: &CallId, first: u64, lines: u64) -> Option<ResultPage> {
        let page = self.0.page(call, first, lines);
        let page = page.inspect_err(|error| log::warn!("{error}")).ok()??;
        Some(ResultPage { text: page.text, total_lines: page.lines })
    }
}
