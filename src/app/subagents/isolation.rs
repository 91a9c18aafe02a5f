//! Isolation of concurrent sub-agents that may change files: each works in its own worktree. When it is done, its
//! changes are applied to the files of its dispatcher, or not at all.
//!
//! The name of the worktree follows from the session, which is in the dispatcher's journal before the sub-agent starts.
//! So a resumed dispatcher finds the worktree and the session in their present state, and continues: it creates the
//! worktree, resumes the session in it, applies the changes, or completes that. The record of the worktree contains
//! that its changes were applied, and is kept until the dispatcher's journal has the result.

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
    /// Locked while the files of the workspace are copied or changed.
    files: Mutex<()>,
    /// The worktrees whose changes were applied.
    applied: Mutex<Vec<Arc<str>>>,
    /// The worktrees in use by sub-agents, or kept with unapplied changes, by their names.
    unapplied: Mutex<BTreeMap<String, UnappliedWork>>,
    /// The sessions of interrupted calls, by their arguments.
    interrupted: Mutex<HashMap<Arc<str>, Vec<SessionId>>>,
    /// The number of unfinished calls that may change files.
    writers: Arc<AtomicUsize>,
}

/// Counts a call that may change files, until it is dropped.
pub(super) struct WriterCount(Arc<AtomicUsize>);

/// The start of the part of a session's ID that is in the name of its worktree: the random part.
const NAME_START: usize = 24;

/// The maximum number of files named in a result.
const MAX_NAMED_FILES: usize = 50;

impl SubagentWorktrees {
    /// Returns the worktrees of a run in this workspace, which may resume a stored session; `None` if worktrees are not
    /// possible.
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
            // A killed run did not forget the worktrees of stored results.
            applied: Mutex::new(finished.clone()),
            unapplied: Mutex::default(),
            interrupted: Mutex::new(interrupted),
            writers: Arc::default(),
        };
        for name in finished {
            // A missing worktree was applied or removed.
            if let Ok(worktree) = own.worktrees.open(workspace, &name) {
                own.begin_work(&worktree);
            }
        }
        own.report_unapplied_work();
        Some(own)
    }

    /// Returns the session of an interrupted call with these arguments, for a new call that continues it.
    pub(super) fn take_interrupted(&self, arguments: &str) -> Option<SessionId> {
        let mut interrupted = lock(&self.interrupted);
        let sessions = interrupted.get_mut(arguments)?;
        (!sessions.is_empty()).then(|| sessions.remove(0))
    }

    /// Counts a call that may change files.
    pub(super) fn count_writer(&self) -> WriterCount {
        self.writers.fetch_add(1, Ordering::SeqCst);
        WriterCount(Arc::clone(&self.writers))
    }

    /// Returns whether git can create worktrees of the workspace.
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

    /// Creates the worktree of a session, with the present files of the workspace.
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

    /// Registers a worktree as used by a sub-agent.
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

    /// Logs the worktrees that are kept with unapplied work, as after an interrupt, and returns them.
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

    /// Returns the changes that were applied from the worktree of a session, if the worktree was removed since.
    pub(super) fn applied(&self, session: SessionId) -> Option<Vec<FileChange>> {
        let name = Self::name_of(session);
        let found = self.worktrees.applied(&self.workspace, &name).ok().flatten();
        found.inspect(|_| lock(&self.applied).push(name.into()))
    }

    /// Applies the changes of a worktree, and adds the result to the output of the call.
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
                // The workspace already contains all of its changes, if it has any.
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

    /// Keeps a worktree with its changes, committed on its branch. Returns a description of the place; `None` if there
    /// are no changes and the worktree is removed.
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

    /// Forgets the applied worktrees, because the journal of the run has the results.
    pub(in crate::app) fn forget_applied(&self) {
        for name in lock(&self.applied).drain(..) {
            if let Err(error) = self.worktrees.forget(&self.workspace, &name) {
                log::warn!("{error}");
            }
        }
    }
}

/// The arguments of a commit that is independent of the user's configuration.
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

/// The text between the answer of a sub-agent and the list of its applied changes.
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
    /// Returns whether there are other calls that may change files.
    pub(super) fn has_others(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 1
    }
}

impl Drop for WriterCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Asks one question at a time, since concurrent sub-agents share the user.
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
        // The dispatching run may have a call with the same ID.
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
