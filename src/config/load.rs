//! Putting the layers above each other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::agents;
use super::file::{self, Author, Unreadable};
use super::folders::Folders;
use super::layers::{self, ConfigFile, FileState, Layer, Whose};
use super::loaded::Config;
use super::mcp_json;
use super::merge::merge;
use super::origin::{Origin, Rank, Source};
use super::problem::{ConfigError, Notice, NoticeCause, Problem, Trouble};
use super::reader::Reader;
use super::report::{Paths, Report, Shown};
use super::settings::Settings;
use super::tighten::tighten;
use super::tree::{Node, Table, Value};
use super::trust::{ChangedFile, TrustStore};
use super::typed::{self, Flag, Set};
use crate::exec::is_secret;
use crate::model::{nearest, wildcard};

/// What a configuration is made from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Where this program keeps its files.
    pub folders: Folders,
    /// The current folder.
    pub cwd: PathBuf,
    /// The variables of the environment.
    pub variables: Vec<(String, String)>,
    /// Whether the project's files may do more than tighten.
    pub trust: Trust,
    /// The file of `--config`.
    pub file: Option<PathBuf>,
    /// The files of `--mcp-config`.
    pub mcp_files: Vec<PathBuf>,
    /// The name of `--profile`.
    pub profile: Option<String>,
    /// What `--set` says, as `KEY=VALUE`.
    pub sets: Vec<String>,
    /// Other options that stand for keys.
    pub flags: Vec<Flag>,
}

/// Whether the project's files may do more than tighten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// As the user once said of this folder.
    #[default]
    Stored,
    /// They may, for this run.
    Granted,
    /// They may not, for this run.
    Withheld,
}

/// Reads all layers and puts them above each other.
///
/// # Errors
///
/// Fails with all that is wrong in any of them.
pub fn load(sources: &Sources) -> Result<Config, ConfigError> {
    Loader::new(sources).load()
}

/// Returns the names of the agents that anything but an option says something of.
fn agents_of_files(layers: &[Layer], is_trusted: bool) -> BTreeSet<&str> {
    let counts =
        |layer: &&Layer| layer.rank < Rank::Argument && (is_trusted || layer.whose == Whose::Ours);
    let agents = layers.iter().filter(counts).filter_map(|layer| layer.table.get("agents"));
    let names = |node| match node {
        &Node { value: Value::Table(ref agents), .. } => Some(agents.keys().map(String::as_str)),
        _ => None,
    };
    agents.filter_map(names).flatten().collect()
}

struct Loader<'a> {
    sources: &'a Sources,
    paths: Paths,
    /// The chosen profile.
    profile: Option<String>,
    /// The profiles that there are.
    profiles: BTreeSet<String>,
    layers: Vec<Layer>,
    files: Vec<ConfigFile>,
    problems: Vec<Problem>,
    notices: Vec<Notice>,
    /// The project's files that have changed since the user trusted the folder.
    changed: Vec<ChangedFile>,
}

impl<'a> Loader<'a> {
    fn new(sources: &'a Sources) -> Self {
        let mut loader = Self {
            sources,
            paths: Paths { cwd: sources.cwd.clone(), home: sources.folders.home.clone() },
            profile: sources.profile.clone(),
            profiles: BTreeSet::new(),
            layers: Vec::new(),
            files: Vec::new(),
            problems: Vec::new(),
            notices: Vec::new(),
            changed: Vec::new(),
        };
        if loader.profile.is_none() {
            loader.profile = loader.variable(typed::PROFILE).map(str::to_owned);
        }
        loader
    }

    fn load(mut self) -> Result<Config, ConfigError> {
        self.add(Rank::Default, Whose::Ours, agents::built_in());
        self.add_user_folder();
        self.add_variables();
        self.add_named_files();
        self.add_arguments();
        // Where the project is, everything but the project says.
        let (settings, _) = self.read(&self.merged(true).0);
        let root = settings.workspace.root.unwrap_or_else(|| self.sources.cwd.clone());
        let is_trusted = self.is_trusted(&root);
        self.add_project(&root, is_trusted);
        self.check_profile();

        let (table, notices) = self.merged(is_trusted);
        self.notices.extend(notices);
        let mut report = Report::default();
        let settings = Reader::whole(&table, "", &self.paths, &mut report, Settings::read);
        let shown = report.shown;
        if is_trusted {
            self.problems.extend(self.passed_secrets());
        }
        let Self { layers, files, notices, mut problems, changed, .. } = self;
        // Every layer was checked for itself, but an option that sets one key of a list's entry is only right or wrong
        // together with the entry.
        if problems.is_empty() {
            problems = report.problems;
        }
        let config =
            Config { settings, notices, workspace: root, is_trusted, changed, files, shown };
        if problems.is_empty() {
            problems = config.undefined_agents(&agents_of_files(&layers, is_trusted));
        }
        if problems.is_empty() {
            problems = config.contradictions();
        }
        if problems.is_empty() { Ok(config) } else { Err(problems.into()) }
    }

    fn add_user_folder(&mut self) {
        let Some(folder) = self.sources.folders.config.clone() else { return };
        self.add_agents(&folder.join("agents"), Rank::User, Whose::Ours, Author::Us);
        self.add_file(&folder.join("config.toml"), Rank::User, Whose::Ours, Author::Us);
        self.add_profile_file(&folder, Whose::Ours, Author::Us);
    }

    fn add_variables(&mut self) {
        let mut report = Report::default();
        let variables = &self.sources.variables;
        let table = typed::of_variables(variables, &mut report, &mut self.notices);
        self.problems.extend(report.problems);
        self.add(Rank::Variable, Whose::Ours, table);
    }

    /// The user names these files, so they only must not be open to everybody.
    fn add_named_files(&mut self) {
        let file = self.sources.file.clone();
        let file = file.or_else(|| self.variable(typed::CONFIG).map(PathBuf::from));
        if let Some(file) = file {
            let path = self.sources.cwd.join(file);
            self.add_file(&path, Rank::File, Whose::Ours, Author::NotEverybody);
            self.must_be_there(path);
        }
        for file in &self.sources.mcp_files {
            let path = self.sources.cwd.join(file);
            self.add_servers(&path, Rank::File, Whose::Ours, Author::NotEverybody);
            self.must_be_there(path);
        }
    }

    fn add_arguments(&mut self) {
        // What a session remembers and what is said now may be about one list.
        for set in &self.sources.sets {
            let mut report = Report::default();
            let set = typed::of_set(set, &mut report);
            self.problems.extend(report.problems);
            match set {
                Set::Key(table) => self.add(Rank::Argument, Whose::Ours, table),
                Set::EntryKey(table) => {
                    self.layers.push(Layer { rank: Rank::Argument, whose: Whose::Ours, table });
                }
            }
        }
        self.add(Rank::Argument, Whose::Ours, typed::of_flags(&self.sources.flags));
    }

    fn add_project(&mut self, root: &Path, is_trusted: bool) {
        let folder = root.join(".architect");
        let servers = root.join(".mcp.json");
        let agents = folder.join("agents");
        if is_trusted {
            self.add_servers(&servers, Rank::Project, Whose::Projects, Author::Anybody);
            self.add_agents(&agents, Rank::Project, Whose::Projects, Author::Anybody);
        } else {
            // They could only be left out, so they are not even read.
            for path in [servers, agents].into_iter().filter(|path| path.exists()) {
                let message = "is left out, because this folder is not trusted";
                let message = format!("{} {message}", path.display());
                self.notice(message, NoticeCause::Untrusted);
                self.files.push(ConfigFile {
                    path,
                    rank: Rank::Project,
                    state: FileState::LeftOut,
                });
            }
        }
        let config = folder.join("config.toml");
        self.add_file(&config, Rank::Project, Whose::Projects, Author::Anybody);
        self.add_profile_file(&folder, Whose::Projects, Author::Anybody);
        if !is_trusted {
            let theirs = self.files.iter_mut().filter(|file| file.path.starts_with(&folder));
            for file in theirs.filter(|file| file.state == FileState::Read) {
                file.state = FileState::OnlyTightens;
            }
        }
    }

    /// Adds a file with its profiles.
    fn add_file(&mut self, path: &Path, rank: Rank, whose: Whose, author: Author) {
        let read = layers::of_file(path, rank, author);
        let Some(layer) = self.note(path, rank, read) else { return };
        self.add(rank, whose, layer.table);
        for (name, table) in layer.profiles {
            let table = layers::with_rank(table, Rank::Profile);
            if self.profile.as_ref() == Some(&name) {
                self.add(Rank::Profile, whose, table);
            } else {
                self.check(&table, &format!("profiles.{name}."));
            }
            self.profiles.insert(name);
        }
    }

    /// Adds the file of the chosen profile.
    fn add_profile_file(&mut self, folder: &Path, whose: Whose, author: Author) {
        let folder = folder.join("profiles");
        self.profiles.extend(layers::profile_files(&folder));
        let Some(name) = self.profile.as_ref().filter(|name| self.profiles.contains(*name)) else {
            return;
        };
        let path = folder.join(format!("{name}.toml"));
        let read = layers::of_profile_file(&path, author);
        if let Some(table) = self.note(&path, Rank::Profile, read) {
            self.add(Rank::Profile, whose, table);
        }
    }

    fn add_agents(&mut self, folder: &Path, rank: Rank, whose: Whose, author: Author) {
        let table = agents::of_folder(folder, rank, author, &mut self.problems);
        self.add(rank, whose, table);
    }

    fn add_servers(&mut self, path: &Path, rank: Rank, whose: Whose, author: Author) {
        let variables = |name: &str| self.variable(name);
        let mut notices = Vec::new();
        let read = mcp_json::of_file(path, rank, author, &variables, &mut notices);
        self.notices.extend(notices);
        if let Some(table) = self.note(path, rank, read) {
            self.add(rank, whose, table);
        }
    }

    /// Notes what became of a file.
    fn note<T>(
        &mut self,
        path: &Path,
        rank: Rank,
        read: Result<Option<T>, Vec<Problem>>,
    ) -> Option<T> {
        let state = match &read {
            Ok(None) => FileState::Absent,
            Ok(Some(_)) | Err(_) => FileState::Read,
        };
        self.files.push(ConfigFile { path: path.to_owned(), rank, state });
        match read {
            Ok(read) => read,
            Err(wrong) => {
                self.problems.extend(wrong);
                None
            }
        }
    }

    /// Adds a layer, after checking it for itself.
    fn add(&mut self, rank: Rank, whose: Whose, table: Table) {
        self.check(&table, "");
        self.layers.push(Layer { rank, whose, table });
    }

    fn check(&mut self, table: &Table, path: &str) {
        let mut report = Report::default();
        Reader::whole(table, path, &self.paths, &mut report, Settings::read);
        self.problems.extend(report.problems);
    }

    fn must_be_there(&mut self, path: PathBuf) {
        let is_absent = |file: &ConfigFile| file.path == path && file.state == FileState::Absent;
        if self.files.iter().any(is_absent) {
            let trouble = Trouble::Unreadable(Unreadable::Missing(path));
            self.problems.push(Problem::new(Origin::DEFAULT, trouble));
        }
    }

    fn check_profile(&mut self) {
        let Some(name) = self.profile.as_ref().filter(|name| !self.profiles.contains(*name)) else {
            return;
        };
        let source = match self.sources.profile {
            Some(_) => Source::Argument("--profile".into()),
            None => Source::Variable(typed::PROFILE.into()),
        };
        let nearest = nearest(name, self.profiles.iter().map(String::as_str)).map(str::to_owned);
        let known = self.profiles.iter().cloned().collect();
        let trouble = Trouble::Unknown { kind: "profile", name: name.clone(), nearest, known };
        self.problems.push(Problem::new(Origin { rank: Rank::Profile, source }, trouble));
    }

    /// Returns whether the project's files may do more than tighten.
    fn is_trusted(&mut self, root: &Path) -> bool {
        let trust = match self.sources.trust {
            Trust::Stored => self.trust_of_variable(),
            given @ (Trust::Granted | Trust::Withheld) => given,
        };
        match trust {
            Trust::Granted => true,
            Trust::Withheld => false,
            Trust::Stored => {
                let Some(state) = &self.sources.folders.state else { return false };
                let trusted = TrustStore::new(state).contains(root);
                // Trust is in who can write the folder, and here everybody can.
                let path = root.join(".architect/config.toml");
                let open = file::read(&path, Author::NotEverybody);
                let told = match (trusted, open) {
                    (Err(error), _) => error.to_string(),
                    (Ok(true), Err(error @ Unreadable::WorldWritable(_))) => error.to_string(),
                    (Ok(true), _) => return self.is_unchanged(&TrustStore::new(state), root),
                    (Ok(false), _) => return false,
                };
                self.notice(
                    format!("{told}; this folder counts as not trusted"),
                    NoticeCause::Other,
                );
                false
            }
        }
    }

    /// Returns whether a trusted folder says what it said when the user trusted it.
    fn is_unchanged(&mut self, store: &TrustStore, root: &Path) -> bool {
        match store.changed(root) {
            Ok(Some(changed)) => {
                for file in &changed {
                    let path = root.join(&file.path);
                    let message =
                        "has changed since you trusted this folder, which counts as not trusted";
                    let message = format!("{} {message}", path.display());
                    self.notice(message, NoticeCause::Untrusted);
                }
                self.changed = changed;
                self.changed.is_empty()
            }
            // Trust was given to whatever would be there.
            Ok(None) => {
                let recorded = match store.add(root) {
                    Ok(()) => "what this trusted folder says of runs is recorded now; if it changes, you are asked".to_owned(),
                    Err(error) => error.to_string(),
                };
                self.notice(recorded, NoticeCause::Other);
                true
            }
            Err(error) => {
                let message = format!("{error}; this folder counts as not trusted");
                self.notice(message, NoticeCause::Untrusted);
                false
            }
        }
    }

    /// Returns a problem for each secret of the environment that a file of the project, and nothing of the user's, passes
    /// to commands.
    fn passed_secrets(&self) -> Vec<Problem> {
        let patterns = |whose: Whose| {
            let layers = self.layers.iter().filter(move |layer| layer.whose == whose);
            layers.filter_map(|layer| match &layer.table.get("commands")?.value {
                Value::Table(commands) => match &commands.get("env_include")?.value {
                    Value::List(patterns) => Some(patterns),
                    _ => None,
                },
                _ => None,
            })
        };
        let matches = |pattern: &Node, name: &str| {
            pattern.value.text().is_some_and(|pattern| wildcard(pattern, name))
        };
        let names = self.sources.variables.iter().map(|(name, _)| name.as_str());
        let secrets: Vec<&str> = names.filter(|name| is_secret(name)).collect();
        let allowed = |name: &str| patterns(Whose::Ours).flatten().any(|own| matches(own, name));
        let passed = patterns(Whose::Projects).flatten().filter_map(|pattern| {
            let name = secrets.iter().find(|name| matches(pattern, name) && !allowed(name))?;
            let what = format!(
                "`commands.env_include`: {name} may hold a secret, and a file of the project passes none to commands; \
                 say it in your own configuration"
            );
            Some(Problem::new(pattern.origin.clone(), Trouble::Other(what)))
        });
        passed.collect()
    }

    /// Returns what the variable for trust says; one that is empty says nothing.
    fn trust_of_variable(&mut self) -> Trust {
        match self.variable(typed::TRUST).map(str::trim) {
            None | Some("") => Trust::Stored,
            Some("1" | "true") => Trust::Granted,
            Some("0" | "false") => Trust::Withheld,
            Some(_) => {
                let source = Source::Variable(typed::TRUST.into());
                let trouble = Trouble::Other("must be 1 or 0".to_owned());
                let origin = Origin { rank: Rank::Variable, source };
                self.problems.push(Problem::new(origin, trouble));
                Trust::Withheld
            }
        }
    }

    fn notice(&mut self, message: String, cause: NoticeCause) {
        self.notices.push(Notice { origin: Origin::DEFAULT, message, cause });
    }

    /// Returns all layers above each other, with a notice for everything that was left out.
    fn merged(&self, is_trusted: bool) -> (Table, Vec<Notice>) {
        let mut layers: Vec<&Layer> = self.layers.iter().collect();
        layers.sort_by_key(|layer| (layer.rank, layer.whose));
        let (mut table, mut notices) = (Table::new(), Vec::new());
        for layer in layers {
            let mut next = layer.table.clone();
            if layer.whose == Whose::Projects && !is_trusted {
                let left_out;
                (next, left_out) = tighten(next, &self.read(&table).1);
                notices.extend(left_out);
            }
            table = merge(table, next, "");
        }
        (table, notices)
    }

    /// Reads layers that were checked one by one.
    fn read(&self, table: &Table) -> (Settings, Vec<Shown>) {
        let mut report = Report::default();
        let settings = Reader::whole(table, "", &self.paths, &mut report, Settings::read);
        (settings, report.shown)
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let found = self.sources.variables.iter().find(|(variable, _)| variable == name);
        found.map(|(_, value)| value.as_str())
    }
}
