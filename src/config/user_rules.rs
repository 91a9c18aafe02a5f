//! Adds permission rules to the user's own configuration file. All other text of the file stays as it is.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use toml::{Table, Value};

use super::trust::lock_folder_of;
use crate::types::Durability;
use crate::workspace::{IoContext, IoError, TemporaryFile};

/// An error in adding a rule.
#[derive(Debug, Error)]
pub enum UserRuleError {
    /// The file can't be read or written.
    #[error(transparent)]
    File(#[from] IoError),
    /// The file has a form into which no rule can be inserted.
    #[error("could not insert the rule into {}; add it to permissions.allow by hand", .0.display())]
    Form(PathBuf),
}

/// Adds a rule to `permissions.allow` of a configuration file, unless the rule is there. Creates the file if it is
/// missing. An existing file keeps its mode, and on an error its content.
///
/// # Errors
///
/// Fails if the file can't be read or written, is write-protected, or is not a configuration into which the rule can be
/// inserted.
pub fn allow_in_user_config(path: &Path, rule: &str) -> Result<(), UserRuleError> {
    // The path may be a link into another folder of the user's settings; it stays a link.
    let path = &match path.is_symlink() {
        true => path.canonicalize().io_context("change", path)?,
        false => path.to_owned(),
    };
    // Under the lock, two runs that add a rule at the same moment each read the change of the other.
    let _lock = lock_folder_of(path).io_context("change", path)?;
    let (text, mode) = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (String::new(), fs::Permissions::from_mode(0o600))
        }
        text => {
            let text = text.io_context("change", path)?;
            (text, fs::metadata(path).io_context("change", path)?.permissions())
        }
    };
    let Some(changed) = insert_rule(&text, rule) else {
        return Err(UserRuleError::Form(path.clone()));
    };
    if changed == text {
        return Ok(());
    }
    // Replacing a write-protected file by a new one would succeed, so the mode is checked here.
    if mode.readonly() {
        Err(io::ErrorKind::PermissionDenied).io_context("change", path)?;
    }
    let write = || {
        let new = TemporaryFile::create_in(path.parent().unwrap_or(Path::new(".")))?;
        new.file().write_all(changed.as_bytes())?;
        new.file().set_permissions(mode)?;
        new.publish(path, Durability::Full)
    };
    Ok(write().io_context("change", path)?)
}

/// Returns the text with the rule; `None` if no insertion adds exactly this rule.
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
    fn comments_and_the_mode_stay_and_the_content_of_a_file_that_cannot_be_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let mode = |mode: u32| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let text = "# mine\n[permissions]\nallow = [ # these\n  'grep', # why\n]\n# end\n";
        fs::write(&path, text).unwrap();
        mode(0o444);
        let refused = allow_in_user_config(&path, "run_command(make)").unwrap_err();
        assert!(refused.to_string().starts_with("could not change "), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        // Adding an existing rule changes nothing.
        allow_in_user_config(&path, "grep").unwrap();
        mode(0o640);
        allow_in_user_config(&path, "run_command(make)").unwrap();
        let changed = fs::read_to_string(&path).unwrap();
        assert_eq!(changed, text.replace("[ #", "[\"run_command(make)\",  #"));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn rules_that_are_added_at_the_same_moment_are_all_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::thread::scope(|scope| {
            for number in 0..16 {
                let path = &path;
                scope.spawn(move || allow_in_user_config(path, &format!("run_command({number})")));
            }
        });
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches("run_command(").count(), 16, "{text}");
    }

    /// A link with a missing target is not replaced by a file.
    #[test]
    fn a_link_without_a_target_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("config.toml");
        std::os::unix::fs::symlink("missing", &link).unwrap();
        allow_in_user_config(&link, "grep").unwrap_err();
        assert!(link.is_symlink() && !link.exists());
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
