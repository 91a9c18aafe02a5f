//! Sub-agents that may change something, side by side: each works in a worktree of its own, and its changes are applied to
//! the files of its dispatcher when it is done, or not at all.
//!
//! The name of the worktree follows from the session, which is in the dispatcher's journal before the sub-agent starts. So a
//! resumed dispatcher finds both, and goes on where they are: it makes the worktree, resumes the session in it, applies the
//! changes, or completes that. That they were applied is in the record of the worktree, which stays until the dispatcher's
//! journal has the result.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::app::process_env::ProcessEnv;
use crate::app::worktree::open_worktrees;
use crate::journal::{OpenedSession, SessionId};
use crate::policy::{
    ConfirmationAnswer, ConfirmationRequest, Confirmer, Elicitation, ElicitationAnswer,
};
use crate::port::{EffectContext, lock};
use crate::tools::ToolOutput;
use crate::types::{CallId, FileChange, ToolArguments, ToolStatus, pluralize};
use crate::view::UnappliedWork;
use crate::workspace::worktree::{
    ConfinedGit, Worktree, WorktreeContent, WorktreeError, WorktreeName, WorktreeRequest, Worktrees,
};

/// The worktrees of the sub-agents of a run.
pub(in crate::app) struct SubagentWorktrees {
    worktrees: Worktrees,
    /// The workspace of the run.
    workspace: PathBuf,
    /// Held while the files of the workspace are copied or changed.
    files: Mutex<()>,
    /// The worktrees whose changes were applied.
    applied: Mutex<Vec<Arc<str>>>,
    /// The worktrees that sub-agents work in, or that stay with changes that are not applied, by their names.
    unapplied: Mutex<BTreeMap<String, UnappliedWork>>,
    /// The sessions of calls that were interrupted, by their arguments.
    interrupted: Mutex<HashMap<Arc<str>, Vec<SessionId>>>,
    /// Calls that may change something, and are not over yet.
    writers: Arc<AtomicUsize>,
}

/// Counts a call that may change something, until it is dropped.
pub(super) struct WriterCount(Arc<AtomicUsize>);

/// The end of the name of a session that is in that of its worktree: the random part.
const NAME_START: usize = 24;

/// The most files that are named in a result.
const MAX_NAMED_FILES: usize = 50;

impl SubagentWorktrees {
    /// Returns those of a run in this workspace, which may go on with a stored session; `None` if there can't be any.
    pub(in crate::app) fn new(
        env: &ProcessEnv,
        workspace: &Path,
        opened: Option<&OpenedSession>,
    ) -> Option<Self> {
        let worktrees = open_worktrees(env).ok()?;
        let mut interrupted: HashMap<Arc<str>, Vec<SessionId>> = HashMap::new();
        for (call, session) in opened.map(OpenedSession::isolated_calls).unwrap_or_default() {
            if let ToolArguments::Complete { text } = call.arguments {
                interrupted.entry(text.as_ref().into()).or_default().push(session);
            }
        }
        let finished = opened.map(OpenedSession::finished_worktrees).unwrap_or_default();
        let own = Self {
            worktrees,
            workspace: workspace.to_owned(),
            files: Mutex::default(),
            // A killed run did not forget those whose results it had.
            applied: Mutex::new(finished.clone()),
            unapplied: Mutex::default(),
            interrupted: Mutex::new(interrupted),
            writers: Arc::default(),
        };
        for name in finished {
            // One that is gone was applied or removed.
            if let Ok(worktree) = own.worktrees.open(workspace, &name) {
                own.begin_work(&worktree);
            }
        }
        own.report_unapplied_work();
        Some(own)
    }

    /// Returns the session of an interrupted call with these arguments, which goes on with it.
    pub(super) fn take_interrupted(&self, arguments: &str) -> Option<SessionId> {
        let mut interrupted = lock(&self.interrupted);
        let sessions = interrupted.get_mut(arguments)?;
        (!sessions.is_empty()).then(|| sessions.remove(0))
    }

    /// Counts a call that may change something.
    pub(super) fn count_writer(&self) -> WriterCount {
        self.writers.fetch_add(1, Ordering::SeqCst);
        WriterCount(Arc::clone(&self.writers))
    }

    /// Returns whether a worktree can be made, by git.
    pub(super) fn are_possible(&self) -> bool {
        self.worktrees.can_isolate(&self.workspace)
    }

    /// Returns the name of the worktree of a session.
    pub(super) fn name_of(session: SessionId) -> String {
        format!("agent-{}", session.to_string().split_off(NAME_START))
    }

    /// Opens the worktree of a session; `None` if there is none.
    pub(super) fn open(&self, session: SessionId) -> Result<Option<Worktree>, WorktreeError> {
        match self.worktrees.open(&self.workspace, &Self::name_of(session)) {
            Ok(worktree) => Ok(Some(worktree)),
            Err(WorktreeError::Unknown(_) | WorktreeError::Removed { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the worktree of a session, with the files of the workspace as they are.
    pub(super) fn create(
        &self,
        session: SessionId,
        confined: &dyn ConfinedGit,
    ) -> Result<Worktree, WorktreeError> {
        let _files = lock(&self.files);
        let name = Self::name_of(session);
        let (name, content) = (WorktreeName::Given(&name), WorktreeContent::Uncommitted);
        let request = WorktreeRequest { workspace: &self.workspace, name, content };
        self.worktrees.create(&request, confined)
    }

    /// Notes that a sub-agent works in a worktree, or did.
    pub(super) fn begin_work(&self, worktree: &Worktree) {
        let name = worktree.name().to_owned();
        let work = UnappliedWork {
            session_id: worktree.session().map(str::to_owned),
            branch: worktree.branch(),
            merge_command: format!("architect worktrees merge {name}"),
            worktree: name.clone(),
        };
        lock(&self.unapplied).insert(name, work);
    }

    /// Names the worktrees that stay with work that is not applied, as after an interrupt, and returns them.
    pub(in crate::app) fn report_unapplied_work(&self) -> Vec<UnappliedWork> {
        let unapplied: Vec<_> = lock(&self.unapplied).values().cloned().collect();
        for UnappliedWork { session_id, worktree, branch, merge_command } in &unapplied {
            let session = session_id.as_deref().unwrap_or("unknown");
            let place = match branch {
                Some(branch) => format!("on the branch {branch}"),
                None => format!("in the worktree {worktree}"),
            };
            log::warn!(
                "the work of the sub-agent of session {session} is not applied, and stays {place}: `{merge_command}` \
                 applies it"
            );
        }
        unapplied
    }

    /// Returns what was applied of the worktree of a session that is gone since.
    pub(super) fn applied(&self, session: SessionId) -> Option<Vec<FileChange>> {
        let name = Self::name_of(session);
        let found = self.worktrees.applied(&self.workspace, &name).ok().flatten();
        found.inspect(|_| lock(&self.applied).push(name.into()))
    }

    /// Applies the changes of a worktree, and adds what became of them to the output of the call.
    pub(super) fn apply(
        &self,
        mut worktree: Worktree,
        output: ToolOutput,
        confined: &dyn ConfinedGit,
    ) -> ToolOutput {
        let _files = lock(&self.files);
        let name = worktree.name().to_owned();
        match self.worktrees.apply(&mut worktree) {
            Ok(changes) if changes.is_empty() => {
                lock(&self.unapplied).remove(&name);
                // All that it has changed, if anything, was there already.
                if let Err(error) = self.worktrees.remove(worktree, false) {
                    log::warn!("{error}");
                }
                output
            }
            Ok(changes) => {
                lock(&self.unapplied).remove(&name);
                lock(&self.applied).push(name.into());
                if let Err(error) = self.worktrees.retire(worktree) {
                    log::warn!("{error}");
                }
                with_changes(output, changes)
            }
            Err(error) => {
                let result = match &error {
                    WorktreeError::Conflicts { conflicts, attempted, .. }
                        if attempted.is_empty() =>
                    {
                        format!("NOT applied to your files, none of them: {}", conflicts.join("\n"))
                    }
                    error @ (WorktreeError::Conflicts { .. }
                    | WorktreeError::UnfinishedMerge { .. }) => {
                        format!("NOT applied to your files completely: {error}")
                    }
                    error => format!("NOT applied to your files, none of them: {error}"),
                };
                let stays = self.keep(worktree, confined).unwrap_or_default();
                let text = format!("{}\n\n[Its changes were {result}\n{stays}]", output.text);
                ToolOutput { text, changes: Vec::new(), status: ToolStatus::Failed, ..output }
            }
        }
    }

    /// Lets a worktree stay with what was done in it, committed on its branch. Returns where that is; `None` if nothing was
    /// done, and it does not stay.
    pub(super) fn keep(&self, worktree: Worktree, confined: &dyn ConfinedGit) -> Option<String> {
        let (name, folder) = (worktree.name().to_owned(), worktree.folder().to_owned());
        let branch = worktree.branch();
        let is_unchanged = worktree.changes().is_ok_and(|(_, has_work)| !has_work);
        let committed = branch.filter(|_| !is_unchanged).map(|branch| {
            let message = format!("Work of the sub-agent in {name}");
            let commit = [&COMMIT[..], &["--message", &message]].concat();
            let done = confined.run(&folder, &["add", "--all"]);
            (branch, done.and_then(|()| confined.run(&folder, &commit)))
        });
        match self.worktrees.finish(worktree) {
            Ok(false) => {
                lock(&self.unapplied).remove(&name);
                return None;
            }
            Ok(true) => {}
            Err(error) => log::warn!("{error}"),
        }
        let merge = format!("`architect worktrees merge {name}` lets the user apply them later.");
        Some(match committed {
            Some((branch, Ok(()))) => format!(
                "They stay on the branch {branch}: `git diff HEAD...{branch}` shows them. {merge}"
            ),
            Some((_, Err(error))) => {
                log::warn!("the work in {} is not committed: {error}", folder.display());
                format!("They stay in the worktree {name}. {merge}")
            }
            None => format!("They stay in the worktree {name}, in {}. {merge}", folder.display()),
        })
    }

    /// Forgets what was applied: the journal of the run has the results.
    pub(in crate::app) fn forget_applied(&self) {
        for name in lock(&self.applied).drain(..) {
            if let Err(error) = self.worktrees.forget(&self.workspace, &name) {
                log::warn!("{error}");
            }
        }
    }
}

/// The arguments of a commit that needs nothing of the user's configuration.
const COMMIT: [&str; 10] = [
    "-c",
    "user.name=architect",
    "-c",
    "user.email=architect@localhost",
    "-c",
    "commit.gpgSign=false",
    "commit",
    "--quiet",
    "--no-verify",
    "--allow-empty",
];

/// What stands between the answer of a sub-agent and its changes that were applied.
pub(crate) const APPLIED_NOTE: &str = "\n\n[Its changes are in your files now: ";

/// Adds applied changes to the output of a call.
pub(super) fn with_changes(output: ToolOutput, changes: Vec<FileChange>) -> ToolOutput {
    let named = changes.iter().take(MAX_NAMED_FILES).map(|it| it.path.to_string());
    let named: Vec<String> = named.collect();
    let more = match changes.len() - named.len() {
        0 => String::new(),
        more => format!(" and {}", pluralize(more, "more", "more")),
    };
    let text = format!("{}{APPLIED_NOTE}{}{more}]", output.text, named.join(", "));
    ToolOutput { text, changes, ..output }
}

impl WriterCount {
    /// Returns whether there are others.
    pub(super) fn has_others(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 1
    }
}

impl Drop for WriterCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Asks one question at a time: sub-agents that work side by side share the user.
pub(in crate::app) struct OneQuestion {
    confirm: Arc<dyn Confirmer>,
    asking: Mutex<()>,
}

impl OneQuestion {
    /// Returns a confirmer that asks through this one.
    pub(in crate::app) fn new(confirm: Arc<dyn Confirmer>) -> Self {
        Self { confirm, asking: Mutex::default() }
    }
}

impl Confirmer for OneQuestion {
    fn confirm(
        &self,
        question: &ConfirmationRequest<'_>,
        scope: &EffectContext,
    ) -> ConfirmationAnswer {
        let _asking = lock(&self.asking);
        // The dispatching run can have a call of the same id.
        let call = CallId(format!("subagent-{}", question.call).into());
        self.confirm.confirm(&ConfirmationRequest { call: &call, ..*question }, scope)
    }

    fn can_answer(&self) -> bool {
        self.confirm.can_answer()
    }

    fn answer(
        &self,
        question: &Elicitation,
        call: &CallId,
        scope: &EffectContext,
    ) -> ElicitationAnswer {
        let _asking = lock(&self.asking);
        self.confirm.answer(question, call, scope)
    }
}
