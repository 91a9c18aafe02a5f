//! Options that several layers share: the configuration and the command line read them, other layers use them.

use super::word_enum;

word_enum! {
    /// The tool calls that the user has to confirm, unless a rule decides.
    #[derive(Default)]
    pub enum ConfirmMode {
        /// All calls.
        ConfirmAll = "confirm-all",
        /// Calls that change something.
        #[default]
        ConfirmSensitive = "confirm-sensitive",
        /// No calls.
        Yolo = "yolo",
    }
}

word_enum! {
    /// The amount of reasoning before a model answers.
    pub enum Effort {
        /// No reasoning.
        None = "none",
        /// A little reasoning.
        Low = "low",
        /// A compromise between cost and quality.
        Medium = "medium",
        /// Much reasoning.
        High = "high",
        /// As much as the model can.
        Max = "max",
    }
}

word_enum! {
    /// The field of a Chat Completions request that limits the tokens of the reply.
    pub enum OutputField {
        /// The older field, which most servers support.
        MaxTokens = "max_tokens",
        /// The field that newer models of OpenAI require.
        MaxCompletionTokens = "max_completion_tokens",
    }
}

word_enum! {
    /// The working folder of a dispatched agent that may change files.
    #[derive(Default)]
    pub enum Isolation {
        /// A separate worktree. At the end, its changes are applied to the files of the dispatcher.
        Worktree = "worktree",
        /// A separate worktree if other agents that may change files are dispatched with it and the workspace is in a
        /// git repository; otherwise the files of the dispatcher.
        #[default]
        Auto = "auto",
        /// The files of the dispatcher.
        None = "none",
    }
}

word_enum! {
    /// The reaction to the failure of a hook.
    #[derive(Default)]
    pub enum HookFailurePolicy {
        /// The user is warned, and the run goes on.
        #[default]
        Ignore = "ignore",
        /// The failure counts as a refusal by the hook.
        Block = "block",
    }
}

word_enum! {
    /// The failures that a stored record survives.
    #[derive(Default)]
    pub enum Durability {
        /// A power cut: records are synced before the effects that depend on them.
        #[default]
        Full = "full",
        /// The end of the process only, `kill -9` included.
        Os = "os",
    }
}

word_enum! {
    /// The language of the human log.
    #[derive(Default)]
    pub enum Language {
        /// English.
        #[default]
        En = "en",
        /// Spanish.
        Es = "es",
    }
}
