//! Options of `architect acp`.

use clap::Args;

use super::SettingsArgs;

/// What `--help` shows besides the options.
pub(super) const ACP_HELP: &str = "\
An editor starts this command and speaks the Agent Client Protocol, version 1, with it: JSON lines on standard input and
output; the log is on standard error. The editor names the folder of each session, which has to be an absolute path; the
options of this command and the configuration hold for all of them, as for `architect run`.

The modes of a session are the confirmation modes, and the other agents (plan, review, those of the configuration).
Sessions are stored as those of `architect run`: `architect sessions` lists them, `architect resume` continues them.

docs/editors.md shows how to set it up in Zed, JetBrains IDEs, Neovim and Emacs. Exit codes: 0 when the editor has closed
the input, 141 when it no longer reads, 129, 130, 143 after a signal.";

/// What configures the sessions of an editor.
#[derive(Debug, Args)]
pub(crate) struct AcpArgs {
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    /// Log more; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}
