//! Where a value comes from.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a value comes from: the layer, and the place in it.
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
}

/// A configuration file that was read.
#[derive(PartialEq, Eq)]
pub struct ConfigDocument {
    path: PathBuf,
    text: String,
}

/// A position in a file, counted from one; columns are characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPosition {
    /// The line.
    pub line: usize,
    /// The character in it.
    pub column: usize,
}

/// The line of a file that a problem is in, to be shown with carets below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceExcerpt {
    /// The line, with possible secrets masked.
    pub line: String,
    /// The column of the first caret, counted from one.
    pub column: usize,
    /// The number of carets, at least one.
    pub width: usize,
}

/// The longest line that is shown.
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

    fn file(&self) -> Option<(&ConfigDocument, &Range<usize>)> {
        match &self.source {
            OriginSource::File(document, span) => Some((document, span)),
            OriginSource::BuiltIn | OriginSource::Variable(_) | OriginSource::Argument(_) => None,
        }
    }

    /// Returns the path, if the value comes from a file.
    pub fn path(&self) -> Option<&Path> {
        self.file().map(|(document, _)| document.path())
    }

    /// Returns the position, if the value comes from a file.
    pub fn position(&self) -> Option<TextPosition> {
        self.file().map(|(document, span)| document.position(span.start))
    }

    /// Returns the line of the file, to be shown below a message.
    pub fn excerpt(&self) -> Option<SourceExcerpt> {
        self.file().and_then(|(document, span)| document.excerpt(span))
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

    fn position(&self, offset: usize) -> TextPosition {
        let before = self.text_before(offset);
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        TextPosition {
            line: before.matches('\n').count() + 1,
            column: before[begin..].chars().count() + 1,
        }
    }

    fn excerpt(&self, span: &Range<usize>) -> Option<SourceExcerpt> {
        let begin = self.text_before(span.start).rfind('\n').map_or(0, |end| end + 1);
        let line = self.text[begin..].lines().next()?;
        let column = self.position(span.start).column;
        let shown = redact_secret(line);
        let left = shown.chars().count().saturating_sub(column - 1);
        let marked = self.text.get(span.clone()).map_or(1, |part| part.chars().count());
        (column <= MAX_LINE_CHARS && shown.chars().count() <= MAX_LINE_CHARS)
            .then(|| SourceExcerpt { width: marked.min(left).max(1), line: shown, column })
    }

    /// Returns the text before an offset, which may be inside a character or beyond the end.
    fn text_before(&self, offset: usize) -> &str {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        &self.text[..end]
    }
}

/// Words in a name that suggest a secret.
const SECRET_WORDS: [&str; 6] =
    ["key", "token", "secret", "password", "authorization", "credential"];

/// Returns whether an address in a text names a user, and perhaps a password.
pub(crate) fn has_address_with_user(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let end = rest.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(rest.len());
        rest[..end].contains('@')
    })
}

/// Masks the value of a line whose name suggests a secret, or that has one in an address.
fn redact_secret(line: &str) -> String {
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let Some(end) = line.find(['=', ':']) else { return line };
    let lower = line.to_lowercase();
    if SECRET_WORDS.iter().any(|word| lower.contains(word)) || has_address_with_user(&lower) {
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
                let TextPosition { line, column } = document.position(span.start);
                write!(f, "{}:{line}:{column}", document.path.display())
            }
            OriginSource::Variable(name) => f.write_str(name),
            OriginSource::Argument(option) => f.write_str(option),
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
    fn an_address_with_a_password_is_masked() {
        let (_, excerpt) = excerpt("api_base = \"https://me:canary@host/v1\"", 11..39);
        assert_eq!(excerpt.line, "api_base = …");
        let line = "api_base = \"https://host/v1@2\"";
        assert_eq!(redact_secret(line), line);
    }

    #[test]
    fn positions_beyond_the_end_are_at_the_end() {
        let document = ConfigDocument::new("a.toml".into(), "\u{feff}ab");
        assert_eq!(document.position(99), TextPosition { line: 1, column: 3 });
    }
}
