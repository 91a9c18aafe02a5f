//! Secrets that are recognized by their form alone: private keys, JSON web tokens, passwords in addresses, and values
//! of names that suggest a secret.
//!
//! This is for copies that leave the machine, such as exports. Files that the model edits are not changed. A line keeps
//! its position, and a secret in a file is masked in the same way when a call or a result repeats it.

use std::ops::Range;

use crate::types::matches_wildcard;

/// The replacement for a secret.
pub(crate) const MASK: &str = "***";

/// The minimum length of a value that is masked because of its name.
const MIN_VALUE: usize = 8;

/// The maximum lengths of a name and of a value.
const MAX_NAME: usize = 80;
const MAX_VALUE: usize = 1_024;

/// The minimum length of a run of Base64 that counts as a part of a key whose end is missing.
const MIN_KEY_PART: usize = 16;

/// Masks everything in the form of a secret.
pub(super) fn mask_forms(text: &str) -> String {
    let text = mask_private_keys(text);
    let text = replace(&text, "eyJ", web_token);
    let text = replace(&text, "://", address_secret);
    let text = replace(&text, "=", |text, at| named_secret(text, at, '='));
    replace(&text, ":", |text, at| named_secret(text, at, ':'))
}

/// Masks ranges found by a function, which is called with the position of each occurrence of a mark.
fn replace(text: &str, mark: &str, find: impl Fn(&str, usize) -> Option<Range<usize>>) -> String {
    let (mut masked, mut done) = (String::with_capacity(text.len()), 0);
    for (at, _) in text.match_indices(mark) {
        if let Some(found) = (at >= done).then(|| find(text, at)).flatten()
            && found.start >= done
        {
            masked.push_str(&text[done..found.start]);
            masked.push_str(MASK);
            done = found.end;
        }
    }
    masked.push_str(&text[done..]);
    masked
}

/// Returns the length of the longest beginning of a text with characters of one kind.
fn run(text: &str, is_in: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_in(c)).unwrap_or(text.len())
}

/// Returns the beginning of a text, at most the given number of bytes.
fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or_default()]
}

/// Masks the content of private keys in PEM, line by line. Line ends may be escaped, as in JSON.
fn mask_private_keys(text: &str) -> String {
    const BEGIN: &str = "-----BEGIN ";
    let (mut masked, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(begin) = rest.find(BEGIN) {
        let (before, label) = rest.split_at(begin + BEGIN.len());
        masked.push_str(before);
        let words = run(label, |c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == ' ');
        let is_key = label[..words].contains("PRIVATE KEY") && label[words..].starts_with("-----");
        rest = label;
        if is_key {
            let (label, key) = label.split_at(words + 5);
            let other = key.find(BEGIN).unwrap_or(key.len());
            let end = key[..other].find("-----END ");
            let (key, behind) = key.split_at(end.unwrap_or_else(|| open_key(&key[..other])));
            masked.push_str(label);
            mask_key_parts(key, end.is_some(), &mut masked);
            rest = behind;
        }
    }
    masked.push_str(rest);
    masked
}

/// Returns the length of a key whose end is missing: the lines that contain parts of it.
fn open_key(text: &str) -> usize {
    let mut length = 0;
    for line in text.split_inclusive('\n').flat_map(|line| line.split_inclusive("\\n")) {
        let has_part = key_runs(line).any(|part| part.len() >= MIN_KEY_PART);
        let is_blank = line.trim_end_matches("\\n").trim_end_matches('\\').trim().is_empty();
        if !has_part && !is_blank {
            break;
        }
        length += line.len();
    }
    length
}

/// Returns the runs of Base64, without the characters of escapes such as `\n`.
fn key_runs(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
            let length = run(rest, |c| c.is_ascii_alphanumeric() || "+/=".contains(c));
            if length > 0 {
                let start = at;
                at += length;
                return Some(start..at);
            }
            let c = rest.chars().next()?;
            at += c.len_utf8();
            // The second character of an escape.
            if c == '\\' && text[at..].starts_with(['n', 'r', 't']) {
                at += 1;
            }
        }
    })
}

fn mask_key_parts(text: &str, is_whole: bool, masked: &mut String) {
    let mut done = 0;
    for part in key_runs(text) {
        let content = &text[part.clone()];
        let is_number = content.bytes().all(|byte| byte.is_ascii_digit());
        // The last line may be short. Line numbers and words of commands are not masked.
        let is_word = text[part.end..].starts_with(' ');
        let least = if is_whole && !is_number && !is_word { 4 } else { MIN_KEY_PART };
        if content.len() >= least {
            masked.push_str(&text[done..part.start]);
            masked.push_str(MASK);
            done = part.end;
        }
    }
    masked.push_str(&text[done..]);
}

/// Returns the range of a JSON web token after its first three characters.
fn web_token(text: &str, at: usize) -> Option<Range<usize>> {
    let is_in = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let before = text[..at].trim_end_matches(['n', 'r', 't']);
    // A token does not begin within a word, but may follow an escaped line end.
    if text[..at].ends_with(is_in) && !before.ends_with('\\') {
        return None;
    }
    let head = run(&text[at..], is_in);
    let payload = text[at + head..].strip_prefix('.')?;
    let length = run(payload, is_in);
    let signature = payload[length..].strip_prefix('.')?;
    let last = run(signature, is_in);
    let is_token = head >= 10 && length >= 10 && last >= 8 && payload.starts_with("eyJ");
    is_token.then(|| at + 3..at + head + 1 + length + 1 + last)
}

/// Returns the range of the password in an address, or of a user name that is a key.
fn address_secret(text: &str, at: usize) -> Option<Range<usize>> {
    let start = at + 3;
    let is_in = |c: char| !c.is_whitespace() && !"/?\"'`\\<>".contains(c);
    let authority = &text[start..start + run(&text[start..], is_in)];
    let user = &authority[..authority.rfind('@')?];
    let (secret, offset) = match user.split_once(':') {
        Some((name, password)) => (password, name.len() + 1),
        // An ordinary name does not have both digits and many letters.
        None => (Some(user).filter(|it| it.len() >= 20 && has_digit(it))?, 0),
    };
    let is_literal = !secret.is_empty() && !secret.starts_with(['$', '{', '%', '*']);
    is_literal.then(|| start + offset..start + offset + secret.len())
}

fn has_digit(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

/// The kind of value that a name suggests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameKind {
    /// A value that a person may have chosen.
    Password,
    /// A value that a program has generated: it contains a digit, unlike words of code.
    Key,
}

/// The words that precede `key` in the names of secret keys.
const KEY_WORDS: [&str; 20] = [
    "access",
    "account",
    "api",
    "app",
    "auth",
    "client",
    "deploy",
    "encryption",
    "license",
    "master",
    "private",
    "secret",
    "service",
    "session",
    "shared",
    "signing",
    "storage",
    "ssh",
    "subscription",
    "webhook",
];

/// The final words of names that contain a word for a secret, but are not names of secrets.
const ABOUT_SECRETS: [&str; 14] = [
    "arn", "count", "env", "file", "id", "length", "manager", "name", "path", "ref", "store",
    "type", "url", "version",
];

impl NameKind {
    fn of(name: &str, is_variable: bool) -> Option<Self> {
        let lower = name.to_ascii_lowercase();
        let words: Vec<&str> = lower.split(['_', '-', '.']).filter(|it| !it.is_empty()).collect();
        let last = *words.last()?;
        let before = words.len().checked_sub(2).map(|at| words[at]);
        let ends_with = |ends: &[&str]| ends.iter().any(|end| last.ends_with(end));
        let is_password = ends_with(&["password", "passwd", "passphrase", "secret"])
            // The current folder of a shell has this name, too.
            || last == "pwd" && !(is_variable && before.is_none())
            || last == "pass" && before.is_some()
            || words.contains(&"secret") && !ABOUT_SECRETS.contains(&last);
        if is_password {
            return Some(Self::Password);
        }
        let is_known_key = |word: &str| KEY_WORDS.contains(&word);
        let is_key = match last.strip_suffix("key") {
            // `API_KEY`; in variables, any other name except those for keys of tables and public keys.
            Some("") => before.is_some_and(|before| {
                let is_plain = ["cache", "foreign", "primary", "public", "sort"].contains(&before);
                is_known_key(before) || is_variable && !is_plain
            }),
            // `apiKey`.
            Some(kind) => KEY_WORDS.iter().any(|word| kind.ends_with(word)),
            None => last.ends_with("token"),
        };
        is_key.then_some(Self::Key)
    }
}

/// Returns the range of a value that is assigned to a name that suggests a secret.
fn named_secret(text: &str, at: usize, sign: char) -> Option<Range<usize>> {
    let (before, behind) = (&text[..at], &text[at + 1..]);
    let behind = match sign {
        '=' if behind.starts_with(['=', '~']) => return None,
        // An assignment as in Ruby.
        '=' => behind.strip_prefix('>').unwrap_or(behind),
        _ if behind.starts_with([':', '/', '=']) => return None,
        _ => behind,
    };
    let before = before.strip_suffix(':').filter(|_| sign == '=').unwrap_or(before);
    let close = before.trim_end_matches([' ', '\t']);
    let close = close.strip_suffix(']').unwrap_or(close);
    let name_end = close.strip_suffix(['"', '\'', '`']);
    let is_quoted_name = name_end.is_some();
    let name_end = name_end.map_or(close, |name| name.trim_end_matches('\\'));
    let is_in_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let length: usize =
        name_end.chars().rev().take(MAX_NAME).take_while(|c| is_in_name(*c)).count();
    let (before_name, name) = name_end.split_at(name_end.len() - length);
    // The `n` of an escaped line end is not part of the name.
    let name = name.strip_prefix('n').filter(|_| before_name.ends_with('\\')).unwrap_or(name);
    let value = behind.trim_start_matches([' ', '\t']);
    // `NAME=value`, without quotes around the name and without spaces.
    let is_variable = sign == '='
        && name_end.len() == before.len()
        && value.len() == behind.len()
        && !name.bytes().any(|byte| byte.is_ascii_lowercase());
    let kind = NameKind::of(name, is_variable)?;
    let unescaped = value.trim_start_matches('\\');
    let quote = unescaped.chars().next().filter(|c| "\"'`".contains(*c));
    let value = if quote.is_some() { &unescaped[1..] } else { value };
    let start = text.len() - value.len();
    let value = beginning(value, MAX_VALUE + 1);
    let is_quoted = quote.is_some();
    let value = &value[..run(value, |c| match quote {
        Some(quote) => c != quote && c != '\\' && c != '\n',
        None => !c.is_whitespace() && !"\"'`\\,;<>|)]}".contains(c),
    })];
    let is_secret = (MIN_VALUE..=MAX_VALUE).contains(&value.len())
        && (is_quoted || !is_quoted_name)
        && is_literal(value, is_quoted)
        && match kind {
            NameKind::Password => is_variable || is_quoted || !is_code(value, sign),
            NameKind::Key => is_variable || has_digit(value) && !is_code(value, sign),
        };
    is_secret.then(|| start..start + value.len())
}

/// Returns whether a text is a value, rather than an expression, a reference to a variable or a file, or a placeholder.
fn is_literal(value: &str, is_quoted: bool) -> bool {
    let is_reference = value.starts_with("${")
        || value.strip_prefix('$').is_some_and(|rest| rest.starts_with(char::is_alphabetic))
        || value.starts_with(['<', '~', '%', '@', '&'])
        || value.starts_with("./")
        || value.starts_with('/') && !has_digit(value);
    let has_syntax = value.contains(|c: char| c.is_whitespace() || "(){}".contains(c))
        || !is_quoted && value.contains('[');
    !is_reference && !has_syntax && !value.contains(MASK) && !is_placeholder(value)
}

/// Returns whether an unquoted value is probably an expression of a program: a path of names such as `config.password`,
/// a name of several words, or a type.
fn is_code(value: &str, sign: char) -> bool {
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let is_path = (value.contains('.') || value.contains("::"))
        && value.split(['.', ':']).all(|part| part.is_empty() || is_name(part));
    let is_words = is_name(value) && value.contains('_') && !has_digit(value);
    let is_type = sign == ':'
        && value.starts_with(|c: char| c.is_ascii_uppercase())
        && value.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_path || is_words || is_type
}

/// The words of placeholders for keys, such as `not-needed`.
const PLACEHOLDER_WORDS: &str = "a|api|apikey|change|changeme|default|dummy|empty|example|fake|ignored|insert|key|lm|local|me|\
    my|needed|no|none|not|null|placeholder|required|secret|set|sk|studio|test|token|unused|used|your";

/// Returns whether a value is a placeholder for a key that is not needed: placeholder words, or a single repeated
/// character.
pub(super) fn is_placeholder(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let is_known = |word: &str| word.is_empty() || matches_wildcard(PLACEHOLDER_WORDS, word);
    lower.split(['-', '_', '.']).all(is_known)
        || lower.bytes().all(|byte| byte == lower.as_bytes()[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Masks a text, also with JSON escapes applied once and twice.
    fn mask(text: &str) -> String {
        let masked = mask_forms(text);
        let escape = |text: &str| serde_json::Value::from(text).to_string();
        let once = escape(text);
        assert_eq!(mask_forms(&once), escape(&masked), "{text}");
        assert_eq!(mask_forms(&escape(&once)), escape(&escape(&masked)), "{text}");
        masked
    }

    #[test]
    fn values_of_names_that_suggest_secrets_are_masked() {
        for (text, masked) in [
            (
                "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLE\n",
                "AWS_SECRET_ACCESS_KEY=***\n",
            ),
            ("export API_TOKEN=abcdefghij; run", "export API_TOKEN=***; run"),
            ("a=1\nDEPLOY_KEY=abcdefghij\nb=2", "a=1\nDEPLOY_KEY=***\nb=2"),
            ("password: correcthorse\n", "password: ***\n"),
            ("password=hunter2hunter2", "password=***"),
            (
                r#"{"password": "p4,ss;w0rd", "user": "root"}"#,
                r#"{"password": "***", "user": "root"}"#,
            ),
            ("db_passwd = 'abcdefgh'", "db_passwd = '***'"),
            ("os.environ['API_KEY'] = 'a1b2c3d4e5'", "os.environ['API_KEY'] = '***'"),
            (":password => 'abcdefgh'", ":password => '***'"),
            ("Server=h;Uid=u;Pwd=abcdefgh1;", "Server=h;Uid=u;Pwd=***;"),
            ("//registry/:_authToken=a1b2c3d4-e5f6", "//registry/:_authToken=***"),
            ("apiKey: \"a1b2c3d4e5\"", "apiKey: \"***\""),
            ("run --client-secret=abcdefgh", "run --client-secret=***"),
        ] {
            assert_eq!(mask(text), masked);
        }
    }

    #[test]
    fn code_and_prose_stay_readable() {
        for text in [
            "password = input()",
            "password = getpass.getpass(\"Password: \")",
            "token = self.next_token1(x)",
            "password = config.password",
            "password = stored_password",
            "password: SecretString,",
            "token: CancellationToken",
            "let key = key.replace1234",
            "api_key: str = os.environ[\"API_KEY\"]",
            "API_KEY=$OTHER_KEY",
            "API_KEY=\"${OTHER_KEY1}\"",
            "PASSWORD=short",
            "secret_name = \"projects1/app\"",
            "primary_key=12345678a",
            "max_tokens=123456789",
            "token == expected1234",
            "password != abcdefgh1",
            "The token: something that is sent",
            "api_key = your-api-key",
            "{\"token\": 12345678901}",
            "PWD=/work/project1",
            "SSH_KEY=~/.ssh/id_ed25519",
            "use std::net::secret::token1234;",
            "https://example.com:8080/a@b",
            "ssh://git@github.com/a/b",
            "postgres://$USER:$PASSWORD@host/db",
            "eyJhbGciOiJIUzI1NiJ9 alone",
            "-----BEGIN CERTIFICATE-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOC\n-----END CERTIFICATE-----\n",
        ] {
            assert_eq!(mask(text), text);
        }
    }

    #[test]
    fn addresses_and_web_tokens_lose_their_secrets() {
        let token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N";
        for (text, masked) in [
            ("see postgres://u:p@ss!w0rd@host:5432/db", "see postgres://u:***@host:5432/db"),
            ("redis://:abc@h", "redis://:***@h"),
            ("https://0123456789abcdefghij@h/x", "https://***@h/x"),
            (&format!("a\n{token}"), "a\neyJ***"),
            (&format!("jwt={token}, x"), "jwt=eyJ***, x"),
        ] {
            assert_eq!(mask(text), masked);
        }
    }

    #[test]
    fn many_beginnings_of_secrets_are_searched_in_linear_time() {
        for part in ["eyJ", "token=", "://u:", "password: ", "-----BEGIN PRIVATE KEY-----", "\\"] {
            let text = part.repeat(20_000);
            assert!(mask_forms(&text).len() <= text.len());
        }
    }

    #[test]
    fn private_keys_lose_their_content_and_keep_their_lines() {
        let lines = [
            "-----BEGIN RSA PRIVATE KEY-----",
            "MIIEpAIBAAKCAQEA1234567890abcdef+/",
            "ab==",
            "-----END RSA PRIVATE KEY-----",
        ];
        let masked =
            ["-----BEGIN RSA PRIVATE KEY-----", "***", "***", "-----END RSA PRIVATE KEY-----"];
        assert_eq!(
            mask(&format!("{}\nrest 1", lines.join("\n"))),
            format!("{}\nrest 1", masked.join("\n"))
        );
        let number = |lines: [&str; 4]| {
            let lines = lines.iter().enumerate();
            lines.map(|(at, line)| format!("{}\t{line}\n", at + 998)).collect::<String>()
        };
        assert_eq!(mask(&number(lines)), number(masked));
        let echoed = lines.map(|line| format!("echo {line}")).join("; ");
        assert_eq!(mask(&echoed), masked.map(|line| format!("echo {line}")).join("; "));
        let cut = format!("{}\n[... 9 lines omitted ...]\nand more", lines[..2].join("\n"));
        assert_eq!(
            mask(&cut),
            format!("{}\n[... 9 lines omitted ...]\nand more", masked[..2].join("\n"))
        );
    }
}
