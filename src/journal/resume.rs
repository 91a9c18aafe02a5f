//! Resume of a session: the calls that were running when its process ended are examined first, and their results are
//! decided and recorded.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};

use super::blobs::{digest_of, sha256_of_file};
use super::error::{IoContext, JournalError, Result};
use super::file_journal::FileJournal;
use super::header::{ResumedRecord, SessionSetup, WallTime};
use super::replay::{SessionHistory, StoredCheckpoint};
use super::session_id::SessionId;
use super::steering_queue::{MessageId, MessageKind, QueuedMessage};
use super::workspace_identity::WorkspaceChange;
use crate::machine::{
    CallIntent, CallState, FileDigests, Fingerprint, Machine, MachineOutput, RecoveredCall,
    ResumePrompt, Resumption, State, StopReason,
};
use crate::types::{
    CallId, CheckpointRecord, FileAction, FileChange, FilePath, Image, LimitBaseline, RunRules,
    Sha256Digest, Tokens, ToolCall, ToolResult, ToolStatus, first_line,
};
use crate::workspace::{leftover_path, remove_unneeded};

/// A session that this process has opened in order to resume it.
#[derive(Debug)]
pub struct OpenedSession {
    /// The journal, which is locked.
    pub(super) journal: FileJournal,
    /// The machine after the newest event.
    pub history: SessionHistory,
    /// The histories of the sub-agents that the running calls have dispatched.
    pub(super) delegated: Vec<SessionHistory>,
    /// The file in which the torn end of the journal was saved, if there was one.
    pub saved_tail: Option<PathBuf>,
    /// The baseline of the limits, which the caller may reset.
    pub limit_baseline: LimitBaseline,
}

/// The options for resuming a session.
#[derive(Clone, Debug)]
pub struct ResumeOptions {
    /// The wall-clock time.
    pub now: SystemTime,
    /// The setup from now on.
    pub setup: SessionSetup,
    /// The rules from now on.
    pub rules: RunRules,
    /// The user's prompt. Without it, the model is asked to continue.
    pub prompt: Option<Arc<str>>,
    /// The images that the prompt mentions.
    pub images: Vec<Image>,
}

/// A resumed session.
#[derive(Debug)]
pub struct ResumedSession {
    /// The journal.
    pub journal: FileJournal,
    /// The machine after the newest event.
    pub machine: Machine,
    /// The effects to execute first.
    pub output: MachineOutput,
    /// The changes of the workspace. The model is informed with its next call.
    pub workspace_changes: Vec<WorkspaceChange>,
    /// The recovered results of the calls that were running.
    pub recovered: Vec<RecoveredCall>,
}

/// The result of a call with an unknown outcome.
const OUTCOME_UNKNOWN: &str = "Outcome unknown: the engine stopped while this call was running. It may have completed, \
     partially completed, or not run at all. Look at what is there before you repeat it.";

/// The largest file that is compared with the expected content.
const MAX_COMPARED_BYTES: u64 = 1 << 30;

impl OpenedSession {
    /// Writes a state of the workspace into the journal. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// Fails if the journal can't be written.
    pub fn write_checkpoint(&mut self, record: CheckpointRecord) -> Result<(), JournalError> {
        let seq = self.journal.position.seq;
        self.journal.write_checkpoint(self.history.at, &record)?;
        self.journal.sync_file()?;
        self.history.last_seq = seq;
        self.history.checkpoints.push(StoredCheckpoint { seq, record });
        Ok(())
    }

    /// Records the reason why the run has ended, if it was decided after the run by the evaluation of its answer.
    /// Returns the SHA-256 of the journal. The record is durable when this returns.
    ///
    /// # Errors
    ///
    /// Fails if the journal can't be written.
    pub fn record_end(self, reason: StopReason) -> Result<Sha256Digest> {
        let Self { mut journal, history, .. } = self;
        if let State::Done(done) = &history.machine.state
            && history.stop_reason() != Some(reason)
        {
            let fingerprint = Fingerprint::of(&history.machine, &history.output.effects);
            journal.write_ended(history.at, done, reason, fingerprint)?;
            journal.sync_file()?;
        }
        Ok(digest_of(&journal.hasher))
    }

    /// Returns the running calls that have dispatched a session into a separate worktree, each with that session.
    pub fn isolated_calls(&self) -> Vec<(ToolCall, SessionId)> {
        let State::Executing(state) = &self.history.machine.state else { return Vec::new() };
        let is_stored =
            |id: &SessionId| self.delegated.iter().any(|child| child.header.session == *id);
        // A session with a worktree that is not stored yet may belong to the original of a fork.
        let is_fork = self.history.header.ancestry.is_some();
        let calls = state.calls.iter().filter_map(|tracked| {
            let CallIntent::Delegated { session: Some(session), worktree: Some(_) } =
                self.history.intents.get(&tracked.call.id)?
            else {
                return None;
            };
            let is_own = !self.history.is_foreign(session, &self.delegated);
            let session =
                session.parse().ok().filter(|id| is_own && (!is_fork || is_stored(id)))?;
            Some((tracked.call.clone(), session))
        });
        calls.collect()
    }

    /// Returns the worktrees of the session's own sub-agents whose calls are over.
    pub fn finished_worktrees(&self) -> Vec<Arc<str>> {
        let SessionHistory { header, machine, intents, finished_worktrees, .. } = &self.history;
        if header.ancestry.is_some() || header.imported_up_to.is_some() {
            return Vec::new();
        }
        let is_running = matches!(machine.state, State::Executing(_));
        let interrupted = intents.values().filter(|_| !is_running).filter_map(CallIntent::worktree);
        finished_worktrees.iter().chain(interrupted).cloned().collect()
    }

    /// Resumes the session. The decisions are durable when this returns, and no effect has been performed yet.
    ///
    /// Resuming twice in a row has the same effect as resuming once, because the second resume finds the decisions of
    /// the first. A session whose task is done stays as it is if there is no new prompt.
    ///
    /// # Errors
    ///
    /// Fails if the journal can't be written.
    pub fn resume(self, how: ResumeOptions) -> Result<ResumedSession> {
        let Self { mut journal, history, delegated, .. } = self;
        let ResumeOptions { now, setup, rules, prompt, images } = how;
        let files = WorkspaceFiles::open(&setup.workspace.root)?;
        // A sub-agent in a separate worktree has its files there.
        let here = delegated.iter().filter(|it| it.setup.workspace.root == setup.workspace.root);
        for history in std::iter::once(&history).chain(here) {
            files.complete_edits(history);
            files.remove_staged(history);
        }
        if prompt.is_none()
            && history.is_finished_for(&setup)
            && journal.queue().pending().is_empty()
        {
            let is_ended = history.ended.is_some();
            let output = if is_ended { MachineOutput::default() } else { history.output };
            let (workspace_changes, recovered) = (Vec::new(), Vec::new());
            let machine = history.machine;
            return Ok(ResumedSession { journal, machine, output, workspace_changes, recovered });
        }
        let now = WallTime::from(now);
        let mut changes = history.setup.workspace.changes_to(&setup.workspace);
        if history.is_restored {
            changes.push(WorkspaceChange::Restored);
        }
        if history.is_moved() {
            changes.push(WorkspaceChange::Forked { to: setup.workspace.root.clone() });
        }
        let changed = files.changed_files(&history);
        if !changed.is_empty() {
            changes.push(WorkspaceChange::Files(changed));
        }
        let found = files.recover_calls(&history, &delegated);
        let opening =
            if prompt.is_some() { ResumePrompt::FromUser } else { ResumePrompt::Continue };
        // The model was informed of the changes of the workspace when the earlier resume was decided.
        let is_decided = found.is_empty()
            && !history.is_imported_setup()
            && !history.is_moved()
            && history.setup == setup
            && history.resumption.as_ref().is_some_and(|resumption| {
                resumption.rules == rules && resumption.prompt == opening
            });
        let notice =
            (!is_decided && !changes.is_empty()).then(|| describe_changes(&changes).into());
        let ended = &history.background_commands;
        let ended = (!is_decided && !ended.is_empty()).then(|| describe_ended(ended).into());
        let [notice, ended] = [notice, ended].map(|text| {
            text.map(|text: Arc<str>| QueuedMessage::new(MessageKind::SystemNotice, text))
        });
        let prompt = prompt.map(|text| QueuedMessage { kind: MessageKind::Task, text, images });
        // Written before the decision, because the process may end after it. A repetition uses the same names.
        let last = history.header.created.plus(history.at);
        for (rank, message) in (0..).zip([notice, ended, prompt]) {
            if let Some(message) = message {
                journal.queue().add_as(MessageId::derive(last, rank, &message.text), &message)?;
            }
        }
        let (machine, output) = if is_decided {
            (history.machine, history.output)
        } else {
            let (recovered, prompt) = (found.clone(), opening);
            let resumption = Resumption { rules, recovered, prompt, received: Tokens::MAX };
            let fingerprint = Fingerprint::of(&history.machine, &history.output.effects);
            // An imported setup becomes the user's, even if it is the same. The setup of a fork with its own files is
            // written, too: from then on, the workspace in its records counts.
            let is_changed =
                history.is_imported_setup() || history.is_moved() || setup != history.setup;
            let changed = is_changed.then_some(setup);
            let resumed = ResumedRecord { setup: changed, resumption };
            journal.write_resumed(history.at, now, fingerprint, &resumed)?;
            history.machine.resume(history.at, resumed.resumption)
        };
        Ok(ResumedSession {
            journal,
            machine,
            output,
            workspace_changes: changes,
            recovered: found,
        })
    }
}

/// Returns the message to the model about a changed workspace.
fn describe_changes(changes: &[WorkspaceChange]) -> String {
    let descriptions: Vec<String> = changes.iter().map(WorkspaceChange::to_string).collect();
    format!(
        "[SYSTEM] This session continues after a pause, and the workspace has changed. {} Check the files that you \
         rely on before you change them.",
        descriptions.join(" ")
    )
}

/// The maximum number of commands that a message names.
const MAX_NAMED_COMMANDS: usize = 10;

/// Returns the message to the model about background commands that ended with the earlier process.
fn describe_ended(commands: &[(CallId, Arc<str>)]) -> String {
    let newest = &commands[commands.len().saturating_sub(MAX_NAMED_COMMANDS)..];
    let names = newest
        .iter()
        .map(|(call, command)| format!("`{}` (call_id \"{call}\")", first_line(command, 100)));
    format!(
        "[SYSTEM] This session continues after a pause. What it had started in the background no longer runs: {}. Start \
         again what you need.",
        names.collect::<Vec<_>>().join(", ")
    )
}

/// The files of a workspace. No path leads out of it.
struct WorkspaceFiles {
    root: Dir,
}

/// The digest of the file at a path; `None` if there is no file.
type FoundDigest = io::Result<Option<String>>;

impl WorkspaceFiles {
    fn open(root: &Path) -> Result<Self> {
        match Dir::open_ambient_dir(root, ambient_authority()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(JournalError::NoWorkspace(root.to_owned()))
            }
            opened => Ok(Self { root: opened.io_context("open the workspace", root)? }),
        }
    }

    fn inspect(&self, path: &Path) -> FoundDigest {
        match self.digest(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// Returns the digest of a regular file. A pipe in its place does not block.
    fn digest(&self, path: &Path) -> io::Result<String> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        let mut file = self.root.open_with(path, &options)?.into_std();
        let is_fit = |found: &Metadata| found.is_file() && found.len() <= MAX_COMPARED_BYTES;
        if !is_fit(&file.metadata()?) {
            return Err(io::Error::other("is not a regular file of a reasonable size"));
        }
        sha256_of_file(&mut file)
    }

    /// Completes interrupted changes of several files, so that all of them are made. The new contents were written
    /// beside their files, and synced, before the first one replaced its file.
    fn complete_edits(&self, history: &SessionHistory) {
        for call in running_calls(&history.machine.state) {
            let images = edited_files(history, &call);
            let (done, open): (Vec<&FileDigests>, Vec<&FileDigests>) =
                images.iter().partition(|image| {
                    has_digest(&self.inspect(image.path.as_path()), image.after.as_ref())
                });
            // A file that others have changed meanwhile is left for the model to examine.
            let can = |image: &&FileDigests| {
                let staged =
                    || image.after.as_ref().is_none_or(|after| self.is_staged(image, after));
                has_digest(&self.inspect(image.path.as_path()), image.before.as_ref()) && staged()
            };
            if done.is_empty() || !open.iter().all(can) {
                continue;
            }
            for image in open {
                if let Err(error) = self.apply_staged(image) {
                    log::warn!("could not complete the change of {}: {error}", image.path);
                    break;
                }
            }
        }
    }

    fn is_staged(&self, image: &FileDigests, after: &Arc<str>) -> bool {
        let beside = leftover_path(image.path.as_path(), after);
        has_digest(&self.inspect(&beside), Some(after))
    }

    fn apply_staged(&self, image: &FileDigests) -> io::Result<()> {
        let path = image.path.as_path();
        match &image.after {
            Some(after) => {
                self.root.rename(leftover_path(path, after), &self.root, path)?;
            }
            None => self.root.remove_file(path)?,
        }
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        self.root.open(folder.unwrap_or(Path::new(".")))?.into_std().sync_all()
    }

    /// Removes the new contents of files that calls have left behind: those of interrupted calls, and those of
    /// completed calls if a power cut has undone their removal.
    fn remove_staged(&self, history: &SessionHistory) {
        for image in history.edits.iter().flat_map(|edit| edit.files.iter()) {
            for digest in [&image.before, &image.after].into_iter().flatten() {
                let beside = leftover_path(image.path.as_path(), digest);
                remove_unneeded(beside.display(), || self.root.remove_file(&beside));
            }
        }
    }

    /// Returns the files that have changed since the session wrote them.
    fn changed_files(&self, history: &SessionHistory) -> Vec<String> {
        let running = running_calls(&history.machine.state);
        let open: Vec<&FileDigests> =
            running.iter().flat_map(|call| edited_files(history, call)).collect();
        let is_open = |path: &FilePath| open.iter().any(|image| image.path == *path);
        let written = history.replaced_files.iter().filter(|(path, _)| !is_open(path));
        written
            .filter(|(path, left)| !has_digest(&self.inspect(path.as_path()), left.as_ref()))
            .map(|(path, _)| path.to_string())
            .collect()
    }

    /// Decides the results of the running calls. A call without a result may run again: it changes nothing, or has not
    /// changed anything yet.
    fn recover_calls(
        &self,
        history: &SessionHistory,
        delegated: &[SessionHistory],
    ) -> Vec<RecoveredCall> {
        let answer = |call: CallId| {
            let result = match history.intents.get(&call) {
                Some(CallIntent::ReadOnly) => return None,
                Some(CallIntent::Edit { files }) => self.recover_edit(call.clone(), files)?,
                // The sub-agent continues in its worktree. Either none or all of its changes are in this session's
                // files.
                Some(CallIntent::Delegated { session: Some(session), worktree: Some(_) })
                    if !history.is_foreign(session, delegated) =>
                {
                    return None;
                }
                Some(CallIntent::Delegated { session: Some(session), .. }) => in_doubt_result(
                    call.clone(),
                    format!(
                        "{OUTCOME_UNKNOWN} The sub-agent's work is recorded in the session {session}."
                    ),
                ),
                Some(
                    CallIntent::Opaque
                    | CallIntent::Background { .. }
                    | CallIntent::Delegated { session: None, .. },
                )
                | None => in_doubt_result(call.clone(), OUTCOME_UNKNOWN.to_owned()),
            };
            Some(RecoveredCall { call, result })
        };
        running_calls(&history.machine.state).into_iter().filter_map(answer).collect()
    }

    /// Determines from the files whether an edit happened; `None` if it did not.
    fn recover_edit(&self, call: CallId, images: &[FileDigests]) -> Option<ToolResult> {
        let (mut descriptions, mut made, mut not_made) = (Vec::new(), 0, 0);
        for image in images {
            let found = self.inspect(image.path.as_path());
            let is_made = has_digest(&found, image.after.as_ref());
            let is_open = has_digest(&found, image.before.as_ref());
            made += usize::from(is_made);
            not_made += usize::from(is_open);
            let state = match (is_made, is_open) {
                (true, _) => "changed as asked",
                (_, true) => "not changed",
                (false, false) => "neither in its old nor in its new state",
            };
            descriptions.push(format!("{}: {state}", image.path));
        }
        if made == images.len() {
            let paths: Vec<String> = images.iter().map(|image| image.path.to_string()).collect();
            let text = format!(
                "The engine stopped during this call, and the files show that it was completed: {}.",
                paths.join(", ")
            );
            let changes = images.iter().map(file_change).collect();
            return Some(ToolResult { changes, ..ToolResult::new(call, ToolStatus::Ok, text) });
        }
        let text = format!("{OUTCOME_UNKNOWN} What the files show: {}.", descriptions.join("; "));
        (not_made < images.len()).then(|| in_doubt_result(call, text))
    }
}

fn in_doubt_result(call: CallId, text: String) -> ToolResult {
    ToolResult::new(call, ToolStatus::InDoubt, text)
}

fn has_digest(found: &FoundDigest, digest: Option<&Arc<str>>) -> bool {
    found.as_ref().is_ok_and(|found| found.as_deref() == digest.map(|digest| &**digest))
}

fn file_change(image: &FileDigests) -> FileChange {
    let action = match (&image.before, &image.after) {
        (None, _) => FileAction::Created,
        (Some(_), Some(_)) => FileAction::Modified,
        (Some(_), None) => FileAction::Deleted,
    };
    FileChange { path: image.path.clone(), action, added: 0, removed: 0 }
}

/// Returns the calls that were running.
fn running_calls(state: &State) -> Vec<CallId> {
    let State::Executing(state) = state else { return Vec::new() };
    let runs = state.calls.iter().filter(|call| matches!(call.state, CallState::Running { .. }));
    runs.map(|call| call.call.id.clone()).collect()
}

fn edited_files<'a>(history: &'a SessionHistory, call: &CallId) -> &'a [FileDigests] {
    match history.intents.get(call) {
        Some(CallIntent::Edit { files }) => files,
        _ => &[],
    }
}
