//! Commands, the workspace, permissions, confinement and guardrails.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::timeout;
use crate::config::key_declaration::{
    default, given, map, optional, required, section, table_list,
};
use crate::config::key_spec::UntrustedChange::{AddItems, Lower, Only, RemoveItems, Stricter};
use crate::config::key_spec::{option, switch};
use crate::config::text_types::{ConfigName, PathPattern};
use crate::exec::{HostPattern, NetworkAccess, SandboxMode};
use crate::types::{TimeSpan, word_enum};

section! {
    /// Commands that the model runs.
    pub struct CommandsConfig {
        /// Whether commands run at all.
        enabled: bool = default(true)
            .untrusted(Only(false))
            .option(switch("no-commands", "false").help("Don't run commands")),
        /// Seconds for a command that sets no limit of its own.
        default_timeout: TimeSpan = timeout(120),
        /// Lines of output that the model gets; the middle of a longer output is left out.
        max_output_lines: u32 = default(200).range(1..=1_000_000).untrusted(Lower),
        /// Megabytes of a command's output that are stored, and as many of its error output; for a command in the
        /// background, of both together. `read_output` and `command_output` page through them.
        max_stored_output_mb: u32 = default(256).range(1..=65_536).untrusted(Lower),
        /// Commands that never run, as regular expressions.
        blocked_patterns: Vec<String> = default(Vec::new()).append().untrusted(AddItems),
        /// Prefixes of commands that need no confirmation.
        safe_commands: Vec<String> = default(Vec::new()).append(),
        /// Whether only the commands in `safe_commands`, or allowed by a rule, may run.
        allowed_only: bool = default(false).untrusted(Only(true)),
        /// Environment variables that commands don't get; `*` matches any text.
        env_exclude: Vec<String> = default(Vec::new()).append().untrusted(AddItems),
        /// Environment variables that commands get in addition to the usual ones (paths, language, tool chains); `*`
        /// matches any text.
        env_include: Vec<String> = default(Vec::new()).append(),
    }
}

section! {
    /// The folder that the agent works in.
    pub struct WorkspaceConfig {
        /// The folder; by default the current one.
        root: Option<PathBuf> = optional().example("\".\""),
        /// Whether the agent may delete files.
        allow_delete: bool = default(false).untrusted(Only(false)),
    }
}

section! {
    /// Rules for tool calls; deny takes precedence over ask, and ask over allow.
    #[derive(Default)]
    pub struct PermissionsConfig {
        /// Calls that run without confirmation.
        allow: Vec<String> = default(Vec::new())
            .append()
            .option(option("allow", "RULE").help("Allow calls that match a rule, such as `run_command(git *)`")),
        /// Calls that need confirmation in every mode.
        ask: Vec<String> = default(Vec::new()).append().untrusted(AddItems),
        /// Calls that never run.
        deny: Vec<String> = default(Vec::new())
            .append()
            .untrusted(AddItems)
            .option(option("deny", "RULE").help("Deny calls that match a rule, such as `write_file(src/**)`")),
        /// Whether a run with a denied call ends as partial (exit code 2) instead of as a success.
        fail_on_denied: bool = default(false)
            .untrusted(Only(true))
            .option(switch("fail-on-denied", "true").help("End as partial (exit code 2) when a tool call was denied")),
        /// Tests of the rules: calls, each with the expected decision; `architect config check` verifies them.
        examples: BTreeMap<String, ExpectedDecision> = map()
            .example("{ \"run_command(git push)\" = \"deny\", \"write_file(src/a.rs)\" = \"allow\" }"),
    }
}

word_enum! {
    /// The expected decision about a call.
    pub enum ExpectedDecision {
        /// The call never runs.
        Deny = "deny",
        /// The user is asked.
        Ask = "ask",
        /// The call runs.
        Allow = "allow",
    }
}

section! {
    /// Confinement of commands.
    pub struct SandboxConfig {
        /// The files that commands may write: "read-only", "workspace-write" or "off" for no confinement.
        mode: SandboxMode = default(SandboxMode::WorkspaceWrite)
            .untrusted(Stricter)
            .option(option("sandbox", "MODE").help("How commands are confined")),
        /// The network of commands: "on", "off", or "list" for the hosts in `allowed_hosts` only, through the proxy in
        /// `HTTP_PROXY` and `HTTPS_PROXY`.
        network: NetworkAccess = default(NetworkAccess::On).untrusted(Stricter).option(
            option("network", "ACCESS")
                .help("Whether commands may use the network; with `list`, the hosts in `sandbox.allowed_hosts`"),
        ),
        /// Hosts that commands may reach with network = "list", such as "packages.example.com" or "*.example.org",
        /// optionally with ":PORT".
        allowed_hosts: Vec<HostPattern> = default(Vec::new()).untrusted(RemoveItems),
        /// Whether a run fails (exit code 3) if commands can't be confined as configured.
        required: bool = default(false).untrusted(Only(true)),
        /// Folders outside the workspace that commands may write to; missing ones are created. Package managers need
        /// none: they have private caches, and can read yours.
        writable: Vec<PathBuf> = default(Vec::new()),
        /// Secrets that commands may read, such as "~/.ssh" for git over SSH. All others are hidden: keys, tokens,
        /// browser profiles.
        readable: Vec<PathBuf> = default(Vec::new()),
        /// Processes and threads that a command may have at the same time.
        max_processes: u64 = default(4096).range(16..=4_000_000).untrusted(Lower),
        /// Megabytes of memory for all processes of a command; by default three quarters of the machine's memory.
        // The default depends on the machine and is not known here, so an untrusted project can't lower it.
        max_memory_mb: Option<u64> = optional().range(16..=100_000_000).example("16000"),
    }
}

section! {
    /// Limits on changes and commands, and checks of the result.
    pub struct GuardrailsConfig {
        /// Files that are never changed.
        protected_files: Vec<PathPattern> = default(Vec::new()).append().untrusted(AddItems),
        /// Files that are neither read nor changed.
        sensitive_files: Vec<PathPattern> = default(Vec::new()).append().untrusted(AddItems),
        /// The maximum number of files that the tools may change; changes by commands are not counted.
        max_files_modified: Option<u32> = optional().range(0..=1_000_000).untrusted(Lower).example("20"),
        /// The maximum number of lines that the tools may change.
        max_lines_changed: Option<u64> = optional().range(0..=1_000_000_000).untrusted(Lower).example("1000"),
        /// The maximum number of commands that a run may start.
        max_commands_executed: Option<u32> = optional().range(0..=1_000_000).untrusted(Lower).example("100"),
        /// Commands that must succeed before an answer is accepted; the model gets the output of a failed command.
        quality_gates: Vec<QualityGate> = table_list(|name, from| Some(QualityGate::read(name, from)))
            .example("[[guardrails.quality_gates]]\nname = \"tests\"\ncommand = \"make test\"\n"),
    }
}

section! {
    /// A command that must succeed before an answer is accepted.
    pub struct QualityGate(gate: ConfigName) {
        /// The name.
        name: ConfigName = given(gate),
        /// The shell command.
        command: String = required(),
        /// Whether a failure rejects the answer; otherwise it is only reported.
        required: bool = default(true),
        /// Seconds for the command.
        timeout: TimeSpan = timeout(60),
    }
}
