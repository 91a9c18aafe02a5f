//! Options of `architect acp`.

use clap::Args;

use super::SettingsArgs;

/// The end of the help of `acp`.
pub(super) const ACP_HELP: &str = "\
The editor starts this command and uses the Agent Client Protocol, version 1: JSON lines on standard input and output; \
the log goes to standard error. The editor sets the folder of each session, an absolute path. The options of this \
command and the configuration apply to all sessions, as for `architect run`.

The modes of a session are the confirmation modes and the other agents (plan, review, those of the configuration). \
Sessions are stored like those of `architect run`: `architect sessions` lists them, `architect resume` continues them.

docs/editors.md shows how to set it up in Zed, JetBrains IDEs, Neovim and Emacs. Exit codes: 0 when the editor closes \
the input, 141 when it stops reading, 129, 130, 143 after a signal.";

/// Options of an editor's sessions.
#[derive(Debug, Args)]
pub(crate) struct AcpArgs {
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    /// Log more; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}
