//! Choices that several layers share: the configuration and the command line read them, others act on them.

use super::word_enum;

word_enum! {
    /// When the user is asked before a tool call runs, unless a rule decides.
    #[derive(Default)]
    pub enum ConfirmMode {
        /// Before each call.
        ConfirmAll = "confirm-all",
        /// Before calls that change something.
        #[default]
        ConfirmSensitive = "confirm-sensitive",
        /// Never.
        Yolo = "yolo",
    }
}

word_enum! {
    /// How much a model reasons before it answers.
    pub enum Effort {
        /// Not at all.
        None = "none",
        /// Little.
        Low = "low",
        /// As a compromise between cost and quality.
        Medium = "medium",
        /// Much.
        High = "high",
        /// As much as the model can.
        Max = "max",
    }
}

word_enum! {
    /// The field of a request of Chat Completions that has the maximum number of tokens of the reply.
    pub enum OutputField {
        /// The older one, which most servers have.
        MaxTokens = "max_tokens",
        /// The one that newer models of OpenAI need.
        MaxCompletionTokens = "max_completion_tokens",
    }
}

word_enum! {
    /// Where a dispatched agent works that may change something.
    #[derive(Default)]
    pub enum Isolation {
        /// In a worktree of its own, whose changes are applied to the files of its dispatcher at its end.
        Worktree = "worktree",
        /// The same if others that may change something are dispatched with it and the workspace is in a repository of git;
        /// otherwise in the files of its dispatcher.
        #[default]
        Auto = "auto",
        /// In the files of its dispatcher.
        None = "none",
    }
}

word_enum! {
    /// What happens when a hook fails.
    #[derive(Default)]
    pub enum HookFailurePolicy {
        /// The user is warned, and the run goes on.
        #[default]
        Ignore = "ignore",
        /// The hook counts as having refused.
        Block = "block",
    }
}

word_enum! {
    /// What a stored record survives.
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
