//! Loop detection: the same turns, repeated.

use serde::{Deserialize, Serialize};

use crate::types::{Digest, ToolCall, ToolResult};

/// The newest turns and their repetitions.
///
/// Turns are compared by their calls (name and canonical arguments) and results. Two patterns are detected: the same turn in
/// a row (A A A), and two alternating turns (A B A B).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TurnRepetition {
    newest: Option<Digest>,
    second: Option<Digest>,
    /// Turns in a row that equal the previous one.
    single: u32,
    /// Turns in a row that equal the one before the previous one, and differ from the previous one.
    double: u32,
}

impl TurnRepetition {
    /// Returns the signature of a turn.
    pub(crate) fn signature<'a>(
        pairs: impl Iterator<Item = (&'a ToolCall, &'a ToolResult)>,
    ) -> Digest {
        pairs.fold(Digest::EMPTY, |digest, (call, result)| {
            digest.with_digest(call.digest).with_digest(result.digest)
        })
    }

    /// Adds a turn.
    pub(crate) fn push(&mut self, turn: Digest) {
        let same = self.newest == Some(turn);
        self.single = if same { self.single + 1 } else { 0 };
        self.double = if !same && self.second == Some(turn) { self.double + 1 } else { 0 };
        self.second = self.newest;
        self.newest = Some(turn);
    }

    /// Returns the number of times that the newest pattern has occurred in a row.
    pub fn count(&self) -> u32 {
        (self.single + 1).max(self.double / 2 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ToolStatus;

    fn times(turns: &str) -> u32 {
        let mut repeats = TurnRepetition::default();
        turns.chars().for_each(|turn| repeats.push(Digest(u64::from(turn))));
        repeats.count()
    }

    #[test]
    fn the_same_turn_in_a_row_counts() {
        assert_eq!([times("A"), times("AA"), times("AAAAA")], [1, 2, 5]);
        assert_eq!(times("AAAB"), 1);
    }

    #[test]
    fn two_turns_that_alternate_count_as_one_pattern() {
        assert_eq!([times("ABAB"), times("ABABAB"), times("ABABABABAB")], [2, 3, 5]);
        assert_eq!(times("ABABC"), 1);
        assert_eq!(times("ABABB"), 2);
    }

    #[test]
    fn a_turn_is_compared_by_calls_and_results() {
        let signature = |arguments, answer| {
            let call = ToolCall::new("1".into(), "tool", arguments);
            let result = ToolResult::new("1".into(), ToolStatus::Ok, answer);
            TurnRepetition::signature([(&call, &result)].into_iter())
        };
        assert_eq!(signature("{}", "a"), signature("{ }", "a"));
        assert_ne!(signature("{}", "a"), signature("{}", "b"));
        assert_ne!(signature("{}", "a"), signature("[]", "a"));
    }
}
