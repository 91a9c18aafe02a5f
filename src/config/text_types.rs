//! Validated texts: names, names of variables, addresses, patterns, secrets.

use std::fmt;
use std::net::IpAddr;

use globset::Glob;

use super::setting_value::SettingValue;
use super::value_tree::ConfigValue;

/// Declares types of texts, each with the expectation in messages and the test for valid texts.
macro_rules! text_types {
    ($($(#[$meta:meta])+ $Name:ident: $expected:literal, $is_valid:expr;)+) => {
        $(
            $(#[$meta])+
            #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $Name(String);

            impl $Name {
                /// Returns the text as this type, if it is valid.
                pub fn parse(text: &str) -> Option<Self> {
                    let is_valid: fn(&str) -> bool = $is_valid;
                    is_valid(text).then(|| Self(text.to_owned()))
                }

                /// Returns the text.
                pub fn as_str(&self) -> &str {
                    &self.0
                }
            }

            impl fmt::Display for $Name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(&self.0)
                }
            }

            impl SettingValue for $Name {
                fn from_value(value: &ConfigValue) -> Result<Self, String> {
                    value.as_text().and_then(Self::parse).ok_or_else(|| $expected.to_owned())
                }

                fn to_value(&self) -> ConfigValue {
                    ConfigValue::Text(self.0.clone())
                }
            }
        )+
    };
}

text_types! {
    /// The name of an agent, a hook, a gate, a server or a profile: letters, digits, `-` and `_`, at most 64.
    ConfigName: "a name of letters, digits, `-` and `_`, at most 64", |text| {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=64).contains(&text.len()) && text.chars().all(fits)
    };
    /// The name of an environment variable.
    VariableName: "the name of a variable (not its value)", |text| {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.chars().all(fits) && (1..=128).contains(&text.len()) && !text.starts_with(|c: char| c.is_ascii_digit())
    };
    /// An `http` or `https` address without a user name, a password or a fragment.
    HttpUrl: "an address like https://host/path, without user, password or fragment", |text| {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        let is_plain = !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#');
        matches!(scheme, Some("http" | "https"))
            && is_plain
            && !host(text).is_empty()
            && !authority(text).contains('@')
    };
    /// A pattern for paths, as in `.gitignore`.
    PathPattern: "a pattern for paths, like `src/**/*.rs`", |text| {
        !text.is_empty() && Glob::new(text).is_ok()
    };
    /// A command line argument of a program; it may be empty.
    ProcessArgument: "text without NUL", |text| !text.contains('\0');
    /// The name of a model, without white space.
    ModelName: "a word without white space", |text| {
        !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control())
    };
}

impl HttpUrl {
    /// Returns whether requests to this address leave the machine unencrypted.
    pub fn is_unencrypted_remote(&self) -> bool {
        self.0.starts_with("http://") && !self.is_here()
    }

    /// Returns whether the address is one of this machine.
    fn is_here(&self) -> bool {
        let host = host(&self.0);
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|ip| ip.is_loopback())
    }
}

/// Returns the host of an address, with its port.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or_default()
}

fn host(url: &str) -> &str {
    let authority = authority(url);
    match authority.find(']') {
        Some(end) if authority.starts_with('[') => &authority[..=end],
        _ => authority.split(':').next().unwrap_or_default(),
    }
}

/// A text that may be secret; it is masked in all output.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// Returns the text; `None` if it has more than one line or contains NUL.
    pub fn parse(text: &str) -> Option<Self> {
        (!text.contains(['\0', '\n', '\r'])).then(|| Self(text.to_owned()))
    }

    /// Returns the text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl SettingValue for SecretText {
    fn from_value(value: &ConfigValue) -> Result<Self, String> {
        value.as_text().and_then(Self::parse).ok_or_else(|| "text of one line".to_owned())
    }

    fn to_value(&self) -> ConfigValue {
        ConfigValue::Text("***".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_no_password() {
        for good in ["https://a.b/v1", "http://localhost:11434", "http://[::1]:80/x?y=z"] {
            assert!(HttpUrl::parse(good).is_some(), "{good}");
        }
        let wrong =
            ["", "a.b", "ftp://a", "https://", "https://:80", "https://u:p@h/", "http://h/#f"];
        for wrong in wrong.into_iter().chain(["http://a b", "http://a\r\nX: y"]) {
            assert!(HttpUrl::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn only_http_to_another_machine_is_unencrypted() {
        let open = |text| HttpUrl::parse(text).unwrap().is_unencrypted_remote();
        assert!(open("http://10.0.0.1/v1") && open("http://localhost.example.com"));
        for closed in ["https://a.b", "http://LOCALHOST:1", "http://127.0.0.9/x", "http://[::1]:8"]
        {
            assert!(!open(closed), "{closed}");
        }
    }

    #[test]
    fn a_key_in_place_of_the_name_of_its_variable_is_rejected_and_not_repeated() {
        let value = ConfigValue::Text("sk-canary-0123".to_owned());
        let error = VariableName::from_value(&value).unwrap_err();
        assert!(!error.contains("canary") && !value.describe("llm.api_key_env").contains("canary"));
    }

    #[test]
    fn a_secret_is_masked() {
        let hidden = SecretText::from_value(&ConfigValue::Text("canary".to_owned())).unwrap();
        assert_eq!(format!("{hidden:?} {}", hidden.to_value()), "*** \"***\"");
        assert!(SecretText::from_value(&ConfigValue::Text("a\r\nX: y".to_owned())).is_err());
    }
}
