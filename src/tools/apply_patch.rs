//! `apply_patch`: a patch of any number of files, as a unified diff or in the format of `*** Begin Patch`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;

use schemars::JsonSchema;
use serde::Deserialize;

use super::calls::{Edit, EditCall, build_tool};
use super::description::{BuiltInTool, CallArguments, CallSummary, Subject, TargetKind};
use super::file_edit::{FileEdit, MAX_FILE_SIZE};
use super::patch::{
    Edge, FileOperation, FilePatch, Hunk, ParsedPatch, PatchError, apply_hunks, misplaced,
};
use super::settings::FileDeletion;
use super::{error_hints, nearest_lines};
use crate::workspace::{FileError, RelPath, TextFile, WorkspaceRoot, is_binary};

const NAME: &str = "apply_patch";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    name: NAME,
    aliases: &[],
    target: TargetKind::Write,
    summarize,
    build: |context| {
        let (root, delete) = (context.guarded_root(NAME), context.settings.delete);
        Some(build_tool(
            NAME,
            "Applies a unified diff, as git diff writes it, to any number of files; files can be created, deleted and \
             renamed. Either all of it is applied or nothing. Line numbers may be wrong by some lines, and so may one or \
             two lines at the edges of a hunk. The format *** Begin Patch is understood, too; the lines of each of its \
             hunks must occur once in the file, or be the first ones after its @@ lines.",
            move |Arguments { patch, path }| {
                let parsed = ParsedPatch::parse(&patch).map_err(|why| invalid_patch(&why))?;
                let mut edit = PatchEdit { parsed, path, delete, patches: Vec::new() };
                // An earlier call may create a file that does not exist yet.
                let _ = edit.resolve(&root);
                Ok(EditCall::new(&root, edit))
            },
        ))
    },
};

/// Summarizes a call by its file if there is only one, otherwise by the number of files.
fn summarize(arguments: CallArguments<'_>) -> CallSummary<'_> {
    const HEADERS: &str =
        "+++ |--- |*** Add File: |*** Update File: |*** Delete File: |*** Move to: ";
    let headers = arguments.text("patch").unwrap_or_default().lines().filter_map(|line| {
        let path = HEADERS.split('|').find_map(|header| line.strip_prefix(header))?;
        let path = path.split('\t').next().unwrap_or(path).trim();
        let path = path.strip_prefix("a/").or_else(|| path.strip_prefix("b/")).unwrap_or(path);
        (path != "/dev/null").then_some(path)
    });
    let files: BTreeSet<&str> = headers.collect();
    match files.first() {
        None => arguments.path(None),
        Some(only) if files.len() == 1 => Subject::Path(only).into(),
        Some(_) => Subject::Files(files.len()).into(),
    }
}

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A unified diff, as `git diff` writes it; or a patch from `*** Begin Patch` to `*** End Patch`.
    patch: String,
    /// The file, for a patch without the lines `---` and `+++`.
    path: Option<String>,
}

struct PatchEdit {
    parsed: ParsedPatch,
    /// The file of a patch without file names.
    path: Option<String>,
    delete: FileDeletion,
    /// Empty until the names are resolved.
    patches: Vec<ResolvedFilePatch>,
}

/// The patch of one file, with its names resolved.
struct ResolvedFilePatch {
    patch: FilePatch,
    old: Option<RelPath>,
    new: Option<RelPath>,
}

fn invalid(why: &str) -> String {
    format!("Invalid arguments for {NAME}: {why}.")
}

fn invalid_patch(why: &str) -> String {
    invalid(&format!("patch: {why}"))
}

impl PatchEdit {
    fn resolve_file(
        &self,
        root: &WorkspaceRoot,
        patch: FilePatch,
    ) -> Result<ResolvedFilePatch, String> {
        let resolve = |name: &String| root.resolve(name).map_err(|error| error.to_string());
        let mut old = patch.old.as_ref().map(resolve).transpose()?;
        let mut new = patch.new.as_ref().map(resolve).transpose()?;
        if old.is_none() && new.is_none() {
            let path = self.path.as_ref();
            let path =
                path.ok_or("the patch names no file; give it in path, or add lines --- and +++")?;
            old = Some(resolve(path)?);
            new.clone_from(&old);
        }
        if matches!(patch.operation, FileOperation::Deleted | FileOperation::DeletedUnchecked)
            && self.delete == FileDeletion::Refused
        {
            let name = patch.old.unwrap_or_default();
            return Err(format!(
                "it deletes {name}, and files may not be deleted; the user can allow it with workspace.allow_delete"
            ));
        }
        Ok(ResolvedFilePatch { patch, old, new })
    }
}

impl Edit for PatchEdit {
    fn resolve(&mut self, root: &WorkspaceRoot) -> Result<(), String> {
        let exists = |name: &str| root.resolve(name).is_ok_and(|path| root.exists(&path));
        let patches = self.parsed.resolve(&exists).map_err(|why| invalid_patch(&why))?;
        let resolved = patches.into_iter().map(|patch| self.resolve_file(root, patch));
        self.patches = resolved.collect::<Result<_, _>>().map_err(|why| invalid(&why))?;
        Ok(())
    }

    fn paths(&self) -> Vec<&RelPath> {
        let mut paths: Vec<&RelPath> = Vec::new();
        for path in self.patches.iter().flat_map(|part| [&part.old, &part.new]).flatten() {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths
    }

    fn edit(&self, root: &WorkspaceRoot) -> Result<FileEdit, String> {
        let renamed = self
            .patches
            .iter()
            .filter(|part| part.patch.operation == FileOperation::Renamed && part.old != part.new);
        // A path that cannot be resolved is reported when its patch is applied.
        let renamed = renamed.filter_map(|part| root.canonical(part.old.as_ref()?).ok()).collect();
        let mut files = PatchedFiles { root, files: BTreeMap::new(), renamed };
        for part in &self.patches {
            files.apply(part).map_err(|why| format!("{why} Nothing was changed."))?;
        }
        let mut edit = FileEdit::default();
        for (path, PatchedFile { before, after, is_touched }) in files.files {
            if is_touched && (before.is_some() || after.is_some()) {
                let mode = after.as_ref().and_then(|after| after.mode.filter(|_| after.sets_mode));
                let before = before.as_ref().map(|before| before.bytes.as_slice());
                edit.add(path, before, after.map(|after| after.bytes.into()), mode);
            }
        }
        Ok(edit)
    }
}

/// The files of a patch while it is applied in memory.
struct PatchedFiles<'a> {
    root: &'a WorkspaceRoot,
    files: BTreeMap<RelPath, PatchedFile>,
    /// Files that the patch renames, so that their old names become free.
    renamed: BTreeSet<RelPath>,
}

/// A file while the patch is applied in memory.
#[derive(Clone)]
struct PatchedFile {
    before: Option<FileContent>,
    after: Option<FileContent>,
    is_touched: bool,
}

/// The content of a file, and its permissions if they are known.
#[derive(Clone)]
struct FileContent {
    bytes: Vec<u8>,
    mode: Option<u32>,
    /// Whether the patch sets the permissions. If not, they are not changed by writing the file.
    sets_mode: bool,
}

/// The permission bits that a patch can set.
const PATCH_MODE: u32 = 0o777;

impl FileContent {
    /// Returns the content of a file after a patch.
    fn patched(&self, bytes: Vec<u8>, mode: Option<u32>) -> Self {
        let special = self.mode.unwrap_or_default() & !PATCH_MODE;
        Self {
            bytes,
            mode: mode.map(|mode| mode | special).or(self.mode),
            sets_mode: self.sets_mode || mode.is_some(),
        }
    }
}

impl PatchedFiles<'_> {
    fn apply(&mut self, part: &ResolvedFilePatch) -> Result<(), String> {
        let ResolvedFilePatch { patch, old, new } = part;
        if patch.removes_old()
            && let Some(why) =
                old.as_ref().and_then(|path| error_hints::describe_link_deletion(self.root, path))
        {
            return Err(why + ".");
        }
        let old = old.as_ref().map(|path| self.load(path)).transpose()?;
        let new = new.as_ref().map(|path| self.load(path)).transpose()?;
        match (patch.operation, old, new) {
            (FileOperation::Created, _, Some(path)) => {
                if !self.is_free(&path) {
                    return Err(format!("'{path}' exists already, but the patch creates it."));
                }
                let bytes = apply_hunks(&[], &patch.hunks).map_err(|_| {
                    format!("The patch creates '{path}', but its hunk removes lines.")
                })?;
                let content = FileContent { bytes, mode: patch.mode, sets_mode: true };
                self.set(&path, Some(content));
            }
            (FileOperation::Deleted, Some(path), _) => {
                let now = self.existing(&path, self.files[&path].after.as_ref())?;
                if !patch_content(&path, &now.bytes, patch)?.is_empty() {
                    return Err(format!(
                        "The patch deletes '{path}', which has lines that the patch does not name."
                    ));
                }
                self.set(&path, None);
            }
            (FileOperation::DeletedUnchecked, Some(path), _) => {
                self.existing(&path, self.files[&path].after.as_ref())?;
                self.set(&path, None);
            }
            (FileOperation::Renamed | FileOperation::Copied, Some(from), Some(to)) => {
                let source = &self.files[&from];
                // The original content, even if an earlier section has put another file in its place.
                let meant = source.before.as_ref().or(source.after.as_ref());
                let meant = self.existing(&from, meant)?;
                let bytes = patch_content(&from, &meant.bytes, patch)?;
                let mut content = meant.patched(bytes, patch.mode);
                // The new file gets the permissions of this one.
                content.sets_mode |= from != to;
                let is_itself = from == to && !source.is_touched;
                if !is_itself && !self.is_free(&to) {
                    return Err(format!(
                        "'{to}' exists already, but the patch renames or copies '{from}' to it."
                    ));
                }
                let is_as_expected = !source.is_touched || source.before.is_none();
                if patch.operation == FileOperation::Renamed && is_as_expected {
                    self.set(&from, None);
                }
                self.set(&to, Some(content));
            }
            (FileOperation::Modified, Some(path), _)
            | (FileOperation::Modified, None, Some(path)) => {
                let now = self.existing(&path, self.files[&path].after.as_ref())?;
                if patch.hunks.is_empty() && patch.mode == now.mode.map(|mode| mode & PATCH_MODE) {
                    return Err(format!("Nothing would change in '{path}'."));
                }
                let bytes = patch_content(&path, &now.bytes, patch)?;
                let content = now.patched(bytes, patch.mode);
                self.set(&path, Some(content));
            }
            (..) => return Err("The patch does not say which file it is about.".to_owned()),
        }
        Ok(())
    }

    /// Loads a file, and returns its path with links resolved.
    fn load(&mut self, path: &RelPath) -> Result<RelPath, String> {
        let root = self.root;
        let failed = |error| error_hints::describe_missing(root, &error) + ".";
        let path = root.canonical(path).map_err(failed)?;
        if !self.files.contains_key(&path) {
            let before = match root.read(&path, MAX_FILE_SIZE) {
                Ok(bytes) => {
                    let opened = root.open_file(&path).ok();
                    let meta = opened.and_then(|opened| opened.file.metadata().ok());
                    let mode = meta.map(|meta| meta.permissions().mode() & 0o7777);
                    Some(FileContent { bytes, mode, sets_mode: false })
                }
                Err(FileError::Missing(_)) => None,
                Err(error) => return Err(failed(error)),
            };
            let file = PatchedFile { after: before.clone(), before, is_touched: false };
            self.files.insert(path.clone(), file);
        }
        Ok(path)
    }

    /// Returns whether another file may take this name: no file has it, or the file with this name is renamed
    /// unchanged.
    fn is_free(&self, path: &RelPath) -> bool {
        let file = &self.files[path];
        file.after.is_none() || (!file.is_touched && self.renamed.contains(path))
    }

    /// Returns the content of a file, or an error if it is missing.
    fn existing<'a>(
        &self,
        path: &RelPath,
        content: Option<&'a FileContent>,
    ) -> Result<&'a FileContent, String> {
        let missing = || FileError::Missing(path.clone());
        content.ok_or_else(|| error_hints::describe_missing(self.root, &missing()) + ".")
    }

    fn set(&mut self, path: &RelPath, after: Option<FileContent>) {
        if let Some(file) = self.files.get_mut(path) {
            file.after = after;
            file.is_touched = true;
        }
    }
}

/// Applies the hunks of a section to the content of a file.
fn patch_content(path: &RelPath, content: &[u8], patch: &FilePatch) -> Result<Vec<u8>, String> {
    let hunks = &patch.hunks;
    if hunks.is_empty() {
        return Ok(content.to_vec());
    }
    if is_binary(content) {
        return Err(format!("'{path}' is a binary file; only text can be patched."));
    }
    let added = hunks.iter().find_map(Hunk::first_beyond_ascii);
    if added.is_some_and(|added| TextFile::would_mix_encodings(content, added)) {
        return Err(error_hints::describe_encoding_conflict(path));
    }
    let apply = |content: &[u8]| {
        apply_hunks(content, hunks).map_err(|why| describe_failure(path, content, hunks, why))
    };
    // The patch is applied to the decoded text without a byte order mark, unless the patch contains the mark.
    let has_mark = hunks.iter().any(Hunk::has_byte_order_mark);
    let text = TextFile::read(content.to_vec()).filter(|text| text.content != content);
    match text.filter(|text| text.encoding.is_wide() || !has_mark) {
        Some(text) => {
            let encoded = text.encode(&apply(&text.content)?);
            encoded
                .ok_or_else(|| format!("'{path}' cannot hold what the patch adds in its encoding."))
        }
        None => apply(content),
    }
}

/// Describes a hunk whose lines are at `at`, counted from zero, instead of at the edge of the file where it has to be.
fn not_at_edge(hunk: &Hunk, edge: Edge, at: usize) -> String {
    let lines = match hunk.old_lines().len() {
        1 => format!("line {}", at + 1),
        count => format!("lines {}-{}", at + 1, at + count),
    };
    let bound = |side: &str, other: &str, own: usize, edge: &str| {
        let has = match own {
            0 => format!("no lines {side} its change"),
            _ => format!("fewer lines {side} its change than {other} it"),
        };
        format!(
            "it has {has}, so it has to be at the {edge} of the file, but what it changes is in {lines}. Add the lines \
             of the file that are {side} the change as context."
        )
    };
    match edge {
        Edge::Start => bound("before", "after", hunk.leading_context(), "start"),
        Edge::End => bound("after", "before", hunk.trailing_context(), "end"),
        Edge::DeclaredEnd => format!(
            "'*** End of File' says that it is at the end of the file, but what it changes is in {lines}. Leave out \
             '*** End of File'."
        ),
    }
}

/// Describes the reason why a patch was not applied.
fn describe_failure(path: &RelPath, content: &[u8], hunks: &[Hunk], why: PatchError) -> String {
    let (index, why) = match why {
        PatchError::Unchanged => {
            let text = "it may have been applied already.";
            return format!("The patch changes nothing in '{path}'; {text}");
        }
        PatchError::NotFound(index) => {
            let hunk = &hunks[index];
            let edge = misplaced(content, hunk).map(|(edge, at)| not_at_edge(hunk, edge, at));
            let why = edge.unwrap_or_else(|| {
                let hint = nearest_lines::describe_nearest(content, &hunk.old_lines().concat());
                format!("its lines are not in the file. {hint}\n")
            });
            (index, why)
        }
        PatchError::Ambiguous(index, times) => {
            let why = format!(
                "its lines are in the file {times} times. Give more of the lines around the change, or write the class \
                 or the function that it is in behind @@."
            );
            (index, why)
        }
        PatchError::HeaderNotFound(index, header) => {
            let why = format!(
                "there is no line '{}' in the file, or not behind the hunk before. What stands behind @@ is a whole \
                 line of the file.",
                header.trim()
            );
            (index, why)
        }
        PatchError::NoPosition(index) => {
            (index, "it only adds lines. Give some of the lines around them.".to_owned())
        }
    };
    let (number, line) = (index + 1, hunks[index].patch_line);
    format!("Hunk {number} for '{path}' (line {line} of the patch) does not fit: {why}")
}
