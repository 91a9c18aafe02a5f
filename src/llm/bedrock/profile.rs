//! Amazon's configuration files: `~/.aws/credentials` and `~/.aws/config`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::REGION_VARIABLES;

/// A profile in the user's configuration files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::llm) struct ProfileFiles {
    pub(super) profile: String,
    credentials: Option<PathBuf>,
    config: Option<PathBuf>,
}

/// The keys of a profile; values from the credentials file take precedence over those from the configuration.
pub(super) type Profile = BTreeMap<String, String>;

impl ProfileFiles {
    /// Returns the files and the profile according to the environment.
    pub(super) fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        let file = |variable: &str, name: &str| {
            let home = || Some(PathBuf::from(set("HOME")?).join(".aws").join(name));
            set(variable).map(PathBuf::from).or_else(home)
        };
        let profile = set("AWS_PROFILE").or_else(|| set("AWS_DEFAULT_PROFILE"));
        Self {
            profile: profile.unwrap_or_else(|| "default".to_owned()),
            credentials: file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config: file("AWS_CONFIG_FILE", "config"),
        }
    }

    /// Reads the profile. An unreadable file counts as empty.
    pub(super) fn read(&self) -> Profile {
        let text = |path: &Option<PathBuf>| {
            path.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
        };
        let name = &self.profile;
        let mut profile = Profile::new();
        let config_section = |section: &str| {
            section.strip_prefix("profile").map(str::trim) == Some(name)
                || (name == "default" && section == name)
        };
        parse(&text(&self.config), config_section, &mut profile);
        parse(&text(&self.credentials), |section| section == name, &mut profile);
        profile
    }
}

/// Returns the region from the environment, or else from the profile.
pub(in crate::llm) fn find_region(env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let set = |name: &&str| env(name).filter(|value| !value.trim().is_empty());
    let of_profile = || ProfileFiles::from_env(env).read().remove("region");
    REGION_VARIABLES.iter().find_map(set).or_else(of_profile)
}

/// Adds the keys of the sections with this name.
fn parse(text: &str, is_wanted: impl Fn(&str) -> bool, profile: &mut Profile) {
    let mut is_inside = false;
    for line in text.lines() {
        if line.starts_with(['#', ';', ' ', '\t']) {
            // A comment, or a key below another one.
        } else if let Some(section) = line.strip_prefix('[') {
            let section = section.split(']').next().unwrap_or_default();
            is_inside = is_wanted(section.trim());
        } else if let Some((key, value)) = line.split_once('=').filter(|_| is_inside) {
            profile.insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_profile_is_read_from_both_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let config = "[default]\nregion = eu-central-1\n[profile work]\nregion=us-west-2\ns3 =\n  region = no\n\
                      aws_access_key_id = from-config\n[work]\nregion = no\n";
        fs::write(path("config"), config).unwrap();
        let credentials = "# keys\n[default]\nAWS_ACCESS_KEY_ID = of-default\n[work]\n\
                           aws_access_key_id = of-work\n; the end\n";
        fs::write(path("credentials"), credentials).unwrap();
        let env = |profile: &'static str| {
            let (config, credentials) = (path("config"), path("credentials"));
            move |name: &str| match name {
                "AWS_CONFIG_FILE" => Some(config.clone()),
                "AWS_SHARED_CREDENTIALS_FILE" => Some(credentials.clone()),
                "AWS_PROFILE" => Some(profile.to_owned()),
                _ => None,
            }
        };
        for (profile, key, region) in [
            ("", Some("of-default"), Some("eu-central-1")),
            ("work", Some("of-work"), Some("us-west-2")),
            ("other", None, None),
        ] {
            let found = ProfileFiles::from_env(&env(profile)).read();
            assert_eq!(found.get("aws_access_key_id").map(String::as_str), key, "{profile}");
            assert_eq!(find_region(&env(profile)).as_deref(), region, "{profile}");
        }
    }
}
