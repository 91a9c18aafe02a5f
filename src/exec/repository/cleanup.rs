//! Decides which items are harmless, and replaces or renames the others.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;

use super::ScanRoot;
use super::git_config::{GitSetting, PlaceValue, format_config, has_word, parse_git_config};
use super::scan::{ExtendedFolder, GitItem, GitItemKind, GitItems, ItemContent, is_git_name};
use crate::exec::confine::policy::resolve_path;
use crate::exec::protected::absent_paths::{denied_names, is_denied_name};
use crate::port::unique_id;
use crate::workspace::worktree::named_folder;

/// Commands of a rebase list that run no program.
const HARMLESS_REBASE_COMMANDS: &str = "\
    b break d drop e edit f fixup l label m merge noop p pick r reset revert reword s squash t u \
    update-ref";

/// Merge strategies of git itself; any other name is a program.
const HARMLESS_STRATEGIES: [&str; 6] =
    ["ort", "recursive", "resolve", "octopus", "ours", "subtree"];

/// The replacement of a harmful item.
enum Replacement {
    /// This content for the given reason; with the previous permissions, if any.
    Content(Vec<u8>, Option<u32>, String),
    /// The same file with these permissions, for the given reason.
    Permissions(u32, String),
    /// None: the item is renamed, for the given reason.
    Rename(String),
}

/// The existing folders that items refer to, by the path of the item.
pub(super) type LinkTargets = BTreeMap<PathBuf, PathBuf>;

/// The state of a root after a command.
pub(super) struct RootState<'a> {
    /// The items before the first command.
    pub before: &'a GitItems,
    pub led: &'a LinkTargets,
    /// The current items.
    pub now: &'a GitItems,
    /// Whether commands could not change a path.
    pub is_read_only: &'a dyn Fn(&Path) -> bool,
    /// Whether a folder was scanned as a repository, with its settings and hooks.
    pub is_repository: &'a dyn Fn(&Path) -> bool,
    /// Folders that commands may write, but that are not scanned.
    pub private: &'a [PathBuf],
}

impl RootState<'_> {
    /// Returns whether the value of a setting leads to a scanned path, or to a path that commands cannot change.
    fn is_fine(&self, root: &ScanRoot, path: &Path, value: PlaceValue<'_>) -> bool {
        match value {
            PlaceValue::WorkTree(value) => is_target_inside(root, path, Path::new(value)),
            PlaceValue::Remote(address) => {
                let pointers =
                    self.now.keys().filter(|path| path.file_name().is_some_and(is_git_name));
                let folders = pointers
                    .filter_map(|path| path.parent())
                    .chain(path.ancestors().skip(1).take(2));
                folders
                    .map(|folder| root.path.join(folder))
                    .all(|folder| !leads_into(address, &folder, self.private))
            }
        }
    }

    /// Returns whether a configuration, even if unchanged, now leads elsewhere.
    fn is_moved(&self, root: &ScanRoot, path: &Path, item: &GitItem) -> bool {
        let old = target_of(root, path, item);
        let remotes = || parse_settings(&item.content).unwrap_or_default();
        self.before.contains_key(path)
            && (old.is_some_and(|target| self.led.get(path) != Some(&target))
                || item.kind == GitItemKind::Config
                    && !self.private.is_empty()
                    && remotes()
                        .iter()
                        .filter_map(GitSetting::remote)
                        .any(|address| !self.is_fine(root, path, PlaceValue::Remote(address))))
    }
}

/// Returns whether git would find the repository of a remote below one of these folders.
pub(super) fn leads_into(address: &str, work_tree: &Path, folders: &[PathBuf]) -> bool {
    let is_scheme =
        |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let path = match address.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        // Git decodes the path.
        Some(("file", rest)) if rest.contains('%') => return true,
        Some(("file", rest)) => rest.find('/').map_or("", |start| &rest[start..]),
        Some(_) => return false,
        // `host:path`
        None if address.split('/').next().is_some_and(|first| first.contains(':')) => return false,
        None if address.starts_with('~') => return true,
        None => address,
    };
    let is_below = |path: PathBuf| folders.iter().any(|folder| path.starts_with(folder));
    // Git tries these endings, and follows a file.
    ["", ".git", "/.git", ".git/.git"].iter().any(|ending| {
        let path = work_tree.join(format!("{path}{ending}"));
        resolve_path(&path).is_some_and(is_below)
            || named_folder(&path, "gitdir: ").is_some_and(is_below)
    })
}

/// Makes changed items harmless. Returns a sentence for each.
pub(super) fn clean_root(root: &ScanRoot, found: &RootState<'_>) -> Vec<String> {
    let RootState { before, now, is_read_only: is_left, .. } = *found;
    // Each notice comes with the path that it ends with.
    let mut notices: Vec<(String, Option<PathBuf>)> = Vec::new();
    // Inner items come first: renaming an outer one changes their paths.
    for (path, item) in now.iter().rev() {
        let old = before.get(path);
        // A parent may be a link now.
        let is_moved = found.is_moved(root, path, item);
        let is_same = || old.is_some_and(|old| item.is_same(old));
        if !is_moved && (is_left(path) || is_same()) {
            continue;
        }
        let old = old.map(|item| PreviousItem { item, is_moved });
        let Some(remedy) = find_replacement(root, path, item, old, found) else { continue };
        let (made, kept) = apply(root, path, &remedy);
        if let (Replacement::Rename(_), Some(new)) = (&remedy, &kept) {
            for (_, inner) in &mut notices {
                let moved = inner.as_ref().and_then(|inner| inner.strip_prefix(path).ok());
                *inner = moved.map(|rest| new.join(rest)).or_else(|| inner.take());
            }
        }
        notices.push((describe(path, made, &remedy, kept.is_some()), kept));
    }
    let notices = notices.into_iter().map(|(notice, kept)| match kept {
        Some(kept) => format!("{notice} {}", kept.display()),
        None => notice,
    });
    let mut notices: Vec<String> = notices.collect();
    for (path, item) in before {
        if item.kind != GitItemKind::Exact
            || is_left(path)
            || root.dir.symlink_metadata(path).is_ok()
        {
            continue;
        }
        let ItemContent::File(content) = &item.content else { continue };
        let folder = path.parent().unwrap_or(Path::new(""));
        let made = root
            .dir
            .create_dir_all(folder)
            .and_then(|()| write_file(&root.dir, path, content, item.mode));
        notices.push(match made {
            Ok(()) => format!(
                "sandbox denied: {} is protected, and was restored after a command removed it",
                path.display()
            ),
            Err(error) => format!(
                "sandbox denied: {} is protected, and could not be restored after a command removed it: {error}",
                path.display()
            ),
        });
    }
    notices
}

/// Makes an item harmless. Returns the path at which the original is kept, if it is kept.
fn apply(root: &ScanRoot, path: &Path, remedy: &Replacement) -> (io::Result<()>, Option<PathBuf>) {
    match remedy {
        Replacement::Content(content, mode, _) => {
            // The new file is written first, so that a full disk or a kill leaves no part of it at the path.
            let written = write_beside(&root.dir, path, content, *mode);
            // The rejected file stays readable.
            let kept = rename_item(&root.dir, path).ok().flatten();
            (written.and_then(|new| put_in_place(&root.dir, &new, path)), kept)
        }
        Replacement::Permissions(mode, _) => (set_permissions(&root.dir, path, *mode), None),
        Replacement::Rename(_) => match rename_item(&root.dir, path) {
            Ok(kept) => (Ok(()), kept),
            Err(error) => (Err(error), None),
        },
    }
}

/// Returns the sentence about an item; if the item is kept, the caller appends its path.
fn describe(path: &Path, made: io::Result<()>, remedy: &Replacement, is_kept: bool) -> String {
    let (Replacement::Content(_, _, why)
    | Replacement::Permissions(_, why)
    | Replacement::Rename(why)) = remedy;
    let shown = path.display();
    let kept = if is_kept { "; the version of the command is in" } else { "" };
    match (made, remedy) {
        (Ok(()), Replacement::Content(..)) => {
            format!("sandbox denied: {why} in {shown}, which was restored{kept}")
        }
        (Ok(()), Replacement::Permissions(..)) => {
            format!("sandbox denied: {why} in {shown}, whose permissions were restored")
        }
        (Ok(()), Replacement::Rename(_)) => {
            let what = if is_kept { "renamed to" } else { "removed" };
            format!("sandbox denied: {why}; {shown} was {what}")
        }
        (Err(error), _) => {
            format!("sandbox denied: {why} in {shown}, which could not be restored: {error}{kept}")
        }
    }
}

/// An item before the first command.
#[derive(Clone, Copy)]
struct PreviousItem<'a> {
    item: &'a GitItem,
    /// Whether the same text now resolves to another folder.
    is_moved: bool,
}

/// Returns the folders that items refer to, by the path of the item.
pub(super) fn find_targets(root: &ScanRoot, items: &GitItems) -> LinkTargets {
    let found = items.iter().filter_map(|(path, item)| {
        let target = target_of(root, path, item)?;
        Some((path.clone(), target))
    });
    found.collect()
}

/// Returns the folder that an item refers to: the repository of a work tree, or the work tree of a repository.
fn target_of(root: &ScanRoot, path: &Path, item: &GitItem) -> Option<PathBuf> {
    let named = match (item.kind, &item.content) {
        (GitItemKind::Pointer, ItemContent::File(text))
            if path.file_name().is_some_and(is_git_name) =>
        {
            parse_gitdir(text)
        }
        (GitItemKind::Link, ItemContent::Link(to)) if path.file_name().is_some_and(is_git_name) => {
            Some(to.clone())
        }
        (GitItemKind::Config, ItemContent::File(text)) => {
            let settings = parse_git_config(text)?;
            settings.iter().rev().find_map(GitSetting::work_tree).map(PathBuf::from)
        }
        (
            GitItemKind::Config
            | GitItemKind::Hook
            | GitItemKind::Pointer
            | GitItemKind::Link
            | GitItemKind::Todo
            | GitItemKind::Exact,
            _,
        ) => None,
    }?;
    root.path.join(path).parent()?.join(named).canonicalize().ok()
}

/// Returns the path in a `.git` file, as git reads it; `None` if it is invalid.
fn parse_gitdir(text: &[u8]) -> Option<PathBuf> {
    let path = text.strip_prefix(b"gitdir: ")?;
    let end = path.iter().rposition(|byte| !b"\n\r".contains(byte))?;
    // Git ignores what follows a zero byte.
    let path = path.get(..=end).filter(|path| !path.contains(&0))?;
    Some(OsStr::from_bytes(path).into())
}

/// Returns the replacement of an item; `None` if the item is harmless.
fn find_replacement(
    root: &ScanRoot,
    path: &Path,
    item: &GitItem,
    old: Option<PreviousItem<'_>>,
    state: &RootState<'_>,
) -> Option<Replacement> {
    let is_known = state.is_repository;
    let is_moved = old.is_some_and(|old| old.is_moved);
    let old = old.map(|old| old.item);
    let mode = old.and_then(|old| old.mode);
    let restored = |why: &str| match old.map(|old| &old.content) {
        Some(ItemContent::File(content)) if !is_moved => match mode {
            Some(mode) if item.content == ItemContent::File(content.clone()) => {
                Replacement::Permissions(mode, why.to_owned())
            }
            _ => Replacement::Content(content.clone(), mode, why.to_owned()),
        },
        Some(ItemContent::File(_) | ItemContent::Link(_) | ItemContent::Other) | None => {
            Replacement::Rename(why.to_owned())
        }
    };
    // Only settings and hooks of a scanned repository are checked.
    let is_repository = |target: &Path| {
        is_target_inside(root, path, target)
            // A checkout may create a target that does not exist yet.
            && real_target(root, path, target).is_some_and(|target| is_known(&target))
    };
    match (item.kind, &item.content) {
        (GitItemKind::Config, ItemContent::File(text)) => {
            let old = old.and_then(|old| parse_settings(&old.content)).unwrap_or_default();
            let is_fine = |setting: &GitSetting| {
                let is_place = setting.work_tree().or(setting.remote()).is_some();
                let is_old = old.contains(setting) && !(is_moved && is_place);
                is_old || setting.is_harmless(&|value| state.is_fine(root, path, value))
            };
            let Some(new) = parse_git_config(text) else {
                return Some(restored("a configuration of git that cannot be parsed"));
            };
            let bad = new.iter().find(|setting| !is_fine(setting))?;
            let why = format!("a command may not set {} for git", bad.key());
            Some(match restored(&why) {
                Replacement::Rename(why) => {
                    let kept: Vec<GitSetting> = new.into_iter().filter(is_fine).collect();
                    Replacement::Content(format_config(&kept).into_bytes(), mode, why)
                }
                restored @ (Replacement::Content(..) | Replacement::Permissions(..)) => restored,
            })
        }
        (GitItemKind::Config, ItemContent::Link(_) | ItemContent::Other) => {
            Some(restored("the configuration of git must be a file"))
        }
        (GitItemKind::Hook, _) => Some(restored("a command may not create a git hook")),
        (GitItemKind::Exact, _) => Some(restored("no command may change a protected file")),
        (GitItemKind::Pointer, ItemContent::File(text)) => {
            let is_fine = if path.file_name().is_some_and(is_git_name) {
                parse_gitdir(text).is_some_and(|target| is_repository(&target))
            } else {
                let text = String::from_utf8_lossy(text);
                own_common(path, text.trim_end_matches('\n')).is_some_and(is_known)
            };
            (!is_fine).then(|| restored("a command may not point git to another folder"))
        }
        (GitItemKind::Pointer, ItemContent::Link(_) | ItemContent::Other) => {
            Some(restored("a command may not point git to another folder"))
        }
        (GitItemKind::Link, ItemContent::Link(target)) => {
            let is_fine = match path.file_name() {
                Some(name) if is_git_name(name) => is_repository(target),
                _ => is_target_beside(path, target),
            };
            (!is_fine).then(|| {
                Replacement::Rename("a command may not point git to another folder".to_owned())
            })
        }
        (GitItemKind::Link, ItemContent::File(_) | ItemContent::Other) => None,
        (GitItemKind::Todo, ItemContent::File(text)) => {
            let old = match old.map(|old| &old.content) {
                Some(ItemContent::File(old)) => text_lines(old),
                Some(ItemContent::Link(_) | ItemContent::Other) | None => Vec::new(),
            };
            let new = text_lines(text);
            let is_fine = |line: &&String| old.contains(line) || is_harmless_step(path, line);
            if new.iter().all(|line| is_fine(&line)) {
                return None;
            }
            let kept =
                new.iter().filter(is_fine).fold(String::new(), |all, line| all + line + "\n");
            let why = "commands that git would run on --continue were removed".to_owned();
            Some(Replacement::Content(kept.into_bytes(), mode, why))
        }
        (GitItemKind::Todo, ItemContent::Link(_) | ItemContent::Other) => {
            Some(Replacement::Rename("a command may not point git to another folder".to_owned()))
        }
    }
}

fn parse_settings(content: &ItemContent) -> Option<Vec<GitSetting>> {
    match content {
        ItemContent::File(text) => parse_git_config(text),
        ItemContent::Link(_) | ItemContent::Other => None,
    }
}

fn text_lines(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
}

/// Returns whether a line of a file for continuing an operation runs no program.
fn is_harmless_step(path: &Path, line: &str) -> bool {
    let name = path.file_name().unwrap_or_default();
    let line = line.trim();
    if name == "strategy" {
        return line.is_empty() || HARMLESS_STRATEGIES.contains(&line);
    }
    if name == "opts" {
        // In this file of options, only the strategy names a program.
        let value = line.strip_prefix("strategy").map(str::trim_start);
        let value = value.and_then(|rest| rest.strip_prefix('=')).map(str::trim);
        let is_other =
            !line.to_lowercase().contains("strategy") || line.starts_with("strategy-option");
        return value.map_or(is_other, |value| HARMLESS_STRATEGIES.contains(&value))
            && !line.ends_with('\\');
    }
    if name == "apply-opt" {
        return !line.contains("unsafe") && !line.contains("directory");
    }
    let first = line.split_whitespace().next().unwrap_or_default();
    line.is_empty() || line.starts_with(['#', ';']) || has_word(HARMLESS_REBASE_COMMANDS, first)
}

/// Returns the repository that contains a linked work tree, if the `commondir` file of the work tree refers to it.
fn own_common<'a>(path: &'a Path, target: &str) -> Option<&'a Path> {
    let around = path.parent()?.parent().filter(|around| around.ends_with("worktrees"))?;
    let is_own = Path::new(target).components().eq([Component::ParentDir, Component::ParentDir]);
    around.parent().filter(|_| is_own)
}

/// Returns whether the target of a file or link, with links resolved, is below the root.
fn is_target_inside(root: &ScanRoot, path: &Path, target: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new(""));
    if target.is_absolute() {
        return target.canonicalize().is_ok_and(|target| target.starts_with(&root.path));
    }
    let folder = folder.join(target);
    // The target may be created later, so the path as written must stay inside.
    let mut depth = 0_i32;
    let is_inside = folder.components().all(|part| {
        depth += match part {
            Component::ParentDir => -1,
            Component::Normal(_) => 1,
            Component::CurDir => 0,
            Component::RootDir | Component::Prefix(_) => return false,
        };
        depth >= 0
    });
    let escapes = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    is_inside && !root.dir.canonicalize(&folder).is_err_and(|error| escapes(&error))
}

/// Returns the target of a file or link, relative to the root; `None` if it does not exist or is outside.
fn real_target(root: &ScanRoot, path: &Path, target: &Path) -> Option<PathBuf> {
    if target.is_absolute() {
        return target.canonicalize().ok()?.strip_prefix(&root.path).ok().map(Path::to_owned);
    }
    let real = root.dir.canonicalize(path.parent()?.join(target)).ok()?;
    Some(if real == Path::new(".") { PathBuf::new() } else { real })
}

/// Returns whether the target of a link in a repository is in the same folder or below.
fn is_target_beside(path: &Path, target: &Path) -> bool {
    let is_down = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    // Old versions of git made `HEAD` such a link.
    path.parent().is_some() && target.is_relative() && target.components().all(is_down)
}

/// Renames a path, so that no program follows it, or removes it if renaming fails. Returns the new name, if renamed.
pub(super) fn rename_item(root: &Dir, path: &Path) -> io::Result<Option<PathBuf>> {
    let mut free = denied_names(path).filter(|path| root.symlink_metadata(path).is_err());
    let free = free.next().ok_or(io::ErrorKind::AlreadyExists)?;
    let rename = || root.rename(path, root, &free);
    match with_writable_folder(root, path, rename) {
        Ok(()) => Ok(Some(free)),
        Err(_) => root.remove_file(path).map(|()| None),
    }
}

/// Writes a file.
fn write_file(root: &Dir, path: &Path, content: &[u8], mode: Option<u32>) -> io::Result<()> {
    let new = write_beside(root, path, content, mode)?;
    put_in_place(root, &new, path)
}

/// Moves the file written beside a path into place; removes it if that fails.
fn put_in_place(root: &Dir, new: &Path, path: &Path) -> io::Result<()> {
    root.rename(new, root, path).inspect_err(|_| {
        let _ = root.remove_file(new);
    })
}

/// Writes a file beside its final path. Returns its temporary path.
fn write_beside(root: &Dir, path: &Path, content: &[u8], mode: Option<u32>) -> io::Result<PathBuf> {
    let new = path.with_file_name(format!(".{}", unique_id()));
    let write = || {
        let mut options = OpenOptions::new();
        // Other users must not read the file before its own permissions are set.
        options.write(true).create_new(true).mode(if mode.is_some() { 0o600 } else { 0o644 });
        let mut file = root.open_with(&new, &options)?.into_std();
        let written = file.write_all(content);
        let permissions = mode.map(Permissions::from_mode);
        written
            .and_then(|()| permissions.map_or(Ok(()), |mode| file.set_permissions(mode)))
            .inspect_err(|_| {
                let _ = root.remove_file(&new);
            })
    };
    with_writable_folder(root, path, write)?;
    Ok(new)
}

/// Sets the permissions of a file, without following links.
fn set_permissions(root: &Dir, path: &Path, mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = root.open_with(path, &options)?;
    file.into_std().set_permissions(Permissions::from_mode(mode))
}

/// Calls a function, if necessary with write permission in the folder of a path.
fn with_writable_folder(
    root: &Dir,
    path: &Path,
    act: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    act().or_else(|_| {
        let folder = ExtendedFolder::extend(root, path.parent().unwrap_or(Path::new("")))?;
        let done = act();
        folder.give_back(root);
        done
    })
}

/// Returns the reason why a new configuration must not replace an old one; `None` if it may.
pub(super) fn refusal_reason(
    old: &[u8],
    new: &[u8],
    is_fine: &dyn Fn(PlaceValue<'_>) -> bool,
) -> Option<String> {
    let Some(new) = parse_git_config(new) else {
        return Some("its content cannot be parsed".to_owned());
    };
    let old = parse_git_config(old).unwrap_or_default();
    let differs = |some: &[GitSetting], others: &[GitSetting]| {
        let bad =
            |setting: &&GitSetting| !others.contains(setting) && !setting.is_harmless(is_fine);
        some.iter().find(bad).map(GitSetting::key)
    };
    differs(&new, &old)
        .or_else(|| differs(&old, &new))
        .map(|key| format!("it may not change {key}"))
}

/// Adds the files that must stay unchanged, except those below `own`.
pub(super) fn exact_items(root: &Dir, path: &Path, own: &[PathBuf], items: &mut GitItems) {
    if own.iter().any(|own| own == path) {
        return;
    }
    let Ok(meta) = root.symlink_metadata(path) else { return };
    if !meta.is_dir() {
        items.insert(path.to_owned(), GitItem::read(root, path, GitItemKind::Exact, &meta));
        return;
    }
    let Ok(entries) = root.read_dir(path) else { return };
    for entry in entries.flatten() {
        if is_denied_name(&entry.file_name()) {
            continue;
        }
        exact_items(root, &path.join(entry.file_name()), own, items);
    }
}
