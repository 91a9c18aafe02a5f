//! `apply_patch`: a patch of any number of files, as a unified diff or in the format `*** Begin Patch`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;

use schemars::JsonSchema;
use serde::Deserialize;

use super::edit::{Edit, LIMIT};
use super::patch::{Edge, Hunk, NotApplied, Section, What, applied, misplaced, sections};
use super::settings::Delete;
use super::tool::{Context, Kind, Output, Plan, Prepared, Target, Tool};
use super::{advice, near, schema};
use crate::model::Access;
use crate::port::ToolSpec;
use crate::workspace::{FileError, RelPath, Root, Text, is_binary};

/// Applies patches.
pub(super) struct ApplyPatch {
    root: Root,
    delete: Delete,
    spec: ToolSpec,
}

/// What the model says.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A unified diff, as `git diff` writes it; or a patch from `*** Begin Patch` to `*** End Patch`.
    patch: String,
    /// The file, for a patch without the lines `---` and `+++`.
    path: Option<String>,
}

/// A section with the files that it is about.
struct Part {
    section: Section,
    old: Option<RelPath>,
    new: Option<RelPath>,
}

struct Call {
    root: Root,
    parts: Vec<Part>,
    edit: Option<Edit>,
}

/// The files of a patch while it is worked out.
struct Files {
    all: BTreeMap<RelPath, File>,
    /// Those that get another name somewhere in the patch, so that theirs is free for another one.
    leaving: BTreeSet<RelPath>,
}

/// A file while the patch is worked out.
#[derive(Clone)]
struct File {
    before: Option<Content>,
    now: Option<Content>,
    is_touched: bool,
}

/// What a file holds, and its permissions where they are known.
#[derive(Clone)]
struct Content {
    bytes: Vec<u8>,
    mode: Option<u32>,
}

impl File {
    /// Returns what a section means that takes the file away: not what an earlier one has put in its place.
    fn meant(&self) -> Option<&Content> {
        self.before.as_ref().or(self.now.as_ref())
    }

    /// Returns whether that is still what is there.
    fn is_as_meant(&self) -> bool {
        !self.is_touched || self.before.is_none()
    }
}

impl ApplyPatch {
    /// Returns the tool.
    pub(super) fn new(root: Root, delete: Delete) -> Self {
        let spec = schema::spec::<Arguments>(
            "apply_patch",
            "Applies a unified diff, as git diff writes it, to any number of files; files can be created, deleted and \
             renamed. Either all of it is applied or nothing. Line numbers may be wrong by some lines, and so may one or \
             two lines at the edges of a hunk. The format *** Begin Patch is understood, too; the lines of each of its \
             hunks have to stand in the file once, or be the first ones behind its @@ lines.",
        );
        Self { root, delete, spec }
    }

    fn part(&self, section: Section, path: Option<&str>) -> Result<Part, String> {
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
        if matches!(section.what, What::Deleted | What::Dropped) && self.delete == Delete::Refused {
            let name = section.old.unwrap_or_default();
            return Err(format!(
                "it deletes {name}, and files may not be deleted; the user can allow it with workspace.allow_delete"
            ));
        }
        Ok(Part { section, old, new })
    }
}

impl Tool for ApplyPatch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<Box<dyn Prepared>, String> {
        let Arguments { patch, path } = schema::parse(&self.spec, arguments)?;
        let invalid = |why: String| format!("Invalid arguments for apply_patch: {why}.");
        let exists = |name: &str| self.root.resolve(name).is_ok_and(|path| self.root.exists(&path));
        let sections = sections(&patch, &exists).map_err(|why| invalid(format!("patch: {why}")))?;
        let parts = sections.into_iter().map(|section| self.part(section, path.as_deref()));
        let parts = parts.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
        Ok(Box::new(Call { root: self.root.clone(), parts, edit: None }))
    }
}

impl Prepared for Call {
    fn kind(&self) -> Kind {
        Kind::Changes
    }

    fn access(&self) -> Access {
        Access::Write(self.paths().map(|path| path.to_string().into()).collect())
    }

    fn targets(&self) -> Vec<Target> {
        self.paths().map(|path| Target::Write(path.to_string())).collect()
    }

    fn real_targets(&self) -> Vec<Target> {
        let real = self.paths().filter_map(|path| self.root.real(path));
        real.map(|path| Target::Write(path.to_string())).collect()
    }

    fn summary(&self) -> String {
        let paths: Vec<String> = self.paths().map(ToString::to_string).collect();
        paths.join(", ")
    }

    fn plan(&mut self) -> Result<Plan, Output> {
        let edit = self.edit().map_err(Output::failed)?;
        let plan = edit.plan();
        self.edit = Some(edit);
        Ok(plan)
    }

    fn run(self: Box<Self>, _: &Context<'_>) -> Output {
        let edit = match self.edit {
            Some(edit) => edit,
            None => match self.edit() {
                Ok(edit) => edit,
                Err(why) => return Output::failed(why),
            },
        };
        edit.run(&self.root)
    }
}

impl Call {
    /// Returns the files, each once, in the order in which the patch has them.
    fn paths(&self) -> impl Iterator<Item = &RelPath> {
        let mut paths: Vec<&RelPath> = Vec::new();
        for path in self.parts.iter().flat_map(|part| [&part.old, &part.new]).flatten() {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths.into_iter()
    }

    fn edit(&self) -> Result<Edit, String> {
        let mut files = Files { all: BTreeMap::new(), leaving: self.leaving() };
        for part in &self.parts {
            self.work_out(part, &mut files).map_err(|why| format!("{why} Nothing was changed."))?;
        }
        let mut edit = Edit::default();
        for (path, File { before, now, .. }) in files.all.into_iter().filter(|(_, f)| f.is_touched)
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
    fn leaving(&self) -> BTreeSet<RelPath> {
        let renamed = self.parts.iter().filter(|part| part.section.what == What::Renamed);
        let moved = renamed.filter(|part| part.old != part.new);
        // What leads nowhere is complained about later on.
        moved.filter_map(|part| self.root.canonical(part.old.as_ref()?).ok()).collect()
    }

    fn work_out(&self, part: &Part, files: &mut Files) -> Result<(), String> {
        let Part { section, old, new } = part;
        let old = old.as_ref().map(|path| self.load(path, files)).transpose()?;
        let new = new.as_ref().map(|path| self.load(path, files)).transpose()?;
        let hunks = &section.hunks;
        let content = |bytes, mode| Some(Content { bytes, mode });
        match (section.what, old, new) {
            (What::Created, _, Some(path)) => {
                if !files.is_free(&path) {
                    return Err(format!("'{path}' exists already, and the patch creates it."));
                }
                let bytes = applied(&[], hunks).map_err(|_| {
                    format!("The patch creates '{path}', but its hunk removes lines.")
                })?;
                files.put(&path, content(bytes, section.mode));
            }
            (What::Deleted, Some(path), _) => {
                let now = files.all[&path].now.as_ref();
                let now = now.ok_or_else(|| missing(&self.root, &path))?;
                let is_empty = match hunks.is_empty() {
                    true => now.bytes.is_empty(),
                    false => patched(&path, &now.bytes, section)?.is_empty(),
                };
                if !is_empty {
                    return Err(format!(
                        "The patch deletes '{path}', which has lines that the patch does not name."
                    ));
                }
                files.put(&path, None);
            }
            (What::Dropped, Some(path), _) => {
                if files.all[&path].now.is_none() {
                    return Err(missing(&self.root, &path));
                }
                files.put(&path, None);
            }
            (What::Renamed | What::Copied, Some(from), Some(to)) => {
                let source = files.all[&from].clone();
                let meant = source.meant().ok_or_else(|| missing(&self.root, &from))?;
                let bytes = match hunks.is_empty() {
                    true => meant.bytes.clone(),
                    false => patched(&from, &meant.bytes, section)?,
                };
                let is_itself = from == to && !source.is_touched;
                if !is_itself && !files.is_free(&to) {
                    return Err(format!(
                        "'{to}' exists already, and the patch gives its name to '{from}'."
                    ));
                }
                if section.what == What::Renamed && source.is_as_meant() {
                    files.put(&from, None);
                }
                files.put(&to, content(bytes, section.mode.or(meant.mode)));
            }
            (What::Modified, Some(path), _) | (What::Modified, None, Some(path)) => {
                let now = files.all[&path].now.as_ref();
                let now = now.ok_or_else(|| missing(&self.root, &path))?;
                let bytes = match hunks.is_empty() {
                    true => now.bytes.clone(),
                    false => patched(&path, &now.bytes, section)?,
                };
                if hunks.is_empty() && section.mode == now.mode {
                    return Err(format!("Nothing would change in '{path}'."));
                }
                let mode = section.mode.or(now.mode);
                files.put(&path, content(bytes, mode));
            }
            (..) => return Err("The patch does not say which file it is about.".to_owned()),
        }
        Ok(())
    }

    /// Loads a file, and returns its real path.
    fn load(&self, path: &RelPath, files: &mut Files) -> Result<RelPath, String> {
        let failed = |error| advice::missing(&self.root, &error) + ".";
        let path = self.root.canonical(path).map_err(failed)?;
        if !files.all.contains_key(&path) {
            let before = match self.root.read(&path, LIMIT) {
                Ok(bytes) => {
                    let opened = self.root.open_file(&path).ok();
                    let meta = opened.and_then(|opened| opened.file.metadata().ok());
                    let mode = meta.map(|meta| meta.permissions().mode() & 0o777);
                    Some(Content { bytes, mode })
                }
                Err(FileError::Missing(_)) => None,
                Err(error) => return Err(failed(error)),
            };
            let file = File { now: before.clone(), before, is_touched: false };
            files.all.insert(path.clone(), file);
        }
        Ok(path)
    }
}

/// Returns what the hunks of a section make of a file.
fn patched(path: &RelPath, content: &[u8], section: &Section) -> Result<Vec<u8>, String> {
    if is_binary(content) {
        return Err(format!("'{path}' is a binary file; only text can be patched."));
    }
    let hunks = &section.hunks;
    let added = hunks.iter().find_map(Hunk::first_beyond_ascii);
    if added.is_some_and(|added| Text::would_mix(content, added)) {
        return Err(advice::other_encoding(path));
    }
    // The patch is about the text, without its mark and in no encoding, unless it has the mark too.
    let has_mark = hunks.iter().any(Hunk::has_mark);
    let text = Text::read(content.to_vec()).filter(|text| text.content != content);
    match text.filter(|text| text.encoding.is_wide() || !has_mark) {
        Some(text) => {
            let new = applied(&text.content, hunks)
                .map_err(|why| not_applied(path, &text.content, hunks, why))?;
            let held = text.with(&new);
            held.ok_or_else(|| format!("'{path}' cannot hold what the patch adds in its encoding."))
        }
        None => applied(content, hunks).map_err(|why| not_applied(path, content, hunks, why)),
    }
}

/// Says that the lines of a hunk are at `at`, counted from zero, and not at the end of the file where it has to be.
fn not_at_edge(hunk: &Hunk, edge: Edge, at: usize) -> String {
    let lines = match hunk.before().len() {
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
        Edge::Start => bound("before", "after", hunk.lead(), "start"),
        Edge::End => bound("after", "before", hunk.tail(), "end"),
        Edge::DeclaredEnd => format!(
            "'*** End of File' says that it is at the end of the file, but what it changes is in {lines}. Leave out \
             '*** End of File'."
        ),
    }
}

/// Says why a patch was not applied.
fn not_applied(path: &RelPath, content: &[u8], hunks: &[Hunk], why: NotApplied) -> String {
    let told = |index: usize| {
        format!("Hunk {} for '{path}' (line {} of the patch)", index + 1, hunks[index].at)
    };
    match why {
        NotApplied::Unchanged => {
            format!("The patch changes nothing in '{path}'; it may have been applied already.")
        }
        NotApplied::Hunk(index) => {
            let hunk = &hunks[index];
            let why = if let Some((edge, at)) = misplaced(content, hunk) {
                not_at_edge(hunk, edge, at)
            } else {
                let hint = near::hint(content, &hunk.before().concat());
                format!("its lines are not in the file. {hint}\n")
            };
            format!("{} does not fit: {why}", told(index))
        }
        NotApplied::Ambiguous(index, times) => format!(
            "{} does not fit: its lines are in the file {times} times. Give more of the lines around the change, or \
             write the class or the function that it is in behind @@.",
            told(index)
        ),
        NotApplied::Header(index, header) => format!(
            "{} does not fit: there is no line '{}' in the file, or not behind the hunk before. What stands behind @@ \
             is a whole line of the file.",
            told(index),
            header.trim()
        ),
        NotApplied::Nowhere(index) => format!(
            "{} does not fit: it only adds lines. Give some of the lines around them.",
            told(index)
        ),
    }
}

fn missing(root: &Root, path: &RelPath) -> String {
    advice::missing(root, &FileError::Missing(path.clone())) + "."
}

impl Files {
    /// Returns whether another file may get this name: there is none, or it will be called otherwise as it is.
    fn is_free(&self, path: &RelPath) -> bool {
        let file = &self.all[path];
        file.now.is_none() || (!file.is_touched && self.leaving.contains(path))
    }

    fn put(&mut self, path: &RelPath, now: Option<Content>) {
        if let Some(file) = self.all.get_mut(path) {
            file.now = now;
            file.is_touched = true;
        }
    }
}
