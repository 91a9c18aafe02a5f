//! Finds the paths and programs that the words of a git command make git follow or run.

use super::git_config::{GitSetting, has_word};

/// Long options whose value is a command line.
const COMMAND_OPTIONS: &str = "\
    browser cc-cmd commit-filter env-filter exec extcmd header-cmd httpd index-filter msg-filter \
    open-files-in-pager parent-filter receive-pack sendmail-cmd setup smtp-server tag-name-filter \
    to-cmd tree-filter upload-pack";

/// The minimum length of an abbreviated long option.
const MIN_OPTION: usize = 2;

/// Commands whose option `-x` does not take a command line.
const OTHER_X_COMMANDS: &str = "check-ignore cherry-pick clean ls-files submodule svn";

/// Options before the command that take their value from the next word.
const VALUED_OPTIONS: &str = "-C -c --attr-source --config-env --git-dir --namespace --work-tree";

/// The maximum nesting of aliases.
const MAX_DEPTH: u32 = 4;

/// The words of a git command, without `git` itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GitWords(pub Vec<String>);

impl GitWords {
    /// Splits the value of an alias as git does: with quotes and backslashes, and no other shell syntax.
    pub(super) fn of_alias(value: &str) -> Self {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        let mut chars = value.chars();
        while let Some(char) = chars.next() {
            match (char, quote) {
                (_, None) if char.is_ascii_whitespace() => words.extend(word.take()),
                ('\'' | '"', None) => {
                    quote = Some(char);
                    word.get_or_insert_default();
                }
                (_, Some(end)) if char == end => quote = None,
                ('\\', None | Some('"')) => word.get_or_insert_default().extend(chars.next()),
                _ => word.get_or_insert_default().push(char),
            }
        }
        words.extend(word);
        Self(words)
    }

    /// Returns the settings in a value of `GIT_CONFIG_PARAMETERS`, as keys with values. Git passes them to its commands
    /// that are not built in.
    pub(super) fn of_parameters(value: &str) -> Vec<(String, String)> {
        let setting = |word: String| match word.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => (word, "true".to_owned()),
        };
        Self::of_alias(value).0.into_iter().map(setting).collect()
    }

    /// Returns settings with the same effect as these words, after replacing aliases, which are given by name.
    pub(super) fn equivalent_settings(
        mut self,
        aliases: &[(String, String)],
        variables: &[(String, String)],
    ) -> Vec<GitSetting> {
        for _ in 0..MAX_DEPTH {
            let Some(index) = self.command_index() else { break };
            let alias =
                aliases.iter().find(|(name, _)| *name == self.0[index].to_ascii_lowercase());
            let Some((_, value)) = alias else { break };
            self.0.splice(index..=index, Self::of_alias(value).0);
        }
        let mut settings = self.options(variables);
        settings.extend(self.commands());
        settings
    }

    fn command_index(&self) -> Option<usize> {
        let mut index = 0;
        while self.0.get(index)?.starts_with('-') {
            index += if has_word(VALUED_OPTIONS, &self.0[index]) { 2 } else { 1 };
        }
        (index < self.0.len()).then_some(index)
    }

    /// Returns settings with the effect of the options.
    fn options(&self, variables: &[(String, String)]) -> Vec<GitSetting> {
        let command = self.command_index().map_or("", |index| &self.0[index]);
        let found = self.0.iter().enumerate().filter_map(|(index, word)| {
            let next = self.0.get(index + 1).map(String::as_str);
            let (key, value) = match (word.strip_prefix("--"), word.strip_prefix('-')) {
                (Some(long), _) => long_option(long, next, variables)?,
                (None, Some(short)) => short_option(short, next, command)?,
                (None, None) => return None,
            };
            GitSetting::from_key(key, value)
        });
        found.collect()
    }

    /// Returns settings with the effect of the commands and their other words.
    fn commands(&self) -> Vec<GitSetting> {
        let words = self.command_index().map_or(&[][..], |index| &self.0[index..]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let is_option = |word: &&&str| word.starts_with('-');
        let line = match *words {
            ["bisect", "run", ref line @ ..] => line,
            ["submodule", ref rest @ ..] => {
                let rest = &rest[rest.iter().take_while(is_option).count()..];
                let Some(("foreach", rest)) =
                    rest.split_first().map(|(first, rest)| (*first, rest))
                else {
                    return Vec::new();
                };
                &rest[rest.iter().take_while(is_option).count()..]
            }
            ["config", ref rest @ ..] => {
                let pairs = rest.windows(2);
                return pairs.filter_map(|pair| GitSetting::from_key(pair[0], pair[1])).collect();
            }
            _ => return Vec::new(),
        };
        let line = match line {
            [line] => (*line).to_owned(),
            words => words
                .iter()
                .map(|word| format!("'{}' ", word.replace('\'', "'\\''")))
                .collect::<String>(),
        };
        GitSetting::from_key("core.editor", &line).into_iter().collect()
    }
}

/// Returns the key and the value of a setting with the effect of a long option, whose value is in the same word or the
/// next one.
fn long_option<'a>(
    option: &'a str,
    next: Option<&'a str>,
    variables: &'a [(String, String)],
) -> Option<(&'a str, &'a str)> {
    let (name, value) = option.split_once('=').unzip();
    let name = name.unwrap_or(option);
    // Git accepts abbreviated options.
    let is = |known: &str| name.len() >= MIN_OPTION && known.starts_with(name);
    let value = value.or(next)?;
    match name {
        "config" => value.split_once('='),
        "config-env" => {
            let (key, variable) = value.rsplit_once('=')?;
            let known = variables.iter().find(|(name, _)| name == variable)?;
            Some((key, known.1.as_str()))
        }
        "exec-path" => Some(("core.hookspath", option.strip_prefix("exec-path=")?)),
        _ if is("template") => Some(("init.templatedir", value)),
        _ if COMMAND_OPTIONS.split(' ').any(is) => Some(("core.editor", value)),
        _ => None,
    }
}

/// Returns the same for short options; a word may contain several of them.
fn short_option<'a>(
    options: &'a str,
    next: Option<&'a str>,
    command: &str,
) -> Option<(&'a str, &'a str)> {
    let value = |option: char| {
        let (before, value) = options.split_once(option)?;
        let is_group = before.chars().all(|c| c.is_ascii_alphabetic());
        is_group.then_some(if value.is_empty() { next } else { Some(value) })?
    };
    if let Some(setting) = value('c').filter(|_| options.starts_with('c'))
        && let Some(pair) = setting.split_once('=')
    {
        return Some(pair);
    }
    let program = match command {
        "clone" => value('u'),
        "grep" => options.strip_prefix('O'),
        _ if has_word(OTHER_X_COMMANDS, command) => None,
        _ => value('x'),
    };
    Some(("core.editor", program?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_an_alias_are_split_as_git_does() {
        for (value, words) in [
            ("log  -1\t--oneline", &["log", "-1", "--oneline"][..]),
            (r#"rebase -x "a b" 'c"\d' e\ f"#, &["rebase", "-x", "a b", r#"c"\d"#, "e f"]),
            (r#"a "b\"c" ''"#, &["a", "b\"c", ""]),
            ("$x `y`; z", &["$x", "`y`;", "z"]),
        ] {
            assert_eq!(GitWords::of_alias(value).0, words, "{value}");
        }
    }

    #[test]
    fn what_words_run_or_set_is_found() {
        let aliases = [("r".to_owned(), "rebase -i".to_owned())];
        let variables = [("V".to_owned(), "h/v".to_owned())];
        for (value, expected) in [
            ("-c core.hooksPath=h status", &["core.hookspath=h"][..]),
            ("--config-env=core.fsmonitor=V status", &["core.fsmonitor=h/v"]),
            ("--exec-path=h status", &["core.hookspath=h"]),
            ("rebase -x h/x", &["core.editor=h/x"]),
            ("rebase -xh/x", &["core.editor=h/x"]),
            ("rebase -ix h/x", &["core.editor=h/x"]),
            ("rebase --ex=h/x", &["core.editor=h/x"]),
            ("-p r --exec h/x", &["core.editor=h/x"]),
            ("difftool -y --extcmd h/x", &["core.editor=h/x"]),
            ("bisect run ./h/x 'a b'", &["core.editor='./h/x' 'a b' "]),
            ("submodule -q foreach --recursive 'h/x | y'", &["core.editor=h/x | y"]),
            ("filter-branch --tree-filter h/x HEAD", &["core.editor=h/x"]),
            ("grep -Oh/x a", &["core.editor=h/x"]),
            ("clone -u h/x --template=t a", &["core.editor=h/x", "init.templatedir=t"]),
            ("clone --config core.hooksPath=h a", &["core.hookspath=h"]),
            ("fetch --upload-pack=h/x", &["core.editor=h/x"]),
            ("config --global core.hooksPath h", &["core.hookspath=h"]),
            ("cherry-pick -x a/b", &[]),
            ("clean -x src/y", &[]),
            ("checkout -- src/x", &[]),
            ("commit -c HEAD", &[]),
            ("log --format=%h -1", &[]),
        ] {
            let settings = GitWords::of_alias(value).equivalent_settings(&aliases, &variables);
            let found: Vec<String> = settings
                .iter()
                .map(|setting| format!("{}={}", setting.key(), setting.value().unwrap_or_default()))
                .collect();
            assert_eq!(found, expected, "{value}");
        }
    }
}
