//! `architect undo` and `architect diff`: undo and display of a session's changes.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::SystemTime;

use architect::app::{
    AppError, ProcessEnv, RecordedChanges, UndoError, UndoSession, UndoTarget,
    complete_pending_restore, watch_writes,
};
use architect::journal::{ForkOptions, JournalError, SessionId};
use architect::types::{FilePath, pluralize};
use architect::view::sanitize;
use architect::workspace::checkpoint::{
    ChangePatch, ForeignChanges, RestorePlan, SkippedEntry, UnrestorablePath,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::args::{DiffArgs, UndoArgs, UndoAxis};
use crate::cli::error::CliError;
use crate::cli::session_lookup::SessionLookup;
use crate::cli::{config_options, output};

/// The exit code of an undo that could not restore everything, and was to restore as much as possible.
const NOT_ALL_RESTORED: u8 = 2;

/// The message for a session without changes.
const NOTHING_TO_UNDO: &str = "Nothing to undo: the session has changed no files.";

/// The maximum number of listed files and folders that are not recorded.
const MAX_LISTED: usize = 20;

/// `architect diff`: prints the changes of a session as a patch.
pub(crate) fn diff(args: &DiffArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.layers, args.last, world)?;
    let session = stored.find_and_report_folder(&args.session)?;
    let between = args.range.as_deref().map(parse_range).transpose()?;
    stored.complete_restore(session, world)?;
    let changes = match RecordedChanges::load(&stored.store, session, between) {
        Err(error) if is_nothing_changed(&error) => RecordedChanges::default(),
        changes => changes?,
    };
    if changes.is_open && between.is_none() {
        output::print_stderr(
            "The session's last step has no recorded end: it runs, or was killed. The patch has what came before.",
        );
    }
    if let (Some(missing), None) = (&changes.missing_start, between) {
        output::print_stderr(&format!("The patch has only what came later: {missing}"));
    }
    if args.json {
        let documents: Vec<PatchDocument> =
            changes.patches.iter().map(PatchDocument::from).collect();
        return output::print(&stored.secrets.mask_all(&output::to_json(&documents)));
    }
    print_patches(&changes.patches)?;
    changes.patches.iter().filter_map(note).for_each(|note| output::print_stderr(&note));
    Ok(0)
}

/// A changed file, as `architect diff --json` lists it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PatchDocument {
    /// The file, relative to the workspace. A path that is not UTF-8 is a NUL character and its bytes in hexadecimal.
    #[schemars(with = "String")]
    path: FilePath,
    /// The number of added lines; zero for binary contents.
    added: u64,
    /// The number of removed lines.
    removed: u64,
    /// A note about parts of the change that the patch can't express.
    note: Option<String>,
    /// The patch; empty if git has no form for the change.
    patch: String,
}

impl From<&ChangePatch> for PatchDocument {
    fn from(change: &ChangePatch) -> Self {
        Self {
            path: FilePath::new(&change.path),
            added: change.added,
            removed: change.removed,
            note: change.note.clone(),
            patch: String::from_utf8_lossy(&change.text).into_owned(),
        }
    }
}

/// Parses `A..B`; either side may be missing.
fn parse_range(text: &str) -> Result<(Option<u64>, Option<u64>), CliError> {
    let wrong = || {
        CliError::usage(format!("'{text}' is not a range of records, such as 12..40"))
            .hint("`architect sessions export ID` shows the records with their `seq`")
    };
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| wrong()),
    };
    Ok((number(from)?, number(to)?))
}

/// Writes patches to standard output unchanged; for a terminal, without escape codes.
fn print_patches(patches: &[ChangePatch]) -> Result<(), CliError> {
    let bytes: Vec<u8> = patches.iter().flat_map(|patch| patch.text.iter().copied()).collect();
    if io::stdout().is_terminal() {
        return match bytes.is_empty() {
            true => Ok(()),
            false => output::print(&String::from_utf8_lossy(&bytes)).map(drop),
        };
    }
    output::write_stdout(&bytes)
}

/// Returns a line about the parts of a change that a patch can't express.
fn note(patch: &ChangePatch) -> Option<String> {
    let path = sanitize::path(&patch.path);
    patch.note.as_ref().map(|note| format!("  {path}: {note}"))
}

/// `architect undo`: restores files that a session has changed.
pub(crate) fn undo(args: &UndoArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.layers, args.last, world)?;
    let session = stored.find_and_report_folder(&args.session)?;
    let target = match (args.to, args.step, args.start) {
        (Some(seq), ..) => UndoTarget::Record(seq),
        (_, Some(step), _) => UndoTarget::Step(step),
        (.., true) => UndoTarget::Start,
        _ => UndoTarget::LastChange,
    };
    match args.only {
        Some(UndoAxis::Conversation) => rewind_conversation(&stored, session, target),
        Some(UndoAxis::Files) | None => restore_files(args, &stored, session, target, world),
    }
}

fn restore_files(
    args: &UndoArgs,
    stored: &SessionLookup,
    session: SessionId,
    target: UndoTarget,
    world: &ProcessEnv,
) -> Result<u8, CliError> {
    let (history, _) = stored.store.load(session)?;
    stored.check_workspace(&history, None)?;
    let root = &history.setup.workspace.root;
    let completed = complete_pending_restore(&stored.store, root, &stored.config, world)?;
    // The last change is now the completed undo. A user who repeats the killed command does not mean to undo that. Any
    // other target stays the same.
    if let Some(completed) = completed
        && completed.session == session
        && target == UndoTarget::LastChange
    {
        output::print_stderr("`architect undo` takes this back.");
        return Ok(u8::from(!completed.is_undisturbed));
    }
    let config = config_options::load_layers(&args.layers, world)?;
    let opened = UndoSession::open(&config, world, &stored.store, session);
    if opened.as_ref().is_err_and(is_nothing_changed) {
        output::print_stderr(NOTHING_TO_UNDO);
        return Ok(0);
    }
    let mut undo = opened.map_err(refused)?;
    let foreign = match args.force {
        true => ForeignChanges::KeepCopies,
        false => ForeignChanges::Refuse,
    };
    let Some(plan) = undo.plan(target, foreign)? else {
        output::print_stderr(NOTHING_TO_UNDO);
        return Ok(0);
    };
    if !plan.conflicts.is_empty() {
        let is_folder = |path: &PathBuf| undo.workspace().join(path).is_dir();
        let words = match plan.conflicts.iter().any(is_folder) {
            true => ["path was", "paths were"],
            false => ["file was", "files were"],
        };
        let mut message = format!(
            "nothing was restored: {} changed since by someone else",
            pluralize(plan.conflicts.len(), words[0], words[1])
        );
        for path in &plan.conflicts {
            message.push_str(&format!("\n  {}", sanitize::path(path)));
        }
        let hint = "--force restores them too, and keeps a copy of each beside it";
        return Err(CliError::failed(message).hint(hint));
    }
    if undo.is_open() {
        output::print_stderr(
            "The session ended without recording its last state: all changes since count as its own.",
        );
    }
    let (expected, lost): (Vec<_>, Vec<_>) =
        plan.unrestorable.iter().partition(|it| it.is_expected);
    let is_partial = !lost.is_empty() || args.force && expected.iter().any(|it| it.is_in_use);
    let line = |it: &&UnrestorablePath| format!("\n  {}: {}", sanitize::path(&it.path), it.reason);
    if !lost.is_empty() && !args.force {
        let paths = pluralize(lost.len(), "path", "paths");
        let lines: String = lost.iter().map(line).collect();
        let message = format!("nothing was restored: {paths} can't be{lines}");
        return Err(CliError::failed(message).hint("--force restores all others"));
    }
    for it in expected.iter().chain(&lost) {
        output::print_stderr(line(it).trim_start_matches('\n'));
    }
    print_left_out(&undo.left_out()?);
    if plan.changes.is_empty() {
        output::print_stderr(match is_partial {
            false => "Nothing to restore: the changes of the session are undone already.",
            true => "Nothing to restore but what can't be restored.",
        });
        return Ok(if is_partial { NOT_ALL_RESTORED } else { 0 });
    }
    let patches = plan.changes.iter().map(|change| undo.patch(change));
    let patches = patches.collect::<Result<Vec<_>, AppError>>()?;
    confirm(args, &undo, &patches)?;
    let kept = {
        let _watch = watch_writes(&config, world, &config.workspace);
        undo.restore(&plan).map_err(refused)?
    };
    for copy in kept.copies {
        let copy = sanitize::path(&copy);
        output::print_stderr(&format!("A copy is kept as {copy}."));
    }
    output::print_stderr(&format!("{} `architect undo` takes this back.", restored(&plan)));
    for path in &kept.saved {
        let path = sanitize::path(path);
        output::print_stderr(&format!("A file was saved during the undo: it is now {path}."));
    }
    Ok(match (kept.saved.is_empty(), is_partial) {
        (false, _) => 1,
        (true, true) => NOT_ALL_RESTORED,
        (true, false) => 0,
    })
}

/// Lists the files that undo does not know.
fn print_left_out(left_out: &[(PathBuf, SkippedEntry)]) {
    if left_out.is_empty() {
        return;
    }
    output::print_stderr("Not recorded, so it stays as it is:");
    for (path, skipped) in left_out.iter().take(MAX_LISTED) {
        let path = sanitize::path(path);
        output::print_stderr(&format!("  {path}: {skipped}"));
    }
    if let Some(more @ 1..) = left_out.len().checked_sub(MAX_LISTED) {
        output::print_stderr(&format!("  and {more} more"));
    }
}

fn restored(plan: &RestorePlan) -> String {
    format!("Restored {}.", pluralize(plan.changes.len(), "path", "paths"))
}

/// Shows the planned changes, and asks the user.
fn confirm(args: &UndoArgs, undo: &UndoSession, patches: &[ChangePatch]) -> Result<(), CliError> {
    let (mut added, mut removed, mut lines) = (0, 0, String::new());
    for patch in patches {
        (added, removed) = (added + patch.added, removed + patch.removed);
        let path = sanitize::path(&patch.path);
        let note = patch.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
        lines.push_str(&format!("  {path} +{} −{}{note}\n", patch.added, patch.removed));
    }
    let paths = pluralize(patches.len(), "path", "paths");
    let folder = sanitize::path(undo.workspace());
    let summary = format!("{lines}{paths} in {folder}: +{added} −{removed} lines");
    if args.yes {
        output::print(&summary)?;
        return Ok(());
    }
    print_patches(patches)?;
    match output::ask(&summary, "Restore?")? {
        Some(true) => Ok(()),
        Some(false) => Err(CliError::usage("nothing was restored")),
        None => {
            output::print_stderr(&summary);
            let why = "nothing was restored: there is no terminal to ask on";
            Err(CliError::usage(why).hint("--yes restores without asking"))
        }
    }
}

/// Returns whether the error says that the session has changed nothing.
fn is_nothing_changed(error: &AppError) -> bool {
    matches!(error, AppError::Undo(UndoError::NothingChanged(_)))
}

/// A running session is a refusal, not wrong usage.
fn refused(error: AppError) -> CliError {
    match error {
        AppError::Journal(JournalError::Busy { .. }) => {
            CliError::failed(error).hint("its files can be restored when it has ended")
        }
        error => error.into(),
    }
}

/// Rewinds by forking a session from an earlier record, since conversations are only appended to.
fn rewind_conversation(
    stored: &SessionLookup,
    session: SessionId,
    target: UndoTarget,
) -> Result<u8, CliError> {
    // The last record before the reply of each step.
    let mut before_steps: HashMap<u32, u64> = HashMap::new();
    let (mut steps, mut changed_step) = (0, None);
    let (history, _) = stored.store.replay(session, |history, record, _| {
        let now = history.machine.state.run().steps;
        if now > steps {
            before_steps.insert(now, record.seq.saturating_sub(1));
            steps = now;
        }
        if history.change_records.last() == Some(&record.seq) {
            changed_step = Some(now);
        }
    })?;
    if stored.store.is_running(session)? {
        return Err(refused(AppError::from(JournalError::Busy { session, pid: None })));
    }
    let no_step = |step: u32| {
        CliError::usage(format!("session {session} has no step {step}; its last one is {steps}"))
    };
    let before = |step: u32| before_steps.get(&step).copied().ok_or_else(|| no_step(step));
    let after = match target {
        UndoTarget::Record(seq) if seq > history.last_seq => {
            let last = history.last_seq;
            return Err(AppError::from(UndoError::NoRecord { session, seq, last }).into());
        }
        UndoTarget::Record(seq) => seq,
        UndoTarget::Step(step) => before(step)?,
        UndoTarget::Start => before(1)?,
        UndoTarget::LastChange => {
            let Some(step) = changed_step else {
                output::print_stderr("Nothing to rewind: the session has changed no files.");
                return Ok(0);
            };
            before(step)?
        }
    };
    let options = ForkOptions::new(Some(after), SystemTime::now());
    let fork = stored.store.fork(history.header.session, &options)?;
    output::print_stderr(&format!(
        "Session {fork} has the conversation up to record {after}; {session} stays as it is. \
         `architect resume {fork}` continues there. The files stay as they are now."
    ));
    output::print(&fork.to_string())
}

impl SessionLookup {
    /// Completes an undo in the workspace of a session that was interrupted by a kill.
    ///
    /// # Errors
    ///
    /// Fails if the undo can't be completed.
    pub(crate) fn complete_restore(
        &self,
        session: SessionId,
        world: &ProcessEnv,
    ) -> Result<(), CliError> {
        let (history, _) = self.store.load(session)?;
        let root = &history.setup.workspace.root;
        // Nothing is written to a folder whose name may come from a command.
        if self.check_workspace(&history, None).is_ok() {
            complete_pending_restore(&self.store, root, &self.config, world)?;
        }
        Ok(())
    }
}
