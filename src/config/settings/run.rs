//! Agents, limits, the context, evaluation, and what is stored and logged.

use std::path::PathBuf;

use log::LevelFilter;

use super::DAY;
use crate::config::key_declaration::{default, optional, section};
use crate::config::keys::UntrustedChange::{AddItems, Lower, Only, RemoveItems, Stricter};
use crate::config::keys::option;
use crate::config::text_types::{ModelName, PathPattern};
use crate::model::{
    ConfirmMode, Durability, Isolation, MicroUsd, TimeSpan, Tokens, WordEnum, word_enum,
};

const MAX_STEPS: u32 = 1_000_000;
const YEAR: TimeSpan = TimeSpan::from_secs(365 * 86_400);
const MAX_BUDGET: MicroUsd = MicroUsd(1_000_000_000_000);
const MAX_TOKENS: Tokens = Tokens(1_000_000_000_000);

section! {
    /// What all layers together set for one agent.
    #[derive(Default)]
    pub struct AgentConfig {
        /// What the agent is for, in one line.
        description: Option<String> = optional().example("\"Writes documentation\""),
        /// The system prompt.
        system_prompt: Option<String> = optional().example("\"You write documentation.\""),
        /// The tools that it may use; `*` in a name matches anything.
        allowed_tools: Option<Vec<String>> = optional()
            .untrusted(RemoveItems)
            .example("[\"read_file\", \"search_code\", \"write_file\", \"edit_file\"]"),
        /// When the user is asked before a tool call runs.
        confirm_mode: Option<ConfirmMode> = optional().untrusted(Stricter).example("\"confirm-sensitive\""),
        /// Where it works when it is dispatched and may change something: in a `worktree` of its own, whose changes are applied
        /// at its end; with `none` in the files of its dispatcher, alone. `auto`: in a worktree if others that may change
        /// something are dispatched with it and the workspace is in a repository of git.
        isolation: Option<Isolation> = optional().example("\"worktree\""),
        /// Replies whose tool calls run.
        max_steps: Option<u32> = optional().range(0..=MAX_STEPS).untrusted(Lower).example("30"),
    }
}

section! {
    /// What a run may use. `None` is no limit; zero is a limit.
    pub struct LimitsConfig {
        /// Steps of a run (replies whose tool calls run); 0 is a limit.
        max_steps: u32 = default(50)
            .range(0..=MAX_STEPS)
            .untrusted(Lower)
            .option(option("max-steps", "N")),
        /// Seconds for the whole run, the closing call included.
        timeout: Option<TimeSpan> = optional()
            .range(TimeSpan::ZERO..=YEAR)
            .untrusted(Lower)
            .example("1800")
            .option(option("timeout", "SECONDS")),
        /// Seconds for one model call, its retries included.
        step_timeout: Option<TimeSpan> = optional()
            .range(TimeSpan::ZERO..=YEAR)
            .untrusted(Lower)
            .example("300")
            .option(option("step-timeout", "SECONDS")),
        /// Money that the run may spend, in US dollars.
        budget_usd: Option<MicroUsd> = optional()
            .range(MicroUsd::ZERO..=MAX_BUDGET)
            .untrusted(Lower)
            .example("2.5")
            .option(option("budget", "USD")),
        /// Tokens that the run may use, input and output of all calls together.
        max_tokens: Option<Tokens> = optional()
            .range(Tokens::ZERO..=MAX_TOKENS)
            .untrusted(Lower)
            .example("2000000")
            .option(option("max-tokens", "N")),
        /// Money after which the user is warned, in US dollars.
        warn_at_usd: Option<MicroUsd> = optional()
            .range(MicroUsd::ZERO..=MAX_BUDGET)
            .untrusted(Lower)
            .example("1"),
    }
}

section! {
    /// How full the context may get, and what is done about it.
    // What trades quality for money is not for an untrusted project, in either direction.
    pub struct ContextConfig {
        /// Tokens of a tool result that stay in the context; the model can page through the rest. 0 leaves every result whole.
        max_tool_result_tokens: Tokens = default(Tokens(2_000)).range(Tokens::ZERO..=Tokens(10_000_000)),
        /// Exchanges after which the context may be summarized.
        summarize_after_steps: u32 = default(8).range(0..=MAX_STEPS),
        /// The newest exchanges, which a summary leaves unchanged.
        keep_recent_steps: u32 = default(4).range(0..=MAX_STEPS),
        /// The size of the context in tokens; by default that of the model.
        max_context_tokens: Option<Tokens> = optional()
            .range(Tokens(1_000)..=Tokens(1_000_000_000))
            .untrusted(Lower)
            .example("200000"),
        /// Whether the tool calls of one reply may run at the same time.
        parallel_tools: bool = default(true).untrusted(Only(false)),
        /// The part of the context above which it is summarized.
        threshold: f64 = default(0.75).range(0.05..=0.95),
    }
}

section! {
    /// The index of the workspace.
    pub struct IndexerConfig {
        /// Whether the system prompt contains the structure of the project.
        enabled: bool = default(true).untrusted(Only(false)),
        /// Bytes above which a file is not read.
        max_file_size: u64 = default(1_000_000).range(0..=1_000_000_000).untrusted(Lower),
        /// Patterns of files to leave out, besides those of .gitignore.
        exclude: Vec<PathPattern> = default(Vec::new()).append().untrusted(AddItems),
        /// Seconds for which an index is used again.
        cache_ttl: TimeSpan = default(TimeSpan::from_secs(300)).range(TimeSpan::ZERO..=DAY).untrusted(Lower),
    }
}

section! {
    /// Skills.
    pub struct SkillsConfig {
        /// More folders whose subfolders are skills, besides `.agents/skills`, `.claude/skills` and `.architect/skills` of the
        /// project, `skills` of the configuration folder, `~/.agents/skills` and `~/.claude/skills`; `*` in the name of a folder
        /// matches any text.
        folders: Vec<PathBuf> = default(Vec::new()).append().example("[\"~/team/*/skills\"]"),
        /// The skills that are used, by name; `*` matches any text.
        include: Vec<String> = default(vec!["*".to_owned()]).untrusted(RemoveItems),
        /// The skills that are not used, by name; `*` matches any text.
        exclude: Vec<String> = default(Vec::new()).append().untrusted(AddItems),
    }
}

section! {
    /// Evaluation of the result by a model.
    // More evaluation costs more money, less of it checks less.
    pub struct EvaluationConfig {
        /// Whether a model evaluates the answer: "off", "basic" once, or "full" until it is satisfied, `max_retries` times at
        /// most. A run whose evaluation was not satisfied ends as `evaluation_failed`.
        mode: EvaluationMode = default(EvaluationMode::Off).option(
            option("self-eval", "MODE").help("Have a model evaluate the result: not at all, once, or until it is good"),
        ),
        /// The model that evaluates, named like `llm.model`; by default the same one. `llm.effort` does not apply to it.
        model: Option<ModelName> = optional().example("\"anthropic/claude-haiku-4-5\""),
        /// How often a run continues after an unsatisfied evaluation.
        max_retries: u32 = default(2).range(0..=20).untrusted(Lower),
        /// The evaluation is satisfied if it finds the task completed with at least this confidence.
        confidence_threshold: f64 = default(0.8).range(0.0..=1.0),
    }
}

word_enum! {
    /// Whether a result is evaluated, and what follows.
    pub enum EvaluationMode {
        /// It is not.
        Off = "off",
        /// It is, and the evaluation is reported.
        Basic = "basic",
        /// It is, and the run continues after a bad result.
        Full = "full",
    }
}

section! {
    /// Stored sessions.
    pub struct SessionsConfig {
        /// The folder of the sessions; by default in the state folder.
        dir: Option<PathBuf> = optional().example("\"/var/lib/architect\""),
        /// What a stored event survives: "full" a power cut, "os" the end of the process.
        durability: Durability = default(Durability::Full).untrusted(Stricter),
        /// Days after which `cleanup` removes a session.
        cleanup_after_days: u32 = default(7).range(0..=36_500),
    }
}

section! {
    /// Recorded states of the workspace.
    pub struct CheckpointsConfig {
        /// Whether the state of the workspace is recorded before a step changes it, and at the end of a run.
        enabled: bool = default(true),
        /// Bytes above which a file is left out.
        max_file_size: u64 = default(16 << 20).range(0..=1 << 32),
        /// Bytes that the recorded contents of a session may take; files beyond are left out.
        max_total: u64 = default(1 << 30).range(0..=1 << 44),
        /// Files above which nothing of a workspace is recorded.
        max_files: u64 = default(200_000).range(0..=100_000_000),
        /// Patterns of files to leave out, as in a .gitignore.
        exclude: Vec<PathPattern> = default(Vec::new()).append(),
        /// Whether folders of dependencies, caches and build outputs are recorded, such as `node_modules` and `target`.
        generated: bool = default(false),
    }
}

section! {
    /// The technical log.
    pub struct LoggingConfig {
        /// The level of the technical log.
        level: LevelFilter = default(LevelFilter::Warn).option(option("log-level", "LEVEL").output()),
        /// A file that the events of the run are written to, as JSON lines.
        file: Option<PathBuf> = optional()
            .example("\"architect.log\"")
            .option(option("log-file", "FILE").help("Write the events of the run to a file, as JSON lines").output()),
    }
}

impl WordEnum for LevelFilter {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("off", Self::Off),
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}
