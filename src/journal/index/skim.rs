//! The list entry of a session, from its header and its last record.
//!
//! The last record of a run contains its totals. The records between are verified by checksum and not parsed, which
//! takes a fraction of the time of a replay and still detects a changed byte. Sessions for which this is not enough
//! are replayed.

use super::row_collector::{StatementRow, Summary};
use crate::journal::journal_reader::Skimmed;
use crate::journal::{JournalError, ReadRecord, SessionId, SessionStore, StoredContent};
use crate::machine::EventKind;

/// Returns the row of a session; `None` if it needs a replay: the newest run has not ended, the journal is damaged, a
/// sub-agent may have made model calls, which the last record doesn't count, or the session was imported, so that its
/// last record is not ours.
///
/// # Errors
///
/// Fails if the journal can't be read.
pub(super) fn skim(
    store: &SessionStore,
    session: SessionId,
) -> Result<Option<StatementRow>, JournalError> {
    let mut reader = store.reader(session)?;
    let Skimmed::Found(ReadRecord::Record(first)) = reader.skim()? else { return Ok(None) };
    let StoredContent::Header(header) = first.content else { return Ok(None) };
    if header.session != session
        || header.imported_up_to.is_some()
        || header.newer_format().is_some()
    {
        return Ok(None);
    }
    let (mut setup, mut price, mut ended) = (None, header.rules.price, None);
    loop {
        let event = match reader.skim()? {
            Skimmed::Event(kind) => kind,
            Skimmed::Found(ReadRecord::Record(stored)) => match stored.content {
                StoredContent::Event(event) => event.kind(),
                StoredContent::Resumed(resumed) => {
                    setup = resumed.setup.or(setup);
                    price = resumed.resumption.rules.price;
                    ended = None;
                    continue;
                }
                StoredContent::Ended(last) => {
                    ended = Some(last);
                    continue;
                }
                StoredContent::Header(_) | StoredContent::Partial(_) | StoredContent::Other => {
                    continue;
                }
            },
            Skimmed::Found(ReadRecord::End) => break,
            Skimmed::Found(ReadRecord::Unknown(_) | ReadRecord::Damage(_)) => return Ok(None),
        };
        if event == EventKind::UsageReported {
            return Ok(None);
        }
        ended = None;
    }
    Ok(ended.map(|ended| {
        let summary = Summary {
            header: &header,
            setup: setup.as_ref().unwrap_or(&header.setup),
            ended: Some(&ended),
            steps: ended.steps,
            calls: ended.model_calls,
            tokens: ended.tokens,
            cost: price.map(|_| ended.cost),
            records: reader.position().seq,
            problem: None,
            is_damaged: false,
        };
        summary.row()
    }))
}
