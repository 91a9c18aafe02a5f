//! Going on with a session: what was under way when its process ended is found out, decided and written down first.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};

use super::blobs::digest_of;
use super::error::{JournalError, Tried};
use super::header::{Resumed, Setting, Wall};
use super::mail::{Letter, LetterKind, MailId};
use super::replay::Past;
use super::workspace::Drift;
use super::writer::FileJournal;
use crate::machine::{
    Fold, Found, Image, Intent, Mark, Opening, Outcomes, Resumption, Slot, State,
};
use crate::model::{CallId, FileAction, FileChange, LimitBase, Rules, ToolResult, ToolStatus};
use crate::workspace::left_beside;

/// A session that this process has opened in order to go on with it.
#[derive(Debug)]
pub struct Opened {
    /// Its journal, locked.
    pub(super) journal: FileJournal,
    /// Where it stands.
    pub past: Past,
    /// Where the sub-agents stand that its running calls have sent.
    pub(super) delegated: Vec<Past>,
    /// Where the half-written end of the journal was saved, if there was one.
    pub torn: Option<PathBuf>,
    /// What its limits count from. Whoever resumes it may let them begin again.
    pub from: LimitBase,
}

/// How a session is to go on.
#[derive(Clone, Debug)]
pub struct GoOn {
    /// The time of day.
    pub now: SystemTime,
    /// What it works with from now on.
    pub setting: Setting,
    /// The rules that it obeys from now on.
    pub rules: Rules,
    /// What the user says; without it the model is told to go on.
    pub prompt: Option<Arc<str>>,
}

/// A session that goes on.
#[derive(Debug)]
pub struct Going {
    /// Its journal.
    pub journal: FileJournal,
    /// Where it stands.
    pub fold: Fold,
    /// What is to be done first.
    pub outcomes: Outcomes,
    /// In what the workspace is no longer what it was; the model is told with its next call.
    pub drift: Vec<Drift>,
    /// What was found out about the calls that were under way.
    pub found: Vec<Found>,
}

/// The answer to a call of which nobody knows whether it happened.
const UNKNOWN: &str = "Outcome unknown: the engine stopped while this call was running. It may have completed, \
     partially completed, or not run at all. Look at what is there before you repeat it.";

/// The largest file that is compared with what a call was to make of it.
const LARGEST: u64 = 1 << 30;

impl Opened {
    /// Goes on. What was decided is durable when this returns, and nothing was done yet.
    ///
    /// Going on twice without anything in between is going on once: the second time finds the decision of the first.
    /// A session whose task is done, and that nobody has anything to say to, stays as it is.
    ///
    /// # Errors
    ///
    /// Fails when the journal can't be written.
    pub fn go_on(self, how: GoOn) -> Result<Going, JournalError> {
        let Self { mut journal, past, delegated, .. } = self;
        let GoOn { now, setting, rules, prompt } = how;
        let files = Files::open(&setting.workspace.root)?;
        for past in std::iter::once(&past).chain(&delegated) {
            files.complete(past);
            files.tidy(past);
        }
        if prompt.is_none() && past.is_finished_for(&setting) && journal.mail().waiting().is_empty()
        {
            let outcomes = if past.ended.is_some() { Outcomes::default() } else { past.outcomes };
            let (drift, found) = (Vec::new(), Vec::new());
            return Ok(Going { journal, fold: past.fold, outcomes, drift, found });
        }
        let now = Wall::from(now);
        let mut drift = past.setting.workspace.drift(&setting.workspace);
        let changed = files.changed(&past);
        if !changed.is_empty() {
            drift.push(Drift::Files(changed));
        }
        let found = files.decide(&past);
        let opening = if prompt.is_some() { Opening::Message } else { Opening::GoOn };
        // The model was told in what the workspace differs when this was decided.
        let is_decided = found.is_empty()
            && !past.is_foreign()
            && past.setting == setting
            && past.resumption.as_ref().is_some_and(|resumption| {
                resumption.rules == rules && resumption.opening == opening
            });
        let notice = (!is_decided && !drift.is_empty()).then(|| notice(&drift).into());
        let notice = notice.map(|text| Letter { kind: LetterKind::Notice, text });
        let prompt = prompt.map(|text| Letter { kind: LetterKind::Task, text });
        // Before the decision, since after it the process may end; under names that they get a second time then.
        let last = past.header.created.after(past.at);
        for (rank, letter) in (0..).zip([notice, prompt]) {
            if let Some(letter) = letter {
                journal.mail().put_as(MailId::made(last, rank, &letter.text), &letter)?;
            }
        }
        if is_decided {
            return Ok(Going { journal, fold: past.fold, outcomes: past.outcomes, drift, found });
        }
        let resumption = Resumption { rules, found: found.clone(), opening };
        let met = Mark::of(&past.fold, &past.outcomes.effects);
        // What somebody else has said becomes what the user says, even when it is the same.
        let is_changed = past.is_foreign() || setting != past.setting;
        let changed = is_changed.then_some(setting);
        let resumed = Resumed { setting: changed, resumption };
        journal.go_on(past.at, now, met, &resumed)?;
        let (fold, outcomes) = past.fold.resume(past.at, resumed.resumption);
        Ok(Going { journal, fold, outcomes, drift, found })
    }
}

/// Returns what the model is told of a workspace that is no longer what it was.
fn notice(drift: &[Drift]) -> String {
    let told: Vec<String> = drift.iter().map(Drift::to_string).collect();
    format!(
        "[SYSTEM] This session goes on after a pause, and the workspace is no longer what it was. {} Look at what you \
         rely on before you change it.",
        told.join(" ")
    )
}

/// The files of a workspace; no path leads out of it.
struct Files {
    root: Dir,
}

/// What is found at the path of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    /// Nothing.
    Nothing,
    /// A file with this digest.
    File(String),
    /// Something that can't be read.
    Unreadable,
}

impl Files {
    fn open(root: &Path) -> Result<Self, JournalError> {
        match Dir::open_ambient_dir(root, ambient_authority()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(JournalError::NoWorkspace(root.to_owned()))
            }
            opened => Ok(Self { root: opened.tried("open the workspace", root)? }),
        }
    }

    fn look(&self, path: &str) -> Seen {
        match self.digest(path) {
            Ok(digest) => Seen::File(digest),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Seen::Nothing,
            Err(_) => Seen::Unreadable,
        }
    }

    /// Returns the digest of an ordinary file; a pipe in its place does not keep anybody waiting.
    fn digest(&self, path: &str) -> io::Result<String> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        let mut file = self.root.open_with(path, &options)?.into_std();
        let is_fit = |found: &Metadata| found.is_file() && found.len() <= LARGEST;
        if !is_fit(&file.metadata()?) {
            return Err(io::Error::other("is no ordinary file of a reasonable size"));
        }
        digest_of(&mut file)
    }

    /// Completes changes of several files that were cut off half-way, so that there is no need to ask which of them were
    /// made. All new contents were put beside their files, and made durable, before the first took its place.
    fn complete(&self, past: &Past) {
        for call in running(&past.fold.state) {
            let images = images(past, &call);
            let (done, open): (Vec<&Image>, Vec<&Image>) =
                images.iter().partition(|image| is(&self.look(&image.path), image.after.as_ref()));
            // What somebody else has changed meanwhile is left for the model to look at.
            let can = |image: &&Image| {
                let staged =
                    || image.after.as_ref().is_none_or(|after| self.is_staged(image, after));
                is(&self.look(&image.path), image.before.as_ref()) && staged()
            };
            if done.is_empty() || !open.iter().all(can) {
                continue;
            }
            for image in open {
                if let Err(error) = self.put_in_place(image) {
                    log::warn!("could not complete the change of {}: {error}", image.path);
                    break;
                }
            }
        }
    }

    fn is_staged(&self, image: &Image, after: &Arc<str>) -> bool {
        let beside = left_beside(&image.path, after);
        beside.to_str().is_some_and(|beside| is(&self.look(beside), Some(after)))
    }

    fn put_in_place(&self, image: &Image) -> io::Result<()> {
        let path = Path::new(&*image.path);
        match &image.after {
            Some(after) => {
                self.root.rename(left_beside(&image.path, after), &self.root, path)?;
            }
            None => self.root.remove_file(path)?,
        }
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        self.root.open(folder.unwrap_or(Path::new(".")))?.into_std().sync_all()
    }

    /// Removes what calls had put beside their files: those that were running, and did not come to put it into its place,
    /// and those that were done, when a power cut has taken that back.
    fn tidy(&self, past: &Past) {
        for image in past.edits() {
            for digest in [&image.before, &image.after].into_iter().flatten() {
                let beside = left_beside(&image.path, digest);
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
    fn changed(&self, past: &Past) -> Vec<String> {
        let running = running(&past.fold.state);
        let open: Vec<&Image> = running.iter().flat_map(|call| images(past, call)).collect();
        let is_open = |path: &str| open.iter().any(|image| *image.path == *path);
        let written = past.written().iter().filter(|(path, _)| !is_open(path));
        written
            .filter(|(path, left)| !is(&self.look(path), left.as_ref()))
            .map(|(path, _)| path.to_string())
            .collect()
    }

    /// Decides the calls that were running, as far as anything is to be decided: one that changes nothing, or that has
    /// not changed anything, may run again.
    fn decide(&self, past: &Past) -> Vec<Found> {
        let answer = |call: CallId| {
            let result = match past.intent(&call) {
                Some(Intent::Pure) => return None,
                Some(Intent::Edit { files }) => self.judge(call.clone(), files)?,
                Some(Intent::Delegated { session: Some(session) }) => in_doubt(
                    call.clone(),
                    format!(
                        "{UNKNOWN} What the sub-agent did is written down in the session {session}."
                    ),
                ),
                Some(Intent::Opaque | Intent::Delegated { session: None }) | None => {
                    in_doubt(call.clone(), UNKNOWN.to_owned())
                }
            };
            Some(Found { call, result })
        };
        running(&past.fold.state).into_iter().filter_map(answer).collect()
    }

    /// Tells from the files whether an edit happened; none when it did not.
    fn judge(&self, call: CallId, images: &[Image]) -> Option<ToolResult> {
        let seen: Vec<(&Image, Seen)> =
            images.iter().map(|image| (image, self.look(&image.path))).collect();
        let is_done = |(image, seen): &(&Image, Seen)| is(seen, image.after.as_ref());
        let is_open = |(image, seen): &(&Image, Seen)| is(seen, image.before.as_ref());
        if seen.iter().all(is_done) {
            let paths: Vec<&str> = images.iter().map(|image| &*image.path).collect();
            let text = format!(
                "The engine stopped during this call, and the files show that it was completed: {}.",
                paths.join(", ")
            );
            let changes = images.iter().map(change).collect();
            return Some(ToolResult { changes, ..ToolResult::new(call, ToolStatus::Ok, text) });
        }
        if seen.iter().all(is_open) {
            return None;
        }
        let tell = |file: &(&Image, Seen)| {
            let state = match (is_done(file), is_open(file)) {
                (true, _) => "changed as asked",
                (_, true) => "not changed",
                (false, false) => "neither as it was before nor as it was to be",
            };
            format!("{}: {state}", file.0.path)
        };
        let told: Vec<String> = seen.iter().map(tell).collect();
        Some(in_doubt(call, format!("{UNKNOWN} What the files show: {}.", told.join("; "))))
    }
}

fn in_doubt(call: CallId, text: String) -> ToolResult {
    ToolResult::new(call, ToolStatus::InDoubt, text)
}

fn is(seen: &Seen, digest: Option<&Arc<str>>) -> bool {
    match (seen, digest) {
        (Seen::Nothing, None) => true,
        (Seen::File(found), Some(digest)) => **digest == **found,
        (Seen::Nothing | Seen::File(_) | Seen::Unreadable, _) => false,
    }
}

fn change(image: &Image) -> FileChange {
    let action = match (&image.before, &image.after) {
        (None, _) => FileAction::Created,
        (Some(_), Some(_)) => FileAction::Modified,
        (Some(_), None) => FileAction::Deleted,
    };
    FileChange { path: Arc::clone(&image.path), action, added: 0, removed: 0 }
}

/// Returns the calls that were running.
fn running(state: &State) -> Vec<CallId> {
    let State::Executing(state) = state else { return Vec::new() };
    let runs = state.calls.iter().filter(|call| matches!(call.slot, Slot::Running { .. }));
    runs.map(|call| call.call.id.clone()).collect()
}

fn images<'a>(past: &'a Past, call: &CallId) -> &'a [Image] {
    match past.intent(call) {
        Some(Intent::Edit { files }) => files,
        Some(Intent::Pure | Intent::Opaque | Intent::Delegated { .. }) | None => &[],
    }
}
