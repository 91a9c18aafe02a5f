//! The variables that commands get.

use std::borrow::Cow;

use crate::types::matches_wildcard;

/// Variables that are passed: user, languages and time, paths, tool chains, and the description of a run by CI systems.
/// `*` matches any text. Other variables are passed if the user names them.
const PASSED_VARIABLES: &str = "\
    PATH|HOME|USER|LOGNAME|SHELL|HOSTNAME|LANG|LANGUAGE|LC_*|TZ|TZDIR|LOCPATH|COLUMNS|LINES|COLORTERM|CLICOLOR|\
    CLICOLOR_FORCE|FORCE_COLOR|LS_COLORS|MANPATH|INFOPATH|XDG_CONFIG_HOME|XDG_CACHE_HOME|XDG_DATA_HOME|\
    XDG_STATE_HOME|XDG_CONFIG_DIRS|XDG_DATA_DIRS|SOURCE_DATE_EPOCH|DO_NOT_TRACK|EMAIL|\
    HTTP_PROXY|HTTPS_PROXY|ALL_PROXY|FTP_PROXY|NO_PROXY|http_proxy|https_proxy|all_proxy|ftp_proxy|no_proxy|\
    SSL_CERT_FILE|SSL_CERT_DIR|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE|NODE_EXTRA_CA_CERTS|GIT_SSL_CAINFO|\
    GIT_AUTHOR_NAME|GIT_AUTHOR_EMAIL|GIT_AUTHOR_DATE|GIT_COMMITTER_NAME|GIT_COMMITTER_EMAIL|GIT_COMMITTER_DATE|\
    GIT_CONFIG_GLOBAL|GIT_CONFIG_SYSTEM|GIT_CONFIG_NOSYSTEM|GIT_CEILING_DIRECTORIES|\
    CC|CXX|CPP|LD|AR|AS|NM|RANLIB|STRIP|OBJCOPY|OBJDUMP|CFLAGS|CXXFLAGS|CPPFLAGS|LDFLAGS|LDLIBS|MAKE|MAKEFLAGS|CPATH|\
    C_INCLUDE_PATH|CPLUS_INCLUDE_PATH|LIBRARY_PATH|LD_LIBRARY_PATH|DYLD_LIBRARY_PATH|DYLD_FALLBACK_LIBRARY_PATH|\
    PKG_CONFIG|PKG_CONFIG_*|CMAKE_*|CTEST_*|NINJA_STATUS|ACLOCAL_PATH|CCACHE_DIR|CCACHE_MAXSIZE|SCCACHE_DIR|\
    VCPKG_ROOT|LLVM_*|CUDA_*|SDKROOT|DEVELOPER_DIR|MACOSX_DEPLOYMENT_TARGET|HOMEBREW_PREFIX|HOMEBREW_CELLAR|\
    HOMEBREW_REPOSITORY|IN_NIX_SHELL|NIX_PATH|NIX_PROFILES|NIX_SSL_CERT_FILE|NIX_CC|NIX_CFLAGS_COMPILE|NIX_LDFLAGS|\
    CARGO|CARGO_HOME|CARGO_INCREMENTAL|CARGO_TARGET_*|CARGO_BUILD_*|CARGO_NET_*|CARGO_HTTP_*|CARGO_PROFILE_*|\
    CARGO_TERM_*|RUSTUP_*|RUSTC|RUSTDOC|RUSTC_WRAPPER|RUSTC_BOOTSTRAP|RUSTFLAGS|RUSTDOCFLAGS|RUST_BACKTRACE|RUST_LOG|\
    RUST_MIN_STACK|RUST_TEST_THREADS|\
    GOPATH|GOROOT|GOBIN|GOCACHE|GOMODCACHE|GOENV|GOFLAGS|GOOS|GOARCH|GOARM|GOAMD64|GOEXPERIMENT|GOTOOLCHAIN|GOWORK|\
    GOPROXY|GONOPROXY|GOPRIVATE|GOSUMDB|GONOSUMDB|GOINSECURE|GO111MODULE|CGO_*|\
    JAVA_HOME|JDK_HOME|JRE_HOME|JAVA_OPTS|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|GRADLE_HOME|GRADLE_USER_HOME|GRADLE_OPTS|\
    M2_HOME|MAVEN_HOME|MAVEN_OPTS|ANT_HOME|SBT_OPTS|KOTLIN_HOME|SCALA_HOME|ANDROID_HOME|ANDROID_SDK_ROOT|\
    ANDROID_NDK_HOME|ANDROID_NDK_ROOT|\
    NODE_*|NVM_DIR|NVM_BIN|NVM_INC|FNM_*|VOLTA_HOME|PNPM_HOME|YARN_CACHE_FOLDER|BUN_INSTALL|DENO_DIR|DENO_INSTALL|\
    COREPACK_*|npm_config_*|NPM_CONFIG_*|ELECTRON_CACHE|PLAYWRIGHT_BROWSERS_PATH|PUPPETEER_CACHE_DIR|\
    VIRTUAL_ENV|CONDA_PREFIX|CONDA_DEFAULT_ENV|CONDA_EXE|CONDA_PYTHON_EXE|CONDA_SHLVL|MAMBA_EXE|MAMBA_ROOT_PREFIX|\
    PYTHONPATH|PYTHONHOME|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONIOENCODING|PYTHONUTF8|PYTHONHASHSEED|\
    PYTHONWARNINGS|PYTHONPYCACHEPREFIX|PYENV_ROOT|PYENV_VERSION|PIP_*|PIPX_HOME|PIPX_BIN_DIR|UV_*|POETRY_HOME|\
    POETRY_CACHE_DIR|POETRY_VIRTUALENVS_*|PDM_CACHE_DIR|HATCH_*|TOX_*|\
    RBENV_ROOT|RBENV_VERSION|GEM_HOME|GEM_PATH|RUBYLIB|RUBYOPT|BUNDLE_PATH|BUNDLE_GEMFILE|BUNDLE_JOBS|BUNDLE_WITHOUT|\
    BUNDLE_APP_CONFIG|PERL5LIB|PERL_LOCAL_LIB_ROOT|PERL_MM_OPT|PERL_MB_OPT|PHPRC|PHP_INI_SCAN_DIR|COMPOSER_HOME|\
    COMPOSER_CACHE_DIR|DOTNET_*|NUGET_PACKAGES|OPAMROOT|OPAM_SWITCH_PREFIX|OCAMLPATH|CAML_LD_LIBRARY_PATH|GHCUP_*|\
    STACK_ROOT|CABAL_DIR|MIX_HOME|MIX_ENV|HEX_HOME|ZIG_*|LUA_PATH|LUA_CPATH|JULIA_*|R_HOME|R_LIBS|R_LIBS_USER|\
    CI|CONTINUOUS_INTEGRATION|BUILD_ID|BUILD_NUMBER|RUNNER_OS|RUNNER_ARCH|RUNNER_NAME|RUNNER_TOOL_CACHE|\
    GITHUB_ACTION|GITHUB_ACTIONS|GITHUB_ACTOR|GITHUB_API_URL|GITHUB_BASE_REF|GITHUB_EVENT_NAME|GITHUB_GRAPHQL_URL|\
    GITHUB_HEAD_REF|GITHUB_JOB|GITHUB_REF|GITHUB_REF_NAME|GITHUB_REF_TYPE|GITHUB_REPOSITORY|GITHUB_REPOSITORY_OWNER|\
    GITHUB_RUN_ATTEMPT|GITHUB_RUN_ID|GITHUB_RUN_NUMBER|GITHUB_SERVER_URL|GITHUB_SHA|GITHUB_WORKFLOW|\
    GITHUB_WORKSPACE|GITLAB_CI|CI_COMMIT_BRANCH|CI_COMMIT_REF_NAME|CI_COMMIT_SHA|CI_COMMIT_TAG|CI_JOB_ID|\
    CI_JOB_NAME|CI_JOB_STAGE|CI_PIPELINE_ID|CI_PIPELINE_SOURCE|CI_PROJECT_DIR|CI_PROJECT_NAME|CI_PROJECT_PATH|\
    CIRCLECI|TRAVIS|BUILDKITE|TF_BUILD|JENKINS_URL|TEAMCITY_VERSION|BITBUCKET_BUILD_NUMBER";

/// Variables that hold secrets, in upper case.
const SECRET_VARIABLES: &str = "*KEY*|*TOKEN*|*SECRET*|*PASSWORD*|*PASSWD*|*PASSPHRASE*|*PASSCODE*|*CREDENTIAL*|\
    *_CREDS*|CREDS|*COOKIE*|*_AUTH*|AUTH|AUTHORIZATION|*BEARER*|*JWT*|*_PASS*|*PASS|*_PAT_*|*_PAT|PAT|*_PWD|\
    *_DSN*|DSN|*CONNECTION_STRING*|*CONNECTIONSTRING*|*CONNSTR*|*CONN_STR*|*_SAS|*_SAS_URL|*_SIGNATURE|*_SK|*_OTP|OTP|\
    *TOTP*|*WEBHOOK|*WEBHOOK_URL*|*KUBE_CONFIG|*KUBE*CONFIG_*|*NETRC_*|*ACCOUNT_JSON*|*_SA_JSON*|*_P12*|*_PFX*|\
    *MNEMONIC*|BW_SESSION|OP_SESSION_*";

/// The secret variables whose values are keys and tokens, which are never ordinary words.
const KEY_VARIABLES: &str = "*API_KEY|*APIKEY|*ACCESS_KEY|*SECRET_KEY|*AUTH_KEY|*_TOKEN|TOKEN";

/// Exceptions: keys of git's settings are names, authors are not secret, and `ASKPASS` names a program.
const NOT_SECRET_VARIABLES: &str =
    "GIT_CONFIG_KEY_*|GIT_AUTHOR_*|*_AUTHOR|OLD_PWD|*ASKPASS|*BYPASS|*KUBE*CONFIG_PATH*";

/// Parts of option names that mark a secret value, in lower case; tokens are handled separately.
const SECRET_OPTIONS: [&str; 6] =
    ["password", "passwd", "passphrase", "secret", "apikey", "api_key"];

/// Returns whether a variable of this name holds a secret.
pub fn is_secret_variable(name: &str) -> bool {
    let upper = name.to_uppercase();
    matches_wildcard(SECRET_VARIABLES, &upper) && !matches_wildcard(NOT_SECRET_VARIABLES, &upper)
}

/// Returns whether a variable of this name holds a key or a token, rather than any other secret.
pub fn is_key_variable(name: &str) -> bool {
    is_secret_variable(name) && matches_wildcard(KEY_VARIABLES, &name.to_uppercase())
}

/// Returns whether a variable of this name is passed to commands.
pub(in crate::exec) fn is_passed_variable(name: &str) -> bool {
    matches_wildcard(PASSED_VARIABLES, name) && !is_secret_variable(name)
}

/// Returns the value of a passed variable without credentials; `None` if it is useless without them.
pub(in crate::exec) fn passed_value<'a>(name: &str, value: &'a str) -> Option<Cow<'a, str>> {
    let upper = name.to_uppercase();
    if upper.ends_with("_PROXY") {
        return Some(strip_users(value));
    }
    let is_options =
        upper.ends_with("_OPTS") || upper.ends_with("OPTIONS") || upper.ends_with("FLAGS");
    if is_options && has_secret_option(value) {
        return None;
    }
    (strip_users(value) == value).then_some(Cow::Borrowed(value))
}

/// Returns whether options for a program may contain a secret: an option with the name of a secret has a value, after
/// `=` or `:`, or in the next word.
fn has_secret_option(options: &str) -> bool {
    let mut words = options.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let mut parts = word.rsplit(['=', ':']);
        let last = parts.next().filter(|last| last.starts_with('-') && words.peek().is_some());
        if parts.chain(last).any(is_secret_option) {
            return true;
        }
    }
    false
}

fn is_secret_option(name: &str) -> bool {
    // The name may be in the query of an address, or may be a path rather than a name.
    let name = name.rsplit('/').next().unwrap_or(name);
    let lower = name.to_ascii_lowercase();
    // `MAX_TOKENS` and `tokenizer` are not secret, but `tokenFile` and `AUTH_TOKEN` are.
    let is_token = |(at, token): (usize, &str)| {
        let (before, rest) = name.split_at(at + token.len());
        match before.ends_with(|last: char| last.is_ascii_lowercase()) {
            true => !rest.starts_with(|next: char| next.is_ascii_lowercase()),
            false => !rest.starts_with(|next: char| next.is_ascii_alphabetic()),
        }
    };
    SECRET_OPTIONS.iter().any(|secret| lower.contains(secret))
        || lower.match_indices("token").any(is_token)
}

/// The parts of database addresses that precede a password.
const PASSWORD_SETTINGS: [&str; 3] = ["password=", "passwd=", "pwd="];

/// Returns whether a value is, or contains, an address with a password.
pub fn has_address_password(value: &str) -> bool {
    let lower: String = value.to_lowercase().split_whitespace().collect();
    PASSWORD_SETTINGS.iter().any(|setting| lower.contains(setting)) || strip_users(value) != value
}

/// Returns a text without the user names in its addresses. A user name without a password is kept, except in web
/// addresses, where it may be a token.
fn strip_users(text: &str) -> Cow<'_, str> {
    let mut clean = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        let is_end = |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | ',' | '|');
        let end = after.find(is_end).unwrap_or(after.len());
        let scheme = before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        let kept = match after[..end].rsplit_once('@') {
            Some((user, host)) if user.contains(':') || scheme.starts_with("http") => host,
            _ => &after[..end],
        };
        clean.extend([before, "://", kept]);
        rest = &after[end..];
    }
    if clean.is_empty() {
        // Programs accept a proxy without a scheme as well.
        return match rest.rsplit_once('@') {
            Some((user, host)) if user.contains(':') && !user.contains(['/', ' ']) => {
                Cow::Owned(host.to_owned())
            }
            _ => Cow::Borrowed(text),
        };
    }
    clean.push_str(rest);
    if clean == text { Cow::Borrowed(text) } else { Cow::Owned(clean) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_passwords_are_recognized() {
        for value in [
            "postgres://me:s3cret@db/app",
            "see amqp://a:b@h, or none",
            "https://token@example.org/x",
            "me:s3cret@tcp(db:3306)",
            "host=db user=me password = s3cret",
            "Server=db;Pwd=s3cret",
        ] {
            assert!(has_address_password(value), "{value}");
        }
        for value in ["postgres://me@db/app", "https://example.org/a@b", "a@b", "/usr/bin", ""] {
            assert!(!has_address_password(value), "{value}");
        }
    }

    #[test]
    fn keys_are_distinguished_from_passwords_and_keys_of_tables() {
        for name in ["OPENAI_API_KEY", "GITHUB_TOKEN", "TOKEN", "aws_secret_access_key"] {
            assert!(is_key_variable(name), "{name}");
        }
        for name in ["DB_PASSWORD", "SORT_KEY", "KEYMAP", "TOKENIZERS_PARALLELISM", "SSH_AUTH_SOCK"]
        {
            assert!(!is_key_variable(name), "{name}");
        }
    }

    #[test]
    fn secrets_are_recognized_by_name() {
        let secret = "\
            GH_PAT SENTRY_DSN COOKIE SESSION_COOKIE npm_config__auth NODE_AUTH_TOKEN DB_PASS UV_PUBLISH_PASSWORD \
            MYSQL_PWD COMPOSER_AUTH AWS_SECRET_ACCESS_KEY SSH_AUTH_SOCK SSHPASS PGPASS JWT CI_JOB_JWT_V2 BEARER DSN \
            AZURE_STORAGE_CONNECTION_STRING ConnectionStrings__Main SQLAZURECONNSTR_MAIN STRIPE_SK SLACK_WEBHOOK \
            DISCORD_WEBHOOK_URL KUBE_CONFIG KUBE_CONFIG_DATA KUBECONFIG_BASE64 SERVICE_ACCOUNT_JSON GCP_SA_JSON \
            NETRC_CONTENT OTP npm_config_otp SIGNING_PASSPHRASE AWS_CREDS DEPLOY_SIGNATURE AZURE_STORAGE_SAS \
            MACOS_P12_BASE64 WALLET_MNEMONIC BW_SESSION OP_SESSION_own AUTHORIZATION";
        for name in secret.split_whitespace() {
            assert!(is_secret_variable(name), "{name}");
        }
        let others = "\
            PATH PWD OLDPWD OLD_PWD PATTERN GIT_AUTHOR_NAME GIT_CONFIG_KEY_0 CI_COMMIT_AUTHOR JAVA_HOME OTP_VERSION \
            OTP_RELEASE SSH_ASKPASS GIT_ASKPASS PROXY_BYPASS KUBECONFIG KUBE_CONFIG_PATH KUBE_VERSION NETRC \
            GOOGLE_SERVICE_ACCOUNT SERVICE_ACCOUNT_NAME ENABLE_WEBHOOKS WEBHOOK_PORT XDG_SESSION_ID DESKTOP_SESSION \
            DATABASE_URL SAS_HOME TASK DISK PYTHONHASHSEED RANDOM_SEED CMAKE_BUILD_TYPE PGPASSFILE PASSES SDKROOT \
            GITHUB_SHA CFLAGS MAVEN_OPTS NODE_OPTIONS CARGO_HOME RUSTFLAGS XAUTHORITY CONNECTION_TIMEOUT";
        for name in others.split_whitespace() {
            assert!(!is_secret_variable(name), "{name}");
        }
    }

    #[test]
    fn values_lose_user_names() {
        for (value, clean) in [
            ("http://u:p@proxy.example:8080", "http://proxy.example:8080"),
            ("http://token@proxy.example/", "http://proxy.example/"),
            ("u:p@proxy.example:8080", "proxy.example:8080"),
            ("socks5://proxy.example:1080", "socks5://proxy.example:1080"),
            ("https://a.example,https://u:p@b.example/x", "https://a.example,https://b.example/x"),
            ("http://u:p@x@proxy.example", "http://proxy.example"),
        ] {
            assert_eq!(passed_value("HTTPS_PROXY", value).unwrap(), clean, "{value}");
        }
        assert_eq!(passed_value("PIP_INDEX_URL", "https://u:p@a.example/simple"), None);
        assert_eq!(passed_value("MAVEN_OPTS", "-Xmx1g -Djavax.net.ssl.keyStorePassword=x"), None);
        for options in [
            "--auth-token=x",
            "-a --token x",
            "-DDB_PASSWORD=x -O2",
            "-Dsecret_key_base=x",
            "-DtokenFile=x",
            "-javaagent:a.jar=host=h,token=x",
            "AUTH_TOKEN=x",
            "-Durl=https://h.example/?token=x",
        ] {
            assert_eq!(passed_value("CFLAGS", options), None, "{options}");
        }
        for options in [
            "-DMAX_TOKENS=4096",
            "--require ./tokenizer.js",
            "--require=./secret/token.js",
            "-L/opt/token/lib:/lib -lx",
        ] {
            assert!(passed_value("NODE_OPTIONS", options).is_some(), "{options}");
        }
        assert!(passed_value("MAVEN_OPTS", "-Xmx1g").is_some());
        assert!(passed_value("PATH", "/opt/token/bin:/bin").is_some());
        assert!(passed_value("GIT_AUTHOR_EMAIL", "a@b.example").is_some());
    }
}
