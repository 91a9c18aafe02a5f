//! What commands must not read although the user can: keys, tokens, passwords, and sockets of daemons that grant rights.

use std::fs;
use std::path::{Path, PathBuf};

use super::process_env::ProcessEnv;
use crate::config::{Config, has_address_with_user};
use crate::exec::{NetworkAccess, RedactedFile, SandboxMode, describe_hidden_registry};
use crate::workspace::LinkResolver;

/// Files and folders of the home that hold secrets and nothing that a build needs, by kind.
const SECRET_PATHS: &str = "
    .ssh .gnupg .password-store .vault-token .netrc _netrc .pgpass .my.cnf .mylogin.cnf
    .aws .azure .kube .config/gcloud .config/doctl .config/heroku .config/rclone .terraform.d/credentials.tfrc.json
    .git-credentials .config/git/credentials .config/gh .config/glab-cli .config/hub .config/github-copilot
    .docker/config.json .config/containers/auth.json
    .pypirc .cargo/credentials .cargo/credentials.toml .gem/credentials .composer/auth.json .config/composer/auth.json
    .config/op .config/keepassxc .config/Bitwarden .config/1Password
    .local/share/keyrings .local/share/kwalletd .local/share/gopass
    .claude .claude.json .codex .config/goose .local/share/opencode
    .bash_history .zsh_history .python_history .local/share/fish/fish_history
    .mozilla .thunderbird .config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge
    .cache/mozilla .cache/google-chrome .cache/chromium .config/Signal
";

/// Files and folders of the system with secrets that root can read: passwords, and what is mounted into containers.
const SYSTEM_SECRETS: &str =
    "/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /run/secrets /var/run/secrets";

/// Files of the home that are settings, and hold a secret if one of these texts is in them.
const SETTINGS_FILES: &str = "
    .npmrc .yarnrc .yarnrc.yml
    .m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties
    .config/pip/pip.conf .pip/pip.conf
";

/// Those of them of which commands read the lines about registries, each with its own key.
const REDACTED_FILES: &str = ".npmrc .yarnrc .config/pip/pip.conf .pip/pip.conf";

/// Keys of these files that registries need, beside their addresses.
const SHOWN_KEYS: [&str; 5] = ["cafile", "cert", "strict-ssl", "trusted-host", "timeout"];

/// What stands before a secret in such a file.
const SECRET_MARKERS: [&str; 7] =
    ["_auth", "_password", "authtoken", "<password>", "<master>", "password=", "password ="];

/// Sockets of daemons in the home.
const SOCKET_PATHS: &str = "
    .docker/run .docker/desktop .colima .orbstack .lima .rd .local/share/containers/podman/machine .1password
";

/// Variables that name the socket of a daemon.
const SOCKET_VARIABLES: &str = "
    DOCKER_HOST CONTAINER_HOST SSH_AUTH_SOCK SSH_AGENT_LAUNCHER_SOCK
    DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS PULSE_SERVER TMUX
";

/// Returns what commands must not read, without what the user lets them read: secrets, and the stored sessions, which have
/// the conversations of other projects. What these needed folders are in is not hidden, whatever a variable says.
pub(super) fn hidden_paths(
    world: &ProcessEnv,
    sessions: &[PathBuf],
    readable: &[PathBuf],
    needed: &[&Path],
    links: &LinkResolver,
) -> Vec<PathBuf> {
    let folders = world.folders();
    let mut hidden: Vec<PathBuf> = folders.config.into_iter().collect();
    hidden.extend_from_slice(sessions);
    if let Some(home) = &folders.home {
        let inside = [SECRET_PATHS, SOCKET_PATHS].into_iter().flat_map(str::split_whitespace);
        hidden.extend(inside.map(|path| home.join(path)));
        let settings = SETTINGS_FILES.split_whitespace().map(|path| home.join(path));
        hidden.extend(settings.filter(|path| has_secret(path)));
    }
    // What this process cannot open, its commands cannot either.
    let system = SYSTEM_SECRETS.split_whitespace().map(PathBuf::from);
    hidden.extend(system.filter(|path| fs::File::open(path).is_ok()));
    let sockets = SOCKET_VARIABLES.split_whitespace();
    hidden.extend(sockets.filter_map(|name| socket_path(world.variable(name)?)));
    let named = ["XDG_RUNTIME_DIR", "WAYLAND_DISPLAY", "NETRC", "GOOGLE_APPLICATION_CREDENTIALS"];
    hidden.extend(named.iter().filter_map(|name| world.variable(name)).map(PathBuf::from));
    let needed = needed.iter().copied().chain(folders.home.as_deref()).chain([Path::new("/tmp")]);
    let needed: Vec<(PathBuf, &Path)> = needed.map(|path| (real_path(path, links), path)).collect();
    hidden.retain(|path| path.is_absolute() && can_be_hidden(path, &needed, links));
    hidden.into_iter().flat_map(|path| exclude_readable(path, readable)).collect()
}

/// Returns the hidden settings that commands read without their secrets, for the registry that they name: package managers
/// would take packages from the public one.
pub(super) fn redacted_files(world: &ProcessEnv, hidden: &[PathBuf]) -> Vec<RedactedFile> {
    let Some(home) = world.folders().home else { return Vec::new() };
    let files = REDACTED_FILES.split_whitespace().map(|path| home.join(path));
    let files = files.filter(|file| hidden.contains(file));
    let shown = files.filter_map(|file| {
        let text = without_secrets(&fs::read_to_string(&file).ok()?);
        names_registry(&text).then_some(RedactedFile { file, text })
    });
    shown.collect()
}

/// Returns a warning if another file that is hidden from commands names the registry that the user's packages come from.
pub(super) fn hidden_registry_warning(config: &Config, world: &ProcessEnv) -> Option<String> {
    let sandbox = &config.settings.sandbox;
    if sandbox.mode == SandboxMode::Off || sandbox.network == NetworkAccess::Off {
        return None;
    }
    let home = world.folders().home?;
    let settings = SETTINGS_FILES.split_whitespace();
    let is_redacted = |file: &str| REDACTED_FILES.split_whitespace().any(|other| other == file);
    let mut settings = settings.filter(|file| !is_redacted(file)).map(|path| home.join(path));
    let is_readable = |path: &Path| sandbox.readable.iter().any(|own| path.starts_with(own));
    let file = settings.find(|path| {
        let is_hidden = || has_secret(path) && !is_readable(path);
        fs::read_to_string(path).is_ok_and(|text| names_registry(&text)) && is_hidden()
    })?;
    Some(describe_hidden_registry(&file))
}

/// Returns the key of a line of settings for npm, yarn or pip.
fn key_of(line: &str) -> &str {
    line.trim().split(['=', ' ']).next().unwrap_or_default().trim_end_matches(':')
}

/// Returns whether a key names a registry. Those that begin with an address are about the registry there.
fn is_registry(key: &str) -> bool {
    let key = key.to_lowercase();
    !key.starts_with("//")
        && ["registry", "index-url", "npmregistryserver"].iter().any(|name| key.ends_with(name))
}

/// Returns whether a line of settings for npm, yarn or pip names a registry.
fn names_registry(text: &str) -> bool {
    text.lines().any(|line| is_registry(key_of(line)))
}

/// Returns the lines of settings that name registries, without the users in their addresses, and what else [`SHOWN_KEYS`] has.
fn without_secrets(text: &str) -> String {
    let (mut shown, mut is_shown) = (String::new(), false);
    for line in text.lines() {
        let is_continued = line.starts_with([' ', '\t']) && !line.contains('=');
        if !is_continued {
            let key = key_of(line);
            is_shown = is_registry(key) || SHOWN_KEYS.contains(&key);
        }
        let is_section = line.starts_with('[') && line.trim_end().ends_with(']');
        let line = without_user(line);
        let addresses = line.split_once("://").map_or("", |(_, rest)| rest);
        let is_open = !addresses.contains(['?', '@']) && !has_secret_marker(&line);
        if is_section || is_shown && is_open {
            shown.push_str(&line);
            shown.push('\n');
        }
    }
    shown
}

/// Returns a line without the users and passwords in its addresses.
fn without_user(line: &str) -> String {
    let mut parts = line.split("://");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(part.len());
        let host = part[..end].rfind('@').map_or(0, |at| at + 1);
        whole.push_str("://");
        whole.push_str(&part[host..]);
    }
    whole
}

/// Returns whether nothing that commands need, each with links resolved and as it is named, is in a folder.
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

fn has_secret(path: &Path) -> bool {
    // A file that cannot be read here, or is not text, is hidden to be sure.
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return error.kind() != std::io::ErrorKind::NotFound,
    };
    has_secret_marker(&text)
}

fn has_secret_marker(text: &str) -> bool {
    let text = text.to_lowercase();
    SECRET_MARKERS.iter().any(|mark| text.contains(mark))
        || text.contains("://") && has_address_with_user(&text)
}

/// Returns a hidden path without what can be read in it; nothing when it can be read as a whole.
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
                "registry=https://npm.example/\n//npm.example/:_authToken=x\n@own:registry=https://u:pw@own.example/r/\nemail=a@b\n_auth=eA==",
                "registry=https://npm.example/\n@own:registry=https://own.example/r/\n",
            ),
            (
                "[global]\nindex-url = https://u:p@ss@pypi.example/simple\nextra-index-url =\n  https://tok@two.example/s\n  https://three.example/?token=x\npassword = y\n  more",
                "[global]\nindex-url = https://pypi.example/simple\nextra-index-url =\n  https://two.example/s\n",
            ),
            (
                "registry \"https://yarn.example\"\n\"//yarn.example/:_authToken\" x",
                "registry \"https://yarn.example\"\n",
            ),
            (
                "registry=https://npm.example/?_authToken=x\ncafile=/etc/ca.pem",
                "cafile=/etc/ca.pem\n",
            ),
            ("//registry=https://a\n_registry_token=x", ""),
            ("registry=https://u:p/w@npm.example/", ""),
        ] {
            assert_eq!(without_secrets(text), shown, "{text}");
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
            ("org.gradle.daemon=false", false),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(has_secret(&file), hides, "{text}");
        }
        assert!(!has_secret(&folder.path().join("none")));
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
