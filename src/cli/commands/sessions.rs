//! `architect sessions`: the stored sessions.

use std::io::{self, StdoutLock, Write};
use std::path::Path;
use std::time::SystemTime;

use architect::app::{ProcessEnv, session_trajectory};
use architect::journal::index::{
    CostRow, MessageRole, MessageRow, SearchHit, SessionDetail, SessionRow,
};
use architect::journal::{SessionId, SessionIndex, SessionStore};
use architect::net::Secrets;
use architect::types::{MicroUsd, Tokens, pluralize};
use architect::view::{
    TERMINAL_WIDTH, flush_blocking, in_columns, sanitize, shorten_column, write_all_blocking,
};
use architect::workspace::open_input;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::args::{ExportArgs, ExportFormat, SessionsArgs, SessionsCommand};
use crate::cli::error::CliError;
use crate::cli::output;
use crate::cli::session_lookup::SessionLookup;

/// The default number of listed sessions and of found messages.
const DEFAULT_LIMIT: usize = 50;

pub(crate) fn run(args: &SessionsArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.layers, args.last, world)?;
    let store = &stored.store;
    let list = SessionsCommand::List { limit: DEFAULT_LIMIT };
    let mut code = 0;
    let (json, text) = match args.command.as_ref().unwrap_or(&list) {
        SessionsCommand::List { limit } => {
            let mut rows = SessionIndex::open(store)?.list()?;
            let text = match rows.is_empty() {
                true => "no sessions\n".to_owned(),
                false => format_table(&rows, *limit),
            };
            rows.truncate(*limit);
            code = report_damage(&rows, args.partial);
            (output::to_json(&rows), text)
        }
        SessionsCommand::Show { session } => {
            let session = stored.find(session)?;
            stored.check_damage(session, args.partial)?;
            let detail = SessionDetail::load(store, session)?;
            (output::to_json(&detail), format_detail(&detail))
        }
        SessionsCommand::Search { text, limit } => {
            let mut index = SessionIndex::open(store)?;
            let hits = index.search(text, *limit)?;
            code = report_damage(&index.list()?, args.partial);
            (output::to_json(&hits), format_hits(&hits))
        }
        SessionsCommand::Costs { total } => {
            let mut index = SessionIndex::open(store)?;
            let rows = index.costs()?;
            code = report_damage(&index.list()?, args.partial);
            format_costs(rows, *total)
        }
        SessionsCommand::Export { session } => {
            let session = stored.find(session)?;
            stored.check_damage(session, args.partial)?;
            return export_records(store, session, &stored.secrets);
        }
        SessionsCommand::Import { file } => import(&stored, file)?,
        SessionsCommand::Rm { session } => {
            let session = stored.find(session)?;
            let removed = SessionIndex::open(store)?.remove(session)?;
            let others = match removed.len() {
                1 => String::new(),
                count => {
                    let sessions = pluralize(count - 1, "session", "sessions");
                    format!(", with {sessions} of its sub-agents and evaluations")
                }
            };
            (
                output::to_json(&RemovedDocument { removed }),
                format!("session {session} removed{others}"),
            )
        }
    };
    output::print(&stored.secrets.mask_all(&if args.json { json } else { text }))?;
    Ok(code)
}

/// Warns about damaged sessions, and returns the exit code of a command that has listed them.
pub(super) fn report_damage(rows: &[SessionRow], partial: bool) -> u8 {
    let damaged = || rows.iter().filter(|row| row.damaged);
    for row in damaged() {
        let why = row.problem.as_deref().unwrap_or_default();
        log::warn!("the journal of session {} is damaged: {why}", row.session_id);
    }
    u8::from(!partial && damaged().next().is_some())
}

/// Returns a line for each of the first `shown` sessions, with a unique prefix of its ID, which every command accepts.
fn format_table(rows: &[SessionRow], shown: usize) -> String {
    let ids: Vec<String> = rows.iter().map(|row| row.session_id.to_string()).collect();
    let short = unique_prefixes(&ids);
    let widest = short.iter().take(shown).map(|id| id.len()).max().unwrap_or_default().max(7);
    let head = |id: &str, when: &str, status: &str, steps: &str, cost: &str| {
        format!("{id:<widest$}  {when:<11}  {status:<10} {steps:>5} {cost:>7}  ")
    };
    let mut text = head("session", "written", "status", "steps", "cost") + "task\n";
    for (row, id) in rows.iter().zip(short).take(shown) {
        let when = row.modified.get(5..16).unwrap_or(&row.modified).replace('T', " ");
        let cost = row.cost.map_or("-".to_owned(), short_dollars);
        let line = head(id, &when, &row.status.to_string(), &row.steps.to_string(), &cost);
        let left = TERMINAL_WIDTH.saturating_sub(line.chars().count()).max(8);
        let task = sanitize::headline(row.prompt.as_deref().unwrap_or_default(), left);
        text.push_str(&format!("{line}{task}\n"));
    }
    text
}

/// The minimum length of a displayed prefix of an ID.
const MIN_PREFIX: usize = 8;

/// Returns the shortest unique prefix of each ID.
fn unique_prefixes(ids: &[String]) -> Vec<&str> {
    let mut sorted: Vec<&str> = ids.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let common = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let prefix = |id: &String| {
        let at = sorted.partition_point(|other| *other < id.as_str());
        let before = at.checked_sub(1).map(|at| common(sorted[at], id));
        let after = sorted.get(at + 1).map(|other| common(other, id));
        let length = before.max(after).map_or(MIN_PREFIX, |same| (same + 1).max(MIN_PREFIX));
        id.len().min(length)
    };
    ids.iter().map(|id| &id[..prefix(id)]).collect()
}

/// The width of text after an indentation of four columns.
const INDENTED_WIDTH: usize = 76;

fn short_dollars(cost: MicroUsd) -> String {
    let dollars = cost.as_dollars();
    if dollars < 10.0 { format!("${dollars:.4}") } else { format!("${dollars:.2}") }
}

fn format_detail(detail: &SessionDetail) -> String {
    let SessionDetail { session, messages, files, .. } = detail;
    let maybe = |text: &Option<String>| sanitize::line(text.as_deref().unwrap_or("-")).into_owned();
    let mut text = format!(
        "session    {}\nstatus     {}{}\nmodel      {}\nagent      {}\nworkspace  {}\nsteps      {}\n",
        session.session_id,
        session.status,
        session.stop_reason.as_deref().map_or(String::new(), |reason| format!(" ({reason})")),
        maybe(&session.model),
        maybe(&session.agent),
        maybe(&session.workspace),
        session.steps
    );
    if let Some(error) = &detail.error {
        text.push_str(&format!("error      {}\n", sanitize::line(error)));
    }
    if let Some(parent) = session.parent {
        text.push_str(&format!("parent     {parent}\n"));
    }
    for file in files {
        let path = file.path.to_string();
        let path = sanitize::line(&path);
        text.push_str(&format!("changed    {path} (+{} −{})\n", file.added, file.removed));
    }
    messages.iter().for_each(|message| text.push_str(&format_message(message)));
    text
}

fn format_message(message: &MessageRow) -> String {
    let name = sanitize::line(message.name.as_deref().unwrap_or_default()).into_owned();
    let text = match message.role {
        MessageRole::ToolCall => sanitize::headline(&message.text, 200),
        _ => sanitize::multiline(&message.text).into_owned(),
    };
    format!("\n── {} {name} @{}\n{text}\n", message.role, message.seq)
}

fn format_hits(hits: &[SearchHit]) -> String {
    let line = |hit: &SearchHit| {
        let snippet = sanitize::headline(&hit.snippet, INDENTED_WIDTH);
        format!("{}@{}  {}\n    {snippet}\n", hit.session_id, hit.seq, hit.role.as_str())
    };
    match hits.len() {
        0 => "nothing found\n".to_owned(),
        _ => hits.iter().map(line).collect(),
    }
}

/// Costs, as `architect sessions costs --json` prints them.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)] // names the forms of the document for their schema
pub(crate) enum CostDocument {
    /// Costs by day, model and purpose.
    Rows(Vec<CostRow>),
    /// The total, with `--total`.
    Total(CostTotal),
}

/// The total of all costs.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CostTotal {
    /// The number of model calls with a reply.
    llm_calls: u64,
    /// The tokens of the requests.
    input_tokens: Tokens,
    /// The tokens of the replies.
    output_tokens: Tokens,
    /// The cost in dollars; null if no call had a price.
    cost: Option<f64>,
}

/// The result of `architect sessions import --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ImportDocument {
    /// The new session.
    session_id: SessionId,
    /// The number of records.
    records: u64,
    /// Whether the file ended in the middle of a record, which was left out.
    torn: bool,
}

/// The result of a command that removes sessions, with `--json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RemovedDocument {
    /// The removed sessions.
    pub(super) removed: Vec<SessionId>,
}

/// The minimum and the maximum number of characters of a model's name in a table.
const MIN_MODEL_WIDTH: usize = 12;
const MAX_MODEL_WIDTH: usize = 32;

/// Returns the costs as JSON and as text. The JSON is an array of rows, or a single object for the total.
fn format_costs(mut rows: Vec<CostRow>, is_total: bool) -> (String, String) {
    let sum = total(&rows);
    let mut json = output::to_json(&rows);
    if is_total {
        json = output::to_json(&CostTotal {
            llm_calls: sum.llm_calls,
            input_tokens: sum.input_tokens,
            output_tokens: sum.output_tokens,
            cost: sum.cost.map(MicroUsd::as_dollars),
        });
        rows.clear();
    }
    let line = |row: &CostRow| {
        let CostRow { day, purpose, llm_calls, .. } = row;
        let model = sanitize::headline(&row.model, MAX_MODEL_WIDTH);
        let (input, output) = (row.input_tokens.0, row.output_tokens.0);
        let cost = row.cost.map_or("-".to_owned(), |cost| cost.to_string());
        let [calls, input, output] = [*llm_calls, input, output].map(|count| count.to_string());
        [day.clone(), model, purpose.clone(), calls, input, output, cost]
    };
    let header = ["day", "model", "for", "calls", "input", "output", "cost"].map(str::to_owned);
    let mut table = vec![header];
    table.extend(rows.iter().chain([&sum]).map(line));
    shorten_column(&mut table, 1, MIN_MODEL_WIDTH, TERMINAL_WIDTH);
    (json, in_columns(&table, |column| column > 2))
}

/// Returns the total of all rows. The cost is the sum of those rows that have a price.
fn total(rows: &[CostRow]) -> CostRow {
    CostRow {
        day: "total".to_owned(),
        model: String::new(),
        purpose: String::new(),
        llm_calls: rows.iter().map(|row| row.llm_calls).sum(),
        input_tokens: rows.iter().fold(Tokens::ZERO, |sum, row| sum + row.input_tokens),
        output_tokens: rows.iter().fold(Tokens::ZERO, |sum, row| sum + row.output_tokens),
        cost: rows.iter().filter_map(|row| row.cost).reduce(|sum, cost| sum + cost),
    }
}

/// `architect export`: writes a session for other programs.
pub(crate) fn export(args: &ExportArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let stored = SessionLookup::open(&args.layers, args.last, world)?;
    let session = stored.find(&args.session)?;
    stored.check_damage(session, args.partial)?;
    match args.format {
        ExportFormat::Jsonl => export_records(&stored.store, session, &stored.secrets),
        ExportFormat::Atif => {
            let trajectory = session_trajectory(&stored.store, session)?;
            output::print(&stored.secrets.mask_for_export(&output::to_json(&trajectory)))
        }
    }
}

fn export_records(
    store: &SessionStore,
    session: SessionId,
    secrets: &Secrets,
) -> Result<u8, CliError> {
    let mut stdout = ExportOutput { stdout: io::stdout().lock(), failure: None };
    let exported = store.export_up_to_damage(session, secrets, &mut stdout);
    match (exported, stdout.failure) {
        (Ok(_), _) => Ok(0),
        (Err(_), Some(failure)) => Err(CliError::from_stdout(&failure)),
        (Err(error), None) => Err(error.into()),
    }
}

/// Standard output. Its errors are kept apart from those of the store.
struct ExportOutput<'a> {
    stdout: StdoutLock<'a>,
    failure: Option<io::Error>,
}

impl ExportOutput<'_> {
    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|failure| {
            let kind = failure.kind();
            self.failure = Some(failure);
            kind.into()
        })
    }
}

impl Write for ExportOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = write_all_blocking(&mut self.stdout, bytes);
        self.note(written.map(|()| bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = flush_blocking(&mut self.stdout);
        self.note(flushed)
    }
}

fn import(stored: &SessionLookup, file: &Path) -> Result<(String, String), CliError> {
    if let Err(error) = open_input(file) {
        return Err(CliError::usage(format!("could not open {}: {error}", file.display())));
    }
    let imported = stored.store.import(file, &stored.folder, SystemTime::now())?;
    let (session, records, torn) =
        (imported.session, imported.records, imported.had_partial_record);
    let end = if torn { "; its end was torn and left out" } else { "" };
    let text = format!("session {session}: {}{end}", pluralize(records, "record", "records"));
    Ok((output::to_json(&ImportDocument { session_id: session, records, torn }), text))
}
