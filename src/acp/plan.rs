//! The plan of the planning agent, in the form that a client shows.

use agent_client_protocol_schema::v1::{Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus};

use crate::view::sanitize;

/// Name of the agent whose answers are plans.
const PLANNER: &str = "plan";

/// Maximum number of entries in a plan.
const MAX_ENTRIES: usize = 100;

/// Length limit of an entry, in characters.
const MAX_ENTRY: usize = 200;

/// Returns the numbered steps of an answer as a plan; `None` if the agent does not plan, or the answer has no steps.
pub(super) fn plan_of(agent: &str, answer: &str) -> Option<Plan> {
    if agent != PLANNER {
        return None;
    }
    let mut is_code = false;
    let mut entries = Vec::new();
    for line in answer.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if let Some(text) = numbered_step(line).filter(|_| !is_code) {
            let text = sanitize::headline(text, MAX_ENTRY);
            let priority = PlanEntryPriority::Medium;
            entries.push(PlanEntry::new(text, priority, PlanEntryStatus::Pending));
        }
    }
    entries.truncate(MAX_ENTRIES);
    (!entries.is_empty()).then(|| Plan::new(entries))
}

/// Returns the text of a line such as `2. Test it`. Lines with a deeper indentation belong to another step.
fn numbered_step(line: &str) -> Option<&str> {
    let line = line.strip_prefix(' ').unwrap_or(line);
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = (1..=3).contains(&(line.len() - rest.len()));
    let text = rest.strip_prefix(['.', ')'])?.strip_prefix(' ')?.trim();
    (is_numbered && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(agent: &str, answer: &str) -> Vec<String> {
        let plan = plan_of(agent, answer);
        plan.into_iter().flat_map(|plan| plan.entries).map(|entry| entry.content).collect()
    }

    #[test]
    fn the_numbered_steps_of_a_plan_are_its_entries() {
        let answer = "The plan:\n1. Read `a`.\n   1. a part\n\n```\n1. code\n```\n 2) Test it\n3.14\n1999. no";
        assert_eq!(entries("plan", answer), ["Read `a`.", "Test it"]);
        assert!(entries("build", answer).is_empty());
        assert_eq!(plan_of("plan", "Nothing to do."), None);
    }
}
