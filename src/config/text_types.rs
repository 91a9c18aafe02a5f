//! Validated texts: names, names of variables, addresses, patterns, secrets.

use std::fmt;

use globset::Glob;

use super::setting_value::{SettingValue, ValueType};
use super::value_tree::ConfigValue;

/// The name of an agent, a hook, a gate, a server or a profile: letters, digits, `-` and `_`, at most 64.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigName(String);

/// The name of an environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableName(String);

/// An `http` or `https` address without a user name, a password or a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl(String);

/// A pattern for paths, as in `.gitignore`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern(String);

/// A text that may be secret: it is masked wherever it is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

/// A command line argument of a program; it may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessArgument(String);

/// The name of a model, without white space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelName(String);

macro_rules! text {
    ($($name:ident)+) => {
        $(
            impl $name {
                /// Returns the text.
                pub fn as_str(&self) -> &str {
                    &self.0
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(&self.0)
                }
            }

            impl SettingValue for $name {
                fn from_value(value: &ConfigValue) -> Result<Self, String> {
                    let (ConfigValue::Text(text) | ConfigValue::Untyped(text)) = value else {
                        return Err(Self::EXPECTED.to_owned());
                    };
                    Self::parse(text).ok_or_else(|| Self::EXPECTED.to_owned())
                }

                fn to_value(&self) -> ConfigValue {
                    ConfigValue::Text(self.0.clone())
                }

                fn value_type() -> ValueType {
                    ValueType::Text
                }
            }
        )+
    };
}
text!(ConfigName VariableName HttpUrl PathPattern ProcessArgument ModelName);

impl ConfigName {
    const EXPECTED: &str = "a name of letters, digits, `-` and `_`, at most 64";

    /// Returns the name, if the text is one.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        ((1..=64).contains(&text.len()) && text.chars().all(fits)).then(|| Self(text.to_owned()))
    }
}

impl VariableName {
    const EXPECTED: &str = "the name of a variable (not its value)";

    /// Returns the name, if the text is one.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        (begins && text.len() <= 128 && text.chars().all(fits)).then(|| Self(text.to_owned()))
    }
}

impl HttpUrl {
    const EXPECTED: &str = "an address like https://host/path, without user, password or fragment";

    /// Returns the address, if the text is one.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let is_plain = !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#');
        let host = host(authority);
        (is_plain && !host.is_empty() && !authority.contains('@')).then(|| Self(text.to_owned()))
    }

    /// Returns whether requests to this address leave the machine unencrypted.
    pub fn is_unencrypted_remote(&self) -> bool {
        self.0.starts_with("http://") && !self.is_here()
    }

    /// Returns whether it is an address of this machine.
    pub fn is_here(&self) -> bool {
        let Some((_, rest)) = self.0.split_once("://") else { return false };
        let host = host(rest.split(['/', '?']).next().unwrap_or_default());
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|ip| ip.is_loopback())
    }
}

fn host(authority: &str) -> &str {
    match authority.find(']') {
        Some(end) if authority.starts_with('[') => &authority[..=end],
        _ => authority.split(':').next().unwrap_or_default(),
    }
}

impl PathPattern {
    const EXPECTED: &str = "a pattern for paths, like `src/**/*.rs`";

    /// Returns the pattern, if the text is one.
    pub fn parse(text: &str) -> Option<Self> {
        (!text.is_empty() && Glob::new(text).is_ok()).then(|| Self(text.to_owned()))
    }
}

impl ProcessArgument {
    const EXPECTED: &str = "text without NUL";

    fn parse(text: &str) -> Option<Self> {
        (!text.contains('\0')).then(|| Self(text.to_owned()))
    }
}

impl ModelName {
    const EXPECTED: &str = "a word without white space";

    fn parse(text: &str) -> Option<Self> {
        let wrong = |c: char| c.is_whitespace() || c.is_control();
        (!text.is_empty() && !text.contains(wrong)).then(|| Self(text.to_owned()))
    }
}

impl SecretText {
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
        match value {
            ConfigValue::Text(text) | ConfigValue::Untyped(text)
                if !text.contains(['\0', '\n', '\r']) =>
            {
                Ok(Self(text.clone()))
            }
            _ => Err("text of one line".to_owned()),
        }
    }

    fn to_value(&self) -> ConfigValue {
        ConfigValue::Text("***".to_owned())
    }

    fn value_type() -> ValueType {
        ValueType::Text
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
        assert!(!error.contains("canary") && !value.describe().contains("canary"));
    }

    #[test]
    fn a_secret_is_masked() {
        let hidden = SecretText::from_value(&ConfigValue::Text("canary".to_owned())).unwrap();
        assert_eq!(format!("{hidden:?} {}", hidden.to_value()), "*** \"***\"");
        assert!(SecretText::from_value(&ConfigValue::Text("a\r\nX: y".to_owned())).is_err());
    }
}
