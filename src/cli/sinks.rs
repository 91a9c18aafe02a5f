//! The sinks of a run: standard output, the log on standard error, files.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use architect::app::{ProcessEnv, collect_secrets};
use architect::config::Config;
use architect::net::MaskingWriter;
use architect::runner::SystemClock;
use architect::types::Language;
use architect::view::ci_commands::CommandEscaper;
use architect::view::human::{
    BatchTable, BatchTotals, ColorChoice, HumanLog, LogDetail, LogStyle, TerminalUser,
    TerminalView, can_redraw, should_use_color,
};
use architect::view::{
    AnswerDestination, JsonFormat, JsonSink, OptionalSink, ReportSink, Reporter, TextSink,
};
use architect::workspace::open_for_append;
use signal_hook::consts::SIGCONT;

use super::args::{BatchOutputArgs, OutputArgs, OutputFormat};
use super::confirm::PromptSettings;
use super::error::CliError;
use super::{logging, output};

/// The sinks of a run.
pub(crate) struct Sinks {
    pub(crate) reporter: Reporter,
    /// The settings of questions to the user.
    pub(crate) prompt: PromptSettings,
}

/// Opens the sinks of a run.
///
/// # Errors
///
/// Fails if the log file can't be opened, or the system has no threads for writing.
pub(crate) fn open_sinks(
    args: &OutputArgs,
    config: &Config,
    world: &ProcessEnv,
) -> Result<Sinks, CliError> {
    let failed = |error: io::Error| CliError::no_thread("writing", &error);
    let mut outputs: Vec<Box<dyn ReportSink>> = Vec::new();
    let mut prompt = PromptSettings {
        user_config: world.folders().config.map(|folder| folder.join("config.toml")),
        editor: ["VISUAL", "EDITOR"]
            .into_iter()
            .filter_map(|name| world.variable(name).map(str::to_owned))
            .find(|editor| !editor.trim().is_empty()),
        ..PromptSettings::default()
    };
    let (stderr, is_read) = (io::stderr(), output::is_read_by_ci());
    let variable = |name: &str| world.variable(name).map(str::to_owned);
    let secrets = collect_secrets(config, world);
    prompt.has_color = should_use_color(args.color, true, variable);
    let logs_live = !args.quiet && can_redraw(stderr.is_terminal(), variable);
    if !args.quiet {
        let style = LogStyle {
            lang: config.settings.language,
            has_color: should_use_color(args.color, stderr.is_terminal(), variable),
            shows_costs: args.show_costs,
            detail: if args.verbose > 0 { LogDetail::Full } else { LogDetail::Short },
        };
        let stderr = CommandEscaper::new(stderr, is_read);
        let log = match logs_live {
            true => HumanLog::live(stderr, style, Arc::new(SystemClock::start()), watch_terminal()),
            false => HumanLog::plain(MaskingWriter::new(stderr, secrets.clone()), style),
        };
        let log = log.map_err(failed)?;
        prompt.pause_drawing = logs_live.then(|| log.pause_drawing());
        logging::write_through(Some(log.pause_drawing()));
        outputs.push(Box::new(OptionalSink::new(log, "log")));
    }
    if let Some(path) = &config.settings.logging.file {
        let file = open_for_append(&config.workspace, path).map_err(|error| {
            CliError::usage(format!("could not open the log file {}: {error}", path.display()))
        })?;
        let file = MaskingWriter::new(file, secrets);
        let file = JsonSink::new(file, JsonFormat::Stream).map_err(failed)?;
        outputs.push(Box::new(OptionalSink::new(file, "log file")));
    }
    let stdout = io::stdout();
    let place = match stdout.is_terminal() {
        true if logs_live && config.settings.llm.stream => AnswerDestination::SharedTerminal,
        true => AnswerDestination::Terminal,
        false => AnswerDestination::NonTerminal,
    };
    outputs.push(match args.format.format() {
        OutputFormat::Text => {
            Box::new(TextSink::new(CommandEscaper::new(stdout, is_read), place).map_err(failed)?)
        }
        OutputFormat::Json => {
            Box::new(JsonSink::new(stdout, JsonFormat::Document).map_err(failed)?)
        }
        OutputFormat::StreamJson => {
            Box::new(JsonSink::new(stdout, JsonFormat::Stream).map_err(failed)?)
        }
    });
    Ok(Sinks { reporter: Reporter::new(outputs), prompt })
}

/// Opens the table of a batch, if it can be drawn: on a terminal to which no events are written.
///
/// # Errors
///
/// Fails if the system has no thread for drawing.
pub(crate) fn open_batch_table(
    args: &BatchOutputArgs,
    lang: Language,
    world: &ProcessEnv,
    totals: impl Fn() -> Option<BatchTotals> + Send + 'static,
) -> Result<Option<BatchTable>, CliError> {
    let (stderr, is_read) = (io::stderr(), output::is_read_by_ci());
    let variable = |name: &str| world.variable(name).map(str::to_owned);
    let has_events = args.format.format() == OutputFormat::StreamJson && io::stdout().is_terminal();
    if args.quiet || has_events || !can_redraw(stderr.is_terminal(), variable) {
        return Ok(None);
    }
    let has_color = should_use_color(ColorChoice::Auto, true, variable);
    let style = LogStyle { lang, has_color, ..LogStyle::default() };
    let stderr = CommandEscaper::new(stderr, is_read);
    let clock = Arc::new(SystemClock::start());
    let table = BatchTable::start(stderr, style, clock, watch_terminal(), totals)
        .map_err(|error| CliError::no_thread("drawing", &error))?;
    logging::write_through(Some(table.pause_drawing()));
    Ok(Some(table))
}

/// Returns a function that returns the present size and user of the log's terminal.
fn watch_terminal() -> impl Fn() -> TerminalView + Send {
    let continued = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(SIGCONT, Arc::clone(&continued)) {
        log::debug!("a stop of this program goes unnoticed: {error}");
    }
    move || {
        let usual = |size: u16, usual: usize| if size == 0 { usual } else { size.into() };
        let size = rustix::termios::tcgetwinsize(io::stderr());
        let (columns, rows) =
            size.map_or((80, 24), |size| (usual(size.ws_col, 80), usual(size.ws_row, 24)));
        let was_continued = continued.swap(false, Ordering::Relaxed);
        let foreground = rustix::termios::tcgetpgrp(io::stderr());
        let user = match foreground {
            Ok(group) if group != rustix::process::getpgrp() => TerminalUser::Now,
            _ if was_continued => TerminalUser::Before,
            _ => TerminalUser::None,
        };
        TerminalView { columns, rows, user }
    }
}
