//! The command line: arguments, the terminal, errors with hints, exit codes.

mod approval;
mod args;
mod batch_cells;
mod batch_output;
mod commands;
mod completion;
mod config_options;
mod confirm;
mod error;
mod logging;
mod output;
mod results_folder;
mod session_lookup;
mod sinks;
mod standard_input;
mod task;
mod task_text;
mod workflow_output;
mod worktree_run;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use architect::app::ProcessEnv;
use architect::exec::helper;
use architect::runner::{install_handlers, set_ending};
use architect::types::nearest;
use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use signal_hook::consts::{SIGUSR1, SIGUSR2, SIGXFSZ};

use args::{Cli, OutputFormat};
use error::CliError;

/// The exit code of wrong usage and invalid configuration.
pub(crate) const USAGE_EXIT_CODE: u8 = 3;

/// Parses the arguments, executes the command, and returns the exit code.
pub(crate) fn main() -> ExitCode {
    completion::answer_shell();
    // Handlers are installed before any file is touched. A run without working handlers reports that when it begins.
    let _ = install_handlers();
    set_ending(helper::end_after_supervisors);
    logging::init();
    logging::report_panics();
    output::break_closed_stdout();
    ignore_signals();
    let done = match Cli::try_parse() {
        Ok(cli) => match ProcessEnv::current() {
            Ok(world) => commands::run(cli.command, world),
            Err(error) => {
                let failure = CliError::usage(error.to_string());
                print_result_document(&failure, &process_arguments()).and(Err(failure))
            }
        },
        Err(error) => report_clap_error(error),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.code())
        }
    }
}

/// Ignores signals that would end the process without a reason. A write to a file that must not grow fails instead, and
/// this error is reported and stored. The signals for users have no meaning here.
fn ignore_signals() {
    let unused = Arc::new(AtomicBool::new(false));
    for signal in [SIGXFSZ, SIGUSR1, SIGUSR2] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&unused)) {
            log::warn!("signal {signal} would end the process: {error}");
        }
    }
}

/// Options of other agents, with their replacements.
const OPTIONS_OF_OTHERS: [(&str, &str); 11] = [
    ("yolo", "use --mode yolo"),
    ("full-auto", "use --mode yolo"),
    ("dangerously-skip-permissions", "use --mode yolo"),
    ("dangerously-bypass-approvals-and-sandbox", "use --mode yolo --sandbox off"),
    ("ask-for-approval", "use --mode"),
    ("max-turns", "use --max-steps"),
    ("max-budget-usd", "use --budget"),
    ("allowedTools", "use --allow"),
    ("disallowedTools", "use --deny"),
    ("continue", "`architect resume last` continues a session"),
    ("resume", "`architect resume last` continues a session"),
];

/// Returns the replacement of another agent's option.
fn find_foreign_option(error: &clap::Error) -> Option<&'static str> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = typed.strip_prefix("--")?.split('=').next()?;
    OPTIONS_OF_OTHERS.into_iter().find(|(foreign, _)| *foreign == name).map(|(_, own)| own)
}

/// Returns an error that suggests the most similar option: clap prefers a common prefix, while users swap letters.
fn with_suggestion(mut error: clap::Error, words: &[String]) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    if find_foreign_option(&error).is_some() {
        // Clap's suggestion, also in the usage, only looks similar.
        for kind in [ContextKind::SuggestedArg, ContextKind::Suggested, ContextKind::Usage] {
            error.remove(kind);
        }
        return error;
    }
    let typed = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(typed)) if typed.starts_with("--") => typed,
        _ => return error,
    };
    let root = Cli::all_commands();
    let mut command = &root;
    for word in words {
        match command.find_subcommand(word) {
            Some(below) => command = below,
            None if word.starts_with('-') => {}
            None => break,
        }
    }
    let arguments = [command, &root].into_iter().flat_map(clap::Command::get_arguments);
    let name = typed.trim_start_matches('-').split('=').next().unwrap_or_default();
    if let Some(found) = nearest(name, arguments.filter_map(clap::Arg::get_long)) {
        let suggested = ContextValue::String(format!("--{found}"));
        error.insert(ContextKind::SuggestedArg, suggested);
    }
    error
}

/// Returns the output format that these arguments request, for a command whose output is the result of a run.
fn requested_format(words: &[String]) -> Option<OutputFormat> {
    let runs = ["run", "exec", "demo", "resume", "fork", "batch", "compare", "loop", "pipeline"];
    let mut typed = words.iter().filter(|word| !word.starts_with('-'));
    let (command, next) = (typed.next()?, typed.next());
    // The output of `batch emit` is a script; the format is that of the emitted batch.
    let is_emitted = command == "batch" && next.is_some_and(|word| word == "emit");
    if !runs.contains(&command.as_str()) || is_emitted {
        return None;
    }
    let words = words.iter().map(String::as_str).take_while(|word| *word != "--");
    let mut before = "";
    for word in words {
        let format = word.strip_prefix("--output-format=");
        let format = format.or_else(|| (before == "--output-format").then_some(word));
        match format {
            Some("stream-json") => return Some(OutputFormat::StreamJson),
            Some("json") => return Some(OutputFormat::Json),
            _ if word == "--json" => return Some(OutputFormat::Json),
            _ => before = word,
        }
    }
    None
}

/// Returns the arguments of this process.
fn process_arguments() -> Vec<String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Prints the document of a run that never began, if these words request one: a program that reads JSON gets it even
/// then.
fn print_result_document(failure: &CliError, words: &[String]) -> Result<(), CliError> {
    match requested_format(words) {
        Some(format) => commands::print_result(&failure.to_result(), format).map(drop),
        None => Ok(()),
    }
}

/// Prints the output of clap: help and version are answers, everything else is wrong usage. (Clap's own exit code for
/// wrong usage, 2, is that of a partial run here.)
fn report_clap_error(error: clap::Error) -> Result<u8, CliError> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::print(&error.render().to_string())
        }
        _ => {
            let words = process_arguments();
            let error = with_suggestion(error, &words);
            let rendered = error.render().to_string();
            output::print_stderr(&rendered);
            let first = words.iter().find(|word| !word.starts_with('-'));
            let typed = error.get(ContextKind::InvalidSubcommand).map(ToString::to_string);
            if typed.is_some() && typed.as_ref() == first {
                output::print_stderr("  hint: a task is given to `run`: architect run \"…\"");
            }
            if let Some(own) = find_foreign_option(&error) {
                output::print_stderr(&format!("  hint: {own}"));
            }
            let unexpected = error.get(ContextKind::InvalidArg).map(ToString::to_string);
            let is_task = first.is_some_and(|command| command == "run")
                && unexpected.is_some_and(|text| !text.starts_with('-'));
            if error.kind() == ErrorKind::UnknownArgument && is_task {
                output::print_stderr("  hint: put the task in quotes: architect run \"…\"");
            }
            let error = rendered.split("\n\n").next().unwrap_or_default();
            let error = error.strip_prefix("error: ").unwrap_or(error);
            let message = error.split_whitespace().collect::<Vec<_>>().join(" ");
            print_result_document(&CliError::usage(message), &words)?;
            Ok(USAGE_EXIT_CODE)
        }
    }
}
