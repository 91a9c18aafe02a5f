//! Adds permission rules to the user's own configuration file, whose other text stays as it is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use toml::{Table, Value};

use super::trust::replace_file;

/// Why a rule could not be added.
#[derive(Debug, Error)]
pub enum UserRuleError {
    /// The file can't be read or written.
    #[error("could not change {}: {}", .0.display(), .1)]
    File(PathBuf, io::Error),
    /// The file has a form into which no rule can be inserted.
    #[error("could not insert the rule into {}; add it to permissions.allow by hand", .0.display())]
    Form(PathBuf),
}

/// Adds a rule to `permissions.allow` of a configuration file, unless it is there. Creates the file if it is missing.
///
/// # Errors
///
/// Fails if the file can't be read or written, or is not a configuration into which the rule can be inserted.
pub fn allow_in_user_config(path: &Path, rule: &str) -> Result<(), UserRuleError> {
    // It may be a link into a folder of the user's settings, which stays one.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(UserRuleError::File(path.clone(), error)),
    };
    let Some(changed) = insert_rule(&text, rule) else {
        return Err(UserRuleError::Form(path.clone()));
    };
    if changed == text {
        return Ok(());
    }
    replace_file(path, changed.as_bytes()).map_err(|error| UserRuleError::File(path.clone(), error))
}

/// Returns the text with the rule; `None` if no insertion gives exactly that.
fn insert_rule(text: &str, rule: &str) -> Option<String> {
    let before: Table = toml::from_str(text).ok()?;
    let mut after = before.clone();
    let permissions = after.entry("permissions").or_insert_with(|| Table::new().into());
    let allow =
        permissions.as_table_mut()?.entry("allow").or_insert_with(|| Vec::<Value>::new().into());
    let allow = allow.as_array_mut()?;
    let value = Value::from(rule);
    if allow.contains(&value) {
        return Some(text.to_owned());
    }
    allow.insert(0, value.clone());
    let candidates = insertions(text, &value.to_string());
    candidates
        .into_iter()
        .find(|text| toml::from_str::<Table>(text).is_ok_and(|table| table == after))
}

/// Returns the text with the value inserted at each place that may be the right one.
fn insertions(text: &str, value: &str) -> Vec<String> {
    let insert = |at: usize, what: &str| format!("{}{what}{}", &text[..at], &text[at..]);
    let mut all = Vec::new();
    for (at, _) in text.match_indices("allow") {
        let rest = &text[at + "allow".len()..];
        let Some(list) = rest.trim_start().strip_prefix('=').map(str::trim_start) else { continue };
        if let Some(items) = list.strip_prefix('[') {
            let is_empty = items.trim_start().starts_with(']');
            let comma = if is_empty { "" } else { ", " };
            all.push(insert(text.len() - items.len(), &format!("{value}{comma}")));
        }
    }
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        at += line.len();
        if line.trim_start().starts_with("[permissions]") {
            let end = if line.ends_with('\n') { "" } else { "\n" };
            all.push(insert(at, &format!("{end}allow = [{value}]\n")));
        }
    }
    let gap = match text {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    all.push(format!("{text}{gap}[permissions]\nallow = [{value}]\n"));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_inserted_and_the_rest_stays() {
        let rule = "run_command(cargo test *)";
        let added = |text: &str| insert_rule(text, rule).unwrap();
        assert_eq!(added(""), "[permissions]\nallow = [\"run_command(cargo test *)\"]\n");
        assert_eq!(
            added("# mine\n[permissions] # rules\ndeny = [\"x\"]\n"),
            "# mine\n[permissions] # rules\nallow = [\"run_command(cargo test *)\"]\ndeny = [\"x\"]\n"
        );
        assert_eq!(
            added("permissions.allow = [\n  'grep', # why\n]\n"),
            "permissions.allow = [\"run_command(cargo test *)\", \n  'grep', # why\n]\n"
        );
        assert_eq!(
            added("# allow = []\n[limits]\nmax_steps = 3"),
            "# allow = []\n[limits]\nmax_steps = 3\n\n[permissions]\nallow = [\"run_command(cargo test *)\"]\n"
        );
        let once = added("");
        assert_eq!(added(&once), once);
    }

    #[test]
    fn what_has_another_form_is_left_alone() {
        assert_eq!(insert_rule("permissions = 3\n", "grep"), None);
        assert_eq!(insert_rule("not toml", "grep"), None);
    }

    #[test]
    fn a_file_is_created_and_a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/config.toml");
        allow_in_user_config(&path, "grep").unwrap();
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        allow_in_user_config(&link, "read_file").unwrap();
        assert!(link.is_symlink());
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "[permissions]\nallow = [\"read_file\", \"grep\"]\n"
        );
    }
}
