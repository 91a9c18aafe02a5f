//! Agents, limits, the context, evaluation, storage and logging.

use std::path::PathBuf;

use log::LevelFilter;

use super::DAY;
use crate::config::key_declaration::{default, optional, section};
use crate::config::key_spec::UntrustedChange::{AddItems, Lower, NarrowPatterns, Only, Stricter};
use crate::config::key_spec::option;
use crate::config::text_types::{ModelName, PathPattern};
use crate::types::{
    ConfirmMode, Durability, Isolation, MicroUsd, TimeSpan, Tokens, WordEnum, word_enum,
};

const MAX_STEPS: u32 = 1_000_000;
const YEAR: TimeSpan = TimeSpan::from_secs(365 * 86_400);
const MAX_BUDGET: MicroUsd = MicroUsd(1_000_000_000_000);
const MAX_TOKENS: Tokens = Tokens(1_000_000_000_000);

section! {
    /// The settings of one agent from all layers.
    #[derive(Default)]
    pub struct AgentConfig {
        /// The purpose of the agent, in one line.
        description: Option<String> = optional().example("\"Writes documentation\""),
        /// The system prompt.
        system_prompt: Option<String> = optional().example("\"You write documentation.\""),
        /// The tools that the agent may use; `*` in a name matches any text.
        allowed_tools: Option<Vec<String>> = optional()
            .untrusted(NarrowPatterns)
            .example("[\"read_file\", \"search_code\", \"write_file\", \"edit_file\"]"),
        /// The tool calls that need the user's confirmation.
        confirm_mode: Option<ConfirmMode> = optional().untrusted(Stricter).example("\"confirm-sensitive\""),
        /// The working folder of a sub-agent that may change files: `worktree` is its own worktree, whose changes are
        /// applied when it ends; `none` is the workspace itself, while no other sub-agent runs; `auto` is a worktree if
        /// several such sub-agents are dispatched at once and the workspace is in a git repository.
        isolation: Option<Isolation> = optional().example("\"worktree\""),
        /// The maximum number of steps (replies whose tool calls run).
        max_steps: Option<u32> = optional().range(0..=MAX_STEPS).untrusted(Lower).example("30"),
    }
}

section! {
    /// Limits of a run. `None` is no limit; zero is a limit.
    pub struct LimitsConfig {
        /// The maximum number of steps (replies whose tool calls run); 0 is a limit.
        max_steps: u32 = default(50)
            .range(0..=MAX_STEPS)
            .untrusted(Lower)
            .option(option("max-steps", "N")),
        /// Seconds for the whole run, the final summary included.
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
        /// The maximum cost of the run, in US dollars.
        budget_usd: Option<MicroUsd> = optional()
            .range(MicroUsd::ZERO..=MAX_BUDGET)
            .untrusted(Lower)
            .example("2.5")
            .option(option("budget", "USD")),
        /// The maximum number of tokens, input and output of all calls together.
        max_tokens: Option<Tokens> = optional()
            .range(Tokens::ZERO..=MAX_TOKENS)
            .untrusted(Lower)
            .example("2000000")
            .option(option("max-tokens", "N")),
        /// The cost at which the log warns, in US dollars.
        warn_at_usd: Option<MicroUsd> = optional()
            .range(MicroUsd::ZERO..=MAX_BUDGET)
            .untrusted(Lower)
            .example("1"),
    }
}

section! {
    /// Limits of the context window, and compaction.
    // An untrusted project must not trade quality for money, in either direction.
    pub struct ContextConfig {
        /// Tokens of a tool result that stay in the context; the model can page through the rest. 0 leaves every result whole.
        max_tool_result_tokens: Tokens = default(Tokens(2_000)).range(Tokens::ZERO..=Tokens(10_000_000)),
        /// The number of exchanges (a reply with its tool results) after which the context may be summarized.
        summarize_after_steps: u32 = default(8).range(0..=MAX_STEPS),
        /// The number of latest exchanges that a summary leaves unchanged.
        keep_recent_steps: u32 = default(4).range(0..=MAX_STEPS),
        /// The size of the context in tokens; by default the context window of the model.
        max_context_tokens: Option<Tokens> = optional()
            .range(Tokens(1_000)..=Tokens(1_000_000_000))
            .untrusted(Lower)
            .example("200000"),
        /// Whether the tool calls of one reply may run at the same time.
        parallel_tools: bool = default(true).untrusted(Only(false)),
        /// The fraction of the context that may be used before it is summarized.
        threshold: f64 = default(0.75).range(0.05..=0.95),
    }
}

section! {
    /// The index of the workspace.
    pub struct IndexerConfig {
        /// Whether the system prompt contains the structure of the project.
        enabled: bool = default(true).untrusted(Only(false)),
        /// The size in bytes above which a file is not read.
        max_file_size: u64 = default(1_000_000).range(0..=1_000_000_000).untrusted(Lower),
        /// Patterns of files to leave out, in addition to .gitignore.
        exclude: Vec<PathPattern> = default(Vec::new()).append().untrusted(AddItems),
        /// Seconds for which the index is cached.
        cache_ttl: TimeSpan = default(TimeSpan::from_secs(300)).range(TimeSpan::ZERO..=DAY).untrusted(Lower),
    }
}

section! {
    /// Skills.
    pub struct SkillsConfig {
        /// More folders whose subfolders are skills, in addition to `.agents/skills`, `.claude/skills` and
        /// `.architect/skills` of the project, `skills` of the configuration folder, `~/.agents/skills` and
        /// `~/.claude/skills`; `*` in a folder name matches any text.
        folders: Vec<PathBuf> = default(Vec::new()).append().example("[\"~/team/*/skills\"]"),
        /// The names of the skills to use; `*` matches any text.
        include: Vec<String> = default(vec!["*".to_owned()]).untrusted(NarrowPatterns),
        /// The names of the skills not to use; `*` matches any text.
        exclude: Vec<String> = default(Vec::new()).append().untrusted(AddItems),
    }
}

section! {
    /// Evaluation of the result by a model.
    // More evaluation costs more money; less evaluation checks less.
    pub struct EvaluationConfig {
        /// Whether a model evaluates the result: "off"; "basic": once; "full": the run continues until the evaluation
        /// passes, at most `max_retries` times. A run whose evaluation fails ends as `evaluation_failed`.
        mode: EvaluationMode = default(EvaluationMode::Off).option(
            option("self-eval", "MODE").help("Have a model evaluate the result: `basic` once, `full` until it passes"),
        ),
        /// The model that evaluates, named as in `llm.model`, which is the default. `llm.effort` does not apply to it.
        model: Option<ModelName> = optional().example("\"anthropic/claude-haiku-4-5\""),
        /// The maximum number of times that a run continues after a failed evaluation.
        max_retries: u32 = default(2).range(0..=20).untrusted(Lower),
        /// The evaluation passes if it finds the task completed with at least this confidence.
        confidence_threshold: f64 = default(0.8).range(0.0..=1.0),
    }
}

word_enum! {
    /// Whether a result is evaluated, and the consequence.
    pub enum EvaluationMode {
        /// Not evaluated.
        Off = "off",
        /// Evaluated; the evaluation is only reported.
        Basic = "basic",
        /// Evaluated; the run continues after a bad result.
        Full = "full",
    }
}

section! {
    /// Stored sessions.
    pub struct SessionsConfig {
        /// The folder of the sessions; by default `~/.local/state/architect/sessions`.
        dir: Option<PathBuf> = optional().example("\"/var/lib/architect\""),
        /// The failure that a stored event survives: "full" a power failure, "os" a crash of the process.
        durability: Durability = default(Durability::Full).untrusted(Stricter),
        /// `architect cleanup` removes sessions that were last written this many days ago.
        cleanup_after_days: u32 = default(7).range(0..=36_500),
    }
}

section! {
    /// Recorded states of the workspace.
    pub struct CheckpointsConfig {
        /// Whether the state of the workspace is recorded before a step changes it, and at the end of a run.
        enabled: bool = default(true),
        /// The size in bytes above which a file is not recorded.
        max_file_size: u64 = default(16 << 20).range(0..=1 << 32),
        /// The maximum size of a session's recorded contents in bytes; further files are not recorded.
        max_total: u64 = default(1 << 30).range(0..=1 << 44),
        /// Nothing is recorded in a workspace with more files than this.
        max_files: u64 = default(200_000).range(0..=100_000_000),
        /// Patterns of files to leave out, as in a .gitignore.
        exclude: Vec<PathPattern> = default(Vec::new()).append(),
        /// Whether folders of dependencies, caches and build outputs are recorded, such as `node_modules` and `target`.
        generated: bool = default(false),
    }
}

section! {
    /// Diagnostic messages, and the file for events.
    pub struct LoggingConfig {
        /// The level of diagnostic messages on standard error.
        level: LevelFilter = default(LevelFilter::Warn).option(option("log-level", "LEVEL").output()),
        /// A file for the events of the run, as JSON lines.
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
