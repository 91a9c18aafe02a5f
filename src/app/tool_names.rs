//! The names of the tools. A rule or a list with another name would never have an effect, and a rule that denies would be
//! missed only when it is too late.

use super::subagents::DISPATCH;
use crate::model::{did_you_mean, nearest_within};
use crate::tools::descriptions;

/// Letters that a name may differ in and still be meant.
const MAX_DISTANCE: usize = 3;

/// Returns whether this program has a tool of this name, or could have one of a server.
pub(super) fn is_built_in(name: &str) -> bool {
    name.starts_with("mcp_") || names().any(|tool| tool == name)
}

/// Checks the tools that a rule or an entry of a list is about: names with stars, and bars between them.
///
/// # Errors
///
/// Fails with a message about a name that no tool has.
pub(super) fn check_tool_name(entry: &str) -> Result<(), String> {
    let (tools, _) = entry.split_once('(').unwrap_or((entry, ""));
    let is_known = |name: &&str| name.contains('*') || is_built_in(name);
    match tools.split('|').map(str::trim).find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => {
            let meant = nearest_within(name, names(), MAX_DISTANCE);
            Err(format!("there is no tool `{name}`{}", did_you_mean(meant)))
        }
    }
}

/// Returns the names of the tools of this program; those of servers begin with `mcp_`.
fn names() -> impl Iterator<Item = &'static str> {
    descriptions().map(|tool| tool.name).chain([DISPATCH])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_tool_has_is_reported_with_the_nearest_one() {
        for entry in ["run_command(git *)", "write_file", "read_file|grep", "mcp_git_*", "*"] {
            assert_eq!(check_tool_name(entry), Ok(()), "{entry}");
        }
        let wrong = |entry| check_tool_name(entry).unwrap_err();
        assert_eq!(
            wrong("run_comand(*)"),
            "there is no tool `run_comand`, did you mean `run_command`?"
        );
        assert_eq!(wrong("grep|Wirte"), "there is no tool `Wirte`");
    }
}
