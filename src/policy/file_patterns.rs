//! Patterns for guarded files.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::rules::{RuleError, names_git};

/// File patterns as in `.gitignore`: a name without `/` matches in every folder, and a folder includes its content.
#[derive(Clone, Debug, Default)]
pub struct FilePatterns {
    texts: Vec<String>,
    globs: GlobSet,
}

impl FilePatterns {
    /// Parses patterns.
    ///
    /// # Errors
    ///
    /// Fails at the first invalid pattern.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, RuleError> {
        let error = |error: globset::Error| RuleError(format!("invalid file pattern: {error}"));
        let mut globs = GlobSetBuilder::new();
        let texts: Vec<String> = texts.iter().map(|text| text.as_ref().to_owned()).collect();
        for text in &texts {
            let plain = anchored(text);
            for glob in [plain.clone(), format!("{plain}/**")] {
                let mut glob = GlobBuilder::new(&glob);
                let glob = glob.literal_separator(true).case_insensitive(true).build();
                globs.add(glob.map_err(error)?);
            }
        }
        Ok(Self { texts, globs: globs.build().map_err(error)? })
    }

    /// Returns whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Returns the first pattern that matches a path below the workspace.
    pub fn find(&self, path: &str) -> Option<&str> {
        // Each text is compiled to two patterns.
        self.globs.matches(path).first().map(|index| self.texts[index / 2].as_str())
    }

    /// Returns the first pattern that names `.git` and matches a path below the workspace.
    pub(super) fn find_in_git(&self, path: &str) -> Option<&str> {
        let found =
            self.globs.matches(path).into_iter().map(|index| self.texts[index / 2].as_str());
        found.into_iter().find(|text| names_git(text))
    }

    /// Returns whether a pattern names `.git`.
    pub(super) fn name_git(&self) -> bool {
        self.texts.iter().any(|text| names_git(text))
    }

    /// Returns the pattern that matches a path which may be outside the workspace.
    pub(super) fn find_outside(&self, place: &str) -> Option<&str> {
        let place = place.trim_start_matches('/');
        let ends = place.match_indices('/').map(|(at, _)| &place[at + 1..]);
        std::iter::once(place).chain(ends).find_map(|end| self.find(end))
    }

    /// Returns a pattern for paths within a folder; the empty folder is the workspace.
    pub(super) fn find_within(&self, folder: &str) -> Option<&str> {
        let is_within = |text: &&str| {
            let rest = anchored(text).strip_prefix(folder).map(str::to_owned);
            folder.is_empty() || rest.is_some_and(|rest| rest.starts_with('/'))
        };
        self.texts.iter().map(String::as_str).find(is_within)
    }

    /// Returns the pattern that may match one of the files that a shell substitutes for `word`.
    pub(super) fn find_possible(&self, word: &str) -> Option<&str> {
        let word = word.trim_start_matches("./");
        self.texts.iter().map(String::as_str).find(|text| {
            let plain = anchored(text);
            match plain.strip_prefix("**/").filter(|rest| !rest.contains('/')) {
                Some(name) => names_may_match(word.rsplit('/').next().unwrap_or_default(), name),
                None => paths_may_match(word, &plain),
            }
        })
    }
}

fn anchored(text: &str) -> String {
    // `folder/**` means the same as the folder.
    let plain = text.trim_start_matches("./").trim_end_matches("/**").trim_end_matches('/');
    match plain.strip_prefix('/') {
        Some(plain) => plain.to_owned(),
        None if plain.contains('/') => plain.to_owned(),
        None => format!("**/{plain}"),
    }
}

fn paths_may_match(word: &str, pattern: &str) -> bool {
    let (mut words, mut patterns) = (word.split('/'), pattern.split('/'));
    loop {
        match (words.next(), patterns.next()) {
            (None, None) => return true,
            (_, Some("**")) => return true,
            (Some(word), Some(pattern)) if names_may_match(word, pattern) => {}
            _ => return false,
        }
    }
}

/// Returns whether a name may match both. In a shell, names that begin with a dot match only patterns that do, too.
pub(super) fn names_may_match(word: &str, pattern: &str) -> bool {
    if pattern.starts_with('.') && word.starts_with(['*', '?', '[']) {
        return false;
    }
    let (word, pattern): (Vec<char>, Vec<char>) = (simplify_name(word), simplify_name(pattern));
    let one = |c: char| c == '?' || c == '*';
    // Whether some name matches both from these characters on.
    let mut fits = vec![vec![false; pattern.len() + 1]; word.len() + 1];
    for w in (0..=word.len()).rev() {
        for p in (0..=pattern.len()).rev() {
            fits[w][p] = match (word.get(w), pattern.get(p)) {
                (None, None) => true,
                (Some('*'), _) if fits[w + 1][p] => true,
                (_, Some('*')) if fits[w][p + 1] => true,
                (Some(&a), Some(&b)) => {
                    (a.eq_ignore_ascii_case(&b) || one(a) || one(b))
                        && fits[w + usize::from(a != '*')][p + usize::from(b != '*')]
                }
                _ => false,
            };
        }
    }
    fits[0][0]
}

/// Replaces a choice of characters by any character.
fn simplify_name(name: &str) -> Vec<char> {
    let mut chars = Vec::new();
    let mut rest = name.chars().take(256);
    while let Some(char) = rest.next() {
        if char == '[' {
            rest.by_ref().find(|char| *char == ']');
            chars.push('?');
        } else {
            chars.push(char);
        }
    }
    chars
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns() -> FilePatterns {
        FilePatterns::parse(&[".env*", "*.pem", "config/prod.toml", "secrets/"]).unwrap()
    }

    #[test]
    fn files_are_found_by_name_and_by_path() {
        let found = |path: &str| patterns().find(path).map(str::to_owned);
        assert_eq!(found("a/b/.env.local").as_deref(), Some(".env*"));
        assert_eq!(found(".ENV").as_deref(), Some(".env*"));
        assert_eq!(found("config/prod.toml").as_deref(), Some("config/prod.toml"));
        assert_eq!(found("d/secrets/x").as_deref(), Some("secrets/"));
        for path in ["env", "a/config/prod.toml", "secrets.txt", "pem"] {
            assert_eq!(found(path), None, "{path}");
        }
        assert!(patterns().find_outside("/abs/w/config/prod.toml").is_some());
    }

    #[test]
    fn what_a_shell_may_expand_to_is_found() {
        for word in
            [".e*", ".en?", ".e[a-z]v", "*.p*", "d/*", "config/*", "conf*/prod.toml", "x/.env*"]
        {
            assert!(patterns().find_possible(word).is_some(), "{word}");
        }
        for word in ["*.rs", "src/*.rs", "config/*.json", "?"] {
            assert_eq!(patterns().find_possible(word), None, "{word}");
        }
    }
}
