//! Running a task, and telling what came of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use architect::app::{Ended, Ending, Order, Place, Setup, Stage, World, telemetry};
use architect::config::{Config, EvaluationMode, Rank};
use architect::machine::{CloseReason, Status, StopReason};
use architect::model::{Signal, Span, count};
use architect::view::report::{self, Report};
use architect::view::{About, Lost, Patience, RunResult, Source, append, clean, save};
use architect::workflow::{Again, Evaluated, evaluated, plan_first};
use rustix::fs::{Access, access};

use super::args::{OutputArgs, OutputFormat};
use super::confirm::asker;
use super::error::Failure;
use super::output;
use super::show::{self, Audience};

/// In what way a task is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    /// At once.
    #[default]
    Straight,
    /// By a plan.
    PlanFirst,
}

/// Runs a task before its audience, tells the result, and returns the exit code.
///
/// # Errors
///
/// Fails when it could not begin, and when its result could not be written.
pub(crate) fn run(setup: &Setup, order: Order, way: Way, args: &OutputArgs) -> Result<u8, Failure> {
    // What can't be written is told before money is spent.
    for path in [&args.output_file, &args.report_file].into_iter().flatten() {
        writable(path)?;
    }
    let target = ReportFile::of(args, &setup.world);
    let format = report_format(args, target.as_ref())?;
    let Audience { show, hush, is_terminal } = show::audience(args, &setup.config, &setup.world)?;
    let sandbox: Option<Arc<str>> = match args.verbose {
        0 => None,
        _ => Some(setup.sandbox.described()?.into()),
    };
    if let Some(enforced) = &sandbox {
        log::info!("commands are {enforced}");
    }
    let stage = Stage {
        show: show.clone(),
        confirm: asker(hush, args.output_format.is_none() && !args.json),
        sandbox,
    };
    let is_stored = !matches!(order.place, Place::Nowhere);
    let about = setup.about(&order);
    if let Some(telemetry) = telemetry(&setup.world, &about) {
        show.add(telemetry);
    }
    let Evaluated { runs, speaker, interrupted, verdict, overruled } =
        work(setup, order, way, &stage)?;
    let results = show.results(StopReason::InternalError, "the run broke down");
    let (Some(result), Some(ended)) = (RunResult::joined(&results, speaker), runs.get(speaker))
    else {
        return Err(Failure::failed("the run left no result"));
    };
    let mut result = with_plan(result, ended);
    if let Some(reason) = overruled {
        (result.status, result.stop_reason) = (reason.status(), Some(reason));
        result.exit_code = about.exit_code(reason);
    }
    // The answer stands, and so does the wish to stop.
    if let Some(end) = interrupted.and_then(|index| results.get(index)) {
        (result.status, result.stop_reason) = (end.status, end.stop_reason);
        result.exit_code = end.exit_code;
    }
    if let (Some(verdict), Some(_)) = (&verdict, overruled) {
        // A model wrote the issues; quoted, they are harmless for a terminal.
        let issues = &verdict.issues;
        match verdict.completed {
            true => log::warn!(
                "the result was judged complete, but with a confidence of {:.2}, below \
                 evaluation.confidence_threshold ({:.2}): {issues:?}",
                verdict.confidence,
                setup.config.settings.evaluation.confidence_threshold,
            ),
            false => log::warn!("the result was judged not to be complete: {issues:?}"),
        }
    }
    result.evaluation = verdict.and_then(|verdict| serde_json::to_value(verdict).ok());
    if is_stored && result.status != Status::Success {
        result.resume = resume_command(&result, &setup.config).map(Into::into);
    }
    let about = About { session_id: ended.session.to_string().into(), ..about };
    let saved = files(args, target.as_ref(), format, &about, &result, &setup.config.workspace);
    // There is one document, and it has the exit code of the process.
    let unsaved = saved.err().map(|failure| failure.instead_of(result.clone()));
    let result = unsaved.as_ref().map_or(result, Failure::document);
    match show.finish(&result, patience(ended.ending)) {
        Ok(()) => {}
        Err(Lost::Gone) => return Ok(Signal::Pipe.exit_code()),
        Err(Lost::Stalled) => {
            briefly(|| output::complain(&format!("error: {}", Lost::Stalled)));
            let code = show.signal().map(Signal::exit_code);
            return Ok(code.unwrap_or(result.exit_code).max(FAILED));
        }
        Err(Lost::HungUp) if is_terminal => return Ok(Signal::Hangup.exit_code()),
        Err(lost) => {
            let failure = Failure::failed(lost.to_string());
            let failure = summary(&result).into_iter().fold(failure, Failure::hint);
            return Err(failure.instead_of(result));
        }
    }
    if let Some(failure) = unsaved {
        failure.print();
    }
    Ok(result.exit_code)
}

/// Returns what somebody wants to know of a run whose result could not be written.
fn summary(result: &RunResult) -> Vec<String> {
    let reason = result.stop_reason.map_or("refused", StopReason::name);
    let cost = result.cost.map_or("unknown".to_owned(), |cost| cost.to_string());
    let steps = count(result.steps, "step", "steps");
    let mut told = vec![format!("the run itself ended with {reason}: {steps}, cost {cost}")];
    if let Some(session) = &result.session_id {
        told.push(format!("`architect sessions show {session}` shows session {session}"));
    }
    told
}

/// The exit code of a run that left no result for anybody.
const FAILED: u8 = 1;

/// How much longer than its run the output may take.
const OVERTIME: Duration = Duration::from_millis(500);

/// Returns how long to wait for the readers of the output.
fn patience(ending: Ending) -> Patience {
    ending.left().map_or(Patience::UntilRead, |left| Patience::AtMost(left + OVERTIME))
}

/// Says something to a reader that may have stalled, so nobody waits for long.
pub(crate) fn briefly(say: impl FnOnce() + Send + 'static) {
    let (said, heard) = mpsc::channel();
    let saying = thread::Builder::new().name("say".to_owned()).spawn(move || {
        say();
        let _ = said.send(());
    });
    if saying.is_ok() {
        let _ = heard.recv_timeout(OVERTIME);
    }
}

/// Makes the runs of a task.
fn work(setup: &Setup, order: Order, way: Way, stage: &Stage) -> Result<Evaluated, Failure> {
    let task = order.task.clone().unwrap_or_default();
    let store = match &order.place {
        Place::Nowhere => None,
        Place::New(store, _) | Place::Dispatched(store, ..) | Place::Stored(store, _) => {
            Some(store.clone())
        }
    };
    let (options, exit_on_partial) = (order.options.clone(), order.exit_on_partial);
    let again = Again { store, options, exit_on_partial };
    let runs = match way {
        Way::Straight => vec![setup.run(order, stage.clone())?],
        Way::PlanFirst => plan_first(setup, order, stage)?,
    };
    match setup.config.settings.evaluation.mode {
        EvaluationMode::Off => {
            let speaker = runs.len().saturating_sub(1);
            Ok(Evaluated { speaker, runs, interrupted: None, verdict: None, overruled: None })
        }
        EvaluationMode::Basic | EvaluationMode::Full => {
            Ok(evaluated(setup, &task, runs, &again, stage)?)
        }
    }
}

/// Returns the result of a dry run with what it would have done.
fn with_plan(mut result: RunResult, ended: &Ended) -> RunResult {
    if !ended.planned.is_empty() {
        let mut text =
            format!("{}\n\nThis was a dry run. It would have:\n", result.output.trim_end());
        for planned in &ended.planned {
            text.push_str(&format!("- {}: {}\n", planned.tool, planned.summary));
        }
        result.output = text.into();
    }
    result
}

/// Returns the command that goes on with a session whose run ended early. Money and tokens are totals of the session, so a
/// run that has used them up needs more; steps and time begin again.
fn resume_command(result: &RunResult, config: &Config) -> Option<String> {
    let mut command = format!("architect resume {}", result.session_id.as_deref()?);
    // The store is found without it only where every command looks.
    let rank = config.origin("sessions.dir").rank;
    if let Some(dir) = &config.settings.sessions.dir
        && !matches!(rank, Rank::Default | Rank::User | Rank::Variable)
    {
        let set = format!("sessions.dir={}", dir.display());
        command.push_str(&format!(" --set {}", quoted(&set)));
    }
    let limits = &config.settings.limits;
    if result.stop_reason == Some(StopReason::Closed(CloseReason::BudgetExceeded)) {
        // What did not cover a call of the agent would not cover one after `resume` either.
        let is_enough = match result.cost {
            Some(_) => result.costs.by_source.contains_key(&Source::Agent),
            // At least one of them was not a closing call.
            None => result.llm_calls > 1,
        };
        if let Some(budget) = limits.budget_usd {
            let total = budget + result.cost.unwrap_or_default();
            let total = if is_enough { total.dollars().to_string() } else { "USD".to_owned() };
            command.push_str(&format!(" --budget {total}"));
        }
        if let Some(tokens) = limits.max_tokens {
            let used = result.usage.input_tokens + result.usage.output_tokens;
            let total = if is_enough { (tokens + used).0.to_string() } else { "N".to_owned() };
            command.push_str(&format!(" --max-tokens {total}"));
        }
    }
    // A limit of zero begins again as zero.
    let zeros = [
        (limits.max_steps == 0, " --max-steps N"),
        (limits.timeout == Some(Span::ZERO), " --timeout SECONDS"),
        (limits.step_timeout == Some(Span::ZERO), " --step-timeout SECONDS"),
    ];
    zeros.iter().filter(|(is_zero, _)| *is_zero).for_each(|(_, option)| command.push_str(option));
    Some(command)
}

/// Returns a word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:@%+,".contains(c);
    if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Writes the answer and the report to their files.
fn files(
    args: &OutputArgs,
    target: Option<&ReportFile>,
    format: report::Format,
    about: &About,
    result: &RunResult,
    workspace: &Path,
) -> Result<(), Failure> {
    let failed = |error: architect::view::SaveError| Failure::failed(output::chain(&error));
    if let Some(path) = &args.output_file {
        let text = match show::format(args) {
            OutputFormat::Text => {
                format!("{}\n", clean::piped(result.output.trim_end())).into_bytes()
            }
            OutputFormat::Json | OutputFormat::StreamJson => {
                architect::view::jsonl::line(result).unwrap_or_default()
            }
        };
        save(workspace, path, &text).map_err(failed)?;
    }
    let text = || Report { about, result }.render(format);
    match (target, args.report) {
        (Some(ReportFile::Own(path)), _) => {
            save(workspace, path, text().as_bytes()).map_err(failed)?;
        }
        (Some(ReportFile::StepSummary(path)), _) => {
            append(path, text().as_bytes()).map_err(failed)?;
        }
        // Standard output has the answer.
        (None, Some(_)) => output::complain(&text()),
        (None, None) => {}
    }
    Ok(())
}

/// Where a report goes.
enum ReportFile {
    /// Into a file of its own.
    Own(PathBuf),
    /// Behind what other steps of a job on GitHub have written into its summary.
    StepSummary(PathBuf),
}

impl ReportFile {
    /// Returns the file that a report goes to: the one that was given, or the summary of the step for a report that is
    /// made for it.
    fn of(args: &OutputArgs, world: &World) -> Option<Self> {
        let summary = world.variable("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty());
        let summary = summary.map(PathBuf::from);
        let is_summary = |path: &PathBuf| {
            let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
            summary.as_ref().is_some_and(|summary| real(summary) == real(path))
        };
        match (&args.report_file, args.report) {
            (Some(path), _) if is_summary(path) => Some(Self::StepSummary(path.clone())),
            (Some(path), _) => Some(Self::Own(path.clone())),
            (None, Some(super::args::Report::Github)) => summary.map(Self::StepSummary),
            (None, _) => None,
        }
    }
}

fn report_format(
    args: &OutputArgs,
    target: Option<&ReportFile>,
) -> Result<report::Format, Failure> {
    use super::args::Report;
    let asked = args.report.map(|report| match report {
        Report::Json => report::Format::Json,
        Report::Markdown => report::Format::Markdown,
        Report::Github => report::Format::Github,
        Report::Html => report::Format::Html,
    });
    match (asked, &args.report_file) {
        (Some(format), _) => Ok(format),
        (None, _) if matches!(target, Some(ReportFile::StepSummary(_))) => {
            Ok(report::Format::Github)
        }
        (None, Some(path)) => report::Format::of(path).ok_or_else(|| {
            Failure::usage(format!("the ending of {} tells no format of a report", path.display()))
                .hint("end it in .json, .md or .html, or name the format with --report")
        }),
        (None, None) => Ok(report::Format::Markdown),
    }
}

/// Sees to it that a file can be written, as far as that can be told before.
fn writable(path: &Path) -> Result<(), Failure> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let failed = |why: String| {
        Failure::usage(format!("could not write {}: {why}", path.display()))
            .hint("nothing was run; name another file")
    };
    match path.symlink_metadata() {
        Ok(_) if path.is_dir() => return Err(failed("it is a folder".to_owned())),
        // Only writing it shows: it may be a link, a device, or the standard output.
        Ok(_) => return Ok(()),
        Err(_) => {}
    }
    // The folders that are missing are made.
    let folder = path.ancestors().skip(1).find(|folder| folder.symlink_metadata().is_ok());
    let Some(folder) = folder else { return Ok(()) };
    if !folder.is_dir() {
        return Err(failed(format!("{} is not a folder", folder.display())));
    }
    access(folder, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|errno| failed(format!("{}: {}", folder.display(), io::Error::from(errno))))
}
