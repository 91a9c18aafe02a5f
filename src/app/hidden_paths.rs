//! Paths that commands must not read although the user can: keys, tokens, passwords, and sockets of daemons that grant
//! rights.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::process_env::ProcessEnv;
use crate::config::{Config, has_address_with_user};
use crate::exec::{NetworkAccess, RedactedFile, SandboxMode, describe_hidden_registry};
use crate::types::matches_wildcard;
use crate::workspace::LinkResolver;

/// Files and folders of the home that hold secrets and nothing that a build needs, by kind.
const SECRET_PATHS: &str = "
    .ssh .gnupg .password-store .vault-token .netrc _netrc .pgpass .my.cnf .mylogin.cnf
    .aws .azure .kube .oci .boto .config/gcloud .config/doctl .config/heroku .config/rclone .config/helm/registry
    .pulumi/credentials.json .terraform.d/credentials.tfrc.json
    .git-credentials .config/git/credentials .config/gh .config/glab-cli .config/hub .config/github-copilot
    .docker/config.json .config/containers/auth.json
    .pypirc .cargo/credentials .cargo/credentials.toml .gem/credentials .local/share/gem/credentials
    .composer/auth.json .config/composer/auth.json
    .config/op .config/keepassxc .config/Bitwarden .config/1Password
    .local/share/keyrings .local/share/kwalletd .local/share/gopass
    .claude .claude.json .codex .gemini .config/goose .local/share/opencode
    .bash_history .zsh_history .python_history .node_repl_history .local/share/fish/fish_history
    .psql_history .mysql_history .sqlite_history .Xauthority
    .mozilla .thunderbird .config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge
    .cache/mozilla .cache/google-chrome .cache/chromium .config/Signal
";

/// Files and folders of the system with secrets that root can read: passwords, and secrets mounted into containers.
const SYSTEM_SECRETS: &str =
    "/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /run/secrets /var/run/secrets";

/// Variables that name files or folders with secrets, or a folder and the path of the secret in it; `KUBECONFIG` is a
/// list of them.
const SECRET_VARIABLES: &str = "
    NETRC CURL_HOME/.netrc PGPASSFILE MYSQL_HOME/my.cnf GNUPGHOME PASSWORD_STORE_DIR XAUTHORITY
    GOOGLE_APPLICATION_CREDENTIALS CLOUDSDK_CONFIG BOTO_CONFIG AWS_SHARED_CREDENTIALS_FILE AWS_CONFIG_FILE
    AWS_WEB_IDENTITY_TOKEN_FILE AZURE_CONFIG_DIR AZURE_FEDERATED_TOKEN_FILE OCI_CLI_CONFIG_FILE
    DOCKER_CONFIG REGISTRY_AUTH_FILE HELM_REGISTRY_CONFIG HELM_CONFIG_HOME/registry GH_CONFIG_DIR GLAB_CONFIG_DIR
    TF_CLI_CONFIG_FILE RCLONE_CONFIG SOPS_AGE_KEY_FILE ANSIBLE_VAULT_PASSWORD_FILE PULUMI_HOME/credentials.json
    COMPOSER_HOME/auth.json CLAUDE_CONFIG_DIR CODEX_HOME GEMINI_CLI_HOME/.gemini
    HISTFILE ZDOTDIR/.zsh_history PYTHON_HISTORY NODE_REPL_HISTORY PSQL_HISTORY MYSQL_HISTFILE SQLITE_HISTORY
";

/// Endings of further variables that name files with secrets, by the convention of containers.
const SECRET_FILE_VARIABLES: &str = "*_API_KEY_FILE|*_TOKEN_FILE|*_PASSWORD_FILE|*_PASSPHRASE_FILE|*_SECRET_FILE|*_CREDENTIALS_FILE";

/// Folders of the home that a variable can move.
const MOVABLE_FOLDERS: [(&str, &str); 4] = [
    (".config", "XDG_CONFIG_HOME"),
    (".local/share", "XDG_DATA_HOME"),
    (".cache", "XDG_CACHE_HOME"),
    (".cargo", "CARGO_HOME"),
];

/// Settings files of the home, which are secret if they contain one of [`SECRET_MARKERS`] or an address with a user.
const SETTINGS_FILES: &str = "
    .npmrc .yarnrc .yarnrc.yml .bunfig.toml .config/.bunfig.toml .config/pnpm/rc .config/uv/uv.toml
    .wgetrc .pg_service.conf .cargo/config .cargo/config.toml
    .m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties
    .config/pip/pip.conf .pip/pip.conf
";

/// Variables that name such a file elsewhere, or a folder and the path of the file in it.
const SETTINGS_VARIABLES: &str = "
    NPM_CONFIG_USERCONFIG npm_config_userconfig NPM_CONFIG_GLOBALCONFIG npm_config_globalconfig
    PIP_CONFIG_FILE UV_CONFIG_FILE WGETRC PGSERVICEFILE GRADLE_USER_HOME/gradle.properties
";

/// The settings files of which commands can read the lines about registries, each with its own key.
const REDACTED_SETTINGS: &str = "
    .npmrc .yarnrc .config/pnpm/rc .config/pip/pip.conf .pip/pip.conf
    NPM_CONFIG_USERCONFIG npm_config_userconfig NPM_CONFIG_GLOBALCONFIG npm_config_globalconfig PIP_CONFIG_FILE
";

/// The sections of pip's configuration that are shown.
const PIP_SECTIONS: [&str; 4] = ["[global]", "[install]", "[download]", "[wheel]"];

/// The maximum number of bytes of a settings file.
const MAX_SETTINGS: u64 = 1 << 20;

/// Texts in a settings file that precede a secret.
const SECRET_MARKERS: [&str; 13] = [
    "_auth",
    "_password",
    "authtoken",
    "<password>",
    "<master>",
    "password=",
    "password =",
    "token=",
    "token =",
    "token:",
    "token \"",
    "otp=",
    "private key-----",
];

/// Sockets of daemons in the home.
const SOCKET_PATHS: &str = "
    .docker/run .docker/desktop .colima .orbstack .lima .rd .local/share/containers/podman/machine .1password
";

/// Variables that name the socket of a daemon.
const SOCKET_VARIABLES: &str = "
    DOCKER_HOST CONTAINER_HOST SSH_AUTH_SOCK SSH_AGENT_LAUNCHER_SOCK
    DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS PULSE_SERVER TMUX
";

/// Returns the paths that commands must not read, except those that the user makes readable: secrets, and the stored
/// sessions, which contain the conversations of other projects. A folder that contains one of the `needed` folders is
/// not hidden, whatever a variable says.
pub(super) fn hidden_paths(
    world: &ProcessEnv,
    settings: &[SecretSettings],
    sessions: &[PathBuf],
    readable: &[PathBuf],
    needed: &[&Path],
    links: &LinkResolver,
) -> Vec<PathBuf> {
    let folders = world.folders();
    let mut hidden = sessions.to_vec();
    hidden.extend(secret_paths(world, settings));
    if let Some(user) = &world.user {
        hidden.extend(secret_paths(user, &secret_settings(user)));
        hidden.extend(user.folders().state.map(|state| state.join("sessions")));
    }
    // Files that this process can't open are inaccessible to its commands, too.
    let system = SYSTEM_SECRETS.split_whitespace().map(PathBuf::from);
    hidden.extend(system.filter(|path| fs::File::open(path).is_ok()));
    hidden.sort();
    hidden.dedup();
    let needed = needed.iter().copied().chain(folders.home.as_deref()).chain([Path::new("/tmp")]);
    let needed: Vec<(PathBuf, &Path)> = needed.map(|path| (real_path(path, links), path)).collect();
    hidden.retain(|path| path.is_absolute() && can_be_hidden(path, &needed, links));
    hidden.into_iter().flat_map(|path| exclude_readable(path, readable)).collect()
}

/// Returns the secrets and sockets that the environment of a user leads to.
fn secret_paths(world: &ProcessEnv, settings: &[SecretSettings]) -> Vec<PathBuf> {
    let mut hidden: Vec<PathBuf> = world.folders().config.into_iter().collect();
    let inside = [SECRET_PATHS, SOCKET_PATHS].into_iter().flat_map(str::split_whitespace);
    hidden.extend(inside.flat_map(|path| paths_in_home(path, world)));
    hidden.extend(settings.iter().map(|settings| settings.file.clone()));
    let sockets = SOCKET_VARIABLES.split_whitespace();
    hidden.extend(sockets.filter_map(|name| socket_path(world.variable(name)?)));
    let named = ["XDG_RUNTIME_DIR", "WAYLAND_DISPLAY"].into_iter();
    let named = named.chain(SECRET_VARIABLES.split_whitespace());
    hidden.extend(named.filter_map(|name| named_path(name, world)));
    let others = world.text_variables();
    let others = others.filter(|(name, _)| matches_wildcard(SECRET_FILE_VARIABLES, name));
    hidden.extend(others.map(|(_, value)| PathBuf::from(value)));
    hidden.extend(world.variable("KUBECONFIG").into_iter().flat_map(env::split_paths));
    hidden
}

/// Returns the path that a variable names, or the path in the folder that it names, as in `MYSQL_HOME/my.cnf`.
fn named_path(name: &str, world: &ProcessEnv) -> Option<PathBuf> {
    let (name, inside) = name.split_once('/').unwrap_or((name, ""));
    let path = Path::new(world.variable(name)?);
    Some(if inside.is_empty() { path.to_owned() } else { path.join(inside) })
}

/// Returns a path of the home, and where a variable has moved it.
fn paths_in_home<'a>(
    path: &'a str,
    world: &'a ProcessEnv,
) -> impl Iterator<Item = PathBuf> + use<'a> {
    let moved = MOVABLE_FOLDERS.iter().filter_map(move |(folder, variable)| {
        let inside = Path::new(path).strip_prefix(folder).ok()?;
        Some(Path::new(world.variable(variable)?).join(inside))
    });
    world.folders().home.map(|home| home.join(path)).into_iter().chain(moved)
}

/// Returns the hidden settings files that commands read without their secrets. Commands need the registry that these
/// files name: package managers would otherwise take packages from the public one.
pub(super) fn redacted_files(settings: &[SecretSettings], hidden: &[PathBuf]) -> Vec<RedactedFile> {
    let settings = settings.iter().filter(|it| hidden.contains(&it.file));
    settings.filter_map(SecretSettings::redacted).collect()
}

/// Returns a warning if another hidden settings file names the registry of the user's packages.
pub(super) fn hidden_registry_warning(config: &Config, world: &ProcessEnv) -> Option<String> {
    let sandbox = &config.settings.sandbox;
    if sandbox.mode == SandboxMode::Off || sandbox.network == NetworkAccess::Off {
        return None;
    }
    let is_readable = |path: &Path| sandbox.readable.iter().any(|own| path.starts_with(own));
    let mut hidden =
        secret_settings(world).into_iter().filter(|settings| !is_readable(&settings.file));
    let found = hidden.find(|it| names_registry(&it.text) && it.redacted().is_none())?;
    Some(describe_hidden_registry(&found.file))
}

/// A file of settings with a secret.
pub(super) struct SecretSettings {
    file: PathBuf,
    /// The text; empty if the file can't be read here.
    text: String,
    /// Whether commands can read the lines about registries.
    is_redactable: bool,
}

impl SecretSettings {
    /// Returns the redacted file for commands; `None` if it names no registry.
    fn redacted(&self) -> Option<RedactedFile> {
        let text = registry_lines(&self.text);
        let is_shown = self.is_redactable && names_registry(&text);
        is_shown.then(|| RedactedFile { file: self.file.clone(), text })
    }
}

/// Returns the settings in the home, and where variables say they are, that hold a secret.
pub(super) fn secret_settings(world: &ProcessEnv) -> Vec<SecretSettings> {
    let in_home = SETTINGS_FILES.split_whitespace();
    let in_home = in_home.flat_map(|name| paths_in_home(name, world).map(move |it| (it, name)));
    let named = SETTINGS_VARIABLES.split_whitespace();
    let named = named.filter_map(|name| Some((named_path(name, world)?, name)));
    let files: BTreeMap<PathBuf, &str> = in_home.chain(named).collect();
    let settings = files.into_iter().filter(|(file, _)| file.is_absolute());
    let secret = settings.filter_map(|(file, name)| {
        let text = read_secret(&file)?;
        let is_redactable = REDACTED_SETTINGS.split_whitespace().any(|other| other == name);
        Some(SecretSettings { file, text, is_redactable })
    });
    secret.collect()
}

/// Returns the key of a line of settings for npm, yarn or pip.
fn key_of(line: &str) -> &str {
    line.trim().split(['=', ' ']).next().unwrap_or_default().trim_end_matches(':')
}

/// Returns whether settings for npm, yarn or pip name a registry. Keys that begin with an address don't: they are
/// settings for the registry at that address.
fn names_registry(text: &str) -> bool {
    text.lines().map(|line| key_of(line).to_lowercase()).any(|key| {
        !key.starts_with("//")
            && ["registry", "index-url", "npmregistryserver"].iter().any(|name| key.ends_with(name))
    })
}

/// Returns the lines that consist of a registry's address, without the user name in it, and the section lines of pip.
fn registry_lines(text: &str) -> String {
    text.lines().filter_map(registry_line).map(|line| line + "\n").collect()
}

fn registry_line(line: &str) -> Option<String> {
    if PIP_SECTIONS.contains(&line.trim_end()) {
        return Some(line.trim_end().to_owned());
    }
    let (key, value) = line.split_once('=').or_else(|| line.split_once(' '))?;
    let (name, value) = (key.trim_end(), value.trim());
    let is_scope = |scope: &str| {
        scope.len() > 1
            && scope[1..].chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let is_registry = ["registry", "index-url", "extra-index-url"].contains(&name)
        || name.strip_suffix(":registry").is_some_and(|it| it.starts_with('@') && is_scope(it));
    let is_quoted = value.len() > 1 && value.starts_with('"') && value.ends_with('"');
    let address = if is_quoted { &value[1..value.len() - 1] } else { value };
    let (scheme, rest) = address.split_once("://")?;
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit('@').next().unwrap_or_default();
    let (domain, port) = host.split_once(':').unwrap_or((host, ""));
    let is_plain = |text: &str, more: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    let is_address = ["https", "http"].contains(&scheme)
        && !domain.is_empty()
        && is_plain(domain, "-.")
        && port.chars().all(|c| c.is_ascii_digit())
        && is_plain(path, "-._/")
        && !has_token(rest);
    (is_registry && is_address).then(|| {
        let quote = if is_quoted { "\"" } else { "" };
        let separator = if line.contains('=') { "=" } else { " " };
        format!("{name}{separator}{quote}{scheme}://{host}{path}{quote}")
    })
}

/// Returns whether a part of an address looks like a token: some registries take it in the path.
fn has_token(address: &str) -> bool {
    address.split('/').skip(1).any(|part| {
        let digits = part.bytes().filter(u8::is_ascii_digit).count();
        part.len() > 32 || part.len() >= 12 && digits >= 4
    })
}

/// Returns whether no needed path, with links resolved or as named, is in a folder.
fn can_be_hidden(path: &Path, needed: &[(PathBuf, &Path)], links: &LinkResolver) -> bool {
    let hidden = real_path(path, links);
    needed.iter().all(|(real, named)| !real.starts_with(&hidden) && !named.starts_with(path))
}

fn real_path(path: &Path, links: &LinkResolver) -> PathBuf {
    links.canonicalize(path).unwrap_or_else(|| path.to_owned())
}

/// Returns the socket in `unix:///run/x.sock`, `unix:path=/run/x,guid=1` or `/tmp/tmux-0/default,1,0`.
fn socket_path(value: &str) -> Option<PathBuf> {
    let (scheme, path) = value.split_at(value.find('/')?);
    let path = path.trim_start_matches('/').split([',', ';']).next()?;
    ["", "unix:", "unix:path=", "unix:dir="].contains(&scheme).then(|| Path::new("/").join(path))
}

/// Reads a settings file; `None` if it is not a regular file, or too large. A pipe in its place does not block.
fn read_settings(path: &Path) -> io::Result<Option<String>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut text = String::new();
    file.take(MAX_SETTINGS + 1).read_to_string(&mut text)?;
    Ok((text.len() as u64 <= MAX_SETTINGS).then_some(text))
}

/// Returns the text of a settings file that holds a secret; `None` for others. A file that can't be read here, or is
/// not text, counts as a secret with an empty text.
fn read_secret(path: &Path) -> Option<String> {
    let text = match read_settings(path) {
        Ok(Some(text)) => text,
        Ok(None) => return Some(String::new()),
        Err(error) => return (error.kind() != io::ErrorKind::NotFound).then(String::new),
    };
    let lower = text.to_lowercase();
    let has_secret = SECRET_MARKERS.iter().any(|mark| lower.contains(mark))
        || lower.contains("://") && has_address_with_user(&lower)
        || lower.lines().filter(|line| names_registry(line)).any(has_token);
    has_secret.then_some(text)
}

/// Returns the parts of a hidden path that are not readable; empty if the whole path is readable.
fn exclude_readable(path: PathBuf, readable: &[PathBuf]) -> Vec<PathBuf> {
    if readable.iter().any(|own| path.starts_with(own)) {
        return Vec::new();
    }
    if !readable.iter().any(|own| own.starts_with(&path)) {
        return vec![path];
    }
    let entries = fs::read_dir(&path).into_iter().flatten().flatten();
    entries.flat_map(|entry| exclude_readable(entry.path(), readable)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found_in_what_variables_say() {
        for (value, path) in [
            ("unix:///run/docker.sock", Some("/run/docker.sock")),
            ("/tmp/ssh-x/agent.1", Some("/tmp/ssh-x/agent.1")),
            ("unix:path=/run/user/1/bus,guid=2", Some("/run/user/1/bus")),
            ("/tmp/tmux-0/default,12,0", Some("/tmp/tmux-0/default")),
            ("tcp://host:2375", None),
            ("ssh://user@host/run/x", None),
            ("unix:abstract=/tmp/dbus", None),
            ("", None),
        ] {
            assert_eq!(socket_path(value), path.map(PathBuf::from), "{value}");
        }
    }

    #[test]
    fn secrets_are_hidden_where_variables_say_that_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("npmrc"), "registry=https://npm.example/\n_auth=x").unwrap();
        fs::write(path("pip.conf"), "[global]").unwrap();
        for (name, text) in
            [("g/gradle.properties", "token=x"), ("n/npmrc", "registry=https://npm.example/")]
        {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), text).unwrap();
        }
        let set = |(name, value): (&str, &str)| {
            let paths = value.split(':').map(|name| path(name).display().to_string());
            (name.into(), paths.collect::<Vec<_>>().join(":").into())
        };
        let variables = [
            ("HOME", "home"),
            ("XDG_CONFIG_HOME", "home/own"),
            ("KUBECONFIG", "kube/a:b"),
            ("NPM_CONFIG_USERCONFIG", "npmrc"),
            ("PIP_CONFIG_FILE", "pip.conf"),
            ("GRADLE_USER_HOME", "g"),
            ("NPM_CONFIG_GLOBALCONFIG", "n/npmrc"),
            ("COMPOSER_HOME", "composer"),
            ("CURL_HOME", "curl"),
            ("MYSQL_HOME", "mysql"),
            ("PYTHON_HISTORY", "history"),
            ("ZDOTDIR", "zsh"),
            ("POSTGRES_PASSWORD_FILE", "pw"),
            ("KEYMAP_FILE", "keymap"),
        ];
        let world = ProcessEnv { variables: variables.map(set).into(), ..ProcessEnv::default() };
        let settings = secret_settings(&world);
        let hidden = hidden_paths(&world, &settings, &[], &[], &[], &LinkResolver::default());
        let of_folders = ["composer/auth.json", "curl/.netrc", "mysql/my.cnf", "zsh/.zsh_history"];
        let named = ["kube/a", "b", "npmrc", "history", "pw"];
        let in_home = ["home/.ssh", "home/.config/gh", "home/own/gh", "g/gradle.properties"];
        for name in of_folders.into_iter().chain(named).chain(in_home) {
            assert!(hidden.contains(&path(name)), "{name} in {hidden:?}");
        }
        for name in ["pip.conf", "n/npmrc", "composer", "g", "keymap"] {
            assert!(!hidden.contains(&path(name)), "{name}");
        }
        let shown = redacted_files(&settings, &hidden);
        assert_eq!(
            shown.iter().map(|it| &*it.text).collect::<Vec<_>>(),
            ["registry=https://npm.example/\n"]
        );
    }

    #[test]
    fn what_commands_need_is_not_hidden_by_a_variable() {
        let needed = ["/srv/w", "/run/user/1/t", "/home/a", "/tmp"].map(Path::new);
        let needed = needed.map(|path| (path.to_owned(), path));
        for (path, hides) in [
            ("/run/user/2", true),
            ("/srv/w/.env", true),
            ("/run/user/1", false),
            ("/tmp", false),
            ("/", false),
            ("/home", false),
        ] {
            assert_eq!(
                can_be_hidden(Path::new(path), &needed, &LinkResolver::default()),
                hides,
                "{path}"
            );
        }
    }

    #[test]
    fn settings_are_shown_without_their_secrets() {
        for (text, shown) in [
            (
                "registry=https://npm.example/\n//npm.example/:_authToken=x\n@own:registry=https://u:p@ss@own.example:80/r/\nemail=a@b",
                "registry=https://npm.example/\n@own:registry=https://own.example:80/r/\n",
            ),
            (
                "[global]\nindex-url = https://u:pw@pypi.example/simple\npassword = y\n  https://x.example/S\n[S]",
                "[global]\nindex-url=https://pypi.example/simple\n",
            ),
            ("registry \"https://yarn.example\"", "registry \"https://yarn.example\"\n"),
        ] {
            assert_eq!(registry_lines(text), shown, "{text}");
        }
        for hidden in [
            "registry=https://a/?token=S",
            "registry=https://a/ ; S",
            "registry=https://a/#S",
            "registry=https://a:S/",
            "registry=//S@a/",
            "registry=u:S@a/",
            "registry=https:/u:S@a",
            "registry=https://u:ab/S@a/",
            "registry=https://u:S%40a/",
            "registry=https://u:S＠a/",
            "registry=S",
            "registry \"https:\\/\\/u:S\\u0040a/\"",
            "password:registry=https://S",
            "_registry=https://S",
            "x registry=https://S",
            "registry=https://a/\0S",
            "registry {\"token\":\"S\"}",
            "  index-url = https://S",
            "[S]",
            "registry=https://a/0123456789abcdef0123456789/",
            "cafile=/etc/S",
        ] {
            assert_eq!(registry_lines(hidden), "", "{hidden}");
        }
    }

    #[test]
    fn what_is_no_file_of_settings_is_hidden_and_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RWXU).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("endless")).unwrap();
        fs::write(path("large"), "x".repeat(2 << 20)).unwrap();
        for (name, hides) in [("pipe", true), ("endless", true), ("large", true), ("none", false)] {
            assert_eq!(read_secret(&path(name)).is_some(), hides, "{name}");
        }
    }

    #[test]
    fn settings_are_hidden_if_they_hold_a_secret() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        for (text, hides) in [
            ("registry=https://registry.example/", false),
            ("//registry.example/:_authToken=x", true),
            ("index-url = https://user:pw@pypi.example/simple", true),
            ("<server><password>x</password></server>", true),
            ("index-url = https://pypi.example/Zx81Kq0T44mP9/simple", true),
            ("key=\"-----BEGIN PRIVATE KEY-----\\nx\"", true),
            ("org.gradle.daemon=false", false),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(read_secret(&file).is_some(), hides, "{text}");
        }
        assert_eq!(read_secret(&folder.path().join("none")), None);
    }

    #[test]
    fn what_the_user_lets_commands_read_is_not_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path(".ssh")).unwrap();
        for name in [".ssh/known_hosts", ".ssh/id"] {
            fs::write(path(name), "").unwrap();
        }
        assert_eq!(exclude_readable(path(".ssh"), &[]), [path(".ssh")]);
        assert!(exclude_readable(path(".ssh"), &[path(".ssh")]).is_empty());
        assert_eq!(exclude_readable(path(".ssh"), &[path(".ssh/known_hosts")]), [path(".ssh/id")]);
    }
}
