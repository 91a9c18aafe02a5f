//! Every key, and what a project that nobody trusts yet may do with it.

use crate::model::nearest;

/// A key.
#[derive(Debug)]
pub(super) struct Key {
    /// Its path; `*` stands for a name that the user chooses.
    pub(super) path: &'static str,
    /// What its values are like, as far as layers above each other are concerned.
    pub(super) shape: Shape,
    /// What an untrusted project may do with it.
    pub(super) untrusted: Untrusted,
}

/// How the value of a higher layer goes together with that of a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One value; the higher one holds.
    One,
    /// A list; the higher one holds.
    List,
    /// A list; the layers add up.
    Sum,
    /// A list of tables with names; the layers add up, and of two with one name the higher one holds.
    Named,
}

/// What an untrusted project may do with a key: tighten, in the way that fits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untrusted {
    /// Nothing: the key names a program, an address, a file or a model, or there is no stricter value.
    Nothing,
    /// Anything: no value is stricter or more dangerous than another.
    Anything,
    /// Set a lower number, also where none is set.
    Lower,
    /// Set this value.
    Only(bool),
    /// Set a word that stands further ahead here.
    Ahead(&'static [&'static str]),
    /// Add to the list.
    Add,
    /// Leave items of the list out.
    LeaveOut,
}

use Shape::{List, Named, One, Sum};
use Untrusted::{Add, Ahead, Anything, LeaveOut, Lower, Nothing, Only};

const fn key(path: &'static str, shape: Shape, untrusted: Untrusted) -> Key {
    Key { path, shape, untrusted }
}

/// Every key.
pub(super) const KEYS: &[Key] = &[
    key("language", One, Anything),
    key("llm.model", One, Nothing),
    key("llm.api_base", One, Nothing),
    key("llm.api_key_env", One, Nothing),
    key("llm.allow_http", One, Only(false)),
    key("llm.timeout", One, Lower),
    key("llm.idle_timeout", One, Lower),
    key("llm.call_timeout", One, Lower),
    key("llm.retries", One, Lower),
    key("llm.stream", One, Anything),
    // Without caching the same run costs many times as much.
    key("llm.prompt_caching", One, Only(true)),
    key("llm.max_output_tokens", One, Lower),
    key("agents.*.description", One, Nothing),
    key("agents.*.system_prompt", One, Nothing),
    key("agents.*.allowed_tools", List, LeaveOut),
    key("agents.*.confirm_mode", One, Ahead(&["confirm-all", "confirm-sensitive", "yolo"])),
    key("agents.*.max_steps", One, Lower),
    key("limits.max_steps", One, Lower),
    key("limits.timeout", One, Lower),
    key("limits.step_timeout", One, Lower),
    key("limits.budget_usd", One, Lower),
    key("limits.max_tokens", One, Lower),
    key("limits.warn_at_usd", One, Lower),
    // These trade quality for money, in both directions.
    key("context.max_tool_result_tokens", One, Nothing),
    key("context.summarize_after_steps", One, Nothing),
    key("context.keep_recent_steps", One, Nothing),
    key("context.threshold", One, Nothing),
    key("context.max_context_tokens", One, Lower),
    key("context.parallel_tools", One, Only(false)),
    key("commands.enabled", One, Only(false)),
    key("commands.default_timeout", One, Lower),
    key("commands.max_output_lines", One, Lower),
    key("commands.blocked_patterns", Sum, Add),
    key("commands.safe_commands", Sum, Nothing),
    key("commands.allowed_only", One, Only(true)),
    key("commands.env_exclude", Sum, Add),
    key("commands.env_include", Sum, Nothing),
    key("workspace.root", One, Nothing),
    key("workspace.allow_delete", One, Only(false)),
    key("permissions.allow", Sum, Nothing),
    key("permissions.ask", Sum, Add),
    key("permissions.deny", Sum, Add),
    key("permissions.fail_on_denied", One, Only(true)),
    key("permissions.examples", One, Nothing),
    key("sandbox.mode", One, Ahead(&["read-only", "workspace-write", "off"])),
    key("sandbox.network", One, Ahead(&["off", "list", "on"])),
    key("sandbox.allowed_hosts", List, LeaveOut),
    key("sandbox.required", One, Only(true)),
    key("sandbox.writable", List, Nothing),
    key("sandbox.readable", List, Nothing),
    key("sandbox.max_processes", One, Lower),
    // Where none is set there is still a limit, which is not known here.
    key("sandbox.max_memory_mb", One, Nothing),
    key("guardrails.protected_files", Sum, Add),
    key("guardrails.sensitive_files", Sum, Add),
    key("guardrails.max_files_modified", One, Lower),
    key("guardrails.max_lines_changed", One, Lower),
    key("guardrails.max_commands_executed", One, Lower),
    key("guardrails.quality_gates", Named, Nothing),
    key("indexer.enabled", One, Only(false)),
    key("indexer.max_file_size", One, Lower),
    key("indexer.exclude", Sum, Add),
    key("indexer.cache_ttl", One, Lower),
    key("mcp.servers", Named, Nothing),
    key("hooks.session_start", Named, Nothing),
    key("hooks.pre_llm_call", Named, Nothing),
    key("hooks.post_llm_call", Named, Nothing),
    key("hooks.pre_tool_use", Named, Nothing),
    key("hooks.post_tool_use", Named, Nothing),
    key("hooks.post_edit", Named, Nothing),
    key("hooks.pre_compact", Named, Nothing),
    key("hooks.post_compact", Named, Nothing),
    key("hooks.stop", Named, Nothing),
    key("hooks.session_end", Named, Nothing),
    key("hooks.on_error", Named, Nothing),
    // More evaluation costs more money, less of it checks less.
    key("evaluation.mode", One, Nothing),
    key("evaluation.max_retries", One, Lower),
    key("evaluation.confidence_threshold", One, Nothing),
    key("costs.prices_file", One, Nothing),
    key("costs.unknown_price", One, Ahead(&["refuse", "warn"])),
    key("sessions.dir", One, Nothing),
    key("sessions.durability", One, Ahead(&["full", "os"])),
    key("sessions.cleanup_after_days", One, Nothing),
    key("logging.level", One, Nothing),
    key("logging.file", One, Nothing),
];

/// What a path names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'a> {
    /// A key.
    Key(&'static Key),
    /// The pair of this name below a key whose names are free.
    Pair(&'static Key, &'a str),
    /// A key of an entry of a list, below the entry's name.
    EntryKey,
}

impl Key {
    /// Returns whether what layers say of it goes together, instead of the highest one taking the place of the others.
    pub(super) fn adds_up(&self) -> bool {
        matches!(self.shape, Sum | Named)
    }
}

/// The key whose names are free: they are calls, which have dots of their own.
const PAIRS: &str = "permissions.examples";

/// Returns what a path names, be it a key, a pair or a key of a list's entry.
pub(super) fn find_any(path: &str) -> Option<Found<'_>> {
    if let Some(key) = find(path) {
        return Some(Found::Key(key));
    }
    let below = |key: &Key| path.strip_prefix(key.path)?.strip_prefix('.');
    if let Some((key, name)) = find(PAIRS).and_then(|key| Some((key, below(key)?))) {
        return Some(Found::Pair(key, name));
    }
    let mut lists = KEYS.iter().filter(|key| key.shape == Named);
    let is_entry = |rest: &str| rest.split('.').count() > 1 && !rest.split('.').any(str::is_empty);
    lists.any(|key| below(key).is_some_and(is_entry)).then_some(Found::EntryKey)
}

/// Returns the key that a path belongs to.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| matches(key.path, path))
}

/// Returns whether what is said of a key in one place goes together with what is said of it in another one, instead of
/// taking its place.
pub fn adds_up(path: &str) -> bool {
    find(path).is_some_and(Key::adds_up)
}

/// Returns the whole path of a key that is like this name but belongs to another section.
pub(super) fn elsewhere(name: &str) -> Option<String> {
    let last = |key: &'static Key| key.path.rsplit('.').next().unwrap_or_default();
    let fixed = || KEYS.iter().filter(|key| !key.path.contains('*'));
    let found = nearest(name, fixed().map(last));
    // `budget` stands for `budget_usd`.
    let begins = || {
        fixed()
            .map(last)
            .find(|last| last.strip_prefix(name).is_some_and(|rest| rest.starts_with('_')))
    };
    let found = found.or_else(begins)?;
    fixed().find(|key| last(key) == found).map(|key| key.path.to_owned())
}

fn matches(pattern: &str, path: &str) -> bool {
    let (mut patterns, mut parts) = (pattern.split('.'), path.split('.'));
    loop {
        match (patterns.next(), parts.next()) {
            (None, None) => return true,
            (Some(pattern), Some(part)) if pattern == "*" || pattern == part => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_name() {
        assert_eq!(find("agents.build.max_steps").unwrap().path, "agents.*.max_steps");
        assert!(find("agents.max_steps").is_none());
        assert!(find("agents.a.b.max_steps").is_none());
    }

    #[test]
    fn no_key_is_there_twice() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..index].iter().all(|other| other.path != key.path), "{}", key.path);
        }
    }
}
