//! Self-evaluation: another run evaluates the result of a task.

use std::ops::Add as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::batch::coordination::Charge;
use super::remaining_limits::remaining_config;
use crate::app::{
    AppError, FinishedRun, ResolvedModel, RunIo, RunRequest, RunSetup, SessionTarget,
};
use crate::config::{
    AgentDefinition, Config, ConfigName, EvaluationMode, HooksConfig, McpConfig, ModelName,
};
use crate::journal::{
    DamagePolicy, JournalError, ListedSession, ParentCall, SessionHistory, SessionId, SessionStore,
};
use crate::machine::{Machine, StopReason, abandon};
use crate::types::{ConfirmMode, ConversationItem, Isolation, Sha256Digest, Tokens, ToolStatus};
use crate::view::{CostSource, RunInfo, RunResult, sanitize};

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Whether the whole task was completed.
    pub completed: bool,
    /// The confidence of the evaluator, from 0 to 1.
    pub confidence: f64,
    /// Errors and missing parts.
    #[serde(default)]
    pub issues: Vec<String>,
    /// The suggested next step.
    #[serde(default)]
    pub suggestion: String,
}

/// Runs of a task, with their evaluation.
#[derive(Default)]
pub struct EvaluatedRuns {
    /// All runs, including evaluations, in order.
    pub runs: Vec<FinishedRun>,
    /// The index of the run whose answer counts.
    pub answer_run: usize,
    /// The index of the run that the user interrupted. An interrupt ends the workflow.
    pub interrupted_run: Option<usize>,
    /// The evaluation of the answer that counts; `None` without one.
    pub evaluation: Option<Evaluation>,
    /// The stop reason if it differs from that of the run, because the evaluation failed.
    pub stop_reason_override: Option<StopReason>,
    /// The SHA-256 of the evaluated session's journal, including the end recorded after the evaluation.
    pub journal_hash: Option<Sha256Digest>,
}

/// The system prompt of the evaluator.
const EVALUATOR_PROMPT: &str = "You evaluate whether a coding task was completed. You are shown the task, what was done, and the final \
     answer. Be strict: what is claimed and not supported by what was done is not done. Answer with one JSON object and \
     nothing else:\n{\"completed\": true or false, \"confidence\": a number from 0 to 1, \"issues\": [\"what is wrong or \
     missing\"], \"suggestion\": \"what should be done next\"}";

/// Length limit of the shown calls, in bytes.
const MAX_SHOWN_BYTES: usize = 24 << 10;

/// Length limit of the shown changes, in bytes.
const MAX_CHANGE_BYTES: usize = 96 << 10;

/// Length limit of a call's shown arguments, and of its shown result, in characters.
const MAX_LINE_CHARS: usize = 300;

/// Options for continuing a run whose evaluation failed.
#[derive(Clone, Debug)]
pub struct RetryContext {
    /// The store of its session. Without a store, the run can't be continued.
    pub store: Option<SessionStore>,
    /// The options in the request of the task.
    pub options: Value,
    /// The exit code for partial results in the request of the task.
    pub exit_on_partial: Option<u8>,
}

/// Evaluates the newest of `runs`, unless the settings turn that off. With `full`, a run whose evaluation fails is
/// continued in the same session, up to the configured number of retries. The answer with the best evaluation counts.
pub fn evaluate(
    setup: &RunSetup,
    task: &str,
    runs: Vec<FinishedRun>,
    again: &RetryContext,
    io: &RunIo,
) -> EvaluatedRuns {
    let settings = &setup.config.settings.evaluation;
    let retries = match settings.mode {
        EvaluationMode::Full => settings.max_retries,
        EvaluationMode::Off | EvaluationMode::Basic => 0,
    };
    let mut newest = runs.len().saturating_sub(1);
    let mut all = EvaluatedRuns { answer_run: newest, runs, ..EvaluatedRuns::default() };
    let is_success = all.runs.get(newest).is_some_and(FinishedRun::is_success);
    if settings.mode == EvaluationMode::Off || !is_success {
        return all;
    }
    for attempt in 0..=retries {
        all.stop_reason_override = Some(StopReason::EvaluationFailed);
        let evaluation = all.evaluate_run(setup, task, newest, again, io);
        let Some(evaluation) = evaluation.filter(|_| all.interrupted_run.is_none()) else { break };
        let is_good = evaluation.meets(settings.confidence_threshold);
        let message = evaluation.feedback();
        if all.evaluation.as_ref().is_none_or(|best| best.sort_key() <= evaluation.sort_key()) {
            (all.answer_run, all.evaluation) = (newest, Some(evaluation));
        }
        if is_good {
            all.stop_reason_override = None;
        }
        if is_good || attempt == retries {
            break;
        }
        let Some(store) = &again.store else { break };
        let ended = match all.send_back(setup, message, newest, (store, again), io) {
            Ok(ended) => ended,
            Err(error) => {
                log::warn!("the run can't continue after its evaluation: {error}");
                break;
            }
        };
        newest = all.runs.len();
        let is_success = ended.is_success();
        all.push(ended);
        if !is_success {
            break;
        }
    }
    if let Some(store) = &again.store {
        all.record_end(store, newest);
    }
    all
}

/// Returns the stored evaluations of a session's answers, including interrupted ones.
///
/// # Errors
///
/// Fails if the store can't be listed.
pub fn stored_evaluations(
    store: &SessionStore,
    session: SessionId,
) -> Result<Vec<SessionHistory>, JournalError> {
    let mut evaluations = Vec::new();
    if store.reader(session).is_err() {
        return Ok(evaluations);
    }
    // An evaluation begins later than the evaluated session, and ids are in order of time.
    let is_later = |listed: &ListedSession| {
        listed.session > session && store.may_be_dispatched_by(listed.session, session)
    };
    for listed in store.list()?.into_iter().filter(is_later) {
        // A session without a header has sent nothing.
        let Some(header) = store.header(listed.session) else { continue };
        let dispatcher = header.dispatched_by.as_ref();
        if dispatcher.is_some_and(|it| it.is_evaluation() && it.session == session) {
            evaluations.push(store.load(listed.session)?.0);
        }
    }
    Ok(evaluations)
}

/// Returns the usage of evaluations.
pub fn evaluation_charge(evaluations: &[SessionHistory]) -> Charge {
    // These sessions are never resumed. A call without a reply counts as it would on a resume.
    let charge = |it: &SessionHistory| abandon(it.machine.state.clone()).run().used.into();
    evaluations.iter().map(charge).fold(Charge::default(), Charge::add)
}

impl EvaluatedRuns {
    /// Returns the joined result of all runs, from the result of each; `None` if there are no runs.
    pub fn result(&self, results: &[RunResult], info: &RunInfo) -> Option<RunResult> {
        let joined = RunResult::join(results, self.answer_run)?;
        let mut result = with_dry_run_plan(joined, self.runs.get(self.answer_run)?);
        if let Some(reason) = self.stop_reason() {
            (result.status, result.stop_reason) = (reason.status(), Some(reason));
            result.exit_code = info.exit_code(reason);
        }
        result.journal_hash = self.journal_hash.or(result.journal_hash);
        let evaluation = self.evaluation.as_ref();
        result.evaluation = evaluation.and_then(|found| serde_json::to_value(found).ok());
        Some(result)
    }

    fn push(&mut self, ended: FinishedRun) {
        let reason = ended.outcome().map(|outcome| outcome.reason);
        if matches!(reason, Some(StopReason::UserInterrupt(_))) {
            self.interrupted_run = Some(self.runs.len());
        }
        self.runs.push(ended);
    }

    /// Returns the stop reason of all runs together. An interrupt by the user takes precedence over the evaluation, and
    /// the evaluation over the evaluated run.
    pub fn stop_reason(&self) -> Option<StopReason> {
        let of_run = |index: usize| Some(self.runs.get(index)?.outcome()?.reason);
        let interrupt = self.interrupted_run.and_then(of_run);
        interrupt.or(self.stop_reason_override).or_else(|| of_run(self.answer_run))
    }

    /// Continues the session of a run with a message about its evaluation.
    fn send_back(
        &self,
        setup: &RunSetup,
        message: String,
        run: usize,
        (store, again): (&SessionStore, &RetryContext),
        io: &RunIo,
    ) -> Result<FinishedRun, AppError> {
        let session = self.runs[run].session;
        let opened = store.reopen(session, DamagePolicy::Refuse)?;
        let target = SessionTarget::Stored(store.clone(), Box::new(opened));
        let request = RunRequest {
            options: again.options.clone(),
            exit_on_partial: again.exit_on_partial,
            ..RunRequest::new(message, target, CostSource::Agent)
        };
        let config = remaining_config(&setup.config, &self.runs, Some(session));
        setup.with_config(config).run(request, io.clone())
    }

    /// Records the stop reason of all runs in the session of a run, whose own stop reason may differ.
    fn record_end(&mut self, store: &SessionStore, run: usize) {
        let (Some(reason), Some(run)) = (self.stop_reason(), self.runs.get(run)) else { return };
        let opened = store.reopen(run.session, DamagePolicy::Refuse);
        match opened.and_then(|opened| opened.record_end(reason)) {
            Ok(hash) => self.journal_hash = Some(hash),
            Err(error) => log::warn!(
                "session {} is stored as {}, and not as {reason}: {error}",
                run.session,
                run.outcome().map_or("unfinished", |outcome| outcome.reason.name()),
            ),
        }
    }

    /// Evaluates a successful run. Returns `None` if the evaluator can't run or gives no evaluation; the work of the
    /// run is kept then.
    fn evaluate_run(
        &mut self,
        setup: &RunSetup,
        task: &str,
        run: usize,
        again: &RetryContext,
        io: &RunIo,
    ) -> Option<Evaluation> {
        let evaluated = self.runs.get(run)?;
        let task = format!("## Task\n\n{task}\n\n{}", format_work(&evaluated.machine));
        let evaluator = evaluator_setup(setup, remaining_config(&setup.config, &self.runs, None));
        // As sessions of the same store, evaluations are part of the total cost.
        let target = match &again.store {
            Some(store) => {
                let dispatcher = ParentCall::evaluation(evaluated.session);
                SessionTarget::Child(store.clone(), SessionId::generate(), dispatcher)
            }
            None => SessionTarget::Ephemeral,
        };
        let request = RunRequest::new(task, target, CostSource::Eval);
        let ended = evaluator.run(request, io.clone()).inspect_err(|error| {
            log::warn!("the evaluation failed: {error}");
        });
        let ended = ended.ok()?;
        let answer = ended.outcome().and_then(|outcome| outcome.output.clone());
        self.push(ended);
        match Evaluation::parse(&answer.unwrap_or_default()) {
            Ok(evaluation) => Some(evaluation),
            Err(why) => {
                if self.interrupted_run.is_none() {
                    log::warn!("the evaluation failed: {why}");
                }
                None
            }
        }
    }
}

/// Returns the result of a run; for a dry run, with the planned calls. An answer that is JSON stays so.
fn with_dry_run_plan(mut result: RunResult, ended: &FinishedRun) -> RunResult {
    if !ended.planned.is_empty() && result.structured_output.is_none() {
        let answer = result.output.trim_end();
        let mut text = format!("{answer}\n\nThis was a dry run. It would have:\n");
        for planned in &ended.planned {
            text.push_str(&format!("- {}: {}\n", planned.tool, planned.summary));
        }
        result.output = text.into();
    }
    result
}

/// Returns the setup of the evaluator, without tools and hooks, and possibly with another model.
fn evaluator_setup(setup: &RunSetup, mut config: Config) -> RunSetup {
    config.settings.hooks = HooksConfig::default();
    config.settings.mcp = McpConfig::default();
    config.settings.indexer.enabled = false;
    let agent = AgentDefinition {
        name: ConfigName::parse("eval").unwrap_or_else(|| setup.agent.name.clone()),
        description: String::new(),
        system_prompt: EVALUATOR_PROMPT.into(),
        allowed_tools: Vec::new(),
        confirm_mode: ConfirmMode::Yolo,
        isolation: Isolation::None,
        max_steps: 1,
    };
    let mut evaluator = setup.with_config(config).with_agent(agent);
    if let Some(model) = setup.model.evaluator() {
        evaluator.model = model;
    }
    evaluator
}

/// Returns a configuration in which `model` is the evaluator.
pub fn with_evaluator(config: &Config, model: ModelName) -> Config {
    let mut config = config.clone();
    config.settings.evaluation.mode = EvaluationMode::Basic;
    config.settings.evaluation.model = Some(model);
    config
}

/// Returns the setup with which `model` evaluates the changes of a run.
///
/// # Errors
///
/// Fails if the model can't be used.
pub(super) fn change_evaluator(setup: &RunSetup, model: ModelName) -> Result<RunSetup, AppError> {
    let config = with_evaluator(&setup.config, model);
    let model = ResolvedModel::from_config(&config, &setup.env)?;
    let mut config = setup.config.clone();
    config.settings.evaluation.mode = EvaluationMode::Off;
    let mut evaluator = evaluator_setup(setup, config);
    evaluator.model = model.evaluator().unwrap_or(model);
    Ok(evaluator)
}

/// Returns the message for an evaluator of changes.
pub(super) fn change_message(
    task: &str,
    patch: &str,
    answer: &str,
    window: Option<Tokens>,
) -> String {
    let most = window.map_or(MAX_CHANGE_BYTES, |window| shown_bytes(window, MAX_CHANGE_BYTES));
    let end = (0..=most.min(patch.len())).rev().find(|at| patch.is_char_boundary(*at)).unwrap_or(0);
    let left_out = match patch.len() - end {
        0 => String::new(),
        bytes => format!("\n({bytes} more bytes are not shown)"),
    };
    let change = match patch {
        "" => "No file was changed.".to_owned(),
        _ => format!("The files were changed as follows:\n\n{}{left_out}", &patch[..end]),
    };
    format!("## Task\n\n{task}\n\n## What was done\n\n{change}\n\n## Final answer\n\n{answer}")
}

/// Returns the number of bytes of work to show: half of the window at 3.5 bytes per token, but not more than `most`.
fn shown_bytes(window: Tokens, most: usize) -> usize {
    let half = window.0.saturating_mul(7) / 4;
    most.min(usize::try_from(half).unwrap_or(most))
}

/// Returns the work for the evaluator: the calls with their results, and the answer.
fn format_work(machine: &Machine) -> String {
    let mut done = String::new();
    for entry in machine.conversation.entries() {
        let ConversationItem::Exchange(exchange) = &entry.item else { continue };
        for (call, result) in exchange.reply().calls().zip(exchange.results()) {
            let arguments = sanitize::headline(call.arguments.text(), MAX_LINE_CHARS);
            let text = sanitize::headline(&result.text, MAX_LINE_CHARS);
            let status = if result.status == ToolStatus::Ok { "ok" } else { "failed" };
            done.push_str(&format!("- {} {arguments} → {}: {text}\n", call.name, status));
        }
    }
    // The newest calls matter most.
    let most = shown_bytes(machine.state.run().rules.context.window, MAX_SHOWN_BYTES);
    let from = done.len().saturating_sub(most);
    let from = (from..=done.len()).find(|at| done.is_char_boundary(*at)).unwrap_or(0);
    let answer = machine.state.outcome().and_then(|outcome| outcome.output.as_deref());
    let answer = answer.unwrap_or_default();
    format!("## What was done\n\n{}\n## Final answer\n\n{answer}", &done[from..])
}

impl Evaluation {
    /// Parses the first evaluation in a text. Surrounding text is ignored.
    ///
    /// # Errors
    ///
    /// Fails with the reason if there is no evaluation.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parse = |(at, _)| {
            let mut read = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Self>();
            read.next()?.ok()
        };
        let evaluation = text.match_indices('{').find_map(parse);
        let unread = || "its model did not answer in the expected form".to_owned();
        match evaluation.ok_or_else(unread)? {
            evaluation if (0.0..=1.0).contains(&evaluation.confidence) => Ok(evaluation),
            Self { confidence, .. } => {
                Err(format!("its confidence is {confidence}, and not between 0 and 1"))
            }
        }
    }

    /// Returns whether the task was completed, with at least this confidence.
    fn meets(&self, threshold: f64) -> bool {
        self.completed && self.confidence >= threshold
    }

    /// Returns a key for sorting evaluations, the best last.
    fn sort_key(&self) -> (bool, u64) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and 1000
        (self.completed, (self.confidence * 1_000.0) as u64)
    }

    /// Returns the message with which the run continues.
    fn feedback(&self) -> String {
        let issues: String = self.issues.iter().map(|issue| format!("- {issue}\n")).collect();
        format!(
            "An evaluation of your work finds the task not completed.\n{issues}{}\nGo on until it is.",
            self.suggestion
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evaluation_is_read_in_each_of_its_wrappings() {
        let json = r#"{"completed": true, "confidence": 0.9}"#;
        for text in [
            json.to_owned(),
            format!("Here it is:\n```json\n{json}\n```\nDone."),
            format!("I think {json} is fair."),
            format!("With {{braces}} before it: {json}"),
        ] {
            let evaluation = Evaluation::parse(&text).unwrap();
            assert!(evaluation.completed && evaluation.issues.is_empty(), "{text}");
        }
        for text in ["", "yes", "{}", "{\"completed\": 1}"] {
            assert_eq!(
                Evaluation::parse(text).unwrap_err(),
                "its model did not answer in the expected form",
                "{text}"
            );
        }
        // A confidence out of range, such as a percentage, is an error, and not certainty.
        for confidence in ["95", "1.01", "-0.5"] {
            let text = format!("{{\"completed\": true, \"confidence\": {confidence}}}");
            let why = format!("its confidence is {confidence}, and not between 0 and 1");
            assert_eq!(Evaluation::parse(&text).unwrap_err(), why);
        }
    }
}
