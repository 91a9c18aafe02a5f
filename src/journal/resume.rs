//! Going on with a session: what was under way when its process ended is found out, decided and written down first.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};

use super::blobs::sha256_of_file;
use super::error::{IoContext, JournalError};
use super::file_journal::FileJournal;
use super::header::{ResumedRecord, SessionSetup, WallTime};
use super::replay::SessionHistory;
use super::steering_queue::{MessageId, MessageKind, QueuedMessage};
use super::workspace_identity::WorkspaceChange;
use crate::machine::{
    CallIntent, CallState, FileDigests, Fingerprint, Machine, MachineOutput, RecoveredCall,
    ResumePrompt, Resumption, State,
};
use crate::model::{
    CallId, FileAction, FileChange, LimitBaseline, RunRules, ToolResult, ToolStatus,
};
use crate::workspace::leftover_path;

/// A session that this process has opened in order to go on with it.
#[derive(Debug)]
pub struct OpenedSession {
    /// Its journal, locked.
    pub(super) journal: FileJournal,
    /// Where it stands.
    pub history: SessionHistory,
    /// Where the sub-agents stand that its running calls have sent.
    pub(super) delegated: Vec<SessionHistory>,
    /// Where the half-written end of the journal was saved, if there was one.
    pub saved_tail: Option<PathBuf>,
    /// What its limits count from. Whoever resumes it may let them begin again.
    pub limit_baseline: LimitBaseline,
}

/// How a session is to go on.
#[derive(Clone, Debug)]
pub struct ResumeOptions {
    /// The time of day.
    pub now: SystemTime,
    /// What it works with from now on.
    pub setup: SessionSetup,
    /// The rules that it obeys from now on.
    pub rules: RunRules,
    /// What the user says; without it the model is told to go on.
    pub prompt: Option<Arc<str>>,
}

/// A session that goes on.
#[derive(Debug)]
pub struct ResumedSession {
    /// Its journal.
    pub journal: FileJournal,
    /// Where it stands.
    pub machine: Machine,
    /// What is to be done first.
    pub output: MachineOutput,
    /// In what the workspace is no longer what it was; the model is told with its next call.
    pub workspace_changes: Vec<WorkspaceChange>,
    /// What was found out about the calls that were under way.
    pub recovered: Vec<RecoveredCall>,
}

/// The answer to a call of which nobody knows whether it happened.
const OUTCOME_UNKNOWN: &str = "Outcome unknown: the engine stopped while this call was running. It may have completed, \
     partially completed, or not run at all. Look at what is there before you repeat it.";

/// The largest file that is compared with what a call was to make of it.
const MAX_COMPARED_BYTES: u64 = 1 << 30;

impl OpenedSession {
    /// Goes on. What was decided is durable when this returns, and nothing was done yet.
    ///
    /// Going on twice without anything in between is going on once: the second time finds the decision of the first.
    /// A session whose task is done, and that nobody has anything to say to, stays as it is.
    ///
    /// # Errors
    ///
    /// Fails when the journal can't be written.
    pub fn resume(self, how: ResumeOptions) -> Result<ResumedSession, JournalError> {
        let Self { mut journal, history: past, delegated, .. } = self;
        let ResumeOptions { now, setup: setting, rules, prompt } = how;
        let files = WorkspaceFiles::open(&setting.workspace.root)?;
        for past in std::iter::once(&past).chain(&delegated) {
            files.complete_edits(past);
            files.remove_staged(past);
        }
        if prompt.is_none()
            && past.is_finished_for(&setting)
            && journal.queue().pending().is_empty()
        {
            let outcomes =
                if past.ended.is_some() { MachineOutput::default() } else { past.output };
            let (drift, found) = (Vec::new(), Vec::new());
            return Ok(ResumedSession {
                journal,
                machine: past.machine,
                output: outcomes,
                workspace_changes: drift,
                recovered: found,
            });
        }
        let now = WallTime::from(now);
        let mut drift = past.setup.workspace.changes_to(&setting.workspace);
        let changed = files.changed_files(&past);
        if !changed.is_empty() {
            drift.push(WorkspaceChange::Files(changed));
        }
        let found = files.recover_calls(&past);
        let opening =
            if prompt.is_some() { ResumePrompt::FromUser } else { ResumePrompt::Continue };
        // The model was told in what the workspace differs when this was decided.
        let is_decided = found.is_empty()
            && !past.is_imported_setup()
            && past.setup == setting
            && past.resumption.as_ref().is_some_and(|resumption| {
                resumption.rules == rules && resumption.prompt == opening
            });
        let notice = (!is_decided && !drift.is_empty()).then(|| describe_changes(&drift).into());
        let notice = notice.map(|text| QueuedMessage { kind: MessageKind::SystemNotice, text });
        let prompt = prompt.map(|text| QueuedMessage { kind: MessageKind::Task, text });
        // Before the decision, since after it the process may end; under names that they get a second time then.
        let last = past.header.created.plus(past.at);
        for (rank, letter) in (0..).zip([notice, prompt]) {
            if let Some(letter) = letter {
                journal.queue().add_as(MessageId::derive(last, rank, &letter.text), &letter)?;
            }
        }
        if is_decided {
            return Ok(ResumedSession {
                journal,
                machine: past.machine,
                output: past.output,
                workspace_changes: drift,
                recovered: found,
            });
        }
        let resumption = Resumption { rules, recovered: found.clone(), prompt: opening };
        let met = Fingerprint::of(&past.machine, &past.output.effects);
        // What somebody else has said becomes what the user says, even when it is the same.
        let is_changed = past.is_imported_setup() || setting != past.setup;
        let changed = is_changed.then_some(setting);
        let resumed = ResumedRecord { setup: changed, resumption };
        journal.write_resumed(past.at, now, met, &resumed)?;
        let (fold, outcomes) = past.machine.resume(past.at, resumed.resumption);
        Ok(ResumedSession {
            journal,
            machine: fold,
            output: outcomes,
            workspace_changes: drift,
            recovered: found,
        })
    }
}

/// Returns what the model is told of a workspace that is no longer what it was.
fn describe_changes(drift: &[WorkspaceChange]) -> String {
    let told: Vec<String> = drift.iter().map(WorkspaceChange::to_string).collect();
    format!(
        "[SYSTEM] This session goes on after a pause, and the workspace is no longer what it was. {} Look at what you \
         rely on before you change it.",
        told.join(" ")
    )
}

/// The files of a workspace; no path leads out of it.
struct WorkspaceFiles {
    root: Dir,
}

/// What is found at the path of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FileOnDisk {
    /// Nothing.
    Missing,
    /// A file with this digest.
    File(String),
    /// Something that can't be read.
    Unreadable,
}

impl WorkspaceFiles {
    fn open(root: &Path) -> Result<Self, JournalError> {
        match Dir::open_ambient_dir(root, ambient_authority()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(JournalError::NoWorkspace(root.to_owned()))
            }
            opened => Ok(Self { root: opened.io_context("open the workspace", root)? }),
        }
    }

    fn inspect(&self, path: &str) -> FileOnDisk {
        match self.digest(path) {
            Ok(digest) => FileOnDisk::File(digest),
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileOnDisk::Missing,
            Err(_) => FileOnDisk::Unreadable,
        }
    }

    /// Returns the digest of an ordinary file; a pipe in its place does not keep anybody waiting.
    fn digest(&self, path: &str) -> io::Result<String> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        let mut file = self.root.open_with(path, &options)?.into_std();
        let is_fit = |found: &Metadata| found.is_file() && found.len() <= MAX_COMPARED_BYTES;
        if !is_fit(&file.metadata()?) {
            return Err(io::Error::other("is no ordinary file of a reasonable size"));
        }
        sha256_of_file(&mut file)
    }

    /// Completes changes of several files that were cut off half-way, so that there is no need to ask which of them were
    /// made. All new contents were put beside their files, and made durable, before the first took its place.
    fn complete_edits(&self, past: &SessionHistory) {
        for call in running_calls(&past.machine.state) {
            let images = edited_files(past, &call);
            let (done, open): (Vec<&FileDigests>, Vec<&FileDigests>) = images
                .iter()
                .partition(|image| has_digest(&self.inspect(&image.path), image.after.as_ref()));
            // What somebody else has changed meanwhile is left for the model to look at.
            let can = |image: &&FileDigests| {
                let staged =
                    || image.after.as_ref().is_none_or(|after| self.is_staged(image, after));
                has_digest(&self.inspect(&image.path), image.before.as_ref()) && staged()
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
        let beside = leftover_path(&image.path, after);
        beside.to_str().is_some_and(|beside| has_digest(&self.inspect(beside), Some(after)))
    }

    fn apply_staged(&self, image: &FileDigests) -> io::Result<()> {
        let path = Path::new(&*image.path);
        match &image.after {
            Some(after) => {
                self.root.rename(leftover_path(&image.path, after), &self.root, path)?;
            }
            None => self.root.remove_file(path)?,
        }
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        self.root.open(folder.unwrap_or(Path::new(".")))?.into_std().sync_all()
    }

    /// Removes what calls had put beside their files: those that were running, and did not come to put it into its place,
    /// and those that were done, when a power cut has taken that back.
    fn remove_staged(&self, past: &SessionHistory) {
        for image in past.all_edits() {
            for digest in [&image.before, &image.after].into_iter().flatten() {
                let beside = leftover_path(&image.path, digest);
                match self.root.remove_file(&beside) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        log::warn!("could not remove {}: {error}", beside.display());
                    }
                    _ => {}
                }
            }
        }
    }

    /// Returns the files that are no longer as the session left them.
    fn changed_files(&self, past: &SessionHistory) -> Vec<String> {
        let running = running_calls(&past.machine.state);
        let open: Vec<&FileDigests> =
            running.iter().flat_map(|call| edited_files(past, call)).collect();
        let is_open = |path: &str| open.iter().any(|image| *image.path == *path);
        let written = past.replaced_files().iter().filter(|(path, _)| !is_open(path));
        written
            .filter(|(path, left)| !has_digest(&self.inspect(path), left.as_ref()))
            .map(|(path, _)| path.to_string())
            .collect()
    }

    /// Decides the calls that were running, as far as anything is to be decided: one that changes nothing, or that has
    /// not changed anything, may run again.
    fn recover_calls(&self, past: &SessionHistory) -> Vec<RecoveredCall> {
        let answer = |call: CallId| {
            let result = match past.intent(&call) {
                Some(CallIntent::ReadOnly) => return None,
                Some(CallIntent::Edit { files }) => self.recover_edit(call.clone(), files)?,
                Some(CallIntent::Delegated { session: Some(session) }) => in_doubt_result(
                    call.clone(),
                    format!(
                        "{OUTCOME_UNKNOWN} What the sub-agent did is written down in the session {session}."
                    ),
                ),
                Some(CallIntent::Opaque | CallIntent::Delegated { session: None }) | None => {
                    in_doubt_result(call.clone(), OUTCOME_UNKNOWN.to_owned())
                }
            };
            Some(RecoveredCall { call, result })
        };
        running_calls(&past.machine.state).into_iter().filter_map(answer).collect()
    }

    /// Tells from the files whether an edit happened; none when it did not.
    fn recover_edit(&self, call: CallId, images: &[FileDigests]) -> Option<ToolResult> {
        let seen: Vec<(&FileDigests, FileOnDisk)> =
            images.iter().map(|image| (image, self.inspect(&image.path))).collect();
        let is_done =
            |(image, seen): &(&FileDigests, FileOnDisk)| has_digest(seen, image.after.as_ref());
        let is_open =
            |(image, seen): &(&FileDigests, FileOnDisk)| has_digest(seen, image.before.as_ref());
        if seen.iter().all(is_done) {
            let paths: Vec<&str> = images.iter().map(|image| &*image.path).collect();
            let text = format!(
                "The engine stopped during this call, and the files show that it was completed: {}.",
                paths.join(", ")
            );
            let changes = images.iter().map(file_change).collect();
            return Some(ToolResult { changes, ..ToolResult::new(call, ToolStatus::Ok, text) });
        }
        if seen.iter().all(is_open) {
            return None;
        }
        let tell = |file: &(&FileDigests, FileOnDisk)| {
            let state = match (is_done(file), is_open(file)) {
                (true, _) => "changed as asked",
                (_, true) => "not changed",
                (false, false) => "neither as it was before nor as it was to be",
            };
            format!("{}: {state}", file.0.path)
        };
        let told: Vec<String> = seen.iter().map(tell).collect();
        Some(in_doubt_result(
            call,
            format!("{OUTCOME_UNKNOWN} What the files show: {}.", told.join("; ")),
        ))
    }
}

fn in_doubt_result(call: CallId, text: String) -> ToolResult {
    ToolResult::new(call, ToolStatus::InDoubt, text)
}

fn has_digest(seen: &FileOnDisk, digest: Option<&Arc<str>>) -> bool {
    match (seen, digest) {
        (FileOnDisk::Missing, None) => true,
        (FileOnDisk::File(found), Some(digest)) => **digest == **found,
        (FileOnDisk::Missing | FileOnDisk::File(_) | FileOnDisk::Unreadable, _) => false,
    }
}

fn file_change(image: &FileDigests) -> FileChange {
    let action = match (&image.before, &image.after) {
        (None, _) => FileAction::Created,
        (Some(_), Some(_)) => FileAction::Modified,
        (Some(_), None) => FileAction::Deleted,
    };
    FileChange { path: Arc::clone(&image.path), action, added: 0, removed: 0 }
}

/// Returns the calls that were running.
fn running_calls(state: &State) -> Vec<CallId> {
    let State::Executing(state) = state else { return Vec::new() };
    let runs = state.calls.iter().filter(|call| matches!(call.state, CallState::Running { .. }));
    runs.map(|call| call.call.id.clone()).collect()
}

fn edited_files<'a>(past: &'a SessionHistory, call: &CallId) -> &'a [FileDigests] {
    match past.intent(call) {
        Some(CallIntent::Edit { files }) => files,
        Some(CallIntent::ReadOnly | CallIntent::Opaque | CallIntent::Delegated { .. }) | None => {
            &[]
        }
    }
}
