//! What a call does, as the policy sees it.

/// What kind of thing a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// It reads.
    Reads,
    /// It changes files of the workspace.
    Changes,
    /// It runs a command.
    Command,
    /// It does what somebody else's tool does; nobody here knows what that is.
    External,
    /// It lets another agent work, each of whose calls is judged by itself.
    Delegates,
}

/// Something that a rule can be about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallTarget {
    /// A file that is read.
    Read(String),
    /// A folder that is listed, or below which is searched.
    Search(String),
    /// A file that is written.
    Write(String),
    /// A command line.
    Command(CommandTarget),
}

/// A command line as rules see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommandTarget {
    /// What the shell gets.
    pub line: String,
    /// The folder in which it runs, relative to the workspace.
    pub folder: String,
    /// The names of the variables that it gets besides the usual ones.
    pub env: Vec<String>,
}
