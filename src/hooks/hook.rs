//! The hook trait, and the matcher that selects the inputs of a hook.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use std::sync::Arc;
use std::time::Duration;

use super::error::HookError;
use super::hook_input::HookInput;
use super::hook_output::HookOutput;
use crate::port::{EffectContext, HookPoint};
use crate::types::{HookFailurePolicy, matches_wildcard};

/// A hook, called at a point of a run.
pub trait Hook: Send + Sync {
    /// Handles an input. When the context is cancelled, it should return soon; the result is then ignored.
    ///
    /// # Errors
    ///
    /// Fails when the hook has no answer.
    fn run(&self, occasion: &HookInput, scope: &EffectContext) -> Result<HookOutput, HookError>;

    /// Returns the time limit of a call, by which the machine extends its own limit.
    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// Functions are hooks.
impl<F> Hook for F
where
    F: Fn(&HookInput, &EffectContext) -> Result<HookOutput, HookError> + Send + Sync,
{
    fn run(&self, occasion: &HookInput, scope: &EffectContext) -> Result<HookOutput, HookError> {
        self(occasion, scope)
    }
}

/// Selects the inputs that a hook is called for.
#[derive(Clone, Debug)]
pub struct HookMatcher {
    /// The name of the hook.
    pub name: Arc<str>,
    /// The point of the run.
    pub point: HookPoint,
    /// A pattern for the names of tools; `None` for all.
    pub tools: Option<String>,
    /// The files; `None` for all.
    pub files: Option<GlobSet>,
    /// The reaction to a failure of the hook.
    pub on_failure: HookFailurePolicy,
}

impl HookMatcher {
    /// Returns a matcher for all inputs at a point.
    pub fn for_point(point: HookPoint, name: &str) -> Self {
        let on_failure = HookFailurePolicy::Ignore;
        Self { name: name.into(), point, tools: None, files: None, on_failure }
    }

    /// Limits the matcher to files, given by patterns as in `.gitignore`; a pattern without `/` matches the file name
    /// alone.
    ///
    /// # Errors
    ///
    /// Fails when a pattern is invalid.
    pub fn with_files<'a>(
        self,
        patterns: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, globset::Error> {
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            set.add(glob(pattern)?);
        }
        let set = set.build()?;
        Ok(Self { files: (!set.is_empty()).then_some(set), ..self })
    }

    pub(super) fn matches_tool(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.is_empty() || matches_wildcard(tools, tool))
    }

    pub(super) fn matches(&self, occasion: &HookInput) -> bool {
        let fits_file = match (&self.files, occasion) {
            (Some(files), HookInput::PostEdit { file, .. }) => files.is_match(file),
            _ => true,
        };
        self.point == occasion.point()
            && occasion.tool_call().is_none_or(|(_, tool)| self.matches_tool(tool))
            && fits_file
    }
}

fn glob(pattern: &str) -> Result<Glob, globset::Error> {
    let anywhere = match pattern.trim_start_matches('/') {
        name if !pattern.contains('/') => format!("**/{name}"),
        path => path.to_owned(),
    };
    GlobBuilder::new(&anywhere).literal_separator(true).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(patterns: &[&str], file: &str) -> bool {
        let place = HookMatcher::for_point(HookPoint::PostEdit, "h")
            .with_files(patterns.iter().copied())
            .unwrap();
        let (call, tool) = ("c".into(), "edit_file".into());
        place.matches(&HookInput::PostEdit { call, tool, file: file.into() })
    }

    #[test]
    fn patterns_with_a_slash_match_paths_and_others_match_names() {
        assert!(fits(&["*.rs"], "src/a.rs") && fits(&["*.rs"], "a.rs") && fits(&[], "x"));
        assert!(fits(&["src/**/*.{js,ts}"], "src/a/b.ts") && fits(&["/src/*.rs"], "src/a.rs"));
        assert!(!fits(&["*.rs"], "a.rst") && !fits(&["src/*.rs"], "src/a/b.rs"));
        assert!(!fits(&["src/*.rs"], "lib/src/a.rs"));
    }

    #[test]
    fn a_matcher_matches_names_of_tools() {
        let place = |tools: &str| {
            let tools = Some(tools.to_owned());
            HookMatcher { tools, ..HookMatcher::for_point(HookPoint::PreToolUse, "h") }
        };
        assert!(place("edit_file|write_*").matches_tool("write_file"));
        assert!(place("").matches_tool("x") && place("*").matches_tool("x"));
        assert!(!place("run_command").matches_tool("read_file"));
    }
}
