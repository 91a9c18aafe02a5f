//! Damaged journals: a command reports them, and fails without `--partial`.

use architect::journal::index::SessionRow;
use architect::journal::{JournalError, SessionId, SessionStore};

use super::error::CliError;

/// Checks that all of a session can be read, or that the user wants what can be.
///
/// # Errors
///
/// Fails if it is damaged and not `partial`.
pub(super) fn check_damage(
    store: &SessionStore,
    session: SessionId,
    partial: bool,
) -> Result<(), CliError> {
    let Some(why) = store.damage(session)? else { return Ok(()) };
    if !partial {
        return Err(JournalError::Damaged { session, reason: why }.into());
    }
    log::warn!("the journal of session {session} is damaged: {why}; what follows is left out");
    Ok(())
}

/// Warns about damaged sessions, and returns the exit code of a command that has shown them.
pub(super) fn report_damage(rows: &[SessionRow], partial: bool) -> u8 {
    let mut code = 0;
    for row in rows.iter().filter(|row| row.damaged) {
        let why = row.problem.as_deref().unwrap_or_default();
        log::warn!("the journal of session {} is damaged: {why}", row.session_id);
        code = u8::from(!partial);
    }
    code
}
