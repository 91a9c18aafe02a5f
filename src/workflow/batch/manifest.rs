//! The manifest of a batch: tasks, variants, and the problems in them.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::manifest_file::{ManifestEntry, ManifestField, ManifestText, ReadEntry, read_entries};
use super::manifest_settings::flatten_settings;
use crate::exec::{resolve_path, resolve_within};
use crate::types::{did_you_mean, nearest};

/// The placeholder for the task's prompt in the prompt of a variant.
const PROMPT_PLACEHOLDER: &str = "{{prompt}}";

/// Length limit of an id, in characters.
pub(super) const MAX_ID_LENGTH: usize = 200;

/// A task of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchTask {
    /// The unique name.
    pub id: String,
    /// The line of the manifest in which the task begins, counted from one.
    pub line: usize,
    /// The prompt.
    pub prompt: String,
    /// The workspace.
    pub workspace: TaskWorkspace,
    /// The agent and the settings.
    pub options: TaskOptions,
    /// Shell commands to run before the task.
    pub setup: Vec<String>,
    /// Shell commands that must succeed after the task.
    pub checks: Vec<String>,
}

/// The workspace of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskWorkspace {
    /// The workspace of the command.
    Common,
    /// A folder.
    Folder(PathBuf),
    /// A separate worktree that includes the uncommitted changes of this folder of a repository.
    Changes(PathBuf),
    /// A separate worktree of a commit.
    Repository {
        /// A folder in the repository.
        folder: PathBuf,
        /// The commit to begin with; `None` for the commit that is checked out.
        commit: Option<String>,
    },
}

/// A variant: settings with which every task is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchVariant {
    /// The unique name.
    pub id: String,
    /// The line of the file in which the variant begins, counted from one.
    pub line: usize,
    /// The prompt, with `{{prompt}}` in place of the task's prompt.
    pub prompt: Option<String>,
    /// The agent and the settings.
    pub options: TaskOptions,
}

/// Options of a task or a variant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskOptions {
    /// The agent.
    pub agent: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// Settings, in the form of `--set`.
    pub sets: Vec<String>,
}

impl TaskOptions {
    /// Returns the settings, including the model.
    pub fn all_sets(&self) -> impl Iterator<Item = String> + '_ {
        let model = self.model.as_ref().map(|model| format!("llm.model={model}"));
        model.into_iter().chain(self.sets.iter().cloned())
    }
}

impl BatchVariant {
    /// Returns the prompt of a task in this variant.
    pub fn prompt_for(&self, task: &BatchTask) -> String {
        match &self.prompt {
            Some(prompt) => prompt.replace(PROMPT_PLACEHOLDER, &task.prompt),
            None => task.prompt.clone(),
        }
    }
}

/// The tasks and the variants of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchManifest {
    /// The tasks, in the order of the file.
    pub tasks: Vec<BatchTask>,
    /// The variants, in the order of the file. Without variants, each task is run once.
    pub variants: Vec<BatchVariant>,
}

/// A problem in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestProblem {
    /// The name of the file.
    pub file: String,
    /// The line, counted from one.
    pub line: usize,
    /// The description of the problem.
    pub message: String,
    /// Hints for fixing it.
    pub hints: Vec<String>,
}

impl fmt::Display for ManifestProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// The keys of a task. The manifest schema describes them.
pub(super) const TASK_KEYS: [&str; 11] = [
    "id",
    "prompt",
    "workspace",
    "repo",
    "ref",
    "agent",
    "model",
    "setup",
    "checks",
    "limits",
    "set",
];

/// The keys of a variant.
pub(super) const VARIANT_KEYS: [&str; 6] = ["id", "model", "agent", "prompt", "limits", "set"];

impl BatchManifest {
    /// Parses a manifest and its variants. Relative folders are relative to `cwd`.
    ///
    /// Also returns every problem that is visible in the files themselves. Invalid parts are left out of the manifest,
    /// so that the rest can be checked further; a manifest with problems must not be run.
    pub fn parse(
        tasks: ManifestText<'_>,
        variants: Option<ManifestText<'_>>,
        cwd: &Path,
    ) -> (Self, Vec<ManifestProblem>) {
        let mut reader = EntryReader::new(tasks.name, &TASK_KEYS, cwd);
        let entries = read_entries(tasks, &["task"]);
        let tasks = reader.read_all(
            entries,
            "tasks",
            |reader, entry| Some(reader.task(entry)),
            |task| &task.id,
        );
        let mut problems = reader.problems;
        let (variants, mut wrong) =
            variants.map_or_else(Default::default, |file| Self::parse_variants(file, cwd));
        problems.append(&mut wrong);
        (Self { tasks, variants }, problems)
    }

    /// Parses a file of variants. Also returns every problem that is visible in the file itself.
    pub fn parse_variants(
        file: ManifestText<'_>,
        cwd: &Path,
    ) -> (Vec<BatchVariant>, Vec<ManifestProblem>) {
        let mut reader = EntryReader::new(file.name, &VARIANT_KEYS, cwd);
        let entries = read_entries(file, &["variant", "task"]);
        let variants = reader.read_all(
            entries,
            "variants",
            |reader, entry| Some(reader.variant(entry)),
            |one| &one.id,
        );
        (variants, reader.problems)
    }
}

/// Reads the entries of one file, and collects the problems.
pub(in crate::workflow) struct EntryReader<'a> {
    file: &'a str,
    keys: &'a [&'a str],
    cwd: &'a Path,
    pub(in crate::workflow) problems: Vec<ManifestProblem>,
}

impl<'a> EntryReader<'a> {
    pub(in crate::workflow) fn new(file: &'a str, keys: &'a [&'a str], cwd: &'a Path) -> Self {
        Self { file, keys, cwd, problems: Vec::new() }
    }

    pub(in crate::workflow) fn problem(&mut self, line: usize, message: impl Into<String>) {
        let (file, message) = (self.file.to_owned(), message.into());
        self.problems.push(ManifestProblem { file, line, message, hints: Vec::new() });
    }

    /// Reads all entries. Two entries must not have the same id.
    pub(in crate::workflow) fn read_all<T>(
        &mut self,
        entries: impl Iterator<Item = ReadEntry>,
        noun: &str,
        read: fn(&mut Self, ManifestEntry) -> Option<T>,
        id: fn(&T) -> &String,
    ) -> Vec<T> {
        let mut first_lines: HashMap<String, usize> = HashMap::new();
        let mut all = Vec::new();
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err((line, message)) => {
                    self.problem(line, message);
                    continue;
                }
            };
            let line = entry.line;
            let Some(one) = read(self, entry) else { continue };
            match first_lines.get(id(&one)) {
                Some(first) if !id(&one).is_empty() => {
                    let key = self.keys[0];
                    let message =
                        format!("the {key} `{}` is used in line {first} already", id(&one));
                    self.problem(line, message);
                }
                _ => drop(first_lines.insert(id(&one).clone(), line)),
            }
            all.push(one);
        }
        if all.is_empty() && self.problems.is_empty() {
            self.problem(1, format!("the file has no {noun}"));
        }
        self.problems.sort_by_key(|problem| problem.line);
        all
    }

    fn task(&mut self, mut entry: ManifestEntry) -> BatchTask {
        self.check_keys(&entry);
        let id = self.required_text(&mut entry, "id");
        let prompt = self.required_text(&mut entry, "prompt");
        let workspace = self.workspace(&mut entry);
        let setup = self.texts(&mut entry, "setup");
        let checks = self.texts(&mut entry, "checks");
        let options = self.options(&mut entry);
        // Without an id or a prompt, the rest is still checked.
        let [id, prompt] = [self.checked_id(entry.line, id), prompt].map(Option::unwrap_or_default);
        BatchTask { id, line: entry.line, prompt, workspace, options, setup, checks }
    }

    fn variant(&mut self, mut entry: ManifestEntry) -> BatchVariant {
        self.check_keys(&entry);
        let id = self.required_text(&mut entry, "id");
        let prompt = self.text(&mut entry, "prompt");
        let options = self.options(&mut entry);
        let id = self.checked_id(entry.line, id).unwrap_or_default();
        BatchVariant { id, line: entry.line, prompt, options }
    }

    pub(in crate::workflow) fn check_keys(&mut self, entry: &ManifestEntry) {
        let keys = self.keys;
        for (key, field) in &entry.fields {
            if !keys.contains(&key.as_str()) {
                let meant = did_you_mean(nearest(key, keys.iter().copied()));
                self.problem(field.line, format!("unknown key `{key}`{meant}"));
            }
        }
    }

    /// Returns an id that is suitable for messages and file names.
    fn checked_id(&mut self, line: usize, id: Option<String>) -> Option<String> {
        let id = id?;
        let is_fit = id.chars().count() <= MAX_ID_LENGTH && !id.chars().any(char::is_control);
        if !is_fit {
            self.problem(
                line,
                format!("`id` has control characters, or more than {MAX_ID_LENGTH} characters"),
            );
        }
        is_fit.then_some(id)
    }

    pub(in crate::workflow) fn wrong_type(
        &mut self,
        field: &ManifestField,
        key: &str,
        expected: &str,
    ) {
        let message = format!("`{key}` has to be {expected}, not {}", describe(&field.value));
        self.problem(field.line, message);
    }

    pub(in crate::workflow) fn text(
        &mut self,
        entry: &mut ManifestEntry,
        key: &str,
    ) -> Option<String> {
        let field = entry.take(key)?;
        match &field.value {
            Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
            Value::String(_) => {
                self.problem(field.line, format!("`{key}` is empty"));
                None
            }
            _ => {
                self.wrong_type(&field, key, "a string");
                None
            }
        }
    }

    pub(in crate::workflow) fn required_text(
        &mut self,
        entry: &mut ManifestEntry,
        key: &str,
    ) -> Option<String> {
        if !entry.fields.contains_key(key) {
            self.problem(entry.line, format!("`{key}` is missing"));
        }
        self.text(entry, key)
    }

    /// Returns a list of texts. A single text needs no list.
    pub(in crate::workflow) fn texts(
        &mut self,
        entry: &mut ManifestEntry,
        key: &str,
    ) -> Vec<String> {
        let Some(field) = entry.take(key) else { return Vec::new() };
        let expected = "a list of shell commands";
        let items = match &field.value {
            Value::String(text) => vec![text.clone()],
            Value::Array(items) => {
                let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
                let Some(texts) = texts.collect::<Option<Vec<_>>>() else {
                    self.problem(field.line, format!("`{key}` has to be {expected}"));
                    return Vec::new();
                };
                texts
            }
            _ => {
                self.wrong_type(&field, key, expected);
                return Vec::new();
            }
        };
        if items.iter().any(|item| item.trim().is_empty()) {
            self.problem(field.line, format!("`{key}` has an empty command"));
        }
        items
    }

    fn workspace(&mut self, entry: &mut ManifestEntry) -> TaskWorkspace {
        let line = |key: &str| entry.fields.get(key).map(|field| field.line);
        let [folder_line, repo_line, ref_line] = ["workspace", "repo", "ref"].map(line);
        let [folder, repo, commit] = ["workspace", "repo", "ref"].map(|key| self.text(entry, key));
        if let (Some(_), Some(line)) = (folder_line, repo_line) {
            self.problem(line, "a task has either `workspace` or `repo`");
        }
        if let (Some(line), None) = (ref_line, repo_line) {
            self.problem(line, "`ref` needs `repo`");
        }
        if let Some(folder) = folder {
            let folder = self.folder(folder_line, "workspace", &folder);
            return TaskWorkspace::Folder(folder);
        }
        let Some(repo) = repo else { return TaskWorkspace::Common };
        if repo.contains("://") || repo.starts_with("git@") {
            let message = "`repo` has to be a folder: clone the repository first";
            self.problem(repo_line.unwrap_or(entry.line), message);
            return TaskWorkspace::Common;
        }
        let folder = self.folder(repo_line, "repo", &repo);
        TaskWorkspace::Repository { folder, commit }
    }

    fn folder(&mut self, line: Option<usize>, key: &str, name: &str) -> PathBuf {
        let path = self.cwd.join(name);
        if !path.is_dir() {
            let message = format!("`{key}`: there is no folder {}", path.display());
            self.problem(line.unwrap_or(1), message);
        }
        let here: Vec<PathBuf> = resolve_path(self.cwd).into_iter().collect();
        if resolve_within(&path, &here).is_none() {
            // The link may be by another author than the task.
            let message = format!(
                "`{key}`: {} is a link out of this folder; name the folder that it leads to",
                path.display()
            );
            self.problem(line.unwrap_or(1), message);
        }
        // The path without links, so that a link made later is noticed.
        path.canonicalize().unwrap_or(path)
    }

    fn options(&mut self, entry: &mut ManifestEntry) -> TaskOptions {
        let agent = self.text(entry, "agent");
        let model = self.text(entry, "model");
        let mut sets = Vec::new();
        for (key, prefix) in [("limits", "limits"), ("set", "")] {
            let Some(field) = entry.take(key) else { continue };
            match &field.value {
                Value::Object(table) => sets.extend(flatten_settings(prefix, table)),
                _ => self.wrong_type(&field, key, "a table"),
            }
        }
        TaskOptions { agent, model, sets }
    }
}

fn describe(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, text: &str) -> Result<BatchManifest, Vec<String>> {
        let (manifest, problems) =
            BatchManifest::parse(ManifestText { name, text }, None, Path::new("/"));
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        if problems.is_empty() { Ok(manifest) } else { Err(problems) }
    }

    #[test]
    fn toml_and_json_lines_are_two_spellings_of_one_manifest() {
        let toml = "[[task]]\nid = \"a\"\nprompt = \"Do it.\"\nchecks = [\"true\"]\n\
                    limits = { max_steps = 3 }\nset.llm.stream = false\n";
        let lines = "{\"id\": \"a\", \"prompt\": \"Do it.\", \"checks\": [\"true\"], \
                     \"limits\": {\"max_steps\": 3}, \"set\": {\"llm.stream\": false}}\n";
        let manifest = parse("t.toml", toml).unwrap();
        assert_eq!(manifest, parse("t.jsonl", lines).unwrap());
        // Standard input has no extension, so the content decides.
        assert_eq!(manifest, parse("standard input", toml).unwrap());
        assert_eq!(manifest, parse("standard input", lines).unwrap());
        assert_eq!(manifest.tasks[0].options.sets, ["limits.max_steps=3", "llm.stream=false"]);
    }

    #[test]
    fn every_mistake_is_reported_with_its_line() {
        let lines = r#"{"id": "a", "promt": "x"}

{"id": "a", "prompt": "x", "workspace": "/nowhere", "ref": "main"}
{"id": 3, "prompt": " ", "set": [1]}
{"id": "b", "prompt": "x", "repo": "https://example.org/x.git", "checks": [1]}
not json
"#;
        let expected = [
            "t.jsonl:1: unknown key `promt`, did you mean `prompt`?",
            "t.jsonl:1: `prompt` is missing",
            "t.jsonl:3: `ref` needs `repo`",
            "t.jsonl:3: `workspace`: there is no folder /nowhere",
            "t.jsonl:3: the id `a` is used in line 1 already",
            "t.jsonl:4: `id` has to be a string, not a number",
            "t.jsonl:4: `prompt` is empty",
            "t.jsonl:4: `set` has to be a table, not a list",
            "t.jsonl:5: `repo` has to be a folder: clone the repository first",
            "t.jsonl:5: `checks` has to be a list of shell commands",
            "t.jsonl:6: it is not JSON: expected ident (column 2)",
        ];
        assert_eq!(parse("t.jsonl", lines).unwrap_err(), expected);
    }

    #[test]
    fn mistakes_in_toml_have_the_line_of_their_key() {
        let toml = "[[task]]\nid = \"a\"\nprompt = \"x\"\nmodle = \"y\"\n\n[[tasks]]\nid = \"b\"\n";
        let expected = [
            "t.toml:4: unknown key `modle`, did you mean `model`?",
            "t.toml:6: unknown key `tasks`, did you mean `task`?",
        ];
        assert_eq!(parse("t.toml", toml).unwrap_err(), expected);
        let toml = "[[task]]\nid = \"a\"\nprompt = \"x\"\nmodle = \"y\"\n\n[[task]]\nid = \"b\"\n";
        let expected = [
            "t.toml:4: unknown key `modle`, did you mean `model`?",
            "t.toml:6: `prompt` is missing",
        ];
        assert_eq!(parse("t.toml", toml).unwrap_err(), expected);
        // Values on an unreadable line are not reported as missing.
        let toml = "[[task]]\nid = \"a\"\nprompt = x\n\n[[task]]\nid = \"b\"\n";
        let wrong = parse("t.toml", toml).unwrap_err();
        assert_eq!((wrong.len(), &*wrong[1]), (2, "t.toml:5: `prompt` is missing"), "{wrong:?}");
        assert!(wrong[0].starts_with("t.toml:3: "), "{wrong:?}");
        assert_eq!(parse("t.toml", "").unwrap_err(), ["t.toml:1: the file has no tasks"]);
        assert_eq!(parse("-", " \n").unwrap_err(), ["-:1: the file has no tasks"]);
    }

    #[test]
    fn a_variant_can_wrap_the_prompt_of_a_task() {
        let task =
            ManifestText { name: "t.jsonl", text: "{\"id\": \"a\", \"prompt\": \"Do it.\"}" };
        let text =
            "[[variant]]\nid = \"v\"\nprompt = \"{{prompt}} Quickly.\"\n[[variant]]\nid = \"w\"\n";
        let variants = Some(ManifestText { name: "v.toml", text });
        let (manifest, _) = BatchManifest::parse(task, variants, Path::new("/"));
        let prompts = manifest.variants.iter().map(|one| one.prompt_for(&manifest.tasks[0]));
        assert_eq!(prompts.collect::<Vec<_>>(), ["Do it. Quickly.", "Do it."]);
    }
}
