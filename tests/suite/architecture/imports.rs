//! Circles of imports: files of one folder that use each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::source;
use crate::kit::sources::rust_files;

/// The path of a module below the crate: `["journal", "index"]`.
type ModulePath = Vec<String>;

/// The imports that close a circle, each with its reason: the folder, the importing file, the imported file, the
/// reason.
const ALLOWED: &[(&str, &str, &str, &str)] = &[
    ("app", "configured_tools", "run_setup", "has methods of `RunSetup`"),
    ("app/subagents", "subagent_run", "dispatch", "runs what `DispatchCall` dispatches"),
    ("cli", "error", "output", "is printed, and printing can fail"),
    ("cli", "logging", "output", "writes to standard error, which waits for the log"),
    ("exec/confine", "landlock", "mounts", "opens paths as mounts do, which depend on its rules"),
    ("machine", "output", "state", "holds the state that a step leads to"),
    ("machine/context", "images", "conversation", "is a part of the conversation"),
    ("machine/context", "repeated_results", "conversation", "is a part of the conversation"),
    ("machine/context", "shorten", "conversation", "is a part of the conversation"),
    ("machine/states", "preparing", "calling", "is a state that leads to the other"),
    ("machine/states", "preparing", "compacting", "is a state that leads to the other"),
    ("net", "drain", "client", "reads the responses that a client leaves to it"),
    ("runner", "checkpoints", "driver", "has methods of `Driver`"),
    ("view/report", "table_report", "markdown", "is written in this format"),
    ("workflow/engine", "parallel_items", "run", "is a part of a run"),
    ("workflow/engine", "session", "run", "is a part of a run"),
    ("workspace/checkpoint", "tree", "content_store", "has methods of `ContentStore`"),
];

/// The product code of the crate, by module.
struct Modules {
    texts: BTreeMap<ModulePath, String>,
    /// The modules that are in a file named `mod.rs` or `lib.rs`, with the paths that they import.
    folders: BTreeMap<ModulePath, Vec<ModulePath>>,
}

impl Modules {
    fn read() -> Self {
        let (mut texts, mut folders) = (BTreeMap::new(), BTreeMap::new());
        for path in rust_files(&source()) {
            let inside = path.strip_prefix(source()).unwrap().with_extension("");
            let mut module: ModulePath =
                inside.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if module == ["main"] || module.iter().any(|part| part == "tests") {
                continue;
            }
            let text = product_code(&fs::read_to_string(&path).unwrap());
            if module.last().is_some_and(|name| name == "mod" || name == "lib") {
                module.pop();
                folders.insert(module.clone(), use_paths(&text));
            }
            texts.insert(module, text);
        }
        Self { texts, folders }
    }

    /// Returns the path below the crate of a path in a module; `None` if it begins with another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<ModulePath> {
        let mut base = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => module.to_vec(),
            first if self.texts.contains_key(&[module, &[first.to_owned()]].concat()) => {
                return Some([module, path].concat());
            }
            _ => return None,
        };
        for part in path {
            match part.as_str() {
                "crate" | "self" => {}
                "super" => drop(base.pop()),
                _ => base.push(part.clone()),
            }
        }
        Some(base)
    }

    /// Returns the module that declares the target of a path below the crate, also through imports of modules on the
    /// way.
    fn declaring(&self, path: &[String], depth: usize) -> ModulePath {
        let length =
            (0..=path.len()).rev().find(|length| self.texts.contains_key(&path[..*length]));
        let (module, rest) = path.split_at(length.unwrap_or(0));
        let imports = self.folders.get(module).filter(|_| depth < 8);
        let imported = rest.first().zip(imports).and_then(|(name, imports)| {
            let path = imports.iter().find(|path| path.last() == Some(name))?;
            self.absolute(module, path)
        });
        match imported {
            Some(path) => self.declaring(&path, depth + 1),
            None => module.to_vec(),
        }
    }

    /// Returns the imports of each file from its own folder.
    fn imports(&self) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
        let files = self.texts.iter().filter(|(module, _)| !self.folders.contains_key(*module));
        let uses = files.map(|(module, text)| {
            let mut used = BTreeSet::new();
            for path in use_paths(text).into_iter().chain(inline_paths(text)) {
                if let Some(path) = self.absolute(module, &path) {
                    used.insert(self.declaring(&path, 0));
                }
            }
            let folder = &module[..module.len() - 1];
            used.retain(|other| {
                other != module
                    && other.len() == module.len()
                    && other.starts_with(folder)
                    && !self.folders.contains_key(other)
            });
            (module.clone(), used)
        });
        uses.collect()
    }
}

/// Returns a text without comments and without tests at its end.
fn product_code(text: &str) -> String {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the use declarations of a text, as it is formatted, without `use` and the semicolon.
fn use_declarations(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let visibility = line.split_once("use ").map(|(visibility, _)| visibility);
        let is_declaration = |visibility: &str| match visibility.trim_start() {
            "" | "pub " => true,
            other => other.starts_with("pub(") && other.ends_with(") "),
        };
        if let Some(visibility) = visibility.filter(|visibility| is_declaration(visibility)) {
            let tree = &text[at + visibility.len() + "use ".len()..];
            found.push(tree.split(';').next().unwrap());
        }
        at += line.len();
    }
    found
}

/// Returns each path of the use declarations of a text, by its segments and without its alias.
fn use_paths(text: &str) -> Vec<ModulePath> {
    fn expand(prefix: &[String], tree: &str, paths: &mut Vec<ModulePath>) {
        let (head, group) = match tree.split_once('{') {
            Some((head, group)) => (head, group.strip_suffix('}')),
            None => (tree, None),
        };
        let segments = head.split("::").map(str::trim).filter(|segment| !segment.is_empty());
        let segments = segments.map(|segment| segment.split(' ').next().unwrap().to_owned());
        let mut path = [prefix, &segments.collect::<Vec<_>>()].concat();
        let Some(group) = group else {
            if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            return paths.push(path);
        };
        let (mut depth, mut start) = (0, 0);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(&path, group[start..at].trim(), paths);
                    start = at + 1;
                }
                _ => {}
            }
        }
        if !group[start..].trim().is_empty() {
            expand(&path, group[start..].trim(), paths);
        }
    }
    let mut paths = Vec::new();
    for tree in use_declarations(text) {
        expand(&[], tree.trim(), &mut paths);
    }
    paths
}

/// Returns the paths in a text that begin with `crate`, `super` or `self`, groups of use declarations left out.
fn inline_paths(text: &str) -> Vec<ModulePath> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c: char| !is_part(c));
    let paths = words.filter(|word| {
        ["crate::", "super::", "self::"].iter().any(|start| word.starts_with(start))
    });
    let segments =
        |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    paths.map(segments).collect()
}

/// Returns whether one file uses another, also through others.
fn reaches(
    imports: &BTreeMap<ModulePath, BTreeSet<ModulePath>>,
    from: &ModulePath,
    to: &ModulePath,
) -> bool {
    let (mut open, mut seen) = (vec![from], BTreeSet::new());
    while let Some(module) = open.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            open.extend(&imports[module]);
        }
    }
    false
}

#[test]
fn files_of_one_folder_do_not_use_each_other_in_a_circle() {
    let mut imports = Modules::read().imports();
    let module = |folder: &str, file: &str| -> ModulePath {
        folder.split('/').chain([file]).map(str::to_owned).collect()
    };
    let all = imports.clone();
    for (folder, from, to, _) in ALLOWED {
        let (from, to) = (module(folder, from), module(folder, to));
        let is_used = imports.get_mut(&from).is_some_and(|used| used.remove(&to));
        assert!(is_used && reaches(&all, &to, &from), "{from:?} to {to:?} need not be allowed");
    }
    let edges = imports.iter().flat_map(|(from, used)| used.iter().map(move |to| (from, to)));
    let circles: Vec<String> = edges
        .filter(|(from, to)| reaches(&imports, to, from))
        .map(|(from, to)| format!("{} uses {}", from.join("/"), to.last().unwrap()))
        .collect();
    assert!(
        circles.is_empty(),
        "move what both need to a third file, or allow an import with its reason:\n{circles:#?}"
    );
}

#[test]
fn imports_are_found_in_every_spelling() {
    let text = "pub(super) use a::{B, c::{self, D as E}};\nuse super::f;\n\npub use self::g::H;\nfn f() -> super::i::J {\n    crate::k()\n}\n";
    let joined = |paths: Vec<ModulePath>| -> Vec<String> {
        paths.iter().map(|path| path.join("::")).collect()
    };
    assert_eq!(joined(use_paths(text)), ["a::B", "a::c", "a::c::D", "super::f", "self::g::H"]);
    assert_eq!(joined(inline_paths(text)), ["super::f", "self::g::H", "super::i::J", "crate::k"]);
}
