//! `architect compare`: runs one task in several variants, and chooses the best one.

use std::fs;
use std::path::{Path, PathBuf};

use architect::app::{ProcessEnv, ResolvedModel, open_worktrees};
use architect::config::Config;
use architect::types::{TimeSpan, pluralize};
use architect::view::{in_columns, sanitize};
use architect::workflow::batch::{
    BatchFolder, BatchManifest, BatchReport, BatchTask, BatchVariant, CellRow, ChangeEvaluation,
    Comparison, ComparisonOutcome, ManifestText, TaskOptions, TaskWorkspace, Winner,
    comparison_name,
};
use architect::workspace::worktree::{BRANCH_PREFIX, Worktrees};
use serde_json::{Value, json};

use super::batch::{
    BatchEnd, BatchPlan, VARIANTS_FORM, load_base_config, read_text, refuse, run_cells,
};
use super::worktrees::{MergeReport, merge, short};
use crate::cli::args::{AppliedVariant, BatchArgs, CompareArgs, OutputFormat};
use crate::cli::batch_cells::common_options;
use crate::cli::batch_output::print_batch_result;
use crate::cli::config_options::DEFAULT_AGENT;
use crate::cli::error::CliError;
use crate::cli::task_text;

/// The ID of the task, and the beginning of the names of its branches.
const TASK_ID: &str = "compare";

/// The exit code if variants succeeded, and no change could be evaluated.
const NO_EVALUATION_EXIT_CODE: u8 = 2;

/// The exit code if the winner can't be merged.
const REFUSED_EXIT_CODE: u8 = 1;

/// The folder of all comparisons without `--out`.
const COMPARISONS: &str = ".architect/batch";

pub(crate) fn run(args: CompareArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let CompareArgs { prompt, attempts, checks, setup, evaluator, apply: applied, .. } = args;
    let mut args = BatchArgs {
        tasks: String::new(),
        out: args.out,
        jobs: args.jobs,
        variants: args.variants,
        shard: None,
        retry_failed: args.retry_failed,
        settings: args.settings,
        output: args.output,
    };
    let (config, limits) = load_base_config(&mut args, world)?;
    let timeout = config.settings.limits.timeout;
    let variants = read_variants(&prompt, attempts, &args, timeout, world)?;
    let prompt = task_text::read_task(Some(&prompt), false, timeout)?;
    let worktrees = open_worktrees(world)?;
    let workspace = config.real_workspace();
    let head = worktrees.find_commit(&workspace, None)?;
    worktrees.check_subfolder(&workspace, &head)?;
    if args.variants.is_none() {
        // An impossible run fails here, with the same hints.
        ResolvedModel::from_config(&config, world)?.check(&config, world)?;
    }

    let mut compared = BatchTask {
        id: TASK_ID.to_owned(),
        line: 0,
        prompt,
        workspace: TaskWorkspace::Common,
        options: TaskOptions::default(),
        setup,
        checks,
    };
    let mut common = common_options(&args.settings, workspace.clone(), DEFAULT_AGENT);
    common.others.extend(evaluator.as_ref().map(|model| format!("--judge {model}")));
    let name = comparison_name(&compared, &common);
    let (out, commit) = find_comparison(args.out.as_deref(), &name, head, world);
    let warning = warn_about_changes(&worktrees, &workspace, &commit);
    compared.workspace =
        TaskWorkspace::Repository { folder: workspace, commit: Some(commit.clone()) };
    let files = args.variants.as_ref().map(|path| path.display().to_string());
    let plan = BatchPlan {
        manifest: BatchManifest { tasks: vec![compared], variants },
        problems: Vec::new(),
        common,
        limits,
        name,
        out,
        files: [String::new(), files.unwrap_or_default()],
        warning,
        evaluator,
    };
    let end = run_cells(&args, plan, &config, world)?;
    let BatchEnd { mut report, folder, results_lock, is_stopped } = end;

    let rows = report.results.read_rows()?;
    let comparison = match is_stopped {
        true => Comparison { commit, outcome: ComparisonOutcome::Interrupted },
        false => Comparison::new(commit, &rows),
    };
    let merged = match (comparison.winner(), applied) {
        (Some(winner), Some(AppliedVariant::Winner)) => {
            Some(apply(winner, &comparison.commit, &folder, &worktrees, &config, world))
        }
        (None, _) | (_, None) => None,
    };
    report.exit_code = match &merged {
        Some(Ok(merged)) => merged.exit_code,
        Some(Err(_)) => REFUSED_EXIT_CODE,
        None if comparison.outcome == ComparisonOutcome::NoEvaluation => {
            report.exit_code.max(NO_EVALUATION_EXIT_CODE)
        }
        None => report.exit_code,
    };
    report.comparison = Some(comparison);
    report.write(&folder)?;
    drop(results_lock);
    print_comparison(args.output.format.format(), &report, &rows, merged.as_ref())?;
    if let Some(Err(refused)) = merged {
        refused.print();
    }
    Ok(report.exit_code)
}

/// Returns the variants of the file, or the attempts.
fn read_variants(
    prompt: &str,
    attempts: u16,
    args: &BatchArgs,
    timeout: Option<TimeSpan>,
    world: &ProcessEnv,
) -> Result<Vec<BatchVariant>, CliError> {
    let Some(path) = &args.variants else {
        let attempt = |number: u16| BatchVariant {
            id: format!("attempt-{number}"),
            line: 0,
            prompt: None,
            options: TaskOptions::default(),
        };
        return Ok((1..=attempts).map(attempt).collect());
    };
    let name = path.to_string_lossy();
    if name == "-" && prompt == "-" {
        return Err(CliError::usage("both the task and the variants are read from standard input"));
    }
    let text = read_text(&name, VARIANTS_FORM, timeout)?;
    let text = ManifestText { name: &name, text: &text };
    let (variants, problems) = BatchManifest::parse_variants(text, &world.cwd);
    refuse(&problems).map(|()| variants)
}

/// Returns the folder of a comparison, and the commit at which its variants begin: the one that is checked out. If that
/// commit is the merged winner of an existing comparison, this comparison is returned.
fn find_comparison(
    out: Option<&Path>,
    name: &str,
    head: String,
    world: &ProcessEnv,
) -> (PathBuf, String) {
    let found = |folder: PathBuf| {
        let began_at = BatchFolder::merged_from(&folder, &head)?;
        Some((folder, began_at))
    };
    if let Some(out) = out {
        let out = world.cwd.join(out);
        return found(out.clone()).unwrap_or((out, head));
    }
    let parent = world.cwd.join(COMPARISONS);
    let folders = fs::read_dir(&parent).into_iter().flatten().flatten();
    let mut of_task = folders
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(name))
        .map(|entry| entry.path());
    let new = || parent.join(format!("{name}-{}", short(&head)));
    of_task.find_map(found).unwrap_or_else(|| (new(), head.clone()))
}

/// Returns a warning about the user's changes that the variants don't have.
fn warn_about_changes(worktrees: &Worktrees, workspace: &Path, commit: &str) -> Option<String> {
    // A repository without a work tree has no changes.
    let count = worktrees.count_uncommitted(workspace).ok().filter(|count| *count > 0)?;
    Some(format!(
        "the variants begin at the commit {}, without your uncommitted changes ({})",
        short(commit),
        pluralize(count, "file", "files")
    ))
}

/// Merges the winner.
fn apply(
    winner: &Winner,
    commit: &str,
    folder: &BatchFolder,
    worktrees: &Worktrees,
    config: &Config,
    world: &ProcessEnv,
) -> Result<MergeReport, CliError> {
    let Some(name) = winner.branch.as_deref().and_then(|name| name.strip_prefix(BRANCH_PREFIX))
    else {
        let document = json!({"merged": "nothing"});
        return Ok(MergeReport { document, text: "nothing to merge\n".to_owned(), exit_code: 0 });
    };
    let branch = format!("refs/heads/{BRANCH_PREFIX}{name}");
    if let Ok(tip) = worktrees.find_commit(&config.workspace, Some(&branch))
        && tip != commit
    {
        // This is written before the merge, so that the same command finds the comparison even if it is killed after
        // the merge.
        folder.write_merge(commit, &tip)?;
    }
    let merged = merge(name, worktrees, config, world);
    merged.map_err(|refused| match &winner.patch_file {
        Some(patch) => refused.hint(format!("the changes are in {patch}, for `git apply --3way`")),
        None => refused,
    })
}

/// Prints the comparison in this format.
fn print_comparison(
    format: OutputFormat,
    report: &BatchReport,
    rows: &[CellRow],
    merged: Option<&Result<MergeReport, CliError>>,
) -> Result<u8, CliError> {
    let mut document = report.summary();
    document["results"] = json!(rows);
    document["applied"] = match merged {
        Some(Ok(merged)) => merged.document.clone(),
        Some(Err(_)) | None => Value::Null,
    };
    document["error"] = match merged {
        Some(Err(refused)) => json!(refused.to_result().error),
        Some(Ok(_)) | None => Value::Null,
    };
    print_batch_result(format, document, || {
        let mut text = format_table(rows);
        if let Some(comparison) = &report.comparison {
            text.push_str(&format!("winner: {}\n", sanitize::line(&comparison.winner_text())));
        }
        let winner = report.comparison.as_ref().and_then(Comparison::winner);
        let branch = winner.and_then(|winner| winner.branch.as_deref());
        match (merged, branch.and_then(|name| name.strip_prefix(BRANCH_PREFIX))) {
            (Some(Ok(merged)), _) => text.push_str(&merged.text),
            (None, Some(name)) => {
                text.push_str(&format!("`architect worktrees merge {name}` merges it\n"));
            }
            (Some(Err(_)), _) | (None, None) => {}
        }
        let (cost, folder) = (report.cost_text(), sanitize::line(&report.folder));
        text.push_str(&format!("{cost}; the results and patches are in {folder}"));
        text
    })
}

/// Returns a line for each variant, in columns.
fn format_table(rows: &[CellRow]) -> String {
    let header = ["variant", "status", "checks", "evaluation", "changes", "cost", "time", "branch"];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    table.extend(rows.iter().map(format_row));
    if rows.iter().all(|row| row.change_evaluation.is_none()) {
        table.iter_mut().for_each(|row| drop(row.remove(3)));
    }
    in_columns(&table, |_| false)
}

fn format_row(row: &CellRow) -> Vec<String> {
    let dash = || "-".to_owned();
    let status = match &row.stop_reason {
        Some(reason) if !row.is_success() => format!("{} ({reason})", row.status),
        Some(_) | None => row.status.clone(),
    };
    let checks = match row.checks_passed + row.checks_failed.len() {
        0 => dash(),
        all => format!("{}/{all}", row.checks_passed),
    };
    vec![
        sanitize::line(row.variant.as_deref().unwrap_or_default()).into_owned(),
        status,
        checks,
        row.change_evaluation.as_ref().map_or_else(dash, ChangeEvaluation::text),
        row.changes_text().unwrap_or_else(dash),
        row.cost.map_or_else(dash, |cost| format!("${cost:.6}")),
        if row.is_finished() { format!("{:.1} s", row.duration_seconds) } else { dash() },
        row.branch.clone().unwrap_or_else(dash),
    ]
}
