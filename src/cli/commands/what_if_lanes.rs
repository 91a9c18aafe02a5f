//! `architect what-if` with a model: stored sessions are run again, in forks with the recorded files.

use std::sync::Arc;
use std::time::SystemTime;

use architect::app::{
    ProcessEnv, RecordedWorkspace, ResolvedModel, RunInterrupts, RunIo, SessionUsage,
};
use architect::journal::{DamagePolicy, ForkOptions, JournalError, LaneFork, SessionHistory};
use architect::types::pluralize;
use architect::view::{Reporter, sanitize};
use architect::workflow::batch::Estimate;
use architect::workflow::what_if_lanes::{
    LaneComparison, LaneRun, LaneSummary, SessionPart, check_lane,
};
use architect::workspace::worktree::{WorktreeContent, WorktreeName};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::batch::listen;
use super::resume::{
    PreparedResume, ResumeRequest, create_worktree, load_origin_config, prepare_resume,
    read_prompt, split_record,
};
use crate::cli::args::{OutputFormat, SettingsArgs, WhatIfArgs};
use crate::cli::error::CliError;
use crate::cli::output;
use crate::cli::session_lookup::SessionLookup;
use crate::cli::task::{self, RunMode};
use crate::cli::worktree_run::{self, WorktreeRun};

/// The point at which lanes begin.
struct LaneStart {
    history: SessionHistory,
    /// The last record shared with the session.
    after: u64,
    /// The task of the lanes, if it differs from that of the session.
    task: Option<Arc<str>>,
    /// The message after the record.
    message: Option<String>,
}

/// The record of the header, before any event.
const FIRST_RECORD: u64 = 0;

/// Runs sessions again, with these settings in addition to the options.
pub(super) fn run(args: &WhatIfArgs, more: &[String], world: &ProcessEnv) -> Result<u8, CliError> {
    let mut settings = args.settings.clone();
    settings.layers.set.splice(0..0, more.iter().cloned());
    let stored = SessionLookup::open(&settings.layers, args.last, world)?;
    let prompt = read_prompt(args.prompt.as_deref(), &settings, world, || Ok(Value::Null))?;
    // All sessions are looked up before the first model call.
    let starts = args.sessions.iter().map(|name| LaneStart::find(name, prompt.as_ref(), &stored));
    let starts = starts.collect::<Result<Vec<_>, _>>()?;
    for start in &starts {
        start.check(&settings, &stored, world)?;
    }
    let interrupts = RunInterrupts::default();
    let format = if args.json { OutputFormat::Json } else { OutputFormat::Text };
    let received = listen(&interrupts, format)?;
    let mut comparisons = Vec::new();
    for start in starts {
        let session = start.history.header.session;
        let recorded = SessionPart::read(&stored.store, session, start.after)?;
        let has_recorded_files = !start.history.checkpoints.is_empty();
        let mut lanes = Vec::new();
        for number in 1..=args.lanes.unwrap_or(1) {
            if !args.json {
                output::print_stderr(&format!("{session}: lane {number}"));
            }
            let options = (&settings, &args.checks[..]);
            lanes.push(run_lane(&start, options, (&stored, world), &recorded, &interrupts)?);
            if received.signal().is_some() {
                break;
            }
        }
        let after = start.after;
        let compared =
            LaneComparison { session_id: session, after, has_recorded_files, recorded, lanes };
        let text = if args.json { output::to_json(&compared) } else { format_lanes(&compared) };
        output::print(&stored.secrets.mask_all(&text))?;
        comparisons.push(compared);
        if let Some(signal) = received.signal() {
            return Ok(signal.exit_code());
        }
    }
    let summary = LaneSummary::new(&comparisons);
    let lanes = summary.lanes;
    output::print(&match args.json {
        true => output::to_json(&SummaryLine { summary }),
        false => format_summary(&summary),
    })?;
    let (failed, exit_code) = LaneComparison::failures(&comparisons);
    if failed > 0 {
        log::warn!("{failed} of {} failed", pluralize(lanes, "lane", "lanes"));
    }
    Ok(exit_code)
}

/// The last line of `architect what-if --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SummaryLine {
    /// The differences between the lanes and the recorded sessions.
    summary: LaneSummary,
}

impl LaneStart {
    fn find(name: &str, prompt: Option<&String>, stored: &SessionLookup) -> Result<Self, CliError> {
        let (name, after) = split_record(name)?;
        let session = stored.find(name)?;
        stored.check_whole(session)?;
        let (history, end) = stored.store.load(session)?;
        let last = end.position.seq.saturating_sub(1);
        if let Some(seq) = after.filter(|seq| *seq > last) {
            return Err(JournalError::NoRecord { session, seq, last }.into());
        }
        let (task, message) = match after {
            None | Some(FIRST_RECORD) => (prompt.map(|text| text.as_str().into()), None),
            Some(_) => (None, prompt.cloned()),
        };
        Ok(Self { history, after: after.unwrap_or(FIRST_RECORD), task, message })
    }

    /// Checks that the model can be called and that the files are recorded, before anything is created.
    fn check(
        &self,
        settings: &SettingsArgs,
        stored: &SessionLookup,
        world: &ProcessEnv,
    ) -> Result<(), CliError> {
        let config = load_origin_config((settings, None), stored, &self.history, world)?;
        ResolvedModel::from_config(&config, world)?.check(&config, world)?;
        if !self.history.checkpoints.is_empty() {
            RecordedWorkspace::load(&stored.store, &self.history, Some(self.after), &config)?;
        }
        Ok(())
    }

    /// Creates the worktree of a lane. A session without changes has no recorded files, so the present ones are used.
    fn worktree(
        &self,
        settings: &SettingsArgs,
        stored: &SessionLookup,
        world: &ProcessEnv,
    ) -> Result<WorktreeRun, CliError> {
        if !self.history.checkpoints.is_empty() {
            let options = (settings, None);
            let made = create_worktree(options, stored, &self.history, Some(self.after), world)?;
            log::info!("the lane works in {}", made.1);
            return Ok(made.0);
        }
        let mut config = load_origin_config((settings, None), stored, &self.history, world)?;
        worktree_run::sweep(world);
        let name = WorktreeName::Generated("fork");
        WorktreeRun::create(&mut config, world, name, WorktreeContent::Uncommitted)
    }
}

/// Runs a session again.
fn run_lane(
    start: &LaneStart,
    (settings, checks): (&SettingsArgs, &[String]),
    (stored, world): (&SessionLookup, &ProcessEnv),
    recorded: &SessionPart,
    interrupts: &RunInterrupts,
) -> Result<LaneRun, CliError> {
    let worktree = start.worktree(settings, stored, world)?;
    let options = ForkOptions {
        lane: Some(LaneFork { task: start.task.clone() }),
        workspace: worktree.identity().transpose()?,
        ..ForkOptions::new(Some(start.after), SystemTime::now())
    };
    let session = stored.store.fork(start.history.header.session, &options)?;
    let request = ResumeRequest {
        repair: DamagePolicy::Refuse,
        prompt: start.message.clone(),
        images: Vec::new(),
        worktree: Some(worktree),
        settings,
    };
    let PreparedResume { worktree, mut setup, request, .. } =
        prepare_resume(stored, session, request, None, world.clone())
            // The session has not run, so it is removed.
            .inspect_err(|_| drop(stored.store.remove(session)))?;
    setup.interrupts = Some(interrupts.clone());
    let io = RunIo::unattended(Reporter::new(Vec::new()));
    task::run_workflow(&setup, request, RunMode::Direct, &io)?;
    let part = SessionPart::read(&stored.store, session, start.after)?;
    Ok(LaneRun {
        session_id: session,
        first_divergence: recorded.first_divergence(&part),
        checks: checks.iter().map(|line| check_lane(&setup, line)).collect(),
        worktree: worktree.as_ref().and_then(WorktreeRun::result),
        part,
    })
}

/// The maximum length of a lane's error in the report, in characters.
const MAX_ERROR_CHARS: usize = 200;

fn format_lanes(compared: &LaneComparison) -> String {
    let LaneComparison { session_id, after, recorded, .. } = compared;
    let mut text = format!("{session_id}, after record {after}\n");
    if !compared.has_recorded_files {
        text.push_str("  no files are recorded; the lanes began with the current ones\n");
    }
    text.push_str(&format!("  recorded, {}\n", format_part(recorded)));
    for (number, lane) in (1..).zip(&compared.lanes) {
        text.push_str(&format!("  lane {number}, run now, {}\n", format_part(&lane.part)));
        if let Some(error) = &lane.part.error {
            text.push_str(&format!("    error: {}\n", sanitize::headline(error, MAX_ERROR_CHARS)));
        }
        if let Some(found) = &lane.first_divergence {
            let reply = |reply: &Option<Arc<str>>| match reply {
                Some(text) => sanitize::headline(text, 100),
                None => "none".to_owned(),
            };
            let (recorded, own) = (reply(&found.recorded), reply(&found.lane));
            text.push_str(&format!("    reply {}: {own}\n", found.reply));
            text.push_str(&format!("    recorded: {recorded}\n"));
        }
        for check in &lane.checks {
            let end = if check.passed { "passed" } else { "failed" };
            text.push_str(&format!("    check {end}: {}\n", sanitize::headline(&check.name, 100)));
        }
        let place = lane.worktree.as_ref().filter(|worktree| worktree.kept);
        let place = place.map_or(String::new(), |worktree| format!(" in {}", worktree.name));
        text.push_str(&format!("    session {}{place}\n", lane.session_id));
    }
    text
}

fn format_part(part: &SessionPart) -> String {
    let end = part.stop_reason.as_deref().unwrap_or("not ended");
    let (model, used) = (sanitize::headline(&part.model, 60), format_usage(&part.used));
    format!("{model}: {end}, {used}, {:.1} s", part.duration_seconds)
}

fn format_summary(summary: &LaneSummary) -> String {
    let mut text = format!(
        "{} of {}; mean differences of the lanes from what is recorded, {}:\n",
        pluralize(summary.lanes, "lane", "lanes"),
        pluralize(summary.sessions, "session", "sessions"),
        match summary.lanes {
            1 => "without an interval, which takes several lanes or sessions",
            _ => "with 95 % confidence intervals",
        }
    );
    let rows = [
        ("success", 2, &summary.success),
        ("steps", 2, &summary.steps),
        ("model calls", 2, &summary.llm_calls),
        ("tokens", 1, &summary.tokens),
        ("cost in $", 4, &summary.cost),
        ("seconds", 2, &summary.duration_seconds),
    ];
    for (name, digits, estimate) in rows {
        if let Some(Estimate { value, low, high }) = estimate {
            let interval = low.zip(*high).map_or(String::new(), |(low, high)| {
                format!(" [{low:+.digits$}, {high:+.digits$}]")
            });
            text.push_str(&format!("  {name}: {value:+.digits$}{interval}\n"));
        }
    }
    if let Some(Estimate { value, low, high }) = summary.checks_passed {
        let (low, high) = (low.unwrap_or(value), high.unwrap_or(value));
        text.push_str(&format!(
            "  lanes with all checks passed: {value:.2} [{low:.2}, {high:.2}]\n"
        ));
    }
    text
}

/// Returns the usage of a session, in words.
pub(super) fn format_usage(usage: &SessionUsage) -> String {
    let cost = usage.cost.map_or_else(String::new, |cost| format!(", ${cost:.4}"));
    format!(
        "{}, {}, {}{cost}",
        pluralize(usage.steps, "step", "steps"),
        pluralize(usage.llm_calls, "model call", "model calls"),
        pluralize(usage.tokens, "token", "tokens")
    )
}
