//! `architect conform`: checks recorded sessions of other programs against the invariants of a run.

use std::io::Read as _;
use std::path::Path;

use architect::conform::{ConformanceReport, TraceFormat, check};
use architect::types::pluralize;
use architect::view::sanitize;
use architect::workspace::open_input;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::args::ConformArgs;
use crate::cli::error::CliError;
use crate::cli::output;

pub(crate) fn run(args: &ConformArgs) -> Result<u8, CliError> {
    let mut code = 0;
    for path in &args.traces {
        let name = sanitize::path(path);
        // A failure does not stop the checks of the other files.
        let checked = match check_file(path, &name, args) {
            Err(failure) if args.traces.len() > 1 => {
                failure.print();
                failure.code()
            }
            checked => checked?,
        };
        code = code.max(checked);
    }
    Ok(code)
}

/// Checks one recording, and returns the exit code.
fn check_file(path: &Path, name: &str, args: &ConformArgs) -> Result<u8, CliError> {
    let text = read(path).map_err(|error| CliError::unreadable(name, &error))?;
    let report = check(args.from, &text).ok_or_else(|| {
        let parts = |format: TraceFormat| check(format, &text).map_or(0, |report| report.parts());
        let counts = TraceFormat::ALL.into_iter().map(|format| (parts(format), format)).rev();
        let readable = counts.filter(|(count, _)| *count > 0).max_by_key(|(count, _)| *count);
        let hint = match readable.map(|(_, format)| format) {
            Some(other) => format!("it can be read with --from {other}"),
            None => "--from names the program that wrote it".to_owned(),
        };
        CliError::usage(format!("{name} is not a recording in the format {}", args.from)).hint(hint)
    })?;
    output::print(&match args.json {
        true => output::to_json(&ConformDocument { report: &report, file: name }),
        false => line(name, &report),
    })?;
    Ok(u8::from(!report.conforms))
}

/// The maximum size of a recording, in bytes. The values take several times as much memory.
const MAX_RECORDING: u64 = 256 << 20;

/// Reads a recording without a byte order mark. Invalid UTF-8 is replaced, since it can only be in texts.
fn read(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    open_input(path)?.take(MAX_RECORDING + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_RECORDING {
        return Err(std::io::Error::other("it is larger than 256 MiB; split it"));
    }
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    let marked = text.strip_prefix('\u{feff}').map(str::to_owned);
    Ok(marked.unwrap_or(text))
}

fn line(name: &str, report: &ConformanceReport) -> String {
    if let Some(found) = &report.violation {
        let message = sanitize::headline(&found.message, 200);
        return format!("{name}:{}: {} at {}: {message}", found.line, found.invariant, found.path);
    }
    let mut text = format!(
        "{name}: conforms: {}, {}, {}",
        pluralize(report.replies, "reply", "replies"),
        pluralize(report.calls, "call", "calls"),
        pluralize(report.results, "result", "results"),
    );
    if report.cut_off_calls > 0 {
        text.push_str(&format!(", {} cut off", pluralize(report.cut_off_calls, "call", "calls")));
    }
    if report.compactions > 0 {
        let compactions = pluralize(report.compactions, "compaction", "compactions");
        text.push_str(&format!(", {compactions}"));
    }
    text
}

/// A line of `architect conform --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ConformDocument<'a> {
    #[serde(flatten)]
    report: &'a ConformanceReport,
    /// The file, as named by the user.
    file: &'a str,
}
