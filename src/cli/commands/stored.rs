//! Commands for one stored session, and the command that removes old sessions.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use architect::app::{
    ProcessEnv, RecordProblem, RequestComparison, SessionVerification, mask_message, open_store,
    trace_session, verify_session,
};
use architect::journal::{
    Divergence, JournalEnd, JournalEndKind, MessageKind, QueuedMessage, SessionHistory, SessionId,
    SessionIndex,
};
use architect::machine::{StateKind, StopReason};
use architect::types::{Sha256Digest, pluralize};
use architect::view::atif::Trajectory;
use architect::view::save;
use architect::workspace::read_input;
use schemars::JsonSchema;
use serde::Serialize;

use super::sessions::RemovedDocument;
use crate::cli::args::{CleanupArgs, MessageArgs, ReplayArgs, TraceArgs};
use crate::cli::error::CliError;
use crate::cli::session_lookup::SessionLookup;
use crate::cli::{config_options, output, task_text};

const SECONDS_PER_DAY: u64 = 86_400;

/// `architect steer` and `architect followup`: sends a message to a running session.
pub(crate) fn send(
    args: &MessageArgs,
    kind: MessageKind,
    world: &ProcessEnv,
) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.layers, args.last, world)?;
    let session = stored.find_and_report_folder(&args.session)?;
    let text = mask_message(&task_text::read_message(&args.message)?, &stored.secrets);
    stored.store.send(session, &QueuedMessage::new(kind, text))?;
    let when = match kind {
        MessageKind::Steering => "before its next model call",
        _ => "when it would have ended",
    };
    output::print_stderr(&format!("Session {session} reads it {when}."));
    Ok(0)
}

/// `architect replay`: replays a stored session offline and checks it.
pub(crate) fn replay(args: &ReplayArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.settings.layers, args.last, world)?;
    let session = stored.find_and_report_folder(&args.session)?;
    if args.verify {
        let verified = verify_session(&stored.store, session, args.expect_hash)?;
        return print_verification(session, &verified, args);
    }
    let (mut records, mut divergence): (u64, Option<Divergence>) = (0, None);
    let (history, end) = stored.store.replay(session, |_, _, replayed| {
        records += 1;
        divergence = divergence.take().or_else(|| replayed.divergence.clone());
    })?;
    let text = match args.json {
        true => output::to_json(&ReplayDocument::new(
            session,
            &history,
            &end,
            records,
            divergence.as_ref(),
        )),
        false => format!(
            "{}: {}{}",
            pluralize(records, "record", "records"),
            describe_state(&history),
            describe_end(&end)
        ),
    };
    output::print(&text).map(|_| u8::from(is_damaged(&end)))
}

/// Returns whether records are lost or unreadable. Half a line at the end is the usual result of a crash, and not
/// damage.
fn is_damaged(end: &JournalEnd) -> bool {
    end.damage().is_some() || matches!(end.kind, JournalEndKind::ReadOnly(_))
}

/// The document of `architect replay --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ReplayDocument<'a> {
    /// The session.
    session_id: SessionId,
    /// The number of replayed records.
    records: u64,
    /// The state after the last record.
    state: StateKind,
    /// The reason why the newest run ended; null if it has not ended.
    stop_reason: Option<&'static str>,
    /// Whether the journal ends with a whole record.
    whole: bool,
    /// The reason why the recorded files can't be used; null if they can, or without `--verify`.
    files_error: Option<String>,
    /// The first record after which the state of the machine differs from the stored one.
    difference: Option<RecordDifference>,
    /// The results of `--verify`.
    #[serde(flatten)]
    verified: Option<VerifiedParts<'a>>,
}

/// A record with a difference.
#[derive(Serialize, JsonSchema)]
struct RecordDifference {
    /// The record.
    seq: u64,
    /// The event of the record.
    event: String,
}

/// The results of `--verify`.
#[derive(Serialize, JsonSchema)]
struct VerifiedParts<'a> {
    /// The SHA-256 of the journal.
    journal_hash: Option<Sha256Digest>,
    /// The comparison of the rebuilt requests.
    requests: RequestsDocument<'a>,
    /// The problems, a sentence each.
    problems: &'a [String],
}

/// A comparison of the requests with their stored digests.
#[derive(Serialize, JsonSchema)]
struct RequestsDocument<'a> {
    /// The number of requests that equal the sent ones.
    same: u64,
    /// The number of requests that were not compared, by reason.
    not_compared: &'a BTreeMap<String, u64>,
    /// The first different request.
    difference: Option<DifferentRequest>,
}

/// A request with a difference.
#[derive(Serialize, JsonSchema)]
struct DifferentRequest {
    /// The record of the reply.
    seq: u64,
}

impl ReplayDocument<'_> {
    fn new(
        session: SessionId,
        history: &SessionHistory,
        end: &JournalEnd,
        records: u64,
        divergence: Option<&Divergence>,
    ) -> Self {
        Self {
            session_id: session,
            records,
            state: history.machine.state.kind(),
            stop_reason: history.stop_reason().map(StopReason::name),
            whole: end.kind == JournalEndKind::Whole,
            files_error: None,
            difference: divergence
                .map(|found| RecordDifference { seq: found.seq, event: found.record.clone() }),
            verified: None,
        }
    }
}

fn describe_state(history: &SessionHistory) -> String {
    let reason = history.stop_reason().map(|reason| format!(" ({reason})"));
    format!("{}{}", history.machine.state.kind().as_str(), reason.unwrap_or_default())
}

fn describe_end(end: &JournalEnd) -> String {
    match &end.kind {
        JournalEndKind::Whole => String::new(),
        JournalEndKind::Torn(damage) => format!("; what comes behind is torn ({damage})"),
        JournalEndKind::ReadOnly(why) => format!("; the rest is not readable: {why}"),
    }
}

/// Prints the results, and returns the exit code.
fn print_verification(
    session: SessionId,
    verified: &SessionVerification,
    args: &ReplayArgs,
) -> Result<u8, CliError> {
    let SessionVerification { history, end, records, divergence, requests, files, .. } = verified;
    let mut problems: Vec<String> = Vec::new();
    problems
        .extend(divergence.iter().map(|found| format!("record {} differs: {found}", found.seq)));
    problems.extend(verified.wrong_hash.iter().map(ToString::to_string));
    problems.extend(requests.difference.iter().map(ToString::to_string));
    problems.extend(
        files.as_ref().err().map(|error| format!("the recorded files are damaged: {error}")),
    );
    problems.extend(
        verified
            .wrong_record
            .iter()
            .map(|RecordProblem { seq, error }| format!("record {seq} was changed: {error}")),
    );
    problems.extend(verified.damaged_output.iter().map(|RecordProblem { seq, error }| {
        format!("the whole output of the call in record {seq} is damaged: {error}")
    }));
    problems.extend(describe_unexpected_hash(verified, args));
    let text = if args.json {
        let difference = requests.difference.as_ref();
        let verified = VerifiedParts {
            journal_hash: end.hash,
            requests: RequestsDocument {
                same: requests.same,
                not_compared: &requests.skipped,
                difference: difference.map(|found| DifferentRequest { seq: found.seq }),
            },
            problems: &problems,
        };
        let document = ReplayDocument::new(session, history, end, *records, divergence.as_ref());
        let files_error = files.as_ref().err().map(ToString::to_string);
        output::to_json(&ReplayDocument { files_error, verified: Some(verified), ..document })
    } else {
        let mut lines = problems.clone();
        if problems.is_empty() {
            let counted = pluralize(*records, "record", "records");
            let (state, ending) = (describe_state(history), describe_end(end));
            let which = match end.kind {
                JournalEndKind::Whole => format!("{counted}, all as stored"),
                JournalEndKind::Torn(_) | JournalEndKind::ReadOnly(_) => {
                    format!("the first {counted} as stored")
                }
            };
            lines.push(format!("{which}; state: {state}{ending}"));
            lines.extend(describe_requests(requests));
        }
        let hash = end.hash.map(|hash| hash.to_string()).unwrap_or_default();
        lines.push(format!("journal: sha256 {hash}"));
        lines.join("\n")
    };
    output::print(&text)?;
    Ok(u8::from(is_damaged(end) || !problems.is_empty()))
}

/// Returns the problem if the hash of a journal is not the expected one.
fn describe_unexpected_hash(verified: &SessionVerification, args: &ReplayArgs) -> Option<String> {
    let expected = args.expect_hash?;
    if verified.end.hash == Some(expected) {
        let is_longer = verified.end.kind != JournalEndKind::Whole;
        return is_longer.then(|| "the file goes on behind the records with that hash".to_owned());
    }
    let last = verified.end.position.seq.saturating_sub(1);
    Some(match verified.expected_at {
        Some(seq) => format!(
            "the expected hash is that of the records up to {seq}; those after it, up to {last}, are not covered"
        ),
        None => format!(
            "the journal does not have the expected hash {expected}: a record was changed, or records are missing at its end"
        ),
    })
}

fn describe_requests(requests: &RequestComparison) -> Vec<String> {
    let mut lines = Vec::new();
    if requests.same > 0 {
        let counted = pluralize(requests.same, "request", "requests");
        lines.push(format!("{counted} built again, as sent"));
    }
    for (reason, count) in &requests.skipped {
        lines.push(format!("requests not compared: {count} ({reason})"));
    }
    if lines.is_empty() {
        lines.push("requests not compared: the journal has no digests of requests".to_owned());
    }
    lines
}

/// `architect trace`: shows where a session spent its time.
pub(crate) fn trace(args: &TraceArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.layers, args.last, world)?;
    let file = Path::new(&args.session);
    let mut trace = if file.extension().is_some_and(|extension| extension == "json") {
        read_trajectory(file)?.trace()
    } else {
        let session = stored.find_and_report_folder(&args.session)?;
        stored.check_damage(session, args.partial)?;
        trace_session(&stored.store, session)?
    };
    // Secrets are masked before anything is escaped: a secret with a quotation mark would not be found afterwards.
    trace.map_texts(&|text| stored.secrets.mask_all(text));
    if let Some(path) = &args.html {
        let html = stored.secrets.mask_all(&trace.html());
        save(Path::new("."), path, html.as_bytes()).map_err(CliError::failed)?;
        output::print_stderr(&format!("The page is {}.", path.display()));
    }
    match (args.json, &args.html) {
        (true, _) => output::print(&stored.secrets.mask_all(&output::to_json(&trace))),
        (false, None) => output::print(&stored.secrets.mask_all(&trace.table())),
        (false, Some(_)) => Ok(0),
    }
}

fn read_trajectory(file: &Path) -> Result<Trajectory, CliError> {
    let text = read_input(file).map_err(|error| CliError::unreadable(file.display(), &error))?;
    serde_json::from_str(&text).map_err(|error| {
        let name = file.display();
        CliError::usage(format!("{name} is no trajectory in the ATIF format: {error}"))
    })
}

/// `architect cleanup`: removes old sessions.
pub(crate) fn clean_up(args: &CleanupArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let config = config_options::load_layers(&args.layers, world)?;
    let days = args.older_than.unwrap_or(config.settings.sessions.cleanup_after_days);
    let age = Duration::from_secs(u64::from(days) * SECONDS_PER_DAY);
    let before = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let removed = SessionIndex::open(&open_store(&config, world)?)?.clean_up(before)?;
    let text = if args.json {
        output::to_json(&RemovedDocument { removed })
    } else {
        let sessions = pluralize(removed.len(), "session", "sessions");
        let days = pluralize(days, "day", "days");
        format!("{sessions} removed, unchanged for {days}")
    };
    output::print(&text)
}
