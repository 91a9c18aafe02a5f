//! Running a task, and reporting its result.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use architect::app::{
    CommitWatch, ProcessEnv, RunIo, RunRequest, RunSetup, collect_secrets, recorded_step_changes,
    start_telemetry,
};
use architect::config::{Config, LayerRank};
use architect::journal::{JournalEnd, JournalEndKind, SessionHistory, SessionId, SessionStore};
use architect::machine::{CloseReason, RunStatus, StopReason};
use architect::types::{Signal, TimeSpan, pluralize};
use architect::view::report::{ReportFormat, RunReport};
use architect::view::{
    CostSource, OutputError, Reporter, RunInfo, RunResult, append, is_standard_stream, sanitize,
    save,
};
use architect::workflow::batch::emit::shell_word;
use architect::workflow::engine::counted_result;
use architect::workflow::{EvaluatedRuns, RetryContext, evaluate, plan_first};
use architect::workspace::{IoError, resolve_inside};
use rustix::fs::{Access, access};

use super::args::{OutputArgs, OutputFormat};
use super::confirm::confirmation_port;
use super::error::CliError;
use super::output;
use super::sinks::{self, Sinks};
use super::worktree_run::{self, WorktreeRun};

/// The mode of running a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunMode {
    /// The task is run at once.
    Direct,
    /// A plan is made first.
    PlanFirst,
}

/// A task to run.
pub(crate) struct TaskRun<'a> {
    pub(crate) request: RunRequest,
    pub(crate) mode: RunMode,
    /// The evaluations of the session's earlier answers, whose costs are part of the session's costs.
    pub(crate) evaluations: &'a [SessionHistory],
}

/// Runs a task, reports the result, and returns the exit code.
///
/// # Errors
///
/// Fails if the run could not begin, or its result could not be written.
pub(crate) fn run(
    setup: &RunSetup,
    task: TaskRun<'_>,
    args: &OutputArgs,
    worktree: Option<&WorktreeRun>,
) -> Result<u8, CliError> {
    let TaskRun { request, mode, evaluations } = task;
    let plan = plan_outputs(setup, args)?;
    let Sinks { reporter: show, prompt } = sinks::open_sinks(args, &setup.config, &setup.env)?;
    if worktree.is_some() {
        worktree_run::warn_if_unconfined(&setup.sandbox)?;
    }
    let mut sandbox: Option<Arc<str>> = None;
    if args.verbose > 0 {
        let enforced = setup.sandbox.describe()?;
        log::info!("commands are {enforced}");
        sandbox = Some(enforced.into());
    }
    let io = RunIo {
        reporter: show.clone(),
        confirm: confirmation_port(prompt, args.format.asked().is_none()),
        sandbox,
    };
    let store = request.target.store().cloned();
    let about = RunInfo { sandbox: io.sandbox.clone(), ..setup.run_info(&request) };
    start_telemetry(&setup.env, &about, &show);
    let commits = CommitWatch::begin(&setup.sandbox);
    let done = run_workflow(setup, request, mode, &io)?;
    if let Some(notice) = commits.and_then(|commits| commits.notice()) {
        log::warn!("{notice}");
    }
    let mut results = show.results(StopReason::InternalError, "the run broke down");
    results.extend(evaluations.iter().map(|it| counted_result(it, CostSource::Eval, &about)));
    let result = done.result(&results, &about);
    let (Some(mut result), Some(ended)) = (result, done.runs.get(done.answer_run)) else {
        return Err(CliError::failed("the run left no result"));
    };
    if let (Some(evaluation), Some(_)) = (&done.evaluation, done.stop_reason_override) {
        // The issues were written by a model; quoting makes them harmless for a terminal.
        let issues = &evaluation.issues;
        match evaluation.completed {
            true => log::warn!(
                "the evaluation finds the task completed, but with a confidence of {:.2}, below \
                 evaluation.confidence_threshold ({:.2}): {issues:?}",
                evaluation.confidence,
                setup.config.settings.evaluation.confidence_threshold,
            ),
            false => log::warn!("the evaluation finds the task not completed: {issues:?}"),
        }
    }
    result.worktree = worktree.and_then(WorktreeRun::result);
    let can_resume =
        store.as_ref().is_some_and(|store| is_resumable(store, &result, ended.session));
    let is_removed = result.worktree.as_ref().is_some_and(|worktree| !worktree.kept);
    if can_resume && !is_removed && result.status != RunStatus::Success {
        result.resume_command = resume_command(&result, &setup.config).map(Into::into);
    }
    let about = RunInfo { session_id: ended.session.to_string().into(), ..about };
    let changes = match (&plan, &store) {
        (Some(_), Some(store)) => recorded_step_changes(store, ended.session)?,
        (None, _) | (_, None) => Vec::new(),
    };
    let report = RunReport { info: &about, result: &result, changes: &changes };
    let timeout = ended.deadline.remaining();
    report_result(setup, args, plan.as_ref(), &report, &show, timeout)
}

/// Checks that the outputs of a run can be written, before money is spent. Returns the requested report.
///
/// # Errors
///
/// Fails if an output can't be written.
pub(crate) fn plan_outputs(
    setup: &RunSetup,
    args: &OutputArgs,
) -> Result<Option<ReportPlan>, CliError> {
    for path in output_file(args).into_iter().chain(args.report_file.as_deref()) {
        check_writable(&setup.config.workspace, path)?;
    }
    ReportPlan::from_args(args, &setup.env)
}

/// Writes the result of one or several runs to all requested outputs. Returns the exit code.
///
/// # Errors
///
/// Fails if an output can't be written.
pub(crate) fn report_result(
    setup: &RunSetup,
    args: &OutputArgs,
    plan: Option<&ReportPlan>,
    report: &RunReport<'_>,
    show: &Reporter,
    timeout: Option<Duration>,
) -> Result<u8, CliError> {
    let result = report.result.clone();
    let saved = write_files(args, plan, report, setup);
    // There is only one result document, and it must have the exit code of the process.
    let unsaved = saved.err().map(|error| CliError::failed(error).with_result(result.clone()));
    let result = unsaved.as_ref().map_or(result, CliError::to_result);
    let timeout = timeout.map(|left| left + OUTPUT_OVERTIME);
    match show.finish(&result, timeout) {
        Ok(()) => {}
        Err(OutputError::ReaderGone) => return Ok(Signal::Pipe.exit_code()),
        Err(OutputError::Stalled) => {
            run_with_timeout(|| output::print_stderr(&format!("error: {}", OutputError::Stalled)));
            let code = show.signal().map(Signal::exit_code);
            return Ok(code.unwrap_or(result.exit_code).max(FAILED_EXIT_CODE));
        }
        Err(OutputError::HungUp) if output::is_stdout_device() => {
            return Ok(Signal::Hangup.exit_code());
        }
        Err(lost) => {
            let failure = CliError::failed(lost);
            let failure = unwritten_result_hints(&result).into_iter().fold(failure, CliError::hint);
            return Err(failure.with_result(result));
        }
    }
    if let Some(failure) = unsaved {
        failure.print();
    }
    Ok(result.exit_code)
}

/// Returns hints about a run whose result could not be written.
fn unwritten_result_hints(result: &RunResult) -> Vec<String> {
    let reason = result.stop_reason.map_or("refused", StopReason::name);
    let cost = result.cost.map_or("unknown".to_owned(), |cost| cost.to_string());
    let steps = pluralize(result.steps, "step", "steps");
    let mut hints = vec![format!("the run itself ended with {reason}: {steps}, cost {cost}")];
    if let Some(session) = &result.session_id {
        hints.push(format!("`architect sessions show {session}` shows session {session}"));
    }
    hints
}

/// The exit code of a run whose result could not be written.
const FAILED_EXIT_CODE: u8 = 1;

/// The time that the output gets beyond the deadline of the run.
const OUTPUT_OVERTIME: Duration = Duration::from_millis(500);

/// Runs an output to a reader that may have stalled, and waits at most [`OUTPUT_OVERTIME`] for it.
pub(crate) fn run_with_timeout(say: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    let saying = thread::Builder::new().name("say".to_owned()).spawn(move || {
        say();
        let _ = sender.send(());
    });
    if saying.is_ok() {
        let _ = receiver.recv_timeout(OUTPUT_OVERTIME);
    }
}

/// Runs the task, with its plan or evaluation.
///
/// # Errors
///
/// Fails if the run could not begin.
pub(crate) fn run_workflow(
    setup: &RunSetup,
    request: RunRequest,
    mode: RunMode,
    io: &RunIo,
) -> Result<EvaluatedRuns, CliError> {
    let task = request.task.clone().unwrap_or_default();
    let store = request.target.store().cloned();
    let (options, exit_on_partial) = (request.options.clone(), request.exit_on_partial);
    let retry = RetryContext { store, options, exit_on_partial };
    let runs = match mode {
        RunMode::Direct => vec![setup.run(request, io.clone())?],
        RunMode::PlanFirst => plan_first(setup, request, io)?,
    };
    Ok(evaluate(setup, &task, runs, &retry, io))
}

/// Returns whether the session can be resumed. Only after a failure of the store is this uncertain, and the session is
/// read.
fn is_resumable(store: &SessionStore, result: &RunResult, session: SessionId) -> bool {
    let is_kept =
        |(_, end): (SessionHistory, JournalEnd)| !matches!(end.kind, JournalEndKind::ReadOnly(_));
    result.stop_reason != Some(StopReason::StoreError) || store.load(session).is_ok_and(is_kept)
}

/// Returns the command that resumes a session whose run ended early. The limits of money and tokens are totals of the
/// session, so a run that has used them up needs higher ones; the limits of steps and time start again.
fn resume_command(result: &RunResult, config: &Config) -> Option<String> {
    let mut command = format!("architect resume {}", result.session_id.as_deref()?);
    // Without `--set`, commands find the store only by its default, the user's configuration or a variable.
    let rank = config.origin("sessions.dir").rank;
    if let Some(dir) = &config.settings.sessions.dir
        && !matches!(rank, LayerRank::Default | LayerRank::User | LayerRank::Variable)
    {
        let set = format!("sessions.dir={}", dir.display());
        command.push_str(&format!(" --set {}", shell_word(&set)));
    }
    let limits = &config.settings.limits;
    if result.stop_reason == Some(StopReason::Closed(CloseReason::BudgetExceeded)) {
        // A budget that did not cover a call of the agent would not cover one after `resume` either.
        let is_enough = match result.cost {
            Some(_) => result.costs.by_source.contains_key(&CostSource::Agent),
            // Of several calls, at least one was not for the final summary.
            None => result.llm_calls > 1,
        };
        if let Some(budget) = limits.budget_usd {
            let total = budget + result.cost.unwrap_or_default();
            let total = if is_enough { total.as_dollars().to_string() } else { "USD".to_owned() };
            command.push_str(&format!(" --budget {total}"));
        }
        if let Some(tokens) = limits.max_tokens {
            let used = result.usage.total();
            let total = if is_enough { (tokens + used).0.to_string() } else { "N".to_owned() };
            command.push_str(&format!(" --max-tokens {total}"));
        }
    }
    // A limit of zero would be zero again.
    let zeros = [
        (limits.max_steps == 0, " --max-steps N"),
        (limits.timeout == Some(TimeSpan::ZERO), " --timeout SECONDS"),
        (limits.step_timeout == Some(TimeSpan::ZERO), " --step-timeout SECONDS"),
    ];
    zeros.iter().filter(|(is_zero, _)| *is_zero).for_each(|(_, option)| command.push_str(option));
    Some(command)
}

/// Returns the file for the answer; `None` for `-`, since standard output has the answer anyway.
fn output_file(args: &OutputArgs) -> Option<&Path> {
    args.output_file.as_deref().filter(|path| !is_dash(path))
}

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes the answer and the report to their files.
fn write_files(
    args: &OutputArgs,
    plan: Option<&ReportPlan>,
    report: &RunReport<'_>,
    setup: &RunSetup,
) -> Result<(), IoError> {
    let (workspace, result) = (&setup.config.workspace, report.result);
    if let Some(path) = output_file(args) {
        let text = match args.format.format() {
            OutputFormat::Text => {
                format!("{}\n", sanitize::for_pipe(result.output.trim_end())).into_bytes()
            }
            OutputFormat::Json | OutputFormat::StreamJson => {
                architect::view::jsonl::to_line(result).unwrap_or_default()
            }
        };
        save(workspace, path, &text)?;
    }
    let Some(ReportPlan { format, path, is_step_summary }) = plan else { return Ok(()) };
    let text = report.render(*format);
    let text = collect_secrets(&setup.config, &setup.env).mask_all(&text);
    match path {
        Some(path) if *is_step_summary => append(path, text.as_bytes())?,
        Some(path) => save(workspace, path, text.as_bytes())?,
        // Standard output has the answer.
        None => output::print_stderr(&text),
    }
    Ok(())
}

/// The requested report.
pub(crate) struct ReportPlan {
    format: ReportFormat,
    path: Option<PathBuf>,
    /// Whether the report is appended to the summary of a GitHub job, after the output of other steps.
    is_step_summary: bool,
}

impl ReportPlan {
    /// Returns the report that the options request. Its path is the given file, or for the GitHub format the summary of
    /// the step.
    pub(crate) fn from_args(
        args: &OutputArgs,
        world: &ProcessEnv,
    ) -> Result<Option<Self>, CliError> {
        let summary = world.variable("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty());
        let path = match (&args.report_file, args.report) {
            (None, Some(ReportFormat::Github)) => summary.map(PathBuf::from),
            (path, _) => path.clone(),
        };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let target = path.as_deref().map(real);
        let is_step_summary = target.is_some() && target == summary.map(Path::new).map(real);
        let format = match (args.report, &path) {
            (Some(format), _) => format,
            (None, Some(_)) if is_step_summary => ReportFormat::Github,
            (None, Some(path)) => ReportFormat::from_path(path).ok_or_else(|| {
                CliError::usage(format!("unknown report format: {}", path.display()))
                    .hint("use the extension .json, .md or .html, or give --report FORMAT")
            })?,
            (None, None) => return Ok(None),
        };
        Ok(Some(Self { format, path, is_step_summary }))
    }
}

/// Checks that a file can be written, as far as that is known in advance.
fn check_writable(workspace: &Path, path: &Path) -> Result<(), CliError> {
    if is_dash(path) {
        return Err(CliError::usage("standard output has the answer, and no report")
            .hint("nothing was run; without --report-file, the report goes to standard error")
            .hint("./- is a file of that name"));
    }
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let failed = |why: String| {
        CliError::usage(format!("could not write {}: {why}", path.display()))
            .hint("nothing was run; name another file")
    };
    if !is_standard_stream(&path)
        && let Err(error) = resolve_inside(workspace, &path)
    {
        return Err(failed(error.to_string()));
    }
    match path.symlink_metadata() {
        Ok(_) if path.is_dir() => return Err(failed("it is a folder".to_owned())),
        // Only a write shows that: it may be a link, a device, or standard output.
        Ok(_) => return Ok(()),
        Err(_) => {}
    }
    // Missing folders are created later.
    let folder = path.ancestors().skip(1).find(|folder| folder.symlink_metadata().is_ok());
    let Some(folder) = folder else { return Ok(()) };
    if !folder.is_dir() {
        return Err(failed(format!("{} is not a folder", folder.display())));
    }
    access(folder, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|errno| failed(format!("{}: {}", folder.display(), io::Error::from(errno))))
}
