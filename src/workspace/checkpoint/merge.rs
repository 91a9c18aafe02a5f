//! Planning of a restore: the parts of an earlier state that can replace the current one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::content_store::ContentStore;
use super::error::CheckpointError;
use super::tree::{PathChange, PathState, SkipReason, SkippedEntry, TreeEdits};
use crate::types::Sha256Digest;

/// The interval between a recorded state and the next one, or the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeInterval {
    /// The state at the beginning.
    pub from: Sha256Digest,
    /// The state at the end.
    pub to: Sha256Digest,
    /// The author of the changes.
    pub author: ChangeAuthor,
}

/// The author of changes of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeAuthor {
    /// The session: it may have made every change.
    Session,
    /// Tools of the session, which have made these changes in this order. All other changes were made by others.
    Tools(Vec<ToolEdit>),
    /// Others: the user, another session.
    Others,
}

/// The change of a file by a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolEdit {
    /// The file, relative to the workspace.
    pub path: PathBuf,
    /// The content before; `None` if there was no file.
    pub before: Option<Sha256Digest>,
    /// The content after; `None` if the file was deleted.
    pub after: Option<Sha256Digest>,
    /// Whether the change was certainly made. An interrupted change may have been made.
    pub is_made: bool,
}

/// The change of a path in an interval, with the session's part of it.
pub struct AuthoredChange {
    /// The whole change.
    pub change: PathChange,
    /// The session's part of the change: the states before and after it.
    own: Option<[Option<PathState>; 2]>,
}

/// The treatment of files that others have changed, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignChanges {
    /// Such files are conflicts.
    Refuse,
    /// Such files are replaced, after a copy of each is made.
    KeepCopies,
}

/// A planned restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestorePlan {
    /// The current state.
    pub now: Sha256Digest,
    /// The state after the restore.
    pub result: Sha256Digest,
    /// The changes from the current state to the result.
    pub changes: Vec<PathChange>,
    /// Files that others have changed since and that the restore would change.
    pub conflicts: Vec<PathBuf>,
    /// Paths that stay as they are.
    pub unrestorable: Vec<UnrestorablePath>,
    /// Files to copy before they are replaced.
    pub copies: Vec<PathBuf>,
}

/// A path that stays as it is although the session has changed it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnrestorablePath {
    /// The path.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
    /// Whether this is because such paths are never recorded, or because of changes by others, so that nothing is
    /// missing.
    pub is_expected: bool,
    /// Whether it is a folder that stays because of its content.
    pub is_in_use: bool,
}

/// The plan of one path.
enum PathPlan {
    Unchanged,
    Edit(Option<PathState>),
    Conflict,
    Unrestorable { reason: String, is_expected: bool },
}

/// The state of a path while changes are undone, from the newest to the oldest.
struct Rollback {
    /// The state of the path without the session's changes.
    state: Option<PathState>,
    /// The newest and the oldest state of the session's changes that don't fit the changes by others. If both are
    /// equal, they are no conflict, because there is nothing to undo.
    unfit: Option<[Option<PathState>; 2]>,
    is_conflict: bool,
}

impl Rollback {
    fn take_back(&mut self, AuthoredChange { change, own }: AuthoredChange) {
        let Some([before, after]) = own else { return self.end_series() };
        let is_first = before == change.before;
        if after != change.after {
            self.end_series();
        }
        match &mut self.unfit {
            Some([_, oldest]) => *oldest = before,
            None if self.state == after => self.state = before,
            unfit @ None => *unfit = Some([after, before]),
        }
        if !is_first {
            self.end_series();
        }
    }

    /// Ends a series of changes of the session.
    fn end_series(&mut self) {
        self.is_conflict |= self.unfit.take().is_some_and(|[newest, oldest]| newest != oldest);
    }
}

impl ContentStore {
    /// Plans to undo the session's changes in these intervals. The intervals are sorted, and the last one ends with the
    /// current state `now`. Changes by others stay.
    ///
    /// # Errors
    ///
    /// Fails if a tree is missing or damaged.
    pub fn plan_restore(
        &self,
        now: &Sha256Digest,
        intervals: &[ChangeInterval],
        foreign: ForeignChanges,
    ) -> Result<RestorePlan, CheckpointError> {
        let target = intervals.first().map_or(now, |first| &first.from);
        let mut plan = Planner { store: self, now, edits: TreeEdits::new() };
        let (mut conflicts, mut unrestorable, mut copies) = (Vec::new(), Vec::new(), Vec::new());
        for (path, rollback) in self.roll_back(intervals)? {
            let present = self.state_of(now, &path)?;
            let after = match rollback.is_conflict {
                true => self.state_of(target, &path)?,
                false => rollback.state,
            };
            match plan.path(present.as_ref(), after.as_ref(), rollback.is_conflict) {
                PathPlan::Unchanged => {}
                PathPlan::Unrestorable { reason, is_expected } => {
                    let is_in_use = false;
                    unrestorable.push(UnrestorablePath { path, reason, is_expected, is_in_use });
                }
                PathPlan::Conflict if foreign == ForeignChanges::Refuse => conflicts.push(path),
                PathPlan::Conflict => {
                    if !present.as_ref().is_none_or(PathState::is_folder) {
                        copies.push(path.clone());
                    }
                    plan.edits.insert(path, after);
                }
                PathPlan::Edit(state) => drop(plan.edits.insert(path, state)),
            }
        }
        let kept = plan.keep_used_folders(now)?;
        unrestorable.extend(kept);
        let blocked = plan.add_missing_folders(target)?.into_iter();
        unrestorable.extend(blocked.map(|path| UnrestorablePath {
            path,
            reason: "something else is in the place of its folder".to_owned(),
            is_expected: false,
            is_in_use: false,
        }));
        unrestorable.sort();
        let result = self.edit_tree(now, &plan.edits)?;
        let changes = self.changes(now, &result)?;
        Ok(RestorePlan { now: *now, result, changes, conflicts, unrestorable, copies })
    }

    /// Returns the current state after a restore, without the contents that others have written since it was planned.
    /// `own` are paths that the restore itself has written.
    ///
    /// # Errors
    ///
    /// Fails if a tree is missing or damaged.
    pub fn without_foreign(
        &self,
        present: &Sha256Digest,
        result: &Sha256Digest,
        own: &[PathBuf],
    ) -> Result<Sha256Digest, CheckpointError> {
        let is_file = |state: &Option<PathState>| {
            matches!(state, None | Some(PathState::File { .. } | PathState::Link { .. }))
        };
        let content = |state: &Option<PathState>| match state {
            Some(PathState::File { hash, .. }) => Some(*hash),
            _ => None,
        };
        let mut edits = TreeEdits::new();
        for PathChange { path, before, after } in self.changes(present, result)? {
            // Some file systems have other permissions.
            let is_same = content(&before).is_some() && content(&before) == content(&after);
            let is_foreign = is_file(&before) && is_file(&after) && !is_same;
            // Content that was written a moment ago is known, even if it can't be read.
            let is_unread = matches!(&before, Some(PathState::LeftOut(it)) if it.reason == SkipReason::Unreadable);
            if (is_foreign || is_unread) && !own.contains(&path) {
                edits.insert(path, after);
            }
        }
        if edits.is_empty() { Ok(*present) } else { self.edit_tree(present, &edits) }
    }

    /// Undoes the session's changes, path by path.
    fn roll_back(
        &self,
        intervals: &[ChangeInterval],
    ) -> Result<BTreeMap<PathBuf, Rollback>, CheckpointError> {
        let mut paths: BTreeMap<PathBuf, Rollback> = BTreeMap::new();
        for interval in intervals.iter().rev() {
            for found in self.authored_changes(interval)? {
                let PathChange { path, after, .. } = &found.change;
                let path = paths.entry(path.clone()).or_insert_with(|| Rollback {
                    state: after.clone(),
                    unfit: None,
                    is_conflict: false,
                });
                path.take_back(found);
            }
        }
        paths.values_mut().for_each(Rollback::end_series);
        Ok(paths)
    }

    /// Returns the changes in an interval, each with the session's part.
    ///
    /// # Errors
    ///
    /// Fails if a tree is missing or damaged.
    pub fn authored_changes(
        &self,
        interval: &ChangeInterval,
    ) -> Result<Vec<AuthoredChange>, CheckpointError> {
        let changes = self.changes(&interval.from, &interval.to)?.into_iter();
        let authored = changes.map(|change| {
            let states = || [&change.before, &change.after].into_iter().flatten();
            let own = match &interval.author {
                // Files that this program itself writes are not the session's.
                _ if states().any(PathState::is_own) => None,
                ChangeAuthor::Session => Some([change.before.clone(), change.after.clone()]),
                ChangeAuthor::Tools(edits) => self.made_by_tools(&change, edits),
                ChangeAuthor::Others => None,
            };
            AuthoredChange { change, own }
        });
        Ok(authored.collect())
    }

    /// Returns the states of a path before and after the changes by tools; `None` if tools have not changed it.
    fn made_by_tools(
        &self,
        change: &PathChange,
        edits: &[ToolEdit],
    ) -> Option<[Option<PathState>; 2]> {
        let PathChange { path, before, after } = change;
        let is_content = |state: &Option<PathState>, content: Option<Sha256Digest>| match state {
            None => content.is_none(),
            Some(PathState::File { hash, .. }) => content == Some(*hash),
            Some(PathState::LeftOut(_)) => true,
            Some(PathState::Link { .. } | PathState::Folder { .. }) => false,
        };
        let is_made = |edit: &&ToolEdit| {
            edit.path == *path && (edit.is_made || is_content(after, edit.after))
        };
        let made: Vec<&ToolEdit> = edits.iter().filter(is_made).collect();
        let Some(last) = made.last() else {
            // A folder that a tool has created for a file.
            let is_in_it = |edit: &ToolEdit| edit.after.is_some() && edit.path.starts_with(path);
            let is_for_file = before.is_none()
                && after.as_ref().is_some_and(PathState::is_folder)
                && edits.iter().any(is_in_it);
            return is_for_file.then(|| [None, after.clone()]);
        };
        // If others have changed the file between two edits, only the edits after that count as the tools'.
        let begin = made.windows(2).rposition(|pair| pair[0].after != pair[1].before);
        let first = made[begin.map_or(0, |index| index + 1)];
        let mode = [before, after].into_iter().flatten().find_map(|state| match state {
            PathState::File { mode, .. } => Some(*mode),
            _ => None,
        });
        // A state that was not recorded: only its content is known.
        let unrecorded = |content: Option<Sha256Digest>| {
            content.map(|hash| {
                let size = self.length_of(&hash).unwrap_or_default();
                PathState::File { mode: mode.unwrap_or(0o644), size, hash }
            })
        };
        let state = |recorded: &Option<PathState>, content| match is_content(recorded, content) {
            true => recorded.clone(),
            false => unrecorded(content),
        };
        let own = [state(before, first.before), state(after, last.after)];
        (own[0] != own[1]).then_some(own)
    }
}

impl AuthoredChange {
    /// Returns whether the session has changed the path.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }
}

struct Planner<'a> {
    store: &'a ContentStore,
    now: &'a Sha256Digest,
    edits: TreeEdits,
}

impl Planner<'_> {
    fn path(
        &self,
        now: Option<&PathState>,
        target: Option<&PathState>,
        is_conflict: bool,
    ) -> PathPlan {
        if now == target {
            return PathPlan::Unchanged;
        }
        if [now, target].into_iter().flatten().any(PathState::is_own) {
            return PathPlan::Unchanged;
        }
        let unrestorable = |reason, skipped: &SkippedEntry| PathPlan::Unrestorable {
            reason: format!("{reason}: {skipped}"),
            is_expected: skipped.reason.is_rule(),
        };
        match (now, target) {
            (Some(PathState::LeftOut(skipped)), None) => {
                return unrestorable("not removed, since it isn't recorded", skipped);
            }
            (Some(PathState::LeftOut(skipped)), Some(_)) => {
                return unrestorable("not replaced: its current content is not recorded", skipped);
            }
            (_, Some(PathState::LeftOut(skipped))) => {
                return unrestorable("it was not recorded", skipped);
            }
            (_, Some(PathState::File { hash, .. })) if !self.store.contains(hash) => {
                return PathPlan::Unrestorable {
                    reason: "its content at that time is not recorded".to_owned(),
                    is_expected: false,
                };
            }
            _ => {}
        }
        if is_conflict { PathPlan::Conflict } else { PathPlan::Edit(target.cloned()) }
    }

    /// Keeps folders that would be removed or replaced although they contain entries that stay.
    fn keep_used_folders(
        &mut self,
        now: &Sha256Digest,
    ) -> Result<Vec<UnrestorablePath>, CheckpointError> {
        let mut kept = Vec::new();
        let is_lost = |(path, state): (&PathBuf, &Option<PathState>)| {
            let is_folder = state.as_ref().is_some_and(PathState::is_folder);
            (!is_folder).then(|| path.clone())
        };
        // Innermost folders first: a kept folder keeps those above it.
        let lost: Vec<PathBuf> = self.edits.iter().filter_map(is_lost).rev().collect();
        for path in lost {
            let state = self.store.state_of(now, &path)?;
            if !state.is_some_and(|state| state.is_folder()) {
                continue;
            }
            let mut staying = None;
            let edits = &self.edits;
            self.store.walk_below(now, &path, &mut |below, _| {
                if staying.is_none() && !matches!(edits.get(below), Some(None)) {
                    staying = Some(below.to_owned());
                }
            })?;
            if let Some(staying) = staying {
                let is_replaced = self.edits.remove(&path).flatten().is_some();
                let name = staying.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let act = if is_replaced { "replaced" } else { "removed" };
                let reason = format!("not {act}, since '{name}' in it stays");
                let is_expected = !is_replaced;
                kept.push(UnrestorablePath { path, reason, is_expected, is_in_use: true });
            }
        }
        // An entry can't be in the place of a folder that stays.
        let below_file = |path: &PathBuf| {
            path.ancestors().skip(1).any(
                |folder| matches!(self.edits.get(folder), Some(Some(state)) if !state.is_folder()),
            )
        };
        let lost: Vec<PathBuf> = self
            .edits
            .iter()
            .filter(|(path, state)| state.is_some() && below_file(path))
            .map(|(path, _)| path.clone())
            .collect();
        for path in lost {
            self.edits.remove(&path);
        }
        Ok(kept)
    }

    /// Adds the folders that new entries need, and returns the entries whose folder is a file now.
    fn add_missing_folders(
        &mut self,
        target: &Sha256Digest,
    ) -> Result<BTreeSet<PathBuf>, CheckpointError> {
        let (mut blocked, mut missing) = (BTreeSet::new(), TreeEdits::new());
        for (path, state) in &self.edits {
            if state.is_none() {
                continue;
            }
            for folder in path.ancestors().skip(1).filter(|folder| *folder != Path::new("")) {
                let is_new = matches!(self.edits.get(folder), Some(Some(PathState::Folder { .. })));
                if is_new || missing.contains_key(folder) {
                    break;
                }
                match self.store.state_of(self.now, folder)? {
                    Some(PathState::Folder { .. }) if !self.edits.contains_key(folder) => break,
                    None | Some(PathState::Folder { .. }) => {
                        // A folder that both have used isn't in the target.
                        let state = self.store.state_of(target, folder)?;
                        let state = state.filter(PathState::is_folder);
                        let state = state.unwrap_or(PathState::Folder { mode: 0o755 });
                        missing.insert(folder.to_owned(), Some(state));
                    }
                    Some(_) => {
                        blocked.insert(path.clone());
                        break;
                    }
                }
            }
        }
        self.edits.retain(|path, _| !blocked.contains(path));
        self.edits.extend(missing);
        Ok(blocked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Durability;

    struct MergeFixture {
        _temp: tempfile::TempDir,
        store: ContentStore,
    }

    impl MergeFixture {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let folder = temp.path().join("c");
            let store =
                ContentStore::open(folder, "own", &BTreeMap::new(), Durability::Os).unwrap();
            Self { _temp: temp, store }
        }

        /// Returns a tree of files, of folders (ending with a slash), and of unrecorded entries (with a question mark).
        fn tree(&self, entries: &[(&str, &str)]) -> Sha256Digest {
            let empty = Sha256Digest::of(b"");
            self.store.put(empty, b"").unwrap();
            let mut edits = TreeEdits::new();
            for (path, text) in entries {
                let state = if let Some(folder) = path.strip_suffix('/') {
                    edits.insert(folder.into(), Some(PathState::Folder { mode: 0o755 }));
                    continue;
                } else if *text == "?" {
                    let reason = SkipReason::TooLarge;
                    PathState::LeftOut(SkippedEntry { reason, size: 9, modified: 1 })
                } else {
                    let hash = Sha256Digest::of(text.as_bytes());
                    self.store.put(hash, text.as_bytes()).unwrap();
                    PathState::File { mode: 0o644, size: text.len() as u64, hash }
                };
                edits.insert(path.into(), Some(state));
            }
            self.store.edit_tree(&empty, &edits).unwrap()
        }

        fn plan(
            &self,
            last: &[(&str, &str)],
            now: &[(&str, &str)],
            target: &[(&str, &str)],
            foreign: ForeignChanges,
        ) -> RestorePlan {
            let (last, now, target) = (self.tree(last), self.tree(now), self.tree(target));
            self.plan_intervals(&[target, last, now], foreign)
        }

        /// Plans with states between which the session and others have changed files in turn.
        fn plan_intervals(&self, states: &[Sha256Digest], foreign: ForeignChanges) -> RestorePlan {
            let authors = [ChangeAuthor::Session, ChangeAuthor::Others].into_iter().cycle();
            let pairs = states.windows(2).zip(authors);
            let intervals: Vec<_> = pairs
                .map(|(pair, author)| ChangeInterval { from: pair[0], to: pair[1], author })
                .collect();
            self.store.plan_restore(&states[states.len() - 1], &intervals, foreign).unwrap()
        }
    }

    #[test]
    fn what_others_did_elsewhere_stays() {
        let world = MergeFixture::new();
        let plan = world.plan(
            &[("a", "new"), ("b", "b")],
            &[("a", "new"), ("b", "theirs"), ("c", "theirs")],
            &[("a", "old"), ("b", "b")],
            ForeignChanges::Refuse,
        );
        assert_eq!(plan.result, world.tree(&[("a", "old"), ("b", "theirs"), ("c", "theirs")]));
        assert_eq!((plan.conflicts.len(), plan.changes.len()), (0, 1));
    }

    #[test]
    fn what_others_changed_is_a_conflict_unless_a_copy_is_kept() {
        let world = MergeFixture::new();
        let (last, now, target) = ([("a", "new")], [("a", "theirs")], [("a", "old")]);
        let plan = world.plan(&last, &now, &target, ForeignChanges::Refuse);
        assert_eq!((plan.conflicts, plan.changes.len()), (vec!["a".into()], 0));
        let plan = world.plan(&last, &now, &target, ForeignChanges::KeepCopies);
        assert_eq!(plan.copies, [PathBuf::from("a")]);
        assert_eq!(plan.result, world.tree(&target));
    }

    #[test]
    fn what_others_changed_between_changes_of_the_session_stays() {
        let world = MergeFixture::new();
        let states = [
            [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")],
            [("a", "2"), ("b", "1"), ("c", "2"), ("d", "2")],
            // Others change b, c and d.
            [("a", "2"), ("b", "theirs"), ("c", "theirs"), ("d", "theirs")],
            [("a", "3"), ("b", "theirs"), ("c", "3"), ("d", "1")],
        ];
        let states = states.map(|state| world.tree(&state));
        let plan = world.plan_intervals(&states, ForeignChanges::Refuse);
        assert_eq!(plan.conflicts, [PathBuf::from("c")]);
        let result = world.tree(&[("a", "1"), ("b", "theirs"), ("c", "3"), ("d", "1")]);
        assert_eq!(plan.result, result);
    }

    /// Tools write a and b in a step; someone else changes b after that, c before it, and makes d.
    #[test]
    fn what_no_tool_has_written_is_not_the_sessions() {
        let world = MergeFixture::new();
        let before = world.tree(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let now = world.tree(&[
            ("a", "2"),
            ("b", "theirs"),
            ("c", "3"),
            ("d", "theirs"),
            ("n/", ""),
            ("n/x", "x"),
        ]);
        let hash = |text: &str| Some(Sha256Digest::of(text.as_bytes()));
        let edit = |path: &str, before, after| ToolEdit {
            path: path.into(),
            before,
            after,
            is_made: true,
        };
        let mut edits = vec![
            edit("a", hash("1"), hash("2")),
            edit("b", hash("1"), hash("2")),
            edit("c", hash("unseen"), hash("3")),
            edit("n/x", None, hash("x")),
        ];
        // A change that was not made.
        edits.push(ToolEdit { is_made: false, ..edit("d", None, hash("other")) });
        let interval =
            |edits| ChangeInterval { from: before, to: now, author: ChangeAuthor::Tools(edits) };
        let plan =
            world.store.plan_restore(&now, &[interval(edits.clone())], ForeignChanges::Refuse);
        let plan = plan.unwrap();
        assert_eq!(plan.conflicts, [PathBuf::from("b")]);
        assert_eq!(plan.unrestorable.len(), 1);
        assert!(plan.unrestorable[0].path == Path::new("c") && !plan.unrestorable[0].is_expected);
        let kept = [("a", "1"), ("b", "theirs"), ("c", "3"), ("d", "theirs")];
        assert_eq!(plan.result, world.tree(&kept));
    }

    /// A folder that was excluded at one of two records: nothing in it is removed or written.
    #[test]
    fn what_was_left_out_of_one_of_two_records_stays() {
        let world = MergeFixture::new();
        let (out, recorded) = (world.tree(&[("d", "?")]), world.tree(&[("d/", ""), ("d/x", "x")]));
        for (now, target) in [(recorded, out), (out, recorded)] {
            let plan = world.plan_intervals(&[target, now], ForeignChanges::KeepCopies);
            assert_eq!((plan.result, plan.conflicts.len()), (now, 0));
            let paths: Vec<_> =
                plan.unrestorable.iter().map(|it| it.path.to_str().unwrap()).collect();
            assert_eq!(paths, ["d", "d/x"]);
        }
    }

    #[test]
    fn what_others_made_and_the_session_removed_is_created_again() {
        let world = MergeFixture::new();
        let states = [
            world.tree(&[]),
            world.tree(&[("d/", "")]),
            world.tree(&[("d/", ""), ("d/theirs", "x")]),
            world.tree(&[]),
        ];
        let plan = world.plan_intervals(&states, ForeignChanges::Refuse);
        assert_eq!((plan.result, plan.conflicts.len()), (states[2], 0));
    }

    #[test]
    fn a_change_that_the_session_took_back_itself_is_no_conflict() {
        let world = MergeFixture::new();
        let [one, two, theirs] = ["1", "2", "theirs"].map(|text| world.tree(&[("a", text)]));
        let states = [one, two, two, one, theirs];
        let plan = world.plan_intervals(&states, ForeignChanges::Refuse);
        assert_eq!((plan.result, plan.conflicts.len()), (theirs, 0));
    }

    #[test]
    fn a_folder_with_something_that_stays_is_not_removed() {
        let world = MergeFixture::new();
        let plan = world.plan(
            &[("d/", ""), ("d/a", "a"), ("d/big", "?")],
            &[("d/", ""), ("d/a", "a"), ("d/big", "?")],
            &[],
            ForeignChanges::Refuse,
        );
        assert_eq!(plan.result, world.tree(&[("d/", ""), ("d/big", "?")]));
        let paths: Vec<_> = plan.unrestorable.iter().map(|it| it.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["d", "d/big"]);
    }

    #[test]
    fn a_folder_that_others_removed_is_created_again() {
        let world = MergeFixture::new();
        let plan = world.plan(
            &[("d/", ""), ("d/b", "b")],
            &[],
            &[("d/", ""), ("d/a", "a"), ("d/b", "b")],
            ForeignChanges::Refuse,
        );
        assert_eq!(plan.result, world.tree(&[("d/", ""), ("d/a", "a")]));
        let plan = world.plan(
            &[("d/", "")],
            &[("d", "theirs")],
            &[("d/", ""), ("d/a", "a")],
            ForeignChanges::Refuse,
        );
        assert_eq!((plan.conflicts.len(), plan.changes.len()), (0, 0));
        let missing = &plan.unrestorable[0];
        assert!(missing.path == Path::new("d/a") && !missing.is_expected);
    }

    #[test]
    fn a_file_whose_place_a_used_folder_has_is_missing() {
        let world = MergeFixture::new();
        let theirs = [("x/", ""), ("x/y", "theirs")];
        let plan = world.plan(&[("x", "1")], &theirs, &[("x", "2")], ForeignChanges::KeepCopies);
        assert_eq!(plan.changes.len(), 0);
        let missing = &plan.unrestorable[0];
        assert!(missing.path == Path::new("x") && !missing.is_expected);
    }

    #[test]
    fn kinds_are_replaced_by_others() {
        let world = MergeFixture::new();
        let (file, folder) = ([("x", "x")], [("x/", ""), ("x/y/", ""), ("x/y/z", "z")]);
        for (now, target) in [(&file[..], &folder[..]), (&folder[..], &file[..])] {
            let plan = world.plan(now, now, target, ForeignChanges::Refuse);
            assert_eq!(plan.result, world.tree(target));
        }
    }
}
