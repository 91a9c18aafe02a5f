//! Batches as jobs of a scheduler. Each part runs `architect batch --shard I/N`; the scheduler decides by the exit code
//! whether to run it again.

mod kubernetes;
mod slurm;

use std::num::NonZeroUsize;

pub use kubernetes::KubernetesJob;
pub use slurm::SlurmScript;

use super::cell::plain_name;
use crate::types::pluralize;
use crate::view::sanitize::{self, is_harmful};

/// A batch for the jobs of a scheduler.
#[derive(Clone, Debug)]
pub struct EmittedBatch {
    /// The name of the batch.
    pub name: String,
    /// The working folder of the commands.
    pub folder: String,
    /// The arguments of `architect batch`.
    pub words: Vec<String>,
    /// Further arguments for the command of a part, besides `--shard`.
    pub part_words: Vec<String>,
    /// The number of cells.
    pub cells: usize,
    /// The number of parts, each on its own node.
    pub nodes: NonZeroUsize,
}

/// The time that a stopped part has to end, in seconds. The scheduler announces the end of a part's time this long
/// before.
const STOP_SECONDS: u32 = 120;

impl EmittedBatch {
    /// Returns the name of the job.
    fn job_name(&self) -> String {
        format!("architect-{}", plain_name(&self.name))
    }
}

/// Returns a line that describes the batch, for a comment.
fn batch_comment(name: &str, cells: usize, parts: usize) -> String {
    let (cells, parts) = (pluralize(cells, "cell", "cells"), pluralize(parts, "part", "parts"));
    format!("{cells} of the batch {}, in {parts}", sanitize::line(name))
}

/// Returns a word for bash, quoted if necessary, on one line.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if !word.contains(is_harmful) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut quoted = "$'".to_owned();
    for c in word.chars() {
        match c {
            '\'' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if is_harmful(c) => c
                .encode_utf8(&mut [0; 4])
                .bytes()
                .for_each(|byte| quoted.push_str(&format!("\\x{byte:02x}"))),
            c => quoted.push(c),
        }
    }
    quoted + "'"
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn bash_reads_a_quoted_word_as_it_was() {
        for word in [
            "",
            "a b",
            "it's",
            "'",
            "\"$(id)\" `id` \\",
            "a\nb\n",
            "~",
            "*",
            "-n",
            "#",
            "!x",
            "ä",
            "a=b c",
            "it's\n$HOME\\ \u{1b}\u{202e}e\r",
        ] {
            let line = format!("printf %s {}", shell_word(word));
            let out = Command::new("bash").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8(out.stdout).unwrap(), word, "{line}");
        }
        assert_eq!(shell_word("--set=limits.max_steps=10"), "--set=limits.max_steps=10");
    }
}
