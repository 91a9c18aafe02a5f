//! Origins of values.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::exec::is_secret_variable;
use crate::net::Secrets;
use crate::types::matches_wildcard;

/// The origin of a value: the layer, and the place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueOrigin {
    /// The layer.
    pub rank: LayerRank,
    /// The place in the layer.
    pub source: OriginSource,
}

/// The layers, each overriding the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LayerRank {
    /// The defaults.
    Default,
    /// The user's own folder.
    User,
    /// The workspace's `.architect` folder and its `.mcp.json`.
    Project,
    /// An `ARCHITECT_*` variable.
    Variable,
    /// The file of `--config`, or of `--mcp-config`.
    File,
    /// The selected profile.
    Profile,
    /// `--set` and every other option of the command line.
    Argument,
}

/// A place that messages can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginSource {
    /// Built into the program.
    BuiltIn,
    /// A part of a file, in bytes.
    File(Arc<ConfigDocument>, Range<usize>),
    /// An environment variable.
    Variable(Arc<str>),
    /// An option of the command line.
    Argument(Arc<str>),
    /// An option of a manifest that the agent may have written, in the form of the command line.
    Manifest(Arc<str>),
    /// The options that a session has stored.
    Session,
}

/// A configuration file that was read.
#[derive(PartialEq, Eq)]
pub struct ConfigDocument {
    path: PathBuf,
    text: String,
}

/// The line of a file that contains a problem, for display with carets below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceExcerpt {
    /// The line, with possible secrets masked.
    pub line: String,
    /// The column of the first caret, counted from one.
    pub column: usize,
    /// The number of carets, at least one.
    pub width: usize,
}

/// The maximum length of a displayed line, in characters.
const MAX_LINE_CHARS: usize = 160;

impl ValueOrigin {
    /// The origin of defaults.
    pub const DEFAULT: Self = Self { rank: LayerRank::Default, source: OriginSource::BuiltIn };

    /// Returns the origin of a part of a file.
    pub(super) fn in_file(
        rank: LayerRank,
        document: &Arc<ConfigDocument>,
        span: Range<usize>,
    ) -> Self {
        Self { rank, source: OriginSource::File(Arc::clone(document), span) }
    }

    /// Returns the path, if the value comes from a file.
    pub fn path(&self) -> Option<&Path> {
        let OriginSource::File(document, _) = &self.source else { return None };
        Some(document.path())
    }

    /// Returns the line of the file, for display below a message.
    pub fn excerpt(&self) -> Option<SourceExcerpt> {
        let OriginSource::File(document, span) = &self.source else { return None };
        document.excerpt(span)
    }
}

impl ConfigDocument {
    /// Returns a document, without its byte order mark.
    pub(super) fn new(path: PathBuf, text: &str) -> Arc<Self> {
        Arc::new(Self { path, text: text.strip_prefix('\u{feff}').unwrap_or(text).to_owned() })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the content.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the line and the column of an offset, counted from one, and where the line begins. The offset may be inside
    /// a character or beyond the end.
    fn position(&self, offset: usize) -> (usize, usize, usize) {
        let mut ends = (0..=offset.min(self.text.len())).rev();
        let end = ends.find(|end| self.text.is_char_boundary(*end)).unwrap_or(0);
        let before = &self.text[..end];
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before[begin..].chars().count() + 1, begin)
    }

    fn excerpt(&self, span: &Range<usize>) -> Option<SourceExcerpt> {
        let (_, column, begin) = self.position(span.start);
        let line = redact_secret(self.text[begin..].lines().next()?);
        let length = line.chars().count();
        let marked = self.text.get(span.clone()).map_or(1, |part| part.chars().count());
        let width = marked.min(length.saturating_sub(column - 1)).max(1);
        (column.max(length) <= MAX_LINE_CHARS).then_some(SourceExcerpt { line, column, width })
    }
}

/// Words in a name that suggest a secret.
const SECRET_WORDS: [&str; 6] =
    ["key", "token", "secret", "password", "authorization", "credential"];

/// Parts of the names of keys whose values the user may keep secret.
const SECRET_SECTIONS: [&str; 2] = [".env.", ".headers."];

/// Returns whether a name suggests a secret.
pub(super) fn suggests_secret(name: &str) -> bool {
    let lower = name.to_lowercase();
    SECRET_WORDS.iter().chain(&SECRET_SECTIONS).any(|word| lower.contains(word))
}

/// Returns whether a text may be a secret: by its form, or because it contains a word that looks random.
pub(crate) fn may_be_secret(text: &str) -> bool {
    const MIN_WORD: usize = 12;
    let is_random = |word: &str| {
        word.len() >= MIN_WORD
            && word.contains(|c: char| c.is_ascii_digit())
            && word.contains(|c: char| c.is_ascii_alphabetic())
    };
    has_address_with_user(text)
        || Secrets::default().mask_all(text) != text
        || text.split(|c: char| !c.is_ascii_alphanumeric()).any(is_random)
}

/// Headers whose values are not secrets, in lower case, with wildcards.
const HARMLESS_HEADERS: &str = "*-beta|*-version|*-team|*-title|*-project|*-organization|*-name|user-agent|referer|http-referer|\
                                accept*|content-*|traceparent|tracestate";

/// Fields of request bodies that have names like secrets and are not secrets.
const HARMLESS_OPTIONS: &str = "prompt_cache_key|*_tokens|*_token_count|top_logprobs";

/// Returns whether a header may have a secret as its value. Values of headers with unknown names may be secrets.
pub(crate) fn is_secret_header(name: &str, value: &str) -> bool {
    !matches_wildcard(HARMLESS_HEADERS, &name.to_ascii_lowercase()) || may_be_secret(value)
}

/// Returns whether a setting in the form of `--set`, `key=value`, may have a secret as its value.
pub fn may_set_secret(setting: &str) -> bool {
    let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
    let (key, value) = (key.trim(), value.trim());
    if let Some(name) = key.strip_prefix("llm.headers") {
        return is_secret_header(name.trim_start_matches('.'), value);
    }
    let is_masked = || Secrets::default().mask_all(value) != value;
    // Servers get keys by variables, headers, arguments and addresses.
    let is_of_server =
        key.starts_with("mcp.servers") || key.starts_with("models.") || key.ends_with("api_base");
    if is_of_server && !key.ends_with("_env") {
        return suggests_secret(setting) || may_be_secret(value);
    }
    match key.strip_prefix("llm.options") {
        Some(name) => {
            let name = name.trim_start_matches('.');
            let is_named = is_secret_variable(&format!("_{name}"))
                && !matches_wildcard(HARMLESS_OPTIONS, name)
                && value.parse::<f64>().is_err();
            is_named || may_be_secret(value)
        }
        None => is_masked(),
    }
}

/// Returns whether a text contains an address with a user name, and possibly a password.
pub(crate) fn has_address_with_user(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let end = rest.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(rest.len());
        rest[..end].contains('@')
    })
}

/// Masks the value in a line if its name suggests a secret, or if the line contains an address with one.
fn redact_secret(line: &str) -> String {
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let Some(end) = line.find(['=', ':']) else { return line };
    if suggests_secret(&line) || has_address_with_user(&line) {
        format!("{} …", &line[..=end])
    } else {
        line
    }
}

impl fmt::Debug for ConfigDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({})", self.path.display())
    }
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            OriginSource::BuiltIn => f.write_str("default"),
            OriginSource::File(document, span) => {
                let (line, column, _) = document.position(span.start);
                write!(f, "{}:{line}:{column}", document.path.display())
            }
            OriginSource::Variable(name)
            | OriginSource::Argument(name)
            | OriginSource::Manifest(name) => f.write_str(name),
            OriginSource::Session => f.write_str("the stored options of the session"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(text: &str, span: Range<usize>) -> (String, SourceExcerpt) {
        let origin = ValueOrigin::in_file(
            LayerRank::User,
            &ConfigDocument::new("a.toml".into(), text),
            span,
        );
        (origin.to_string(), origin.excerpt().unwrap())
    }

    #[test]
    fn positions_count_lines_and_characters() {
        let (place, excerpt) = excerpt("a = 1\nö = 2\n", 11..12);
        assert_eq!(place, "a.toml:2:5");
        assert_eq!(excerpt, SourceExcerpt { line: "ö = 2".into(), column: 5, width: 1 });
    }

    #[test]
    fn a_secret_is_masked() {
        let (_, excerpt) = excerpt("api_key = sk-canary", 10..19);
        assert_eq!(excerpt, SourceExcerpt { line: "api_key = …".into(), column: 11, width: 1 });
    }

    #[test]
    fn a_setting_may_be_a_secret_by_its_name_or_its_value() {
        for secret in [
            "llm.headers.X-Gateway=plain words",
            "llm.headers.X-Team=a1b2c3d4e5f6g7h8",
            "llm.headers={ X-Team = 'build' }",
            "llm.options.user_password=x",
            "llm.options.user=a1b2c3d4e5f6g7h8",
            "mcp.servers.a.env={MY_TOKEN='plain'}",
            "mcp.servers.a.env.NAME=plain",
            "mcp.servers.a.args=['--token', 'plain']",
            "mcp.servers.a.url=http://127.0.0.1:9/mcp?key=plain",
            "models.m.api_base=http://127.0.0.1:9/v1?token=plain",
            "llm.api_base=http://127.0.0.1:9/v1?token=plain",
            "commands.env_include=ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
        ] {
            assert!(may_set_secret(secret), "{secret}");
        }
        for open in [
            "llm.headers.X-Team=build",
            "llm.headers.anthropic-beta=context-1m-2025-08-07",
            "llm.options.temperature=0.2",
            "llm.options.prompt_cache_key=mine",
            "llm.options.service_tier=flex",
            "llm.api_key_env=MY_KEY",
            "llm.api_base=http://127.0.0.1:9/v1",
            "models.m.api_key_env=MY_KEY",
            "mcp.servers.a.command=false",
            "mcp.servers.a.token_env=MY_TOKEN",
            "sessions.dir=/tmp/a1b2c3d4e5f6g7h8",
        ] {
            assert!(!may_set_secret(open), "{open}");
        }
    }

    #[test]
    fn an_address_with_a_password_is_masked() {
        let (_, excerpt) = excerpt("api_base = \"https://me:canary@host/v1\"", 11..39);
        assert_eq!(excerpt.line, "api_base = …");
        let line = "api_base = \"https://host/v1@2\"";
        assert_eq!(redact_secret(line), line);
    }

    #[test]
    fn positions_beyond_the_end_are_at_the_end() {
        let document = ConfigDocument::new("a.toml".into(), "\u{feff}ab");
        assert_eq!(document.position(99), (1, 3, 0));
    }
}
