//! `architect batch`: runs many tasks.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use architect::app::{ProcessEnv, RunInterrupts, collect_secrets};
use architect::config::{Config, LimitsConfig, ModelName};
use architect::journal::SessionStore;
use architect::runner::add_receiver;
use architect::types::{Signal, TimeSpan, pluralize};
use architect::view::human::BatchTotals;
use architect::view::{RunResult, sanitize};
use architect::workflow::batch::coordination::{
    CellId, CellOutcome, ChargeLimits, CoordinationError, Coordinator, ReopenAs,
};
use architect::workflow::batch::{
    BatchCell, BatchFileError, BatchFolder, BatchManifest, BatchReport, BatchResults, BatchRun,
    BatchRunError, CellStatus, CommonOptions, ManifestProblem, ManifestText, StoredSessions,
};
use architect::workspace::read_input;

use crate::cli::args::{BatchArgs, OutputFormat};
use crate::cli::batch_cells::{CellOptions, common_options};
use crate::cli::batch_output::{BatchProgress, print_batch_result};
use crate::cli::config_options::{self, DEFAULT_AGENT};
use crate::cli::error::CliError;
use crate::cli::results_folder::check_origin;
use crate::cli::sinks::open_batch_table;
use crate::cli::standard_input::read_stdin;
use crate::cli::{approval, logging, task, worktree_run};

/// The keys whose options limit the whole batch, or the whole loop.
pub(crate) const BATCH_LIMITS: [&str; 3] =
    ["limits.budget_usd", "limits.max_tokens", "limits.timeout"];

/// The exit codes of cells that `--retry-failed` runs again: a failure, a rejected key, and a model call that timed out.
const RETRIED_EXIT_CODES: [u8; 3] = [1, AUTH_EXIT_CODE, 5];

/// The exit code of a run whose key was rejected, and of a batch in which all cells that ran ended so.
const AUTH_EXIT_CODE: u8 = 4;

/// The exit code of a batch in which at least one cell did not succeed.
const PARTIAL_EXIT_CODE: u8 = 2;

/// The name of a manifest from standard input, in messages.
const STDIN_NAME: &str = "standard input";

/// The hint about the form of a file with tasks.
const TASKS_FORM: &str = "the file has a task in each line, as JSON, or [[task]] tables, as TOML";
pub(super) const VARIANTS_FORM: &str =
    "the file has a variant in each line, as JSON, or [[variant]] tables, as TOML";

/// The hint for an unwritable batch folder.
const CONTINUE_HINT: &str = "the same command continues when the folder can be written";

/// The number of lines in which the same mistake is shown separately.
const MAX_ALIKE: usize = 3;

/// The maximum size of a manifest, in bytes.
const MAX_MANIFEST_BYTES: u64 = 1 << 30;

pub(crate) fn run(mut args: BatchArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let format = args.output.format.format();
    let (config, limits) = load_base_config(&mut args, world)?;
    let plan = plan_manifest(&args, &config, limits, world)?;
    let BatchEnd { report, folder, results_lock, .. } = run_cells(&args, plan, &config, world)?;
    report.write(&folder)?;
    drop(results_lock);
    print_batch_result(format, report.summary(), || {
        let folder = sanitize::line(&report.folder);
        format!("{}\n{}; the results are in {folder}", report.totals(), report.cost_text())
    })?;
    Ok(report.exit_code)
}

/// The cells of a batch with their folder and limits.
pub(super) struct BatchPlan {
    pub(super) manifest: BatchManifest,
    /// The problems of the manifest itself.
    pub(super) problems: Vec<ManifestProblem>,
    pub(super) common: CommonOptions,
    /// The limits of all cells together.
    pub(super) limits: LimitsConfig,
    /// The name of the batch, for the report.
    pub(super) name: String,
    /// The folder.
    pub(super) out: PathBuf,
    /// The names of the manifest and of the file of variants, for messages; empty for parts given on the command line.
    pub(super) files: [String; 2],
    /// A warning for the user before cells run.
    pub(super) warning: Option<String>,
    /// The model that evaluates the changes of successful cells.
    pub(super) evaluator: Option<ModelName>,
}

/// The end of a batch.
pub(super) struct BatchEnd {
    /// The report, not written yet.
    pub(super) report: BatchReport,
    pub(super) folder: BatchFolder,
    /// A lock that keeps other processes from writing results until the report is written.
    pub(super) results_lock: Option<File>,
    /// Whether a signal stopped the batch before all cells had succeeded.
    pub(super) is_stopped: bool,
}

/// Returns the plan from the files and options of a command.
pub(super) fn plan_manifest(
    args: &BatchArgs,
    config: &Config,
    limits: LimitsConfig,
    world: &ProcessEnv,
) -> Result<BatchPlan, CliError> {
    let (manifest, problems) = read_manifest(args, config.settings.limits.timeout, world)?;
    Ok(BatchPlan {
        manifest,
        problems,
        common: common_options(&args.settings, config.workspace.clone(), DEFAULT_AGENT),
        limits,
        name: batch_name(args),
        out: out_folder(args, world),
        files: file_names(args),
        warning: None,
        evaluator: None,
    })
}

impl BatchPlan {
    /// Takes the cells out of the manifest. Fails with all mistakes that can be found before a cell begins.
    pub(super) fn take_cells<'a>(
        &mut self,
        args: &'a BatchArgs,
        world: &'a ProcessEnv,
    ) -> Result<(CellOptions<'a>, Vec<BatchCell>), CliError> {
        let cells = BatchCell::all(mem::take(&mut self.manifest), &self.common);
        let options = CellOptions {
            settings: &args.settings,
            world,
            common: self.common.clone(),
            out: self.out.clone(),
            files: self.files.clone(),
            has_budget: self.limits.budget_usd.is_some(),
            table: None,
            evaluator: self.evaluator.clone(),
        };
        let mut problems = mem::take(&mut self.problems);
        problems.append(&mut options.find_problems(&cells));
        let [tasks, _] = &self.files;
        problems.sort_by_key(|problem| (problem.file != *tasks, problem.line));
        refuse(&problems)?;
        Ok((options, cells))
    }
}

/// Runs the cells of a batch, or resumes them, and writes their results.
pub(super) fn run_cells(
    args: &BatchArgs,
    mut plan: BatchPlan,
    config: &Config,
    world: &ProcessEnv,
) -> Result<BatchEnd, CliError> {
    let format = args.output.format.format();
    let (mut options, cells) = plan.take_cells(args, world)?;
    let BatchPlan { limits, name, out, warning, .. } = plan;
    worktree_run::sweep_except(world, Some(&out));

    check_origin(&out, world)?;
    let durability = config.settings.sessions.durability;
    let store = SessionStore::open(&out, durability)
        .map_err(|error| CliError::failed(error).hint("--out names another folder"))?;
    let folder = BatchFolder::create(&out)?;
    let is_own = |index: &usize| args.shard.is_none_or(|shard| shard.has(*index));
    let own: Cow<'_, [BatchCell]> = match args.shard {
        None => Cow::Borrowed(&cells),
        Some(_) => (0..cells.len()).filter(is_own).map(|index| cells[index].clone()).collect(),
    };
    options.warn_about_shared_folders(&own);
    let sessions = StoredSessions { store: store.clone(), folder: folder.clone() };
    let coordinator = open_coordinator(&out, &own, sessions, &limits)?;
    reopen(&coordinator, &folder, &own, args.retry_failed)?;
    let open: Vec<CellId> = own
        .iter()
        .filter(|cell| !is_finished(&coordinator, cell))
        .map(|it| it.id.clone())
        .collect();
    let finished = own.len() - open.len();
    if let Some(warning) = warning.filter(|_| finished < own.len()) {
        log::warn!("{warning}");
    }
    let interrupts = RunInterrupts::default();
    let signals = listen(&interrupts, format)?;
    let lang = config.settings.language;
    let totals = totals_source(&coordinator, own.len(), &limits);
    let table = open_batch_table(&args.output, lang, world, totals)?;
    options.table = table.as_ref().map(|table| table.cells().clone());
    let progress = BatchProgress {
        lang,
        format,
        is_quiet: args.output.quiet,
        is_verbose: args.output.verbose > 0,
        cells: own.len(),
        finished: finished.into(),
        interrupts: interrupts.clone(),
        table,
    };
    progress.begin(&out.display().to_string());
    let timeout = limits.timeout.map(Duration::from);
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let ran = BatchRun {
        folder: &folder,
        store: &store,
        coordinator: &coordinator,
        env: world,
        cells: &own,
        jobs: args.jobs.map_or_else(cores, usize::from),
        interrupts: &interrupts,
        deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
        configurator: &options,
        observer: &progress,
    }
    .run();
    progress.finish();

    // The results are also written after an interrupt or an error, since finished cells stay finished.
    let results_lock = folder.lock_results();
    let spent = coordinator.progress()?.spent.money.as_dollars();
    drop(own);
    let results = BatchResults::write(&folder, &coordinator, cells);
    let (is_over, results) = (ran?, results?);
    let is_success = |index: usize| results.figures[index].status == CellStatus::Success;
    let is_success = (0..results.figures.len()).filter(is_own).all(is_success);
    let stopped_by = interrupts.signal().filter(|_| !is_over).or_else(|| signals.signal());
    let exit_code = match (stopped_by, is_success) {
        (_, true) => 0,
        (Some(signal), false) => signal.exit_code(),
        (None, false) => failure_exit_code(&coordinator, &open),
    };
    if is_over && !is_success {
        log::warn!("the time limit of the batch is reached; the same command continues");
    } else if stopped_by.is_none() {
        warn_about_budget(&coordinator, &open, &limits);
    }
    if !open.is_empty() {
        let own = (0..results.figures.len()).filter(is_own);
        warn_about_denied(own.map(|index| results.figures[index].denied_calls).sum());
    }
    let out = out.display().to_string();
    let report = BatchReport { name, folder: out, results, spent, exit_code, comparison: None };
    let is_stopped = stopped_by.is_some() && !is_success;
    Ok(BatchEnd { report, folder, results_lock, is_stopped })
}

/// Opens what the processes of a batch share. Warns if the file system has no locks that hold on other machines.
fn open_coordinator(
    out: &Path,
    own: &[BatchCell],
    sessions: StoredSessions,
    limits: &LimitsConfig,
) -> Result<Arc<Coordinator>, CliError> {
    let ids: Vec<_> = own.iter().map(|cell| cell.id.clone()).collect();
    let shared = ChargeLimits { money: limits.budget_usd, tokens: limits.max_tokens };
    let coordinator = Coordinator::open(out, &ids, sessions.coordination(shared))?;
    if !coordinator.has_locks() {
        let out = out.display();
        log::warn!(
            "file locks in {out} are local to each machine: no other machine may work on this batch"
        );
    }
    Ok(Arc::new(coordinator))
}

/// Returns the exit code of a batch in which at least one cell did not succeed; `open` are the cells that had to run.
fn failure_exit_code(coordinator: &Coordinator, open: &[CellId]) -> u8 {
    let is_unauthorized = |id| {
        let outcome = coordinator.outcome(id).map(|(outcome, _)| outcome);
        outcome == Some(CellOutcome::Failed(AUTH_EXIT_CODE))
    };
    match !open.is_empty() && open.iter().all(is_unauthorized) {
        true => AUTH_EXIT_CODE,
        false => PARTIAL_EXIT_CODE,
    }
}

/// Warns if the budget of the batch has left cells unfinished; `open` are the cells that had to run.
fn warn_about_budget(coordinator: &Coordinator, open: &[CellId], limits: &LimitsConfig) {
    let is_unfinished = |id: &&CellId| {
        matches!(coordinator.outcome(id), None | Some((CellOutcome::BudgetReached, _)))
    };
    let unfinished = open.iter().filter(is_unfinished).count();
    if unfinished > 0 && (limits.budget_usd.is_some() || limits.max_tokens.is_some()) {
        let cells = pluralize(unfinished, "cell was", "cells were");
        log::warn!(
            "{cells} cut short or not begun: what is left of the budget of the batch covers no further model call; the same \
             command with a larger --budget or --max-tokens continues"
        );
    }
}

fn warn_about_denied(denied: usize) {
    if denied > 0 {
        let calls = pluralize(denied, "call was", "calls were");
        log::warn!(
            "{calls} denied: a batch can't ask for confirmation; --mode yolo or --allow RULE allows such calls"
        );
    }
}

/// Returns a function that returns the present totals of a batch with this number of cells.
fn totals_source(
    coordinator: &Arc<Coordinator>,
    cells: usize,
    limits: &LimitsConfig,
) -> impl Fn() -> Option<BatchTotals> + Send + use<> {
    let (coordinator, timeout) = (Arc::clone(coordinator), limits.timeout);
    let budget = limits.budget_usd;
    move || {
        // The workers report an unreadable log.
        let progress = coordinator.progress().ok()?;
        Some(BatchTotals {
            cells,
            succeeded: progress.succeeded,
            failed: progress.partial + progress.failed,
            running: progress.running,
            spent: progress.spent.money,
            budget,
            tokens: progress.spent.tokens,
            timeout,
        })
    }
}

/// Returns the configuration of the command itself, and the limits of the whole batch. These limits are removed from
/// the options of the cells.
pub(super) fn load_base_config(
    args: &mut BatchArgs,
    world: &ProcessEnv,
) -> Result<(Config, LimitsConfig), CliError> {
    args.settings.keys.overrides.append(&mut args.output.keys.overrides);
    let mut config = config_options::load_settings(&args.settings, world)?;
    while !config.changed.is_empty() {
        approval::ask(&config, world)?;
        config = config_options::load_settings(&args.settings, world)?;
    }
    let secrets = collect_secrets(&config, world);
    logging::configure(args.output.verbose, config.settings.logging.level, secrets);
    let limits = batch_limits(args, &config);
    args.settings.keys.overrides.retain(|set| !BATCH_LIMITS.contains(&set.key));
    Ok((config, limits))
}

/// Returns the limits of the whole batch: those of options. Limits of files and variables apply to each task instead.
fn batch_limits(args: &BatchArgs, config: &Config) -> LimitsConfig {
    let limits = &config.settings.limits;
    let is_given = |key: &str| args.settings.keys.overrides.iter().any(|set| set.key == key);
    LimitsConfig {
        budget_usd: limits.budget_usd.filter(|_| is_given(BATCH_LIMITS[0])),
        max_tokens: limits.max_tokens.filter(|_| is_given(BATCH_LIMITS[1])),
        timeout: limits.timeout.filter(|_| is_given(BATCH_LIMITS[2])),
        ..limits.clone()
    }
}

/// Returns the manifest with its own problems.
pub(super) fn read_manifest(
    args: &BatchArgs,
    timeout: Option<TimeSpan>,
    world: &ProcessEnv,
) -> Result<(BatchManifest, Vec<ManifestProblem>), CliError> {
    let tasks = read_text(&args.tasks, TASKS_FORM, timeout)?;
    let read_variants = |path: &PathBuf| read_text(&path.to_string_lossy(), VARIANTS_FORM, timeout);
    let variants = args.variants.as_ref().map(read_variants);
    let variants = variants.transpose()?;
    let [tasks_name, variants_name] = file_names(args);
    let text = ManifestText { name: &tasks_name, text: &tasks };
    let variants =
        variants.as_ref().map(|variants| ManifestText { name: &variants_name, text: variants });
    Ok(BatchManifest::parse(text, variants, &world.cwd))
}

/// Fails with all mistakes of a manifest, if there are any. A mistake of many lines is shown once, with the first line.
pub(super) fn refuse(problems: &[ManifestProblem]) -> Result<(), CliError> {
    let mut alike: HashMap<(&str, &str), usize> = HashMap::new();
    for problem in problems {
        *alike.entry((&problem.file, &problem.message)).or_default() += 1;
    }
    let mut lines = Vec::new();
    for problem in problems {
        let text = match problem.file.is_empty() {
            true => problem.message.clone(),
            false => problem.to_string(),
        };
        match alike.get_mut(&(&*problem.file, &*problem.message)) {
            Some(0) => {}
            Some(count) if *count > MAX_ALIKE => {
                lines.push(format!("{text} (and so in {} more lines)", *count - 1));
                *count = 0;
            }
            _ => lines.push(text),
        }
    }
    let text = match &lines[..] {
        [] => return Ok(()),
        [problem] => problem.clone(),
        _ => {
            let count = pluralize(lines.len(), "mistake", "mistakes");
            format!("{count}:\n  {}", lines.join("\n  "))
        }
    };
    // Only hints that apply to all problems are shown.
    let hints = problems.first().map(|problem| &problem.hints);
    let hints = hints.filter(|hints| problems.iter().all(|problem| problem.hints == **hints));
    let error = hints.into_iter().flatten().fold(CliError::usage(text), CliError::hint);
    Err(error.hint("nothing was started"))
}

/// Reads a file of tasks or variants; `form` is the hint about the form of such a file. Waits for standard input no
/// longer than `timeout`.
pub(super) fn read_text(
    name: &str,
    form: &str,
    timeout: Option<TimeSpan>,
) -> Result<String, CliError> {
    if name == "-" {
        let text = String::from_utf8(read_stdin(MAX_MANIFEST_BYTES, timeout)?);
        return text.map_err(|_| CliError::usage(format!("{STDIN_NAME} is not UTF-8")).hint(form));
    }
    read_input(Path::new(name)).map_err(|error| CliError::unreadable(name, &error).hint(form))
}

fn file_names(args: &BatchArgs) -> [String; 2] {
    let tasks = if args.tasks == "-" { STDIN_NAME } else { &args.tasks };
    let variants = args.variants.as_ref().map(|path| path.display().to_string());
    [tasks.to_owned(), variants.unwrap_or_default()]
}

/// Returns the name of a batch, from its file.
pub(super) fn batch_name(args: &BatchArgs) -> String {
    let stem = Path::new(&args.tasks).file_stem().filter(|_| args.tasks != "-");
    stem.map_or_else(|| "stdin".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

fn out_folder(args: &BatchArgs, world: &ProcessEnv) -> PathBuf {
    let usual = || Path::new(".architect/batch").join(batch_name(args));
    world.cwd.join(args.out.clone().unwrap_or_else(usual))
}

fn is_finished(coordinator: &Coordinator, cell: &BatchCell) -> bool {
    let outcome = coordinator.outcome(&cell.id).map(|(outcome, _)| outcome);
    outcome.is_some_and(|outcome| outcome != CellOutcome::BudgetReached)
}

/// Reopens cells: cells with a lost result, to restore it from their session, and with `has_retries` also failed cells
/// for which another attempt may help.
fn reopen(
    coordinator: &Coordinator,
    folder: &BatchFolder,
    cells: &[BatchCell],
    has_retries: bool,
) -> Result<(), CliError> {
    for cell in cells {
        let Some((outcome, session)) = coordinator.outcome(&cell.id) else { continue };
        let is_retried =
            matches!(outcome, CellOutcome::Failed(code) if RETRIED_EXIT_CODES.contains(&code));
        if has_retries && is_retried {
            coordinator.reopen(&cell.id, ReopenAs::NewSession)?;
        } else if !folder.has_result(session) {
            log::warn!(
                "the result of {} is lost or damaged; it is restored from its session",
                cell.label()
            );
            coordinator.reopen(&cell.id, ReopenAs::SameSession)?;
        }
    }
    Ok(())
}

/// Stops the runs at the first signal. The returned value provides this signal.
pub(crate) fn listen(
    interrupts: &RunInterrupts,
    format: OutputFormat,
) -> Result<RunInterrupts, CliError> {
    let received = RunInterrupts::default();
    let (stop, note) = (interrupts.clone(), received.clone());
    let on_first = move |signal: Signal| {
        note.interrupt(signal);
        stop.interrupt(signal);
    };
    let on_second = move |signal: Signal| {
        let why = format!("stopped by {} while tasks were still running", signal.name());
        let result = RunResult { exit_code: signal.exit_code(), ..RunResult::not_started(why) };
        task::run_with_timeout(move || {
            logging::end_drawing();
            drop(super::print_result(&result, format));
        });
    };
    add_receiver(on_first, on_second).map_err(CliError::failed)?;
    Ok(received)
}

impl From<CoordinationError> for CliError {
    fn from(error: CoordinationError) -> Self {
        match &error {
            CoordinationError::NoLocks(_) | CoordinationError::LocalLocks(_) => {
                Self::usage(&error).hint("--out names a folder on another file system")
            }
            _ => Self::failed(&error).hint(CONTINUE_HINT),
        }
    }
}

impl From<BatchFileError> for CliError {
    fn from(error: BatchFileError) -> Self {
        Self::failed(&error).hint(CONTINUE_HINT)
    }
}

impl From<BatchRunError> for CliError {
    fn from(error: BatchRunError) -> Self {
        match error {
            BatchRunError::Coordination(error) => error.into(),
            BatchRunError::NotStored { .. }
            | BatchRunError::NoWorker
            | BatchRunError::LostWorker => Self::failed(&error).hint(CONTINUE_HINT),
        }
    }
}
