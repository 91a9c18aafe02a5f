//! `apply_patch`: a patch of any number of files, as a unified diff or in the format `*** Begin Patch`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;

use schemars::JsonSchema;
use serde::Deserialize;

use super::description::{
    BuiltInTool, CallArguments, CallSummary, Subject, TargetKind, ToolDescription,
};
use super::file_edit::{FileEdit, MAX_FILE_SIZE};
use super::patch::{
    Edge, FileOperation, FilePatch, Hunk, ParsedPatch, PatchError, apply_hunks, misplaced,
};
use super::settings::FileDeletion;
use super::tool::{CallContext, CallPlan, Tool, ToolInvocation, ToolOutput};
use super::{error_hints, nearest_lines, schema};
use crate::model::CallAccess;
use crate::policy::{CallKind, CallTarget};
use crate::port::ToolSpec;
use crate::workspace::{FileError, RelPath, TextFile, WorkspaceRoot, is_binary};

const NAME: &str = "apply_patch";

pub(super) const TOOL: BuiltInTool = BuiltInTool {
    description: ToolDescription {
        name: NAME,
        kind: CallKind::Changes,
        target: TargetKind::Write,
        summarize,
    },
    build: |context| {
        Some(Box::new(ApplyPatch::new(context.guarded_root(NAME), context.settings.delete)))
    },
};

/// Summarizes a call by its file, or by their number.
fn summarize(arguments: CallArguments<'_>) -> CallSummary<'_> {
    const HEADERS: [&str; 6] = [
        "+++ ",
        "--- ",
        "*** Add File: ",
        "*** Update File: ",
        "*** Delete File: ",
        "*** Move to: ",
    ];
    let headers = arguments.text("patch").unwrap_or_default().lines().filter_map(|line| {
        let path = HEADERS.iter().find_map(|header| line.strip_prefix(header))?;
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

/// Applies patches.
#[derive(Clone)]
pub(super) struct ApplyPatch {
    root: WorkspaceRoot,
    delete: FileDeletion,
    spec: ToolSpec,
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

/// A section with the files that it is about.
struct ResolvedFilePatch {
    patch: FilePatch,
    old: Option<RelPath>,
    new: Option<RelPath>,
}

struct Call {
    tool: ApplyPatch,
    parsed: ParsedPatch,
    /// The file of a patch that names none.
    path: Option<String>,
    /// Empty until the names are resolved.
    patches: Vec<ResolvedFilePatch>,
    edit: Option<FileEdit>,
}

/// The files of a patch while it is worked out.
struct PatchedFiles {
    files: BTreeMap<RelPath, PatchedFile>,
    /// Those that get another name somewhere in the patch, so that theirs is free for another one.
    renamed: BTreeSet<RelPath>,
}

/// A file while the patch is worked out.
#[derive(Clone)]
struct PatchedFile {
    before: Option<FileContent>,
    after: Option<FileContent>,
    is_touched: bool,
}

/// What a file holds, and its permissions where they are known.
#[derive(Clone)]
struct FileContent {
    bytes: Vec<u8>,
    mode: Option<u32>,
}

impl PatchedFile {
    /// Returns what a section means that takes the file away: not what an earlier one has put in its place.
    fn expected(&self) -> Option<&FileContent> {
        self.before.as_ref().or(self.after.as_ref())
    }

    /// Returns whether that is still what is there.
    fn is_as_expected(&self) -> bool {
        !self.is_touched || self.before.is_none()
    }
}

impl ApplyPatch {
    /// Returns the tool.
    pub(super) fn new(root: WorkspaceRoot, delete: FileDeletion) -> Self {
        let spec = schema::tool_spec::<Arguments>(
            NAME,
            "Applies a unified diff, as git diff writes it, to any number of files; files can be created, deleted and \
             renamed. Either all of it is applied or nothing. Line numbers may be wrong by some lines, and so may one or \
             two lines at the edges of a hunk. The format *** Begin Patch is understood, too; the lines of each of its \
             hunks have to stand in the file once, or be the first ones behind its @@ lines.",
        );
        Self { root, delete, spec }
    }

    fn resolve(&self, section: FilePatch, path: Option<&str>) -> Result<ResolvedFilePatch, String> {
        let resolve = |name: &Option<String>| match name {
            Some(name) => self.root.resolve(name).map(Some).map_err(|error| error.to_string()),
            None => Ok(None),
        };
        let (mut old, mut new) = (resolve(&section.old)?, resolve(&section.new)?);
        if old.is_none() && new.is_none() {
            let path =
                path.ok_or("the patch names no file; give it in path, or add lines --- and +++")?;
            old = resolve(&Some(path.to_owned()))?;
            new.clone_from(&old);
        }
        if matches!(section.operation, FileOperation::Deleted | FileOperation::DeletedUnchecked)
            && self.delete == FileDeletion::Refused
        {
            let name = section.old.unwrap_or_default();
            return Err(format!(
                "it deletes {name}, and files may not be deleted; the user can allow it with workspace.allow_delete"
            ));
        }
        Ok(ResolvedFilePatch { patch: section, old, new })
    }
}

impl Tool for ApplyPatch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn ToolInvocation>, String> {
        let Arguments { patch, path } = schema::parse_arguments(&self.spec, arguments)?;
        let parsed = ParsedPatch::parse(&patch).map_err(|why| invalid(&format!("patch: {why}")))?;
        let mut call = Call { tool: self.clone(), parsed, path, patches: Vec::new(), edit: None };
        // Names that are unknown now may be those of files that an earlier call makes.
        let _ = call.resolve();
        Ok(Box::new(call))
    }
}

fn invalid(why: &str) -> String {
    format!("Invalid arguments for apply_patch: {why}.")
}

impl ToolInvocation for Call {
    fn kind(&self) -> CallKind {
        TOOL.description.kind
    }

    fn access(&self) -> CallAccess {
        if self.patches.is_empty() {
            return CallAccess::Exclusive;
        }
        CallAccess::Write(self.paths().map(|path| path.to_string().into()).collect())
    }

    fn resolve(&mut self) -> Result<(), String> {
        let root = &self.tool.root;
        let exists = |name: &str| root.resolve(name).is_ok_and(|path| root.exists(&path));
        let patches =
            self.parsed.resolve(&exists).map_err(|why| invalid(&format!("patch: {why}")))?;
        let resolved =
            patches.into_iter().map(|patch| self.tool.resolve(patch, self.path.as_deref()));
        self.patches = resolved.collect::<Result<_, _>>().map_err(|why| invalid(&why))?;
        Ok(())
    }

    fn targets(&self) -> Vec<CallTarget> {
        self.paths().map(|path| CallTarget::Write(path.to_string())).collect()
    }

    fn real_targets(&self) -> Vec<CallTarget> {
        let real = self.paths().filter_map(|path| self.tool.root.real_path(path));
        real.map(|path| CallTarget::Write(path.to_string())).collect()
    }

    fn summary(&self) -> String {
        let paths: Vec<String> = self.paths().map(ToString::to_string).collect();
        paths.join(", ")
    }

    fn plan(&mut self) -> Result<CallPlan, ToolOutput> {
        let edit = self.edit().map_err(ToolOutput::failed)?;
        let plan = edit.plan();
        self.edit = Some(edit);
        Ok(plan)
    }

    fn run(self: Box<Self>, _: &CallContext<'_>) -> ToolOutput {
        let edit = match self.edit {
            Some(edit) => edit,
            None => match self.edit() {
                Ok(edit) => edit,
                Err(why) => return ToolOutput::failed(why),
            },
        };
        edit.apply(&self.tool.root)
    }
}

impl Call {
    /// Returns the files, each once, in the order in which the patch has them.
    fn paths(&self) -> impl Iterator<Item = &RelPath> {
        let mut paths: Vec<&RelPath> = Vec::new();
        for path in self.patches.iter().flat_map(|part| [&part.old, &part.new]).flatten() {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths.into_iter()
    }

    fn edit(&self) -> Result<FileEdit, String> {
        let mut files = PatchedFiles { files: BTreeMap::new(), renamed: self.renamed_files() };
        for part in &self.patches {
            self.apply_to(part, &mut files).map_err(|why| format!("{why} Nothing was changed."))?;
        }
        let mut edit = FileEdit::default();
        for (path, PatchedFile { before, after: now, .. }) in
            files.files.into_iter().filter(|(_, f)| f.is_touched)
        {
            if before.is_none() && now.is_none() {
                continue;
            }
            let before = before.as_ref().map(|before| before.bytes.as_slice());
            let (now, mode) = now.map(|now| (now.bytes, now.mode)).unzip();
            edit.add(path, before, now.map(Into::into), mode.flatten());
        }
        Ok(edit)
    }

    /// Returns the files that get another name.
    fn renamed_files(&self) -> BTreeSet<RelPath> {
        let renamed =
            self.patches.iter().filter(|part| part.patch.operation == FileOperation::Renamed);
        let moved = renamed.filter(|part| part.old != part.new);
        // What leads nowhere is complained about later on.
        moved.filter_map(|part| self.tool.root.canonical(part.old.as_ref()?).ok()).collect()
    }

    fn apply_to(&self, part: &ResolvedFilePatch, files: &mut PatchedFiles) -> Result<(), String> {
        let ResolvedFilePatch { patch: section, old, new } = part;
        let old = old.as_ref().map(|path| self.load(path, files)).transpose()?;
        let new = new.as_ref().map(|path| self.load(path, files)).transpose()?;
        let hunks = &section.hunks;
        let content = |bytes, mode| Some(FileContent { bytes, mode });
        match (section.operation, old, new) {
            (FileOperation::Created, _, Some(path)) => {
                if !files.is_free(&path) {
                    return Err(format!("'{path}' exists already, and the patch creates it."));
                }
                let bytes = apply_hunks(&[], hunks).map_err(|_| {
                    format!("The patch creates '{path}', but its hunk removes lines.")
                })?;
                files.set(&path, content(bytes, section.mode));
            }
            (FileOperation::Deleted, Some(path), _) => {
                let now = files.files[&path].after.as_ref();
                let now = now.ok_or_else(|| describe_missing_file(&self.tool.root, &path))?;
                let is_empty = match hunks.is_empty() {
                    true => now.bytes.is_empty(),
                    false => patch_content(&path, &now.bytes, section)?.is_empty(),
                };
                if !is_empty {
                    return Err(format!(
                        "The patch deletes '{path}', which has lines that the patch does not name."
                    ));
                }
                files.set(&path, None);
            }
            (FileOperation::DeletedUnchecked, Some(path), _) => {
                if files.files[&path].after.is_none() {
                    return Err(describe_missing_file(&self.tool.root, &path));
                }
                files.set(&path, None);
            }
            (FileOperation::Renamed | FileOperation::Copied, Some(from), Some(to)) => {
                let source = files.files[&from].clone();
                let meant = source
                    .expected()
                    .ok_or_else(|| describe_missing_file(&self.tool.root, &from))?;
                let bytes = match hunks.is_empty() {
                    true => meant.bytes.clone(),
                    false => patch_content(&from, &meant.bytes, section)?,
                };
                let is_itself = from == to && !source.is_touched;
                if !is_itself && !files.is_free(&to) {
                    return Err(format!(
                        "'{to}' exists already, and the patch gives its name to '{from}'."
                    ));
                }
                if section.operation == FileOperation::Renamed && source.is_as_expected() {
                    files.set(&from, None);
                }
                files.set(&to, content(bytes, section.mode.or(meant.mode)));
            }
            (FileOperation::Modified, Some(path), _)
            | (FileOperation::Modified, None, Some(path)) => {
                let now = files.files[&path].after.as_ref();
                let now = now.ok_or_else(|| describe_missing_file(&self.tool.root, &path))?;
                let bytes = match hunks.is_empty() {
                    true => now.bytes.clone(),
                    false => patch_content(&path, &now.bytes, section)?,
                };
                if hunks.is_empty() && section.mode == now.mode {
                    return Err(format!("Nothing would change in '{path}'."));
                }
                let mode = section.mode.or(now.mode);
                files.set(&path, content(bytes, mode));
            }
            (..) => return Err("The patch does not say which file it is about.".to_owned()),
        }
        Ok(())
    }

    /// Loads a file, and returns its real path.
    fn load(&self, path: &RelPath, files: &mut PatchedFiles) -> Result<RelPath, String> {
        let failed = |error| error_hints::describe_missing(&self.tool.root, &error) + ".";
        let path = self.tool.root.canonical(path).map_err(failed)?;
        if !files.files.contains_key(&path) {
            let before = match self.tool.root.read(&path, MAX_FILE_SIZE) {
                Ok(bytes) => {
                    let opened = self.tool.root.open_file(&path).ok();
                    let meta = opened.and_then(|opened| opened.file.metadata().ok());
                    let mode = meta.map(|meta| meta.permissions().mode() & 0o777);
                    Some(FileContent { bytes, mode })
                }
                Err(FileError::Missing(_)) => None,
                Err(error) => return Err(failed(error)),
            };
            let file = PatchedFile { after: before.clone(), before, is_touched: false };
            files.files.insert(path.clone(), file);
        }
        Ok(path)
    }
}

/// Returns what the hunks of a section make of a file.
fn patch_content(path: &RelPath, content: &[u8], section: &FilePatch) -> Result<Vec<u8>, String> {
    if is_binary(content) {
        return Err(format!("'{path}' is a binary file; only text can be patched."));
    }
    let hunks = &section.hunks;
    let added = hunks.iter().find_map(Hunk::first_beyond_ascii);
    if added.is_some_and(|added| TextFile::would_mix_encodings(content, added)) {
        return Err(error_hints::describe_encoding_conflict(path));
    }
    // The patch is about the text, without its mark and in no encoding, unless it has the mark too.
    let has_mark = hunks.iter().any(Hunk::has_byte_order_mark);
    let text = TextFile::read(content.to_vec()).filter(|text| text.content != content);
    match text.filter(|text| text.encoding.is_wide() || !has_mark) {
        Some(text) => {
            let new = apply_hunks(&text.content, hunks)
                .map_err(|why| describe_failure(path, &text.content, hunks, why))?;
            let held = text.encode(&new);
            held.ok_or_else(|| format!("'{path}' cannot hold what the patch adds in its encoding."))
        }
        None => {
            apply_hunks(content, hunks).map_err(|why| describe_failure(path, content, hunks, why))
        }
    }
}

/// Says that the lines of a hunk are at `at`, counted from zero, and not at the end of the file where it has to be.
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

/// Says why a patch was not applied.
fn describe_failure(path: &RelPath, content: &[u8], hunks: &[Hunk], why: PatchError) -> String {
    let described = |index: usize| {
        format!("Hunk {} for '{path}' (line {} of the patch)", index + 1, hunks[index].patch_line)
    };
    match why {
        PatchError::Unchanged => {
            format!("The patch changes nothing in '{path}'; it may have been applied already.")
        }
        PatchError::NotFound(index) => {
            let hunk = &hunks[index];
            let why = if let Some((edge, at)) = misplaced(content, hunk) {
                not_at_edge(hunk, edge, at)
            } else {
                let hint = nearest_lines::describe_nearest(content, &hunk.old_lines().concat());
                format!("its lines are not in the file. {hint}\n")
            };
            format!("{} does not fit: {why}", described(index))
        }
        PatchError::Ambiguous(index, times) => format!(
            "{} does not fit: its lines are in the file {times} times. Give more of the lines around the change, or \
             write the class or the function that it is in behind @@.",
            described(index)
        ),
        PatchError::HeaderNotFound(index, header) => format!(
            "{} does not fit: there is no line '{}' in the file, or not behind the hunk before. What stands behind @@ \
             is a whole line of the file.",
            described(index),
            header.trim()
        ),
        PatchError::NoPosition(index) => format!(
            "{} does not fit: it only adds lines. Give some of the lines around them.",
            described(index)
        ),
    }
}

fn describe_missing_file(root: &WorkspaceRoot, path: &RelPath) -> String {
    error_hints::describe_missing(root, &FileError::Missing(path.clone())) + "."
}

impl PatchedFiles {
    /// Returns whether another file may get this name: there is none, or it will be called otherwise as it is.
    fn is_free(&self, path: &RelPath) -> bool {
        let file = &self.files[path];
        file.after.is_none() || (!file.is_touched && self.renamed.contains(path))
    }

    fn set(&mut self, path: &RelPath, now: Option<FileContent>) {
        if let Some(file) = self.files.get_mut(path) {
            file.after = now;
            file.is_touched = true;
        }
    }
}
