//! Secret values.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, PoisonError, RwLock};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use thiserror::Error;

use super::secret_forms::{MASK, is_placeholder, mask_forms};

/// A key or a token. It is never printed or stored; only [`Secret::expose`] returns it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

/// An invalid key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SecretError {
    /// The text is empty.
    #[error("is empty")]
    Empty,
    /// The text has characters that a header must not contain, such as a line break.
    #[error("has a character that no key has (a space, a line break, or one outside ASCII)")]
    Malformed,
}

/// The characters that are encoded in a value within an address (RFC 3986, 2.3).
pub(crate) const RESERVED_IN_ADDRESS: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Parameters of addresses whose values are not secret.
const HARMLESS_PARAMETERS: [&str; 4] = ["alt", "api-version", "api_version", "version"];

/// Returns the parameters of an address whose values may be secrets, each with its name.
pub fn address_parameters(address: &str) -> impl Iterator<Item = (&str, &str)> {
    let (_, parameters) = address.split_once('?').unwrap_or_default();
    let parameters = parameters.split('&').filter_map(|parameter| parameter.split_once('='));
    parameters.filter(|(name, _)| !HARMLESS_PARAMETERS.contains(name))
}

/// Returns a text without the values of parameters if it is an address, otherwise the text itself.
pub fn mask_address(text: &str) -> String {
    let Some((address, parameters)) = text.split_once('?').filter(|_| text.contains("://")) else {
        return text.to_owned();
    };
    let mask = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if !HARMLESS_PARAMETERS.contains(&name) => format!("{name}={MASK}"),
        Some(_) => parameter.to_owned(),
        None => MASK.to_owned(),
    };
    let parameters: Vec<String> = parameters.split('&').map(mask).collect();
    format!("{address}?{}", parameters.join("&"))
}

impl Secret {
    /// Returns the secret in `text`, without surrounding white space.
    ///
    /// # Errors
    ///
    /// Fails if the secret can't be sent in a header.
    pub fn new(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        if text.is_empty() {
            Err(SecretError::Empty)
        } else if text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text.into()))
        } else {
            Err(SecretError::Malformed)
        }
    }

    /// Returns the secret, for use in a header.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Keys, tokens and passwords that are masked in output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Arc<[Arc<str>]>);

/// Keys that became known while the process is running. Every set of secrets masks them, too.
static LATE_KEYS: RwLock<Vec<Arc<str>>> = RwLock::new(Vec::new());

/// The beginning of a line that stands for an omitted part.
const CUT: &str = "[... ";

/// The minimum length of a part of a secret that is masked next to a cut. Shorter parts reveal little, and may also be
/// the ends of ordinary words.
const MIN_REST: usize = 4;

/// The minimum length of a secret. A shorter one would match ordinary text.
const MIN_SECRET_LENGTH: usize = 12;

/// The minimum length of a key, which is a provider's key or a value whose name marks it as a key. Shorter values are
/// placeholders for servers that ignore the key.
const MIN_KEY_LENGTH: usize = 8;

impl Secrets {
    /// Returns the values that differ from ordinary text: long, a single word, and neither a path nor an address.
    pub fn from_values<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        Self::from_distinctive(values, |value| value.len() >= MIN_SECRET_LENGTH)
    }

    /// Returns the values of names that mark a key, including short values, but without placeholders.
    pub fn from_key_values<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        Self::from_distinctive(values, |value| {
            value.len() >= MIN_KEY_LENGTH && !is_placeholder(value)
        })
    }

    fn from_distinctive<'a>(
        values: impl IntoIterator<Item = &'a str>,
        is_long: impl Fn(&str) -> bool,
    ) -> Self {
        let is_distinctive = |value: &&str| {
            let is_word = value.bytes().all(|byte| byte.is_ascii_graphic());
            is_word && is_long(value) && !value.starts_with('/') && !value.contains("://")
        };
        Self::from_texts(values.into_iter().map(str::trim).filter(is_distinctive).map(Arc::from))
    }

    /// Returns the given keys of providers.
    pub fn from_keys(keys: impl IntoIterator<Item = Secret>) -> Self {
        Self::from_texts(
            keys.into_iter().map(|key| key.0).filter(|key| key.len() >= MIN_KEY_LENGTH),
        )
    }

    /// Returns these secrets, joined with others.
    pub(crate) fn join(&self, others: &Self) -> Self {
        Self::sorted(self.0.iter().chain(&*others.0).cloned().collect())
    }

    /// Adds a key that is masked by every set of secrets, including existing ones.
    pub(crate) fn mask_everywhere(key: &Secret) {
        let texts = Self::from_keys([key.clone()]);
        let mut known = LATE_KEYS.write().unwrap_or_else(PoisonError::into_inner);
        known.extend(texts.0.iter().cloned());
        known.sort_by_key(|text| std::cmp::Reverse((text.len(), Arc::clone(text))));
        known.dedup();
    }

    /// Returns texts in all their forms: unchanged; with JSON escapes, also in a document within a string of another
    /// one, such as the arguments of a call; and with and without the encoding of addresses.
    fn from_texts(texts: impl Iterator<Item = Arc<str>>) -> Self {
        let escape = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"");
        let mut all: Vec<Arc<str>> = Vec::new();
        for text in texts {
            let once = escape(&text);
            // Some writers escape slashes, too.
            let with_slashes = once.replace('/', r"\/");
            all.extend([escape(&once), escape(&with_slashes), once, with_slashes].map(Arc::from));
            all.push(utf8_percent_encode(&text, &RESERVED_IN_ADDRESS).to_string().into());
            // A shorter text may be ordinary text.
            let plain = percent_decode_str(&text).decode_utf8().ok();
            all.extend(plain.filter(|plain| plain.len() >= MIN_KEY_LENGTH).map(Arc::from));
            all.push(text);
        }
        Self::sorted(all)
    }

    fn sorted(mut all: Vec<Arc<str>>) -> Self {
        // Longer secrets come first: a shorter one may be a prefix of them.
        all.sort_by(|one, other| (other.len(), other).cmp(&(one.len(), one)));
        all.dedup();
        Self(all.into())
    }

    /// Returns the text with all secrets masked, including text in the form of well-known keys.
    pub fn mask_all(&self, text: &str) -> String {
        mask_key_patterns(&self.mask(text.to_owned()))
    }

    /// Returns the text in a form that may leave this machine. In addition to [`Self::mask_all`], it masks text in the
    /// form of a secret: private keys, JSON web tokens, passwords in addresses, and values of names that suggest a
    /// secret.
    pub fn mask_for_export(&self, text: &str) -> String {
        mask_forms(&self.mask_all(text))
    }

    /// Returns the text with all secrets masked.
    pub fn mask(&self, text: String) -> String {
        let late = LATE_KEYS.read().unwrap_or_else(PoisonError::into_inner);
        self.0.iter().chain(&*late).fold(text, |text, secret| {
            if text.contains(&**secret) { text.replace(&**secret, MASK) } else { text }
        })
    }

    /// Returns bytes with their text masked like in [`Self::mask_all`].
    pub fn mask_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        map_texts(bytes, |text| self.mask_all(text))
    }

    /// Returns bytes with their text masked like in [`Self::mask_for_export`].
    pub fn mask_bytes_for_export(&self, bytes: &[u8]) -> Vec<u8> {
        map_texts(bytes, |text| self.mask_for_export(text))
    }

    /// Returns the text with all secrets masked, including the rests of secrets at a cut: the beginning of a secret
    /// before a line that stands for an omitted part, such as `[... 10 bytes omitted ...]`, and the end of a secret
    /// after it.
    pub fn mask_cut(&self, text: String) -> String {
        let text = self.mask(text);
        if !text.contains(CUT) {
            return text;
        }
        let mut masked = String::with_capacity(text.len());
        let mut is_behind_cut = false;
        for line in text.split_inclusive('\n') {
            let is_cut = line.starts_with(CUT) && line.trim_end().ends_with(" ...]");
            if is_cut {
                let line_end = masked.ends_with('\n');
                let before = masked.trim_end_matches('\n');
                let rest = self.unfinished(before);
                if rest >= MIN_REST {
                    masked.truncate(before.len() - rest);
                    masked.push_str(MASK);
                    masked.push_str(if line_end { "\n" } else { "" });
                }
                masked.push_str(line);
            } else {
                let rest = if is_behind_cut { self.remainder(line) } else { 0 };
                if rest >= MIN_REST {
                    masked.push_str(MASK);
                    masked.push_str(&line[rest..]);
                } else {
                    masked.push_str(line);
                }
            }
            is_behind_cut = is_cut;
        }
        masked
    }

    /// Returns the text with all secrets masked, and also its end if that is the beginning of a secret. A text can end
    /// like this if a program was ended before it had written everything.
    pub fn mask_end(&self, text: String) -> String {
        let end = self.complete(&text);
        match text.len() - end >= MIN_REST {
            true => format!("{}{MASK}", &text[..end]),
            false => text,
        }
    }

    /// Returns the length of the longest end of a secret with which a text begins.
    fn remainder(&self, text: &str) -> usize {
        let longest = |secret: &Arc<str>| {
            let mut lengths = (1..secret.len().min(text.len() + 1)).rev();
            lengths.find(|length| {
                text.as_bytes().starts_with(&secret.as_bytes()[secret.len() - length..])
            })
        };
        let late = LATE_KEYS.read().unwrap_or_else(PoisonError::into_inner);
        self.0.iter().chain(&*late).filter_map(longest).max().unwrap_or(0)
    }

    /// Returns the length of the part at the beginning of a text that can be masked by itself: whatever follows the
    /// text, no secret begins in this part and ends after it.
    pub fn complete(&self, text: &str) -> usize {
        let late = LATE_KEYS.read().unwrap_or_else(PoisonError::into_inner);
        let mut end = text.len() - self.unfinished(text);
        // If a secret ends in the rest, the rest has to begin with it.
        loop {
            let crosses = |secret: &Arc<str>| {
                let starts = end.saturating_sub(secret.len() - 1)..end;
                let mut starts = starts.filter(|start| text.is_char_boundary(*start));
                starts.find(|start| text[*start..].starts_with(&**secret))
            };
            match self.0.iter().chain(&*late).filter(|it| !it.is_empty()).find_map(crosses) {
                Some(start) => end = start,
                None => return end,
            }
        }
    }

    /// Returns the length of the longest beginning of a secret with which a text ends.
    pub fn unfinished(&self, text: &str) -> usize {
        let longest = |secret: &Arc<str>| {
            let mut lengths = (1..secret.len().min(text.len() + 1)).rev();
            lengths.find(|length| text.as_bytes().ends_with(&secret.as_bytes()[..*length]))
        };
        let late = LATE_KEYS.read().unwrap_or_else(PoisonError::into_inner);
        self.0.iter().chain(&*late).filter_map(longest).max().unwrap_or(0)
    }
}

/// Returns bytes with their texts mapped; bytes that are not UTF-8 stay unchanged.
fn map_texts(bytes: &[u8], map: impl Fn(&str) -> String) -> Vec<u8> {
    bytes.utf8_chunks().fold(Vec::with_capacity(bytes.len()), |mut mapped, chunk| {
        mapped.extend_from_slice(map(chunk.valid()).as_bytes());
        mapped.extend_from_slice(chunk.invalid());
        mapped
    })
}

/// A writer that masks secrets like [`Secrets::mask_all`].
pub struct MaskingWriter<W> {
    out: W,
    secrets: Secrets,
}

impl<W: Write> MaskingWriter<W> {
    /// Returns a writer around another one. Each written part is masked by itself.
    pub fn new(out: W, secrets: Secrets) -> Self {
        Self { out, secrets }
    }
}

impl<W: Write> Write for MaskingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write_all(&self.secrets.mask_bytes(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The prefixes of well-known keys, with the minimum length of the rest.
const KEY_PATTERNS: [(usize, &[&str]); 5] = [
    (16, &["AKIA", "ASIA", "Bearer ", "bearer "]),
    (
        20,
        &[
            "sk-", "sk_live_", "rk_live_", "gsk_", "xai-", "pplx-", "hf_", "glpat-", "xoxb-",
            "xoxp-", "xoxa-", "xapp-",
        ],
    ),
    (30, &["AIza", "nvapi-", "tgp_v1_", "r8_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_"]),
    (30, &["github_pat_"]),
    (40, &["pypi-", "dop_v1_"]),
];

/// Masks text in the form of well-known keys: a word that begins with a prefix, and has letters and digits.
fn mask_key_patterns(text: &str) -> String {
    let (mut masked, mut rest) = (String::with_capacity(text.len()), text);
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    while let Some(start) = rest.find(is_in_word) {
        // The `n` of an escaped line break, as in JSON, is not part of the word.
        let start = start + usize::from(rest[..start].ends_with('\\'));
        // The sign of a removed line in a diff is not part of the word either.
        let start = rest.len() - rest[start..].trim_start_matches('-').len();
        let (before, word) = rest.split_at(start);
        masked.push_str(before);
        let key_length = |least: usize, prefix: &str| {
            let key = word.strip_prefix(prefix)?;
            // A provider may show a part of a key, and tokens in headers may have further characters.
            let is_in_key = |c: char| {
                is_in_word(c) || c == '*' || (prefix.ends_with(' ') && "._~+/=".contains(c))
            };
            let key = &key[..key.find(|c| !is_in_key(c)).unwrap_or(key.len())];
            // Ordinary names do not have both letters and digits.
            let is_key = key.len() >= least
                && key.bytes().any(|byte| byte.is_ascii_digit())
                && key.bytes().any(|byte| byte.is_ascii_alphabetic());
            is_key.then_some(key.len())
        };
        let known = KEY_PATTERNS.iter().find_map(|(least, prefixes)| {
            prefixes.iter().find_map(|prefix| Some((*prefix, key_length(*least, prefix)?)))
        });
        let end = if let Some((prefix, length)) = known {
            masked.extend([prefix, MASK]);
            prefix.len() + length
        } else {
            let end = word.find(|c| !is_in_word(c)).unwrap_or(word.len());
            masked.push_str(&word[..end]);
            end
        };
        rest = &word[end..];
    }
    masked.push_str(rest);
    masked
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show_itself() {
        let secret = Secret::new(" sk-canary\n").unwrap();
        assert_eq!(secret.expose(), "sk-canary");
        assert_eq!(format!("{secret:?}"), "***");
    }

    #[test]
    fn a_secret_that_could_inject_a_header_is_rejected() {
        for text in ["a\r\nHost: b", "a b", "schlüssel", "\u{7f}"] {
            assert_eq!(Secret::new(text), Err(SecretError::Malformed), "{text:?}");
        }
        assert_eq!(Secret::new(" \n"), Err(SecretError::Empty));
    }

    #[test]
    fn a_secret_is_masked_among_bytes_too() {
        let secrets = Secrets::from_keys([Secret::new("sk-canary").unwrap()]);
        assert_eq!(secrets.mask_bytes(b"\xffsk-canary\x00sk-canarysk"), b"\xff***\x00***sk");
        assert_eq!(secrets.mask_bytes(b"sk-canar"), b"sk-canar");
        assert_eq!(secrets.mask_bytes(b"\xfeAKIAIOSFODNN7EXAMPLE\xff"), b"\xfeAKIA***\xff");
        let mut log = Vec::new();
        MaskingWriter::new(&mut log, secrets).write_all(b"a sk-canary\n").unwrap();
        assert_eq!(log, b"a ***\n");
    }

    #[test]
    fn a_key_is_masked_as_addresses_have_it() {
        for key in ["ab/cd+ef==0123", "ab%2Fcd%2Bef%3D%3D0123"] {
            let secrets = Secrets::from_keys([Secret::new(key).unwrap()]);
            let text = "https://h/?k=ab%2Fcd%2Bef%3D%3D0123&l=ab/cd+ef==0123";
            assert_eq!(secrets.mask(text.to_owned()), "https://h/?k=***&l=***", "{key}");
        }
    }

    #[test]
    fn a_key_that_becomes_known_later_is_masked_by_all() {
        let (first, second) = (Secrets::default(), Secrets::from_values(["canary-0123456"]));
        let key = Secret::new("late-canary-key").unwrap();
        Secrets::mask_everywhere(&key);
        Secrets::mask_everywhere(&key);
        assert_eq!(first.mask_bytes(b"a late-canary-key"), b"a ***");
        assert_eq!(second.mask("late-canary-key canary-0123456".to_owned()), "*** ***");
    }

    #[test]
    fn the_beginning_of_a_secret_is_found_at_the_end() {
        let secrets =
            Secrets::from_keys(["abcabcdef", "short"].map(|key| Secret::new(key).unwrap()));
        for (text, length) in [
            ("", 0),
            ("x", 0),
            ("xa", 1),
            ("abcabc", 6),
            ("abcabca", 4),
            ("abcabcdef", 0),
            ("éab", 2),
            ("shor", 0),
        ] {
            assert_eq!(secrets.unfinished(text), length, "{text}");
        }
    }

    #[test]
    fn key_patterns_are_masked_and_ordinary_words_are_not() {
        let mask = |text: &str| Secrets::default().mask_all(text);
        let (a, b) = ("a1B2c3D4e5F6g7H8i9J0", "k1L2m3N4o5P6q7R8s9T0");
        let text = format!("key=sk-ant-api03-{a}, \"ghp_{a}{b}\"; AKIAIOSFODNN7EXAMPLE");
        assert_eq!(mask(&text), "key=sk-***, \"ghp_***\"; AKIA***");
        let text = "sk-short1, a task-a1B2c3D4e5F6g7H8i9J0K1, sk-some-very-long-name-of-a-thing, \
                    npm_config_cache, ghp_, AKIA, é sk-";
        assert_eq!(mask(text), text);
        let quoted = format!(
            "\"a\\nsk-{a}\\tghp_{a}{b}\", sk-abc123def456****wxyz. Bearer ey.{a}/+= bearer of a-task"
        );
        assert_eq!(mask(&quoted), "\"a\\nsk-***\\tghp_***\", sk-***. Bearer *** bearer of a-task");
        assert_eq!(mask(&format!("-ghp_{a}{b}\n--- a\n-")), "-ghp_***\n--- a\n-");
        let secrets = Secrets::from_values(["canary-0123456"]);
        assert_eq!(secrets.mask_all(&format!("canary-0123456 hf_{a}")), "*** hf_***");
    }

    /// The arguments of a call are a document in a string of another document.
    #[test]
    fn a_secret_is_masked_as_json_escapes_it() {
        let secret = r#"canary"0/1\23"#;
        let secrets =
            [Secrets::from_values([secret]), Secrets::from_keys([Secret::new(secret).unwrap()])];
        let arguments = serde_json::json!({ "x": secret }).to_string();
        let request = serde_json::json!({ "arguments": arguments }).to_string();
        let slashes = arguments.replace('/', r"\/");
        let nested = serde_json::json!({ "arguments": slashes }).to_string();
        for secrets in secrets {
            for (text, masked) in [
                (&arguments, r#"{"x":"***"}"#),
                (&slashes, r#"{"x":"***"}"#),
                (&request, r#"{"arguments":"{\"x\":\"***\"}"}"#),
                (&nested, r#"{"arguments":"{\"x\":\"***\"}"}"#),
            ] {
                assert_eq!(secrets.mask_all(text), masked);
            }
        }
    }

    /// Fault S23.
    #[test]
    fn distinctive_values_are_masked() {
        let values =
            ["short", "true", "/home/u/.ssh/id_rsa", "https://host/long", "two long words"];
        let secrets = ["canary-0123456", "canary-0123456-longer"];
        let secrets = Secrets::from_values(values.into_iter().chain(secrets));
        let text = format!("{} canary-0123456-longer canary-0123456", values.join(" "));
        assert_eq!(secrets.mask(text), format!("{} *** ***", values.join(" ")));
        assert_eq!(format!("{secrets:?}"), "2 secrets");
    }

    #[test]
    fn short_keys_are_masked_and_placeholders_are_not() {
        let others = [
            "sesame",
            "not-needed",
            "NO_API_KEY",
            "lm-studio",
            "your-key",
            "xxxxxxxxxx",
            "********",
            "/run/keys",
            "a://host",
            "two words",
        ];
        let secrets =
            Secrets::from_key_values(others.into_iter().chain(["opensesame", "abcdefgh"]));
        let text = format!("{} opensesame abcdefghi", others.join(" "));
        assert_eq!(secrets.mask(text), format!("{} *** ***i", others.join(" ")));
    }
}
