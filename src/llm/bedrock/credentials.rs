//! The keys for signatures, from the environment, a profile, or the command of a profile.

use jiff::Timestamp;
use serde::Deserialize;
use thiserror::Error;

use super::profile::{Profile, ProfileFiles};
use crate::llm::secret_command::run_secret_command;
use crate::net::{Secret, SecretError, Secrets};
use crate::port::CancellationToken;

/// The keys for signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::llm) struct Credentials {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: Secret,
    pub(super) session_token: Option<Secret>,
    /// The time at which the keys have to be replaced; `None` if unknown.
    pub(super) expires: Option<Timestamp>,
}

/// The source of the keys.
#[derive(Clone, Debug)]
pub(in crate::llm) enum CredentialsSource {
    /// The environment.
    Environment(Credentials),
    /// A profile, which is read again for every signature.
    Profile(ProfileFiles),
}

/// The reason why there are no keys.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CredentialsError {
    /// Neither the environment nor the profile has keys.
    #[error("there are no AWS keys in the environment, and none in the profile '{0}'")]
    Missing(String),
    /// The environment has only one part of the keys.
    #[error("the AWS keys in the environment are incomplete: {set} is set, and {missing} is not")]
    Incomplete {
        /// The variable that is set.
        set: &'static str,
        /// The variable that is not set.
        missing: &'static str,
    },
    /// A key is invalid.
    #[error("the value of {name} {cause}")]
    Invalid {
        /// The name of the variable, or of the profile's key.
        name: &'static str,
        /// The reason.
        cause: SecretError,
    },
    /// The profile gets its keys in an unsupported way.
    #[error(
        "the AWS profile '{0}' has no keys of its own; add `credential_process = aws configure export-credentials \
         --profile {0}` to another profile, and name that one in AWS_PROFILE"
    )]
    Unsupported(String),
    /// The command of the profile failed.
    #[error("the credential_process of the AWS profile '{profile}' {cause}")]
    Process {
        /// The name of the profile.
        profile: String,
        /// A description of the failure.
        cause: String,
    },
}

/// Keys in a profile that show that its credentials come from elsewhere.
const UNSUPPORTED_KEYS: [&str; 4] =
    ["sso_session", "sso_account_id", "role_arn", "web_identity_token_file"];

impl Credentials {
    fn new(
        id: Option<String>,
        secret: Option<String>,
        token: Option<String>,
    ) -> Option<Result<Self, CredentialsError>> {
        let set = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let (id, secret) = (set(id)?, set(secret)?);
        let secret_of = |name, text: &str| {
            Secret::new(text).map_err(|cause| CredentialsError::Invalid { name, cause })
        };
        let read = || {
            let id = secret_of("AWS_ACCESS_KEY_ID", &id)?;
            Ok(Self {
                access_key_id: id.expose().to_owned(),
                secret_access_key: secret_of("AWS_SECRET_ACCESS_KEY", &secret)?,
                session_token: set(token)
                    .map(|token| secret_of("AWS_SESSION_TOKEN", &token))
                    .transpose()?,
                expires: None,
            })
        };
        Some(read())
    }

    /// Returns the texts to mask.
    pub(super) fn secrets(&self) -> Secrets {
        let token = self.session_token.clone();
        Secrets::from_keys([self.secret_access_key.clone()].into_iter().chain(token))
    }
}

impl CredentialsSource {
    /// Returns the source according to the environment.
    ///
    /// # Errors
    ///
    /// Fails if there is no source, or if the keys are invalid.
    pub(in crate::llm) fn from_env(
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, CredentialsError> {
        let names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
        let [id, secret, token] = names.map(env);
        let is_set = |text: &Option<String>| text.as_ref().is_some_and(|it| !it.trim().is_empty());
        let incomplete = match (is_set(&id), is_set(&secret)) {
            (true, false) => Some((names[0], names[1])),
            (false, true) => Some((names[1], names[0])),
            _ => None,
        };
        if let Some(credentials) = Credentials::new(id, secret, token) {
            return Ok(Self::Environment(credentials?));
        }
        let files = ProfileFiles::from_env(env);
        let profile = files.read();
        if !profile.contains_key("credential_process") {
            let found = static_credentials(&files, &profile);
            found.map_err(|error| match (error, incomplete) {
                (CredentialsError::Missing(_), Some((set, missing))) => {
                    CredentialsError::Incomplete { set, missing }
                }
                (error, _) => error,
            })?;
        }
        Ok(Self::Profile(files))
    }

    /// Returns the keys. A command is asked again only when its keys expire or were rejected.
    pub(super) fn load(
        &self,
        known: Option<&Credentials>,
        cancel: &CancellationToken,
    ) -> Result<Credentials, CredentialsError> {
        let files = match self {
            Self::Environment(credentials) => return Ok(credentials.clone()),
            Self::Profile(files) => files,
        };
        let profile = files.read();
        match (static_credentials(files, &profile), profile.get("credential_process")) {
            (Ok(credentials), _) => Ok(credentials),
            (Err(_), Some(command)) => match known {
                Some(known) => Ok(known.clone()),
                None => process_credentials(command, files, cancel),
            },
            (Err(error), None) => Err(error),
        }
    }

    /// Returns a description of the source, for messages.
    pub(in crate::llm) fn describe(&self) -> String {
        match self {
            Self::Environment(_) => {
                "those in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN".to_owned()
            }
            Self::Profile(files) => {
                format!(
                    "those of the AWS profile '{}' (AWS_PROFILE names another one)",
                    files.profile
                )
            }
        }
    }

    /// Returns the keys, if they are known without running a command.
    pub(super) fn known(&self) -> Option<Credentials> {
        match self {
            Self::Environment(credentials) => Some(credentials.clone()),
            Self::Profile(files) => static_credentials(files, &files.read()).ok(),
        }
    }
}

/// Returns the keys in a profile.
fn static_credentials(
    files: &ProfileFiles,
    profile: &Profile,
) -> Result<Credentials, CredentialsError> {
    let names = ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"];
    let [id, secret, token] = names.map(|name| profile.get(name).cloned());
    Credentials::new(id, secret, token).unwrap_or_else(|| {
        let is_unsupported = UNSUPPORTED_KEYS.iter().any(|key| profile.contains_key(*key));
        let name = files.profile.clone();
        Err(match is_unsupported {
            true => CredentialsError::Unsupported(name),
            false => CredentialsError::Missing(name),
        })
    })
}

/// Runs the command of a profile, and returns the keys that it prints.
fn process_credentials(
    command: &str,
    files: &ProfileFiles,
    cancel: &CancellationToken,
) -> Result<Credentials, CredentialsError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Printed {
        access_key_id: Option<String>,
        secret_access_key: Option<String>,
        session_token: Option<String>,
        expiration: Option<Timestamp>,
    }
    let failed =
        |cause: String| CredentialsError::Process { profile: files.profile.clone(), cause };
    let output = run_secret_command(command, cancel).map_err(failed)?;
    // An error of the parser would show the output.
    let printed: Printed = serde_json::from_slice(&output).map_err(|_| {
        failed("did not print JSON with AccessKeyId and SecretAccessKey".to_owned())
    })?;
    let Printed { access_key_id, secret_access_key, session_token, expiration } = printed;
    let credentials = Credentials::new(access_key_id, secret_access_key, session_token);
    let credentials = credentials
        .ok_or_else(|| failed("printed no AccessKeyId and SecretAccessKey".to_owned()))??;
    Ok(Credentials { expires: expiration, ..credentials })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns the source for a profile with these keys.
    fn source(
        folder: &tempfile::TempDir,
        keys: &str,
    ) -> Result<CredentialsSource, CredentialsError> {
        fs::create_dir_all(folder.path().join(".aws")).unwrap();
        fs::write(folder.path().join(".aws/config"), format!("[default]\n{keys}\n")).unwrap();
        let home = folder.path().display().to_string();
        CredentialsSource::from_env(&move |name| (name == "HOME").then(|| home.clone()))
    }

    fn load(keys: &str) -> Result<Credentials, CredentialsError> {
        let folder = tempfile::tempdir().unwrap();
        source(&folder, keys)?.load(None, &CancellationToken::new())
    }

    const STATIC: &str =
        "aws_access_key_id = AKID\naws_secret_access_key = canary-secret\naws_session_token = t0";

    #[test]
    fn keys_of_the_environment_precede_those_of_a_profile() {
        let folder = tempfile::tempdir().unwrap();
        source(&folder, STATIC).unwrap();
        let home = folder.path().display().to_string();
        let env = |name: &str| match name {
            "HOME" => Some(home.clone()),
            "AWS_ACCESS_KEY_ID" => Some("AKENV".to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some("canary-env".to_owned()),
            _ => None,
        };
        let loaded = |env: &dyn Fn(&str) -> Option<String>| {
            let source = CredentialsSource::from_env(env).unwrap();
            source.load(None, &CancellationToken::new()).unwrap()
        };
        let found = loaded(&env);
        assert_eq!((&*found.access_key_id, found.session_token), ("AKENV", None));
        let found = loaded(&|name| env(name).filter(|_| name != "AWS_SECRET_ACCESS_KEY"));
        assert_eq!(found.access_key_id, "AKID");
        assert_eq!(found.session_token.unwrap().expose(), "t0");
    }

    #[test]
    fn half_of_the_keys_is_reported_with_the_other_half() {
        for (set, missing) in [
            ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
            ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
        ] {
            let env = |name: &str| (name == set).then(|| "canary".to_owned());
            let error = CredentialsSource::from_env(&env).unwrap_err();
            assert_eq!(error, CredentialsError::Incomplete { set, missing });
        }
    }

    #[test]
    fn a_command_of_a_profile_prints_the_keys() {
        let json = r#"{"Version":1,"AccessKeyId":"AK","SecretAccessKey":"canary-secret","Expiration":"2030-01-02T03:04:05Z"}"#;
        let found = load(&format!("credential_process = echo '{json}'")).unwrap();
        assert_eq!(found.secret_access_key.expose(), "canary-secret");
        assert_eq!(found.expires, Some("2030-01-02T03:04:05Z".parse().unwrap()));
    }

    #[test]
    fn a_profile_without_usable_keys_is_reported() {
        let error = |keys: &str| load(keys).unwrap_err().to_string();
        assert!(error("region = x").contains("none in the profile 'default'"));
        assert!(
            error("sso_session = x").contains("aws configure export-credentials --profile default")
        );
        let failed =
            error("credential_process = echo canary-output; echo canary-error >&2; exit 3");
        assert!(failed.contains("exit status: 3") && !failed.contains("canary"), "{failed}");
        let other = error("credential_process = echo canary-output");
        assert!(other.contains("did not print JSON") && !other.contains("canary"), "{other}");
        let invalid = error("aws_access_key_id = A\naws_secret_access_key = a canary");
        assert!(
            invalid.starts_with("the value of AWS_SECRET_ACCESS_KEY has a character"),
            "{invalid}"
        );
    }
}
