//! A batch as a job array of Slurm.

use std::fmt::Write;

use super::{EmittedBatch, STOP_SECONDS, batch_comment, shell_word};

/// A script that submits a batch to Slurm, and that its jobs run.
#[derive(Clone, Debug)]
pub struct SlurmScript {
    /// The batch.
    pub batch: EmittedBatch,
    /// Further options of `sbatch`, such as `--partition=long`, each on one line.
    pub options: Vec<String>,
}

/// Returns an option for an `#SBATCH` line. A value with blanks is quoted, unless the option has quotes.
fn directive(option: &str) -> String {
    let end = option.find(|c: char| c == '=' || c.is_whitespace());
    let (name, value) = option.split_at(end.map_or(option.len(), |end| end + 1));
    let is_word = |c: char| !c.is_whitespace() && c != '#';
    if value.chars().all(is_word) || option.contains(['"', '\'', '\\']) {
        return option.to_owned();
    }
    format!("{name}\"{value}\"")
}

impl SlurmScript {
    /// Returns the text of the script.
    pub fn render(&self) -> String {
        let EmittedBatch { name, folder, words, part_words, cells, nodes } = &self.batch;
        let comment = batch_comment(name, *cells, nodes.get());
        let options = [
            format!("--job-name={}", self.batch.job_name()),
            "--nodes=1".to_owned(),
            "--ntasks=1".to_owned(),
            "--requeue".to_owned(),
            "--open-mode=append".to_owned(),
            format!("--signal=B:USR1@{STOP_SECONDS}"),
        ];
        let options =
            options.iter().chain(&self.options).fold(String::new(), |mut lines, option| {
                let _ = writeln!(lines, "#SBATCH {}", directive(option));
                lines
            });
        let words = words.iter().fold(String::new(), |mut lines, word| {
            let _ = writeln!(lines, "    {}", shell_word(word));
            lines
        });
        let part_words: String =
            part_words.iter().map(|word| format!(" {}", shell_word(word))).collect();
        let folder = shell_word(folder);
        format!(
            r#"#!/bin/bash
# {comment}, and a last job that writes the report:
#
#     bash job.sh
#
# The same again continues: finished cells are skipped, interrupted ones are resumed. All nodes need this folder, with
# file locks that hold. Keys come from the environment of the command above. ARCHITECT names another program.
#
{options}
set -u
parts={nodes}

if [ "${{1:-submit}}" = submit ]; then
    array=$(sbatch --parsable --array="1-$parts" "$0" part) || exit
    last=$(sbatch --parsable --dependency="afterany:${{array%%;*}}" "$0" last) || exit
    echo "submitted: job ${{array%%;*}} for the parts, job ${{last%%;*}} for the report"
    exit
fi

cd -- {folder} || exit
batch=(
    "${{ARCHITECT:-architect}}" batch
{words})
job=$SLURM_JOB_ID
if [ "$1" = part ]; then
    batch+=(--shard "$SLURM_ARRAY_TASK_ID/$parts"{part_words})
    job=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID
fi

# Slurm sends USR1 before the time limit. SIGTERM stops the cells so that they can be resumed; the exit code is 143 then.
# After another SIGTERM, Slurm itself decides whether the job is queued again, as after the failure of a node.
is_time_over=
trap 'is_time_over=yes; kill "$pid" 2>/dev/null && is_stopped=yes' USR1
trap 'kill "$pid" 2>/dev/null && is_stopped=yes' TERM
"${{batch[@]}}" &
pid=$!
while
    is_stopped=
    wait "$pid"
    code=$?
    [ -n "$is_stopped" ]
do :; done

if [ "$code" = 143 ] && [ -n "$is_time_over" ]; then
    scontrol requeue "$job"
fi
exit "$code"
"#
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_blanks_is_one_word() {
        for (option, expected) in [
            ("--time=4:00:00", "--time=4:00:00"),
            ("--requeue", "--requeue"),
            ("--partition long", "--partition long"),
            ("--comment=two words #1", "--comment=\"two words #1\""),
            ("--comment two words", "--comment \"two words\""),
            ("--comment='two words'", "--comment='two words'"),
        ] {
            assert_eq!(directive(option), expected);
        }
    }
}
