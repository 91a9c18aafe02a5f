//! Every key, and what a project that nobody trusts yet may do with it.

use crate::model::nearest;

/// A key.
#[derive(Debug)]
pub(super) struct KeySpec {
    /// Its path; `*` stands for a name that the user chooses.
    pub(super) path: &'static str,
    /// What its values are like, as far as layers above each other are concerned.
    pub(super) merge: MergeStrategy,
    /// What an untrusted project may do with it.
    pub(super) untrusted: UntrustedChange,
}

/// How the value of a higher layer goes together with that of a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergeStrategy {
    /// One value; the higher one holds.
    Replace,
    /// A list; the higher one holds.
    ReplaceList,
    /// A list; the layers add up.
    Append,
    /// A list of tables with names; the layers add up, and of two with one name the higher one holds.
    MergeByName,
}

/// What an untrusted project may do with a key: tighten, in the way that fits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UntrustedChange {
    /// Nothing: the key names a program, an address, a file or a model, or there is no stricter value.
    Denied,
    /// Anything: no value is stricter or more dangerous than another.
    Allowed,
    /// Set a lower number, also where none is set.
    Lower,
    /// Set this value.
    Only(bool),
    /// Set a word that stands further ahead here.
    StricterThan(&'static [&'static str]),
    /// Add to the list.
    AddItems,
    /// Leave items of the list out.
    RemoveItems,
}

use MergeStrategy::{Append, MergeByName, Replace, ReplaceList};
use UntrustedChange::{AddItems, Allowed, Denied, Lower, Only, RemoveItems, StricterThan};

const fn key_spec(path: &'static str, shape: MergeStrategy, untrusted: UntrustedChange) -> KeySpec {
    KeySpec { path, merge: shape, untrusted }
}

/// Every key.
pub(super) const KEYS: &[KeySpec] = &[
    key_spec("language", Replace, Allowed),
    key_spec("llm.model", Replace, Denied),
    key_spec("llm.api_base", Replace, Denied),
    key_spec("llm.api_key_env", Replace, Denied),
    key_spec("llm.allow_http", Replace, Only(false)),
    key_spec("llm.timeout", Replace, Lower),
    key_spec("llm.idle_timeout", Replace, Lower),
    key_spec("llm.call_timeout", Replace, Lower),
    key_spec("llm.retries", Replace, Lower),
    key_spec("llm.stream", Replace, Allowed),
    // Without caching the same run costs many times as much.
    key_spec("llm.prompt_caching", Replace, Only(true)),
    key_spec("llm.max_output_tokens", Replace, Lower),
    key_spec("agents.*.description", Replace, Denied),
    key_spec("agents.*.system_prompt", Replace, Denied),
    key_spec("agents.*.allowed_tools", ReplaceList, RemoveItems),
    key_spec(
        "agents.*.confirm_mode",
        Replace,
        StricterThan(&["confirm-all", "confirm-sensitive", "yolo"]),
    ),
    key_spec("agents.*.max_steps", Replace, Lower),
    key_spec("limits.max_steps", Replace, Lower),
    key_spec("limits.timeout", Replace, Lower),
    key_spec("limits.step_timeout", Replace, Lower),
    key_spec("limits.budget_usd", Replace, Lower),
    key_spec("limits.max_tokens", Replace, Lower),
    key_spec("limits.warn_at_usd", Replace, Lower),
    // These trade quality for money, in both directions.
    key_spec("context.max_tool_result_tokens", Replace, Denied),
    key_spec("context.summarize_after_steps", Replace, Denied),
    key_spec("context.keep_recent_steps", Replace, Denied),
    key_spec("context.threshold", Replace, Denied),
    key_spec("context.max_context_tokens", Replace, Lower),
    key_spec("context.parallel_tools", Replace, Only(false)),
    key_spec("commands.enabled", Replace, Only(false)),
    key_spec("commands.default_timeout", Replace, Lower),
    key_spec("commands.max_output_lines", Replace, Lower),
    key_spec("commands.blocked_patterns", Append, AddItems),
    key_spec("commands.safe_commands", Append, Denied),
    key_spec("commands.allowed_only", Replace, Only(true)),
    key_spec("commands.env_exclude", Append, AddItems),
    key_spec("commands.env_include", Append, Denied),
    key_spec("workspace.root", Replace, Denied),
    key_spec("workspace.allow_delete", Replace, Only(false)),
    key_spec("permissions.allow", Append, Denied),
    key_spec("permissions.ask", Append, AddItems),
    key_spec("permissions.deny", Append, AddItems),
    key_spec("permissions.fail_on_denied", Replace, Only(true)),
    key_spec("permissions.examples", Replace, Denied),
    key_spec("sandbox.mode", Replace, StricterThan(&["read-only", "workspace-write", "off"])),
    key_spec("sandbox.network", Replace, StricterThan(&["off", "list", "on"])),
    key_spec("sandbox.allowed_hosts", ReplaceList, RemoveItems),
    key_spec("sandbox.required", Replace, Only(true)),
    key_spec("sandbox.writable", ReplaceList, Denied),
    key_spec("sandbox.readable", ReplaceList, Denied),
    key_spec("sandbox.max_processes", Replace, Lower),
    // Where none is set there is still a limit, which is not known here.
    key_spec("sandbox.max_memory_mb", Replace, Denied),
    key_spec("guardrails.protected_files", Append, AddItems),
    key_spec("guardrails.sensitive_files", Append, AddItems),
    key_spec("guardrails.max_files_modified", Replace, Lower),
    key_spec("guardrails.max_lines_changed", Replace, Lower),
    key_spec("guardrails.max_commands_executed", Replace, Lower),
    key_spec("guardrails.quality_gates", MergeByName, Denied),
    key_spec("indexer.enabled", Replace, Only(false)),
    key_spec("indexer.max_file_size", Replace, Lower),
    key_spec("indexer.exclude", Append, AddItems),
    key_spec("indexer.cache_ttl", Replace, Lower),
    key_spec("mcp.servers", MergeByName, Denied),
    key_spec("hooks.session_start", MergeByName, Denied),
    key_spec("hooks.pre_llm_call", MergeByName, Denied),
    key_spec("hooks.post_llm_call", MergeByName, Denied),
    key_spec("hooks.pre_tool_use", MergeByName, Denied),
    key_spec("hooks.post_tool_use", MergeByName, Denied),
    key_spec("hooks.post_edit", MergeByName, Denied),
    key_spec("hooks.pre_compact", MergeByName, Denied),
    key_spec("hooks.post_compact", MergeByName, Denied),
    key_spec("hooks.stop", MergeByName, Denied),
    key_spec("hooks.session_end", MergeByName, Denied),
    key_spec("hooks.on_error", MergeByName, Denied),
    // More evaluation costs more money, less of it checks less.
    key_spec("evaluation.mode", Replace, Denied),
    key_spec("evaluation.max_retries", Replace, Lower),
    key_spec("evaluation.confidence_threshold", Replace, Denied),
    key_spec("costs.prices_file", Replace, Denied),
    key_spec("costs.unknown_price", Replace, StricterThan(&["refuse", "warn"])),
    key_spec("sessions.dir", Replace, Denied),
    key_spec("sessions.durability", Replace, StricterThan(&["full", "os"])),
    key_spec("sessions.cleanup_after_days", Replace, Denied),
    key_spec("logging.level", Replace, Denied),
    key_spec("logging.file", Replace, Denied),
];

/// What a path names.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyMatch<'a> {
    /// A key.
    Key(&'static KeySpec),
    /// The pair of this name below a key whose names are free.
    Pair(&'static KeySpec, &'a str),
    /// A key of an entry of a list, below the entry's name.
    EntryKey,
}

impl KeySpec {
    /// Returns whether what layers say of it goes together, instead of the highest one taking the place of the others.
    pub(super) fn is_cumulative(&self) -> bool {
        matches!(self.merge, Append | MergeByName)
    }
}

/// The key whose names are free: they are calls, which have dots of their own.
const MAP_KEY: &str = "permissions.examples";

/// Returns what a path names, be it a key, a pair or a key of a list's entry.
pub(super) fn find_match(path: &str) -> Option<KeyMatch<'_>> {
    if let Some(key) = find_key(path) {
        return Some(KeyMatch::Key(key));
    }
    let below = |key: &KeySpec| path.strip_prefix(key.path)?.strip_prefix('.');
    if let Some((key, name)) = find_key(MAP_KEY).and_then(|key| Some((key, below(key)?))) {
        return Some(KeyMatch::Pair(key, name));
    }
    let mut lists = KEYS.iter().filter(|key| key.merge == MergeByName);
    let is_entry = |rest: &str| rest.split('.').count() > 1 && !rest.split('.').any(str::is_empty);
    lists.any(|key| below(key).is_some_and(is_entry)).then_some(KeyMatch::EntryKey)
}

/// Returns the key that a path belongs to.
pub(super) fn find_key(path: &str) -> Option<&'static KeySpec> {
    KEYS.iter().find(|key| matches_pattern(key.path, path))
}

/// Returns whether what is said of a key in one place goes together with what is said of it in another one, instead of
/// taking its place.
pub fn is_cumulative(path: &str) -> bool {
    find_key(path).is_some_and(KeySpec::is_cumulative)
}

/// Returns the whole path of a key that is like this name but belongs to another section.
pub(super) fn suggest_from_other_sections(name: &str) -> Option<String> {
    let last = |key: &'static KeySpec| key.path.rsplit('.').next().unwrap_or_default();
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

fn matches_pattern(pattern: &str, path: &str) -> bool {
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
        assert_eq!(find_key("agents.build.max_steps").unwrap().path, "agents.*.max_steps");
        assert!(find_key("agents.max_steps").is_none());
        assert!(find_key("agents.a.b.max_steps").is_none());
    }

    #[test]
    fn no_key_is_there_twice() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..index].iter().all(|other| other.path != key.path), "{}", key.path);
        }
    }
}
