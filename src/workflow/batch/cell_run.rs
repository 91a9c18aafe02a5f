//! Running a cell: setup, an ordinary session, checks, patch.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use thiserror::Error;

use super::cell::{BatchCell, plain_name};
use super::coordination::{
    BudgetedModel, CallLimits, CellOutcome, CellPayer, Charge, Coordinator, Lease,
};
use super::folder::{BatchFileError, BatchFolder};
use super::manifest::TaskWorkspace;
use super::results::{CHANGE_EVALUATION, ChangeEvaluation, cell_document, failed_cell};
use crate::app::{
    AppError, ExecutionMode, ProcessEnv, ResolvedModel, RunInterrupts, RunIo, RunRequest, RunSetup,
    SandboxedGit, SessionTarget, collect_secrets, open_worktrees, start_telemetry, worktree_result,
};
use crate::config::{Config, ModelName, run_rules};
use crate::journal::{JournalError, SessionStore};
use crate::machine::{CloseReason, RunStatus, StopReason};
use crate::net::MaskingWriter;
use crate::types::FaultKind;
use crate::view::{
    CostSource, JsonFormat, JsonSink, OptionalSink, ReportSink, Reporter, RunInfo, RunResult,
};
use crate::workflow::command_check::{FinishedCommand, run_check};
use crate::workflow::engine::{SessionRun, StepSetup, WorkflowError};
use crate::workflow::self_eval::{
    Evaluation, RetryContext, change_evaluator, change_message, evaluate,
};
use crate::workspace::worktree::{
    Worktree, WorktreeContent, WorktreeError, WorktreeName, WorktreeRequest, Worktrees,
};
use crate::workspace::{link_target, open_for_append};

/// The configuration of a cell.
pub struct CellConfig {
    /// The configuration. Its workspace is the one named by the task.
    pub config: Config,
    /// The agent.
    pub agent: String,
    /// Whether the run changes files, or only reports the planned changes.
    pub execution: ExecutionMode,
    /// The options to store in the session.
    pub options: Value,
    /// The model that evaluates the changes of a successful cell; `None` without an evaluation.
    pub evaluator: Option<ModelName>,
}

/// Configures cells, in the way the command line configures a run.
pub trait CellConfigurator: Sync {
    /// Returns the configuration of a cell.
    ///
    /// # Errors
    ///
    /// Fails with all problems of the configuration.
    fn configure(&self, cell: &BatchCell) -> Result<CellConfig, AppError>;

    /// Returns the outputs of one of a cell's sessions, besides its result.
    ///
    /// # Errors
    ///
    /// Fails if an output can't be opened.
    fn sinks(
        &self,
        cell: &BatchCell,
        session: CellSession,
        config: &Config,
    ) -> Result<Vec<Box<dyn ReportSink>>, String>;
}

/// The purpose of a cell's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellSession {
    /// The task.
    Task,
    /// The evaluation of the changes.
    Evaluation,
}

/// Returns the log file of the configuration, which gets the events as JSON, if it names one.
///
/// # Errors
///
/// Fails if the file can't be opened.
pub fn log_file_sinks(
    config: &Config,
    env: &ProcessEnv,
    workspace: &Path,
) -> Result<Vec<Box<dyn ReportSink>>, String> {
    let Some(path) = &config.settings.logging.file else { return Ok(Vec::new()) };
    let file = open_for_append(workspace, path)
        .map_err(|error| format!("could not open the log file {}: {error}", path.display()))?;
    let file = MaskingWriter::new(file, collect_secrets(config, env));
    let sink = JsonSink::new(file, JsonFormat::Stream).map_err(|error| error.to_string())?;
    Ok(vec![Box::new(OptionalSink::new(sink, "log file"))])
}

/// Runs cells.
pub(super) struct CellRunner<'a> {
    pub(super) folder: &'a BatchFolder,
    pub(super) store: &'a SessionStore,
    pub(super) coordinator: &'a Arc<Coordinator>,
    pub(super) env: &'a ProcessEnv,
    pub(super) configurator: &'a dyn CellConfigurator,
}

/// The end of a cell's run.
pub(super) enum CellEnd {
    /// The cell ended with this outcome and result.
    Finished(CellOutcome, Value),
    /// The cell was interrupted, and can be resumed.
    Interrupted,
    /// The folder of the batch can't be written, for example because the disk is full. The cell can be resumed.
    NotStored(String),
}

/// The reason why a cell could not be run.
#[derive(Debug, Error)]
enum CellError {
    #[error(transparent)]
    App(#[from] AppError),
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
    #[error(transparent)]
    File(#[from] BatchFileError),
    #[error("{0}")]
    Setup(String),
    #[error("{0}")]
    Broken(String),
}

impl From<WorkflowError> for CellError {
    fn from(error: WorkflowError) -> Self {
        match error {
            WorkflowError::App(error) => Self::App(error),
            error => Self::Broken(error.to_string()),
        }
    }
}

impl CellError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::App(error) if error.is_user_error() => 3,
            Self::Worktree(error) if error.is_user_error() => 3,
            Self::App(_) | Self::Worktree(_) | Self::File(_) | Self::Setup(_) | Self::Broken(_) => {
                1
            }
        }
    }
}

/// Limit of the output that is kept of a failed command, in bytes of the beginning and as many of the end.
const MAX_OUTPUT_BYTES: usize = 2 << 10;

/// The pause before a cell whose session is open in another process is tried again.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// The exit code of a run with partial results.
const PARTIAL_EXIT_CODE: u64 = 2;

/// Key of a stored result whose session can be resumed once the limits of the batch are raised.
const RESUMABLE: &str = "resumable";

impl CellRunner<'_> {
    /// Runs a cell, or resumes it.
    pub(super) fn run(
        &self,
        cell: &BatchCell,
        lease: &Lease,
        interrupts: &RunInterrupts,
    ) -> CellEnd {
        match self.try_run(cell, lease, interrupts) {
            Ok(end) => end,
            Err(CellError::App(AppError::Journal(JournalError::Busy { .. }))) => {
                interrupts.token().wait_for(BUSY_PAUSE);
                CellEnd::Interrupted
            }
            Err(CellError::File(error)) => CellEnd::NotStored(error.to_string()),
            Err(CellError::App(AppError::Journal(error @ JournalError::Io(_)))) => {
                CellEnd::NotStored(error.to_string())
            }
            Err(error) => {
                let exit_code = error.exit_code();
                let session_id = Some(lease.session.to_string().into());
                let result = RunResult::not_started(error.to_string());
                let result = RunResult { session_id, exit_code, ..result };
                let mut document = failed_cell(&result, cell);
                // Keep the cost and the answer of the session.
                if let Some(mut ended) = self.stored_result(lease) {
                    for key in ["status", "stop_reason", "exit_code", "error", "checks"] {
                        ended[key] = document[key].take();
                    }
                    document = ended;
                }
                if let Err(error) = self.folder.write_result(lease.session, &document) {
                    return CellEnd::NotStored(error.to_string());
                }
                CellEnd::Finished(CellOutcome::Failed(exit_code), document)
            }
        }
    }

    /// Returns the stored result of a session that has ended and is not resumable.
    fn stored_result(&self, lease: &Lease) -> Option<Value> {
        let stored = self.folder.read_result(lease.session);
        stored.filter(|result| result.get(RESUMABLE).is_none())
    }

    fn try_run(
        &self,
        cell: &BatchCell,
        lease: &Lease,
        interrupts: &RunInterrupts,
    ) -> Result<CellEnd, CellError> {
        let stored = self.stored_result(lease);
        if let Some(result) = stored.as_ref().filter(|result| result.get("checks").is_some()) {
            return Ok(CellEnd::Finished(outcome_of(result), result.clone()));
        }
        let CellConfig { mut config, agent, execution, options, evaluator } =
            self.configurator.configure(cell)?;
        check_place(&cell.task.workspace)?;
        let content = match &cell.task.workspace {
            TaskWorkspace::Changes(_) => Some(WorktreeContent::Uncommitted),
            TaskWorkspace::Repository { commit, .. } => {
                Some(WorktreeContent::Commit(commit.as_deref()))
            }
            TaskWorkspace::Common | TaskWorkspace::Folder(_) => None,
        };
        // Dropped after `setup`: its commands run in the worktree.
        let place = content.map(|content| self.open_worktree(cell, lease, &config, content));
        let mut place = place.transpose()?;
        let origin = place.as_ref().map(|place| place.worktree.origin().to_owned());
        if let Some(place) = &place {
            config.workspace = place.worktree.workspace();
        }
        let model = ResolvedModel::from_config(&config, self.env)?;
        let mut setup = RunSetup::new(config, self.env.clone(), &agent, model)?;
        (setup.execution, setup.origin) = (execution, origin);
        setup.interrupts = Some(interrupts.clone());
        let payer = self.pay_from_batch(&mut setup, lease);

        match self.set_up(cell, lease, &setup, place.as_ref()) {
            Ok(true) => {}
            Ok(false) => return Ok(CellEnd::Interrupted),
            Err(error) => {
                drop(setup);
                // Files left by a failed setup are not the work of a run, so the worktree is removed with them.
                if let Some(CellWorktree { worktrees, worktree, .. }) = place.take() {
                    worktrees.remove(worktree, true)?;
                }
                return Err(error);
            }
        }
        let mut result = match stored {
            Some(result) => result,
            None => match self.run_session(cell, lease, &setup, options.clone(), &payer)? {
                Some(result) => result,
                None => return Ok(CellEnd::Interrupted),
            },
        };
        if result["stop_reason"] == StopReason::StoreError.name() {
            let why = result["error"].as_str().unwrap_or("the journal could not be kept");
            return Ok(CellEnd::NotStored(why.to_owned()));
        }
        let is_resumable = payer.is_over_budget() && result["stop_reason"] == "budget_exceeded";
        if is_resumable {
            result[RESUMABLE] = json!(true);
        }
        self.folder.write_result(lease.session, &result)?;
        if !is_resumable && !check(cell, &setup, &mut result) {
            return Ok(CellEnd::Interrupted);
        }
        let is_evaluated = execution == ExecutionMode::Real && result["exit_code"] == 0;
        let evaluator = evaluator.filter(|_| is_evaluated && !is_resumable);
        let evaluator = evaluator.map(|model| change_evaluator(&setup, model)).transpose()?;
        drop(setup);
        let mut patch = Vec::new();
        if let Some(place) = &place {
            let file = self.folder.patch(&cell.file_name());
            patch = place.write_patch(self.folder, lease, &file, &mut result)?;
        }
        if let Some(setup) = evaluator {
            let step = StepSetup { setup, options };
            if !self.evaluate_change(cell, lease, step, &patch, &mut result)? {
                return Ok(CellEnd::Interrupted);
            }
        }
        if let Some(place) = place.take() {
            place.finish(&mut result, is_resumable)?;
        }
        if is_resumable {
            result["checks"] = json!([]);
        }
        self.folder.write_result(lease.session, &result)?;
        let outcome = if is_resumable { CellOutcome::BudgetReached } else { outcome_of(&result) };
        Ok(CellEnd::Finished(outcome, result))
    }

    /// Pays the model calls of a run from the budget of the batch.
    fn pay_from_batch(&self, setup: &mut RunSetup, lease: &Lease) -> CellPayer {
        let limits = &setup.model.limits;
        let name = setup.model.name();
        let limits = CallLimits {
            provider: name.split('/').next().unwrap_or_default().into(),
            price: limits.price,
            summary_price: limits.summary_price,
            output: run_rules(&setup.config.settings, &setup.agent, limits, 0).output,
        };
        let payer = CellPayer::new(Arc::clone(self.coordinator), lease.clone(), limits);
        let of_models = payer.clone();
        setup.model = setup.model.clone().wrapped(Arc::new(move |model, limits| {
            let payer = of_models.clone().with_prices(limits.price, limits.summary_price);
            Box::new(BudgetedModel::new(model, payer))
        }));
        payer
    }

    /// Opens the worktree of a cell, or creates it.
    fn open_worktree(
        &self,
        cell: &BatchCell,
        lease: &Lease,
        config: &Config,
        content: WorktreeContent<'_>,
    ) -> Result<CellWorktree, CellError> {
        let worktrees = open_worktrees(self.env)?;
        let session = lease.session.to_string();
        let name = format!("{}-{}", plain_name(&cell.label()), &session[session.len() - 8..]);
        let workspace = config.real_workspace();
        match worktrees.open(&workspace, &name) {
            Ok(worktree) if self.folder.read_setup(lease.session).is_some() => {
                return Ok(CellWorktree { worktrees, worktree, is_new: false });
            }
            // The setup in this worktree was cut off.
            Ok(worktree) => worktrees.remove(worktree, true)?,
            Err(WorktreeError::Unknown(_) | WorktreeError::Removed { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let request =
            WorktreeRequest { workspace: &workspace, name: WorktreeName::Given(&name), content };
        let confined = SandboxedGit { config, env: self.env };
        let mut worktree = worktrees.create(&request, &confined)?;
        worktree.use_for_batch(session, self.folder.path())?;
        Ok(CellWorktree { worktrees, worktree, is_new: true })
    }

    /// Runs the setup of a cell, unless it is done already. Returns `false` if it was interrupted.
    fn set_up(
        &self,
        cell: &BatchCell,
        lease: &Lease,
        setup: &RunSetup,
        place: Option<&CellWorktree>,
    ) -> Result<bool, CellError> {
        let is_new = place.is_some_and(|place| place.is_new);
        if !is_new && self.folder.read_setup(lease.session).is_some() {
            return Ok(true);
        }
        for line in &cell.task.setup {
            let FinishedCommand { line, output, .. } = run_command(setup, line);
            match output {
                Some(Ok(_)) => {}
                Some(Err(why)) => {
                    return Err(CellError::Setup(format!("the setup `{line}` failed: {why}")));
                }
                None => return Ok(false),
            }
        }
        let tree = place.map(|place| place.worktree.snapshot()).transpose()?.flatten();
        self.folder.write_setup(lease.session, tree.as_deref().unwrap_or_default())?;
        Ok(true)
    }

    /// Runs the session of a cell, or resumes it. Returns `None` if it was interrupted.
    fn run_session(
        &self,
        cell: &BatchCell,
        lease: &Lease,
        setup: &RunSetup,
        options: Value,
        payer: &CellPayer,
    ) -> Result<Option<Value>, CellError> {
        let task: Arc<str> = cell.prompt().into();
        let message = Arc::clone(&task);
        let request =
            RunRequest::resume_or_begin(self.store, lease.session, message, options.clone())
                .map_err(AppError::from)?;
        let info = setup.run_info(&request);
        let reporter = self.reporter(cell, CellSession::Task, setup, &info)?;
        let io = RunIo::unattended(reporter.clone());
        let retry =
            RetryContext { store: Some(self.store.clone()), options, exit_on_partial: None };
        let runs = vec![setup.run(request, io.clone())?];
        let done = evaluate(setup, &task, runs, &retry, &io);
        let results = reporter.results(StopReason::InternalError, "the run broke down");
        let lost = || CellError::Broken("the run left no result".to_owned());
        let mut result = done.result(&results, &info).ok_or_else(lost)?;
        // The run counts a call that the budget refused as a failed call.
        if payer.is_over_budget() && result.stop_reason == Some(StopReason::from(FaultKind::Budget))
        {
            let reason = StopReason::Closed(CloseReason::BudgetExceeded);
            (result.status, result.stop_reason) = (reason.status(), Some(reason));
            result.exit_code = info.exit_code(reason);
        }
        let timeout = done.runs.last().and_then(|ended| ended.deadline.remaining());
        finish_output(&reporter, cell, &result, timeout);
        let is_interrupted = matches!(result.stop_reason, Some(StopReason::UserInterrupt(_)));
        Ok((!is_interrupted).then(|| cell_document(&result, cell)))
    }

    /// Returns the reporter of one of a cell's sessions.
    fn reporter(
        &self,
        cell: &BatchCell,
        session: CellSession,
        setup: &RunSetup,
        info: &RunInfo,
    ) -> Result<Reporter, CellError> {
        let sinks = self.configurator.sinks(cell, session, &setup.config);
        let reporter = Reporter::new(sinks.map_err(CellError::Broken)?);
        start_telemetry(&setup.env, info, &reporter);
        Ok(reporter)
    }

    /// Evaluates the changes of a cell, resumes the evaluation, or reads its result. Returns `false` if it was
    /// interrupted.
    fn evaluate_change(
        &self,
        cell: &BatchCell,
        lease: &Lease,
        mut step: StepSetup,
        patch: &[u8],
        result: &mut Value,
    ) -> Result<bool, CellError> {
        let session = self.folder.evaluation_session(lease.session)?;
        self.pay_from_batch(&mut step.setup, lease);
        let limits = &step.setup.model.limits;
        let (has_price, window) = (limits.price.is_some(), limits.window);
        let answer = result["output"].as_str().unwrap_or_default();
        let patch = String::from_utf8_lossy(patch);
        let task: Arc<str> = change_message(&cell.prompt(), &patch, answer, window).into();
        let target = SessionTarget::Ephemeral;
        let request = RunRequest::new(Arc::clone(&task), target, CostSource::Eval);
        let info = step.setup.run_info(&request);
        let reporter = self.reporter(cell, CellSession::Evaluation, &step.setup, &info)?;
        let run = SessionRun {
            setup: &step,
            store: self.store,
            session,
            task,
            earlier_evaluations: Charge::default(),
            known_records: None,
            deadline: None,
        };
        let ran = run.run(&RunIo::unattended(reporter.clone()));
        // There are no results if the evaluation was complete before.
        let results = reporter.results(StopReason::InternalError, "the evaluation broke down");
        if let Some(shown) = results.last() {
            let timeout = step.setup.config.settings.limits.timeout.map(Duration::from);
            finish_output(&reporter, cell, shown, timeout);
        }
        let Some((_, report)) = ran? else { return Ok(false) };
        let (evaluation, error) = match Evaluation::parse(&report.output) {
            Ok(evaluation) => (Some(evaluation), None),
            Err(why) => (None, Some(report.error.unwrap_or(why))),
        };
        let cost = has_price.then(|| report.charge.money.as_dollars());
        result[CHANGE_EVALUATION] =
            json!(ChangeEvaluation { session_id: session.to_string(), cost, evaluation, error });
        Ok(true)
    }
}

/// The worktree of a cell.
struct CellWorktree {
    worktrees: Worktrees,
    worktree: Worktree,
    /// Whether it was created by this run.
    is_new: bool,
}

impl CellWorktree {
    /// Writes the patch of the worktree's changes, and returns it. An empty patch is not written.
    fn write_patch(
        &self,
        folder: &BatchFolder,
        lease: &Lease,
        file: &Path,
        result: &mut Value,
    ) -> Result<Vec<u8>, CellError> {
        let from = folder.read_setup(lease.session).unwrap_or_default();
        let patch = self.worktree.patch_since(&from)?.unwrap_or_default();
        if !patch.is_empty() {
            folder.write(file, &patch)?;
            result["patch_file"] = json!(file);
        }
        Ok(patch)
    }

    /// Adds the worktree to the result and, unless the cell is resumable, finishes it. An unchanged one is removed.
    fn finish(self, result: &mut Value, is_resumable: bool) -> Result<(), CellError> {
        result["worktree"] = json!(worktree_result(&self.worktree));
        if !is_resumable {
            self.worktrees.finish(self.worktree)?;
        }
        Ok(())
    }
}

/// Completes the outputs of one of a cell's sessions.
fn finish_output(
    reporter: &Reporter,
    cell: &BatchCell,
    result: &RunResult,
    timeout: Option<Duration>,
) {
    if let Err(error) = reporter.finish(result, timeout) {
        log::warn!("the output of {} is incomplete: {error}", cell.label());
    }
}

/// Returns the outcome for a result, by its exit code.
fn outcome_of(result: &Value) -> CellOutcome {
    match result["exit_code"].as_u64() {
        Some(0) => CellOutcome::Succeeded,
        Some(PARTIAL_EXIT_CODE) => CellOutcome::Partial,
        code => CellOutcome::Failed(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
    }
}

/// Checks that the folder of a cell is not a link. It was not one at the start, but a command of another cell may have
/// replaced it.
fn check_place(workspace: &TaskWorkspace) -> Result<(), CellError> {
    let folder = match workspace {
        TaskWorkspace::Common | TaskWorkspace::Changes(_) => return Ok(()),
        TaskWorkspace::Folder(folder) | TaskWorkspace::Repository { folder, .. } => folder,
    };
    match link_target(folder) {
        Some(real) => Err(CellError::Broken(format!(
            "the folder {} has become a link to {}, and is not used",
            folder.display(),
            real.display()
        ))),
        None => Ok(()),
    }
}

/// Runs the checks of a cell. A failed check makes a successful result partial. Returns `false` if one was interrupted.
fn check(cell: &BatchCell, setup: &RunSetup, result: &mut Value) -> bool {
    let mut checks = Vec::new();
    let is_failed = result["status"] == json!(RunStatus::Failed);
    let lines = cell.task.checks.iter();
    for line in lines.filter(|_| !is_failed && setup.execution == ExecutionMode::Real) {
        let Some(check) = run_command(setup, line).into_check() else { return false };
        checks.push(check);
    }
    if result["exit_code"] == 0 && checks.iter().any(|check| !check.passed) {
        let reason = StopReason::ChecksFailed;
        result["status"] = json!(reason.status());
        result["stop_reason"] = json!(reason.name());
        result["exit_code"] = json!(PARTIAL_EXIT_CODE);
    }
    result["checks"] = json!(checks);
    true
}

/// Runs a command of the manifest.
fn run_command(setup: &RunSetup, line: &str) -> FinishedCommand {
    let timeout = setup.config.settings.limits.timeout.map(Duration::from);
    run_check(setup, line, timeout, MAX_OUTPUT_BYTES)
}
