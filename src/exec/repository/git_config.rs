//! Configuration files of git: a parser, and the list of harmless settings.
//!
//! The parser follows git's own, character by character, and rejects everything else. So an accepted file has the same
//! meaning to git.

use std::fmt::Write as _;

/// A setting: section and name in lower case, the subsection as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GitSetting {
    section: String,
    subsection: Option<String>,
    name: String,
    /// The value; `None` for a name without `=`, which means true.
    value: Option<String>,
}

/// Settings without a subsection that name neither a program nor a file, by section; an empty list is the whole
/// section.
const HARMLESS_SETTINGS: [(&str, &str); 19] = [
    ("advice", ""),
    ("author", "name email"),
    ("color", ""),
    ("column", ""),
    ("committer", "name email"),
    (
        "core",
        "\
        abbrev autocrlf bare bigfilethreshold checkstat compression eol filemode hidedotfiles \
        ignorecase logallrefupdates longpaths precomposeunicode preloadindex protecthfs \
        protectntfs quotepath repositoryformatversion safecrlf sparsecheckout sparsecheckoutcone \
        splitindex symlinks trustctime untrackedcache whitespace",
    ),
    ("diff", "algorithm colormoved context mnemonicprefix noprefix renames"),
    (
        "extensions",
        "\
        compatobjectformat noop objectformat partialclone preciousobjects refstorage \
        relativeworktrees worktreeconfig",
    ),
    ("fetch", "prune prunetags recursesubmodules writecommitgraph"),
    ("gc", "auto autodetach autopacklimit"),
    ("index", "sparse threads version"),
    ("init", "defaultbranch"),
    ("log", "date decorate follow showroot"),
    ("merge", "conflictstyle ff renames stat verbosity"),
    ("pull", "ff rebase"),
    ("push", "autosetupremote default followtags"),
    ("rebase", "autosquash autostash missingcommitscheck stat updaterefs"),
    ("rerere", "autoupdate enabled"),
    ("user", "name email useconfigonly"),
];

/// Settings of a remote, a branch or a submodule that name neither a program nor an address.
const HARMLESS_NAMED_SETTINGS: [(&str, &str); 3] = [
    (
        "branch",
        "\
        description gh-merge-base github-pr-owner-number merge rebase vscode-merge-base",
    ),
    (
        "remote",
        "\
        fetch followremotehead gh-resolved mirror partialclonefilter promisor prune prunetags \
        push skipdefaultupdate skipfetchall tagopt",
    ),
    ("submodule", "active branch fetchrecursesubmodules ignore shallow"),
];

/// Settings whose value is an address, or the name of a remote.
const ADDRESS_SETTINGS: [(&str, &str); 7] = [
    ("branch", "pushremote"),
    ("branch", "remote"),
    ("checkout", "defaultremote"),
    ("remote", "pushdefault"),
    ("remote", "pushurl"),
    ("remote", "url"),
    ("submodule", "url"),
];

/// Modes of `git submodule update` that run no command.
const HARMLESS_UPDATES: [&str; 4] = ["checkout", "merge", "none", "rebase"];

/// Sections in which a value, or a value that begins with `!`, is a command line.
const COMMAND_SECTIONS: &str = "\
    alias annex browser core credential delta diff difftool filter gc gpg guitool hook imap \
    instaweb interactive lfs man merge mergetool pager remote sendemail sequence submodule tar \
    trailer uploadpack";

impl GitSetting {
    /// Returns the name as git writes it.
    pub(super) fn key(&self) -> String {
        match &self.subsection {
            Some(subsection) => format!("{}.{subsection}.{}", self.section, self.name),
            None => format!("{}.{}", self.section, self.name),
        }
    }

    /// Returns the section, in lower case.
    pub(crate) fn section(&self) -> &str {
        &self.section
    }

    /// Returns the name without section and subsection, in lower case.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value, if there is one.
    pub(crate) fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// Returns the name and the value of an alias.
    pub(super) fn alias(&self) -> Option<(&str, &str)> {
        let name = self.subsection.as_deref().unwrap_or(&self.name);
        Some((name, self.value.as_deref()?)).filter(|_| self.section == "alias")
    }

    /// Returns the work tree that the setting names.
    pub(super) fn work_tree(&self) -> Option<&str> {
        let is_this =
            self.section == "core" && self.subsection.is_none() && self.name == "worktree";
        self.value.as_deref().filter(|_| is_this)
    }

    /// Returns whether the setting makes git neither run a program nor follow another file.
    pub(super) fn is_harmless(&self, is_fine: &dyn Fn(PlaceValue<'_>) -> bool) -> bool {
        let value = self.value.as_deref().unwrap_or("true");
        let (section, name) = (self.section.as_str(), self.name.as_str());
        let is_listed = |list: &[(&str, &str)]| {
            let found = list.iter().find(|(found, _)| *found == section);
            found.is_some_and(|(_, names)| names.is_empty() || has_word(names, name))
        };
        if let Some(address) = self.remote() {
            return is_address(address) && is_fine(PlaceValue::Remote(address));
        }
        match (&self.subsection, section, name) {
            (None, "core", "worktree") => is_fine(PlaceValue::WorkTree(value)),
            (None, "submodule", "active" | "recurse" | "fetchjobs") => true,
            (None, "submodule", _) => false,
            (None, _, _) | (Some(_), "color" | "advice", _) => is_listed(&HARMLESS_SETTINGS),
            (Some(_), "submodule", "update") => HARMLESS_UPDATES.contains(&value),
            (Some(_), _, _) => is_listed(&HARMLESS_NAMED_SETTINGS),
        }
    }

    /// Returns the setting for a full name in git's notation.
    pub(super) fn from_key(key: &str, value: &str) -> Option<Self> {
        let (section, name) = (key.split_once('.')?.0, key.rsplit_once('.')?.1);
        let subsection = key.get(section.len() + 1..key.len() - name.len() - 1);
        Some(Self {
            section: section.to_ascii_lowercase(),
            subsection: subsection.map(str::to_owned),
            name: name.to_ascii_lowercase(),
            value: Some(value.to_owned()),
        })
    }

    /// Returns the address or the name of a remote in the value.
    pub(super) fn remote(&self) -> Option<&str> {
        let setting = (self.section.as_str(), self.name.as_str());
        self.value.as_deref().filter(|_| ADDRESS_SETTINGS.contains(&setting))
    }

    /// Returns the path or command in the value that git follows or runs.
    pub(super) fn followed(&self) -> Followed<'_> {
        let Some(value) = self.value.as_deref() else { return Followed::Nothing };
        match (self.section.as_str(), self.name.as_str()) {
            ("include" | "includeif", "path") => Followed::Include(value),
            ("core", "hookspath") | ("init", "templatedir") => Followed::Path(value),
            ("alias", _) if !value.starts_with('!') => Followed::GitCommand(value),
            // The name of a driver is a text for people.
            ("diff" | "merge", "name") => Followed::Nothing,
            // `store` is `git credential-store`, which is searched for like a program.
            ("credential", "helper")
                if !value.starts_with(['!', '/'])
                    && !value.contains([';', '|', '&', '$', '`', '(']) =>
            {
                Followed::Nothing
            }
            (section, _) if has_word(COMMAND_SECTIONS, section) && !self.is_harmless(&|_| true) => {
                Followed::Command(value)
            }
            _ => Followed::Nothing,
        }
    }
}

/// The path or command in a setting that git follows or runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Followed<'a> {
    Nothing,
    /// A configuration file, relative to the folder of the file with the setting.
    Include(&'a str),
    /// A folder of hooks, relative to the work tree.
    Path(&'a str),
    /// A command line, which runs in the work tree.
    Command(&'a str),
    /// The words of a git command.
    GitCommand(&'a str),
}

/// A value that is harmless depending on where it leads.
#[derive(Clone, Copy, Debug)]
pub(super) enum PlaceValue<'a> {
    /// A work tree.
    WorkTree(&'a str),
    /// The address or the name of a remote.
    Remote(&'a str),
}

/// Returns whether a list contains a word.
pub(super) fn has_word(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word)
}

/// Returns whether an address uses a transport of git itself; any other scheme names a program.
fn is_address(value: &str) -> bool {
    !value.starts_with('-') && !value.contains("::") && !value.contains(char::is_control)
}

/// Parses a configuration file; `None` if it is invalid or not supported.
pub(crate) fn parse_git_config(text: &[u8]) -> Option<Vec<GitSetting>> {
    let text = std::str::from_utf8(text).ok()?.replace("\r\n", "\n");
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if text.contains(['\0', '\r']) {
        return None;
    }
    let mut reader = ConfigParser { rest: text.chars().peekable() };
    let mut section: Option<(String, Option<String>)> = None;
    let mut settings = Vec::new();
    while let Some(char) = reader.rest.next() {
        match char {
            char if is_space(char) => {}
            '#' | ';' => reader.comment(),
            '[' => section = Some(reader.section()?),
            first if first.is_ascii_alphabetic() => {
                let (section, subsection) = section.clone()?;
                let (name, value) = reader.setting(first)?;
                settings.push(GitSetting { section, subsection, name, value });
            }
            _ => return None,
        }
    }
    Some(settings)
}

/// Formats settings as a configuration file.
pub(super) fn format_config(settings: &[GitSetting]) -> String {
    let mut text = String::new();
    for setting in settings {
        let quoted = |text: &str| {
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
            escaped.replace('\n', "\\n").replace('\t', "\\t").replace('\u{8}', "\\b")
        };
        let _ = match &setting.subsection {
            // The subsection needs no other escapes.
            Some(subsection) => {
                let subsection = subsection.replace('\\', "\\\\").replace('"', "\\\"");
                writeln!(text, "[{} \"{subsection}\"]", setting.section)
            }
            None => writeln!(text, "[{}]", setting.section),
        };
        let _ = match &setting.value {
            Some(value) => writeln!(text, "\t{} = \"{}\"", setting.name, quoted(value)),
            None => writeln!(text, "\t{}", setting.name),
        };
    }
    text
}

/// Returns whether git treats a character as white space; a form feed is not.
fn is_space(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n')
}

struct ConfigParser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
}

impl ConfigParser<'_> {
    fn comment(&mut self) {
        self.rest.by_ref().find(|char| *char == '\n');
    }

    /// Reads `name]` or `name "subsection"]`.
    fn section(&mut self) -> Option<(String, Option<String>)> {
        let mut name = String::new();
        loop {
            match self.rest.next()? {
                ']' if name.contains('.') => {
                    let (section, subsection) = name.split_once('.')?;
                    return Some((section.to_owned(), Some(subsection.to_owned())));
                }
                ']' => return Some((name, None)),
                ' ' | '\t' => break,
                char if char.is_ascii_alphanumeric() || "-.".contains(char) => {
                    name.push(char.to_ascii_lowercase());
                }
                _ => return None,
            }
        }
        while self.rest.next_if(|char| matches!(char, ' ' | '\t')).is_some() {}
        if self.rest.next()? != '"' || name.contains('.') {
            return None;
        }
        let mut subsection = String::new();
        loop {
            match self.rest.next()? {
                '"' => break,
                '\n' => return None,
                '\\' => match self.rest.next()? {
                    '\n' => return None,
                    char => subsection.push(char),
                },
                char => subsection.push(char),
            }
        }
        (self.rest.next()? == ']').then_some((name, Some(subsection)))
    }

    /// Reads the rest of a name, and its value.
    fn setting(&mut self, first: char) -> Option<(String, Option<String>)> {
        let mut name = String::from(first.to_ascii_lowercase());
        while let Some(char) = self.rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '-') {
            name.push(char.to_ascii_lowercase());
        }
        while self.rest.next_if(|char| matches!(char, ' ' | '\t')).is_some() {}
        match self.rest.next() {
            None | Some('\n') => Some((name, None)),
            Some('=') => self.value().map(|value| (name, Some(value))),
            // Only newer versions of git accept a comment here.
            Some(_) => None,
        }
    }

    fn value(&mut self) -> Option<String> {
        let (mut value, mut spaces, mut is_quoted) = (String::new(), String::new(), false);
        loop {
            let char = match self.rest.next() {
                None | Some('\n') if is_quoted => return None,
                None | Some('\n') => return Some(value),
                Some(char) => char,
            };
            if !is_quoted && is_space(char) {
                if !value.is_empty() {
                    spaces.push(char);
                }
                continue;
            }
            if !is_quoted && matches!(char, '#' | ';') {
                self.comment();
                return Some(value);
            }
            value.push_str(&spaces);
            spaces.clear();
            match char {
                '\\' => match self.rest.next()? {
                    '\n' => {}
                    't' => value.push('\t'),
                    'b' => value.push('\u{8}'),
                    'n' => value.push('\n'),
                    char @ ('\\' | '"') => value.push(char),
                    _ => return None,
                },
                '"' => is_quoted = !is_quoted,
                char => value.push(char),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Option<Vec<String>> {
        let describe = |setting: &GitSetting| {
            format!("{}={}", setting.key(), setting.value.as_deref().unwrap_or("-"))
        };
        Some(parse_git_config(text.as_bytes())?.iter().map(describe).collect())
    }

    #[test]
    fn files_are_parsed_as_git_does() {
        let text = "\u{feff}[core] bare = false ; x\r\n[Remote \"A \\\"b\\\\\"]\n\tURL = \"a # b\" c  # d\n Fetch\n\
                    [a.B]x = 1\\\n 2 \n[empty]\n";
        let expected = [
            "core.bare=false",
            "remote.A \"b\\.url=a # b c",
            "remote.A \"b\\.fetch=-",
            "a.b.x=1 2",
        ];
        assert_eq!(keys(text).unwrap(), expected);
        let settings = parse_git_config(text.as_bytes()).unwrap();
        assert_eq!(parse_git_config(format_config(&settings).as_bytes()).unwrap(), settings);
        for wrong in [
            "x = 1",
            "[a]x = \"1",
            "[a",
            "[a \"b]",
            "[a]x = \\q",
            "[a]1 = 2",
            "[a]x y",
            "[a]\0",
            "\u{c}[a]",
        ] {
            assert_eq!(keys(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_runs_programs_is_followed_and_data_is_not() {
        for (text, expected) in [
            ("[core]\nhooksPath = .husky", Followed::Path(".husky")),
            ("[filter \"f\"]\nclean = sh f.sh", Followed::Command("sh f.sh")),
            ("[merge \"m\"]\nname = for package/lock.js", Followed::Nothing),
            ("[alias]\na = checkout -- src/x", Followed::GitCommand("checkout -- src/x")),
            ("[alias]\na = !x", Followed::Command("!x")),
            ("[core]\nworktree = ../x", Followed::Nothing),
            ("[remote \"o\"]\nurl = a/b", Followed::Nothing),
            ("[remote \"o\"]\nuploadpack = t/x", Followed::Command("t/x")),
        ] {
            let [setting] = &parse_git_config(text.as_bytes()).unwrap()[..] else {
                panic!("{text}")
            };
            assert_eq!(setting.followed(), expected, "{text}");
            let again = GitSetting::from_key(&setting.key(), setting.value.as_deref().unwrap());
            assert_eq!(again.as_ref(), Some(setting), "{text}");
        }
    }

    #[test]
    fn no_setting_that_runs_something_is_harmless() {
        let harmless = |text: &str| {
            let settings = parse_git_config(text.as_bytes()).unwrap();
            let is_fine = |value: PlaceValue<'_>| match value {
                PlaceValue::WorkTree(path) => path == "../w",
                PlaceValue::Remote(address) => address != "/private",
            };
            settings.iter().all(|setting| setting.is_harmless(&is_fine))
        };
        for text in [
            "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = ../w",
            "[user]\nname = n\nemail = e",
            "[remote \"o\"]\nurl = https://h/x\nfetch = +refs/heads/*:refs/remotes/o/*",
            "[remote \"o\"]\nurl = git@h:x",
            "[branch \"b\"]\nremote = o\nmerge = refs/heads/b",
            "[submodule \"s\"]\nurl = /p\nactive = true\nupdate = rebase",
            "[color \"diff\"]\nmeta = red",
        ] {
            assert!(harmless(text), "{text}");
        }
        for text in [
            "[core]\nfsmonitor = x",
            "[core]\nworktree = /",
            "[core]\nhooksPath = x",
            "[core]\nsshCommand = x",
            "[core]\nattributesFile = x",
            "[core]\neditor = x",
            "[core]\npager = x",
            "[core]\naskPass = x",
            "[core]\ngitProxy = x",
            "[core]\nalternateRefsCommand = x",
            "[core \"x\"]\nbare = x",
            "[alias]\na = !x",
            "[filter \"f\"]\nclean = x",
            "[diff \"d\"]\ntextconv = x",
            "[diff]\nexternal = x",
            "[merge \"m\"]\ndriver = x",
            "[include]\npath = x",
            "[includeIf \"gitdir:/\"]\npath = x",
            "[remote \"o\"]\nurl = ext::sh -c x",
            "[remote \"o\"]\nurl = --upload-pack=x",
            "[remote \"o\"]\nurl = /private",
            "[remote \"o\"]\nuploadpack = x",
            "[remote \"o\"]\nreceivepack = x",
            "[remote \"o\"]\nvcs = x",
            "[remote \"o\"]\nproxy = x",
            "[branch \"b\"]\nremote = ext::x",
            "[branch \"b\"]\nmergeoptions = -s x/y",
            "[submodule \"s\"]\nupdate = !x",
            "[url \"ext::x\"]\ninsteadOf = y",
            "[gpg]\nprogram = x",
            "[credential]\nhelper = x",
            "[pager]\nlog = x",
            "[protocol \"ext\"]\nallow = always",
            "[http]\nproxy = x",
            "[pull]\ntwohead = x",
            "[uploadpack]\npackObjectsHook = x",
            "[sequence]\neditor = x",
            "[hook \"h\"]\ncommand = x",
            "[maintenance]\nrepo = x",
        ] {
            assert!(!harmless(text), "{text}");
        }
    }
}
