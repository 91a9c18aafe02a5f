//! Running a loop or a pipeline, with its output and the report of its result.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use architect::app::{
    AppError, ProcessEnv, RunInterrupts, RunIo, RunRequest, RunSetup, SessionTarget,
    start_telemetry,
};
use architect::config::Config;
use architect::journal::{Durability, SessionStore};
use architect::machine::{CloseReason, StopReason};
use architect::types::{Language, MicroUsd};
use architect::view::report::RunReport;
use architect::view::{CostSource, RunInfo, RunResult, sanitize};
use architect::workflow::batch::coordination::ChargeLimits;
use architect::workflow::batch::plain_name;
use architect::workflow::engine::machine::{Program, StepEvent, WorkflowEnd, WorkflowLimit};
use architect::workflow::engine::{
    EventDetail, IterationRecord, MAX_ITEMS, StepDefinition, StepSetup, StoredEvent, Workflow,
    WorkflowError, WorkflowEvent, WorkflowHistory, WorkflowJournal, WorkflowJournalError,
    WorkflowLimits, WorkflowObserver, WorkflowOutcome, WorkflowRun, definition_hash,
    earlier_results,
};
use serde_json::{Value, json};

use super::args::{OutputArgs, SettingsArgs};
use super::batch_cells::common_options;
use super::commands::{BATCH_LIMITS, listen};
use super::config_options::{DEFAULT_AGENT, set_key};
use super::confirm::confirmation_port;
use super::error::CliError;
use super::results_folder::check_origin;
use super::sinks::{self, Sinks};
use super::worktree_run::{self, WorktreeRun};
use super::{output, task};

/// The folder of a workflow.
pub(crate) struct WorkflowFolder {
    pub(crate) path: PathBuf,
    definition: String,
}

/// A checked workflow that is about to run.
pub(crate) struct StartedWorkflow<'a> {
    /// `loop` or `pipeline`.
    pub(crate) kind: &'static str,
    pub(crate) folder: &'a WorkflowFolder,
    pub(crate) workflow: &'a Workflow,
    pub(crate) setups: Vec<StepSetup>,
    pub(crate) limits: WorkflowLimits,
    /// The maximum number of iterations, if an option sets it.
    pub(crate) iterations: Option<u32>,
    pub(crate) worktree: Option<&'a WorktreeRun>,
    pub(crate) output: &'a OutputArgs,
}

/// The open files of a workflow.
pub(crate) struct OpenWorkflow {
    store: SessionStore,
    journal: WorkflowJournal,
    program: Program,
    events: Vec<StoredEvent>,
}

impl WorkflowFolder {
    /// Returns the folder of a workflow: the given one, or a folder named by the title and the definition.
    pub(crate) fn new(
        kind: &str,
        title: &str,
        definition: &Value,
        out: Option<&Path>,
        world: &ProcessEnv,
    ) -> Self {
        let definition = definition_hash(definition);
        let usual = || {
            let name = format!("{}-{}", plain_name(title), &definition[..HASH_DIGITS]);
            Path::new(".architect").join(kind).join(name)
        };
        let path = world.cwd.join(out.map_or_else(usual, Path::to_owned));
        Self { path, definition }
    }

    /// Returns the digits of the definition's hash for names.
    pub(crate) fn hash(&self) -> &str {
        &self.definition[..HASH_DIGITS]
    }

    /// Creates the folder, if it is missing, and opens the journal in it.
    ///
    /// # Errors
    ///
    /// Fails if another process runs the workflow, if the folder belongs to another workflow, or if it can't be
    /// written.
    pub(crate) fn open(
        &self,
        program: &Program,
        durability: Durability,
        world: &ProcessEnv,
    ) -> Result<OpenWorkflow, CliError> {
        check_origin(&self.path, world)?;
        // The store is opened first, because it expects a new folder to be empty.
        let store = SessionStore::open(&self.path, durability)?;
        // The folder is not part of a project that contains it.
        let ignore = self.path.join(".gitignore");
        // The file is not created through a link, which a command may have made.
        let new = fs::File::create_new(&ignore).and_then(|mut file| file.write_all(b"*\n"));
        new.or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(CliError::usage(format!("could not write {}: {error}", ignore.display()))),
        })?;
        let (journal, program, events) =
            WorkflowJournal::open(&self.path, &self.definition, program, durability)?;
        Ok(OpenWorkflow { store, journal, program, events })
    }
}

/// Returns the options that define a workflow: all except its limits, which may change when it continues.
pub(crate) fn defining_settings(settings: &SettingsArgs, workspace: PathBuf) -> Value {
    let mut common = common_options(settings, workspace, DEFAULT_AGENT);
    common.sets.retain(|set| !BATCH_LIMITS.contains(&set_key(set)));
    json!([common.workspace, common.agent, common.sets, common.others])
}

/// Returns the limits of a workflow, with the time limit counted from now.
pub(crate) fn workflow_limits(config: &Config) -> WorkflowLimits {
    let limits = &config.settings.limits;
    WorkflowLimits {
        charge: ChargeLimits { money: limits.budget_usd, tokens: limits.max_tokens },
        deadline: limits.timeout.and_then(|span| Instant::now().checked_add(span.into())),
    }
}

/// The number of digits of the hash in the name of a folder.
const HASH_DIGITS: usize = 8;

impl StartedWorkflow<'_> {
    /// Runs the workflow, and reports its result. Returns the exit code.
    ///
    /// # Errors
    ///
    /// Fails if a session or an undo could not begin, or if an output could not be written.
    pub(crate) fn run(self, open: OpenWorkflow) -> Result<u8, CliError> {
        let begun = Instant::now();
        let OpenWorkflow { store, mut journal, program, events } = open;
        let interrupts = RunInterrupts::default();
        let received = listen(&interrupts, self.output.format.format())?;
        let setups: Vec<StepSetup> = self
            .setups
            .iter()
            .map(|step| {
                let mut step = step.clone();
                step.setup.interrupts = Some(interrupts.clone());
                step
            })
            .collect();
        let Some(StepSetup { setup, options }) = setups.first() else {
            return Err(CliError::usage("the workflow has no steps"));
        };
        let plan = task::plan_outputs(setup, self.output)?;
        let Sinks { reporter, prompt } = sinks::open_sinks(self.output, &setup.config, &setup.env)?;
        if self.worktree.is_some() {
            worktree_run::warn_if_unconfined(&setup.sandbox)?;
        }
        let runs_commands =
            |step: &StepDefinition| !step.checks.is_empty() || step.metric.is_some();
        if self.workflow.steps.iter().any(runs_commands) {
            // A check that can't be run is different from a check that fails.
            setup.sandbox.checks.enforcement().map_err(AppError::from)?;
        }
        let may_ask = self.output.format.asked().is_none();
        let confirm = confirmation_port(prompt, may_ask);
        let io = RunIo { reporter: reporter.clone(), confirm, sandbox: None };

        let mut history = WorkflowHistory::replay(&program, &events);
        let progress = WorkflowProgress {
            lang: setup.config.settings.language,
            is_quiet: self.output.quiet,
            has_steps: self.workflow.steps.len() > 1,
            unfinished_cost: AtomicU64::new(0),
            item_counts: Mutex::default(),
        };
        if !events.is_empty() || program != self.workflow.program() {
            let event = StepEvent::Continued { iterations: self.iterations };
            journal.append(event, &EventDetail::default())?;
            history.apply(&program, event, &EventDetail::default());
        }
        let title = self.workflow.steps.first().map_or("", |step| &step.prompt);
        let request = RunRequest {
            options: options.clone(),
            exit_on_partial: self.output.exit_code_on_partial,
            ..RunRequest::new(title, SessionTarget::new(Some(store.clone())), CostSource::Agent)
        };
        let info = setup.run_info(&request);
        start_telemetry(&setup.env, &info, &reporter);
        let run = WorkflowRun {
            workflow: self.workflow,
            program: &program,
            setups: &setups,
            store: &store,
            limits: self.limits,
            interrupts: &interrupts,
            io: &io,
            observer: &progress,
        };
        let outcome = run.run(&mut journal, &mut history)?;
        let outcome = match (outcome, received.signal()) {
            (WorkflowOutcome::Ended(_), _) | (_, None) => outcome,
            (_, Some(signal)) => WorkflowOutcome::Interrupted(signal),
        };
        if matches!(outcome, WorkflowOutcome::Ended(WorkflowEnd::NotMeasured)) {
            return Err(unmeasured_error(&history));
        }

        let results = reporter.results(StopReason::InternalError, "the run broke down");
        let mut counted =
            progress.item_counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        counted.extend_from_slice(&results);
        let earlier = earlier_results(&store, &history, &info, &counted)?;
        // The last result provides the answer.
        counted.splice(0..0, earlier);
        let joined = RunResult::join(&counted, counted.len().saturating_sub(1));
        let joined = joined.unwrap_or_else(|| RunResult::not_started(""));
        let result = self.result(outcome, (&history, &progress), (joined, &results), setup, &info);
        let result = RunResult { duration: begun.elapsed().into(), ..result };
        let info =
            RunInfo { session_id: result.session_id.clone().unwrap_or_else(|| "".into()), ..info };
        let report = RunReport { info: &info, result: &result, changes: &[] };
        task::report_result(setup, self.output, plan.as_ref(), &report, &reporter, None)
    }

    /// Returns the result of all iterations, and shows the end of the workflow. The joined result counts all sessions;
    /// the other results are those of this process.
    fn result(
        &self,
        outcome: WorkflowOutcome,
        (history, progress): (&WorkflowHistory, &WorkflowProgress),
        (joined, results): (RunResult, &[RunResult]),
        setup: &RunSetup,
        info: &RunInfo,
    ) -> RunResult {
        let reason = self.stop_reason(outcome, history);
        let newest = history.iterations.last();
        let report = newest.and_then(|it| it.report.as_ref());
        // The cost of an unfinished session is only in the results of this process.
        let own = match newest {
            Some(it) if it.report.is_some() => None,
            Some(it) if self.has_batch(it) => {
                Some(MicroUsd(progress.unfinished_cost.load(Ordering::Relaxed)))
            }
            Some(_) => results.last().and_then(|it| it.cost),
            None => None,
        };
        let total = history.spent_without(None).money + own.unwrap_or_default();
        let cost = setup.model.limits.price.map(|_| total);
        let sentence = progress.end(outcome, history, self.kind);
        progress.line(&progress.summary(&sentence, history, &self.folder.path, cost));
        if results.is_empty() && newest.is_some() && reason == StopReason::LlmDone {
            let folder = sanitize::path(&self.folder.path);
            log::warn!(
                "nothing was run: this {} had ended before; remove {folder}, or name another folder with --out, to run it \
                 again",
                self.kind
            );
        }
        let answer = report.map(|report| report.output.as_str()).filter(|text| !text.is_empty());
        let mut result = joined;
        result.costs.total = cost;
        result.model.get_or_insert_with(|| info.model.clone());
        RunResult {
            session_id: newest
                .filter(|it| !self.has_batch(it))
                .map(|it| it.session.to_string().into()),
            status: reason.status(),
            stop_reason: Some(reason),
            exit_code: match outcome {
                WorkflowOutcome::Ended(WorkflowEnd::SessionFailed(code)) => code,
                _ => info.exit_code(reason),
            },
            output: answer.unwrap_or(&sentence).into(),
            error: match outcome {
                WorkflowOutcome::Ended(WorkflowEnd::TooManyItems) => Some(sentence.as_str().into()),
                _ => report.and_then(|report| report.error.as_deref()).map(Into::into),
            },
            cost,
            worktree: self.worktree.and_then(WorktreeRun::result),
            workflow: Some(self.document(outcome, history)),
            ..result
        }
    }

    fn stop_reason(&self, outcome: WorkflowOutcome, history: &WorkflowHistory) -> StopReason {
        let is_endless = |step: &StepDefinition| step.metric.is_some() && step.checks.is_empty();
        let has_checks = !self.workflow.steps.iter().any(is_endless);
        let of_last_session = || {
            let last = history.iterations.last().and_then(|it| it.report.as_ref());
            StopReason::from_name(&last?.stop_reason)
        };
        let end = match outcome {
            WorkflowOutcome::Interrupted(signal) => return StopReason::UserInterrupt(signal),
            WorkflowOutcome::Ended(end) => end,
        };
        match end {
            WorkflowEnd::LimitReached(WorkflowLimit::Time) => {
                StopReason::Closed(CloseReason::Timeout)
            }
            WorkflowEnd::LimitReached(WorkflowLimit::Budget) => {
                StopReason::Closed(CloseReason::BudgetExceeded)
            }
            WorkflowEnd::Succeeded => StopReason::LlmDone,
            WorkflowEnd::TooManyItems | WorkflowEnd::ItemFailed => StopReason::ChecksFailed,
            WorkflowEnd::IterationsUsed | WorkflowEnd::NothingChanged if has_checks => {
                StopReason::ChecksFailed
            }
            WorkflowEnd::IterationsUsed
            | WorkflowEnd::NothingChanged
            | WorkflowEnd::NotMeasured => StopReason::Closed(CloseReason::MaxSteps),
            WorkflowEnd::Incomplete => of_last_session().unwrap_or(StopReason::ChecksFailed),
            WorkflowEnd::SessionFailed(code) => {
                let has_code = |reason: &StopReason| reason.exit_code() == code;
                let failure = StopReason::ALL.into_iter().find(has_code);
                let of_session = of_last_session().filter(has_code);
                of_session.or(failure).unwrap_or(StopReason::InternalError)
            }
        }
    }

    /// Returns the description of the workflow for the result document.
    fn document(&self, outcome: WorkflowOutcome, history: &WorkflowHistory) -> Value {
        let is_priced = |index: usize| {
            self.setups.get(index).is_some_and(|it| it.setup.model.limits.price.is_some())
        };
        let of_iteration = |it: &IterationRecord| self.iteration_document(it, is_priced(it.step));
        let iterations: Vec<Value> = history.iterations.iter().map(of_iteration).collect();
        let spent = history.spent_without(None);
        json!({
            "kind": self.kind,
            "folder": self.folder.path,
            "end": end_name(outcome),
            "best": history.state.place.best,
            "tokens": spent.tokens.0,
            "iterations": iterations,
        })
    }

    /// Returns whether the items of an iteration run in parallel. Such an iteration has no session of its own.
    fn has_batch(&self, iteration: &IterationRecord) -> bool {
        self.workflow.steps.get(iteration.step).is_some_and(|step| step.parallel.is_some())
    }

    fn iteration_document(&self, iteration: &IterationRecord, is_priced: bool) -> Value {
        let report = iteration.report.as_ref();
        let cost = report.filter(|_| is_priced).map(|it| it.charge.money.as_dollars());
        let (step, has_batch) =
            (self.workflow.steps.get(iteration.step), self.has_batch(iteration));
        json!({
            "step": step.map(|step| &step.name),
            "iteration": iteration.number,
            "item": iteration.item,
            "session_id": (!has_batch).then(|| iteration.session.to_string()),
            "batch": has_batch.then(|| Path::new("batches").join(iteration.session.to_string())),
            "items": report.filter(|_| has_batch).map(|it| &it.items),
            "status": report.map(|it| it.status),
            "stop_reason": report.map(|it| &it.stop_reason),
            "cost": cost,
            "tokens": report.map(|it| it.charge.tokens.0),
            "changed": report.map(|_| iteration.has_changed),
            "checks": iteration.checks,
            "measured": iteration.measured.as_ref().and_then(|it| it.as_ref().ok()),
            "undone": iteration.is_undone,
        })
    }
}

fn end_name(outcome: WorkflowOutcome) -> &'static str {
    match outcome {
        WorkflowOutcome::Interrupted(_) => "interrupted",
        WorkflowOutcome::Ended(WorkflowEnd::LimitReached(WorkflowLimit::Time)) => "time",
        WorkflowOutcome::Ended(WorkflowEnd::Succeeded) => "succeeded",
        WorkflowOutcome::Ended(WorkflowEnd::IterationsUsed) => "iterations_used",
        WorkflowOutcome::Ended(WorkflowEnd::NothingChanged) => "nothing_changed",
        WorkflowOutcome::Ended(WorkflowEnd::TooManyItems) => "too_many_items",
        WorkflowOutcome::Ended(WorkflowEnd::ItemFailed) => "item_failed",
        WorkflowOutcome::Ended(WorkflowEnd::Incomplete) => "incomplete",
        WorkflowOutcome::Ended(WorkflowEnd::LimitReached(WorkflowLimit::Budget)) => "budget",
        WorkflowOutcome::Ended(WorkflowEnd::SessionFailed(_)) => "session_failed",
        WorkflowOutcome::Ended(WorkflowEnd::NotMeasured) => "not_measured",
    }
}

/// Prints a line for each event.
struct WorkflowProgress {
    lang: Language,
    is_quiet: bool,
    has_steps: bool,
    /// The cost of the newest parallel items, in micro-dollars.
    unfinished_cost: AtomicU64,
    /// The results of parallel items, for the totals.
    item_counts: Mutex<Vec<RunResult>>,
}

/// The maximum length of an output or a command in a line, in characters.
const MAX_LINE_CHARS: usize = 200;

impl WorkflowProgress {
    fn line(&self, text: &str) {
        if !self.is_quiet {
            output::print_stderr(text);
        }
    }

    /// Returns a sentence about the end of the workflow.
    fn end(&self, outcome: WorkflowOutcome, history: &WorkflowHistory, kind: &str) -> String {
        let again = self.lang.pick(["the same command continues", "la misma orden continúa"]);
        match outcome {
            WorkflowOutcome::Interrupted(signal) => {
                let stopped = self.lang.pick(["stopped by", "detenido por"]);
                format!("{stopped} {}; {again}", signal.name())
            }
            WorkflowOutcome::Ended(end) => {
                let text = self.lang.pick(end_texts(end, kind == "loop", history));
                match end {
                    WorkflowEnd::LimitReached(WorkflowLimit::Time)
                    | WorkflowEnd::SessionFailed(_) => {
                        format!("{text}; {again}")
                    }
                    _ => text,
                }
            }
        }
    }

    /// Returns the last line.
    fn summary(
        &self,
        sentence: &str,
        history: &WorkflowHistory,
        folder: &Path,
        cost: Option<MicroUsd>,
    ) -> String {
        let count = history.iterations.len();
        let spanish = ["iteración", "iteraciones"];
        let iterations = self.lang.count(count, ["iteration", "iterations"], spanish);
        let best = history.state.place.best;
        let best =
            best.map(|it| format!("{} {}; ", self.lang.pick(["best", "mejor"]), it.number()));
        let cost = cost.map_or(String::new(), |cost| format!(", {cost}"));
        format!(
            "■ {sentence} ({}{iterations}{cost}; {})",
            best.unwrap_or_default(),
            sanitize::path(folder)
        )
    }
}

/// Returns the description of a workflow's end, in English and Spanish.
fn end_texts(end: WorkflowEnd, is_loop: bool, history: &WorkflowHistory) -> [String; 2] {
    let is_new = history.iterations.is_empty();
    let texts = match end {
        WorkflowEnd::Succeeded if is_loop && is_new => [
            "the checks pass already: there is nothing to do",
            "las comprobaciones ya pasan: no hay nada que hacer",
        ],
        WorkflowEnd::Succeeded if is_loop => ["the checks pass", "las comprobaciones pasan"],
        WorkflowEnd::Succeeded => ["all steps are done", "todos los pasos están hechos"],
        WorkflowEnd::IterationsUsed if is_loop => [
            "all iterations are used; the same command with more --iterations continues",
            "se usaron todas las iteraciones; la misma orden con más --iterations continúa",
        ],
        WorkflowEnd::IterationsUsed => {
            ["a step has used all its iterations", "un paso usó todas sus iteraciones"]
        }
        WorkflowEnd::NothingChanged => [
            "two iterations in a row changed nothing; the same command tries again",
            "dos iteraciones seguidas no cambiaron nada; la misma orden lo intenta de nuevo",
        ],
        WorkflowEnd::TooManyItems => {
            let items = history.items.unwrap_or_default();
            return [
                format!("the list of a step has {items} items; at most {MAX_ITEMS} are possible"),
                format!(
                    "la lista de un paso tiene {items} elementos; son posibles {MAX_ITEMS} como máximo"
                ),
            ];
        }
        WorkflowEnd::ItemFailed => [
            "the checks of an item fail; the same command runs them again",
            "las comprobaciones de un elemento fallan; la misma orden las repite",
        ],
        WorkflowEnd::Incomplete => ["a step ended early", "un paso terminó antes de tiempo"],
        WorkflowEnd::LimitReached(WorkflowLimit::Budget) => [
            "the budget is used; the same command with a larger one continues",
            "el presupuesto se agotó; la misma orden con uno mayor continúa",
        ],
        WorkflowEnd::LimitReached(WorkflowLimit::Time) => {
            ["the time is over", "el tiempo se acabó"]
        }
        WorkflowEnd::SessionFailed(_) => ["a session failed", "una sesión falló"],
        WorkflowEnd::NotMeasured => ["there is no number to improve", "no hay número que mejorar"],
    };
    texts.map(str::to_owned)
}

impl WorkflowObserver for WorkflowProgress {
    fn on_event(&self, event: WorkflowEvent<'_>) {
        let short = |text: &str| sanitize::headline(text, MAX_LINE_CHARS);
        let text = match event {
            WorkflowEvent::Iteration { step, number, of, item, is_resumed, .. } => {
                let name = match self.has_steps {
                    true => format!("{}: ", short(&step.name)),
                    false => String::new(),
                };
                let what = match (item, is_resumed) {
                    (None, true) => self.lang.pick(["iteration resumed", "iteración reanudada"]),
                    (None, false) => self.lang.pick(["iteration", "iteración"]),
                    (Some(_), true) => self.lang.pick(["item resumed", "elemento reanudado"]),
                    (Some(_), false) => self.lang.pick(["item", "elemento"]),
                };
                let of_word = self.lang.pick(["of", "de"]);
                let item = item.map_or(String::new(), |item| format!(": {}", short(item)));
                format!("↻ {name}{what} {number} {of_word} {of}{item}")
            }
            WorkflowEvent::Skipped(step) if self.has_steps => {
                format!("· {}: {}", short(&step.name), self.lang.pick(["skipped", "omitido"]))
            }
            WorkflowEvent::Skipped(_) => return,
            WorkflowEvent::Checked(check) if check.passed => {
                format!("✓ {}  {:.1} s", short(&check.name), check.seconds)
            }
            WorkflowEvent::Checked(check) => {
                let why = check.message.lines().last().unwrap_or_default();
                format!("✗ {}  {:.1} s  {}", short(&check.name), check.seconds, short(why))
            }
            WorkflowEvent::Measured { result: Ok(number), best: None, .. } => {
                format!("# {}: {}", self.lang.pick(["before", "antes"]), number.number())
            }
            WorkflowEvent::Measured { result: Ok(number), best: Some(best), is_kept } => {
                let decision = match is_kept {
                    true => self.lang.pick(["better, kept", "mejor, se queda"]),
                    false => self.lang.pick(["not better, undone", "no es mejor, se deshace"]),
                };
                format!("# {} → {}: {decision}", best.number(), number.number())
            }
            WorkflowEvent::Measured { result: Err(why), .. } => {
                format!("# {}: {}", self.lang.pick(["not measured", "sin medir"]), short(why))
            }
            WorkflowEvent::Undone(note) => format!("↶ {note}"),
            WorkflowEvent::ItemEnded { step, number, result } => {
                self.item_counts
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend(RunResult::from_counts(result));
                let mark = if result["exit_code"] == 0 { '✓' } else { '✗' };
                format!(
                    "{mark} {}: {} {number}",
                    short(&step.name),
                    self.lang.pick(["item", "elemento"])
                )
            }
            WorkflowEvent::ItemFailed { step, why } => {
                format!("✗ {}: {}", short(&step.name), sanitize::multiline(why))
            }
            WorkflowEvent::Spent(money) => {
                self.unfinished_cost.store(money.0, Ordering::Relaxed);
                return;
            }
        };
        self.line(&text);
    }
}

impl From<WorkflowError> for CliError {
    fn from(error: WorkflowError) -> Self {
        match error {
            WorkflowError::App(error) => error.into(),
            WorkflowError::Journal(error) => error.into(),
            WorkflowError::NotUndone { .. } => Self::failed(error)
                .hint("restore these files by hand; another --out begins a new loop"),
            WorkflowError::Coordination(error) => error.into(),
            WorkflowError::Items(error) => error.into(),
            WorkflowError::File(error) => error.into(),
            WorkflowError::Worktree(error) => error.into(),
            WorkflowError::NoEnd => Self::failed(error),
        }
    }
}

impl From<WorkflowJournalError> for CliError {
    fn from(error: WorkflowJournalError) -> Self {
        match &error {
            WorkflowJournalError::OtherWorkflow(_) => {
                Self::usage(&error).hint("--out names another folder")
            }
            WorkflowJournalError::Busy(_)
            | WorkflowJournalError::Damaged { .. }
            | WorkflowJournalError::Io(_) => Self::failed(&error),
        }
    }
}

/// Returns the error of a metric that gave no number before the first iteration.
fn unmeasured_error(history: &WorkflowHistory) -> CliError {
    let why = history.first_measured.as_ref().and_then(|it| it.as_ref().err());
    let why = sanitize::multiline(why.map_or("", String::as_str));
    CliError::usage(format!("--metric gave no number: {why}"))
        .hint("the last line of its output must be a number, also before the first iteration")
}
