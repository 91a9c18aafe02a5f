//! Who is told of a run: standard output, the log on standard error, files.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use architect::app::World;
use architect::config::{self, Config};
use architect::runner::SystemClock;
use architect::view::human::{self, HumanLog, Hush, Look, is_live, is_styled};
use architect::view::workflow::Inert;
use architect::view::{Json, Lang, Optional, Output, Place, Show, StreamJson, Text};
use architect::workspace::append;

use super::args::{Color, OutputArgs, OutputFormat};
use super::error::Failure;
use super::output;

/// Who is told of a run.
pub(crate) struct Audience {
    pub(crate) show: Show,
    /// Keeps the log from drawing while the user is asked.
    pub(crate) hush: Option<Hush>,
    /// Whether standard output is a terminal; one that is gone does not say so any more.
    pub(crate) is_terminal: bool,
}

/// Returns what standard output carries.
pub(crate) fn format(args: &OutputArgs) -> OutputFormat {
    match args.output_format {
        Some(format) => format,
        None if args.json => OutputFormat::Json,
        None => OutputFormat::Text,
    }
}

/// Returns who is told of a run.
///
/// # Errors
///
/// Fails when the log file can't be opened, or the system has no threads for writing.
pub(crate) fn audience(
    args: &OutputArgs,
    config: &Config,
    world: &World,
) -> Result<Audience, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("could not start writing: {error}"));
    let mut outputs: Vec<Box<dyn Output>> = Vec::new();
    let mut hush = None;
    let logs_live =
        !args.quiet && is_live(io::stderr().is_terminal(), |name| variable(world, name));
    if !args.quiet {
        let log = log(args, config, world, logs_live).map_err(failed)?;
        hush = Some(log.hush());
        outputs.push(Box::new(Optional::new(log, "log")));
    }
    if let Some(path) = &config.settings.logging.file {
        let file = append(&config.workspace, path).map_err(|error| {
            Failure::usage(format!("could not open the log file {}: {error}", path.display()))
        })?;
        let file = StreamJson::new(file).map_err(failed)?;
        outputs.push(Box::new(Optional::new(file, "log file")));
    }
    let stdout = io::stdout();
    let is_terminal = stdout.is_terminal();
    let place = match is_terminal {
        true if logs_live && config.settings.llm.stream => Place::SharedTerminal,
        true => Place::Terminal,
        false => Place::Elsewhere,
    };
    let is_read = output::reads_commands();
    outputs.push(match format(args) {
        OutputFormat::Text => {
            Box::new(Text::new(Inert::new(stdout, is_read), place).map_err(failed)?)
        }
        OutputFormat::Json => Box::new(Json::new(stdout).map_err(failed)?),
        OutputFormat::StreamJson => Box::new(StreamJson::new(stdout).map_err(failed)?),
    });
    Ok(Audience { show: Show::new(outputs), hush, is_terminal })
}

fn log(args: &OutputArgs, config: &Config, world: &World, is_live: bool) -> io::Result<HumanLog> {
    let color = match args.color {
        Color::Auto => human::Color::Auto,
        Color::Always => human::Color::Always,
        Color::Never => human::Color::Never,
    };
    let is_styled = is_styled(color, io::stderr().is_terminal(), |name| variable(world, name));
    let stderr = Inert::new(io::stderr(), output::reads_commands());
    let look = Look { lang: lang(config), is_styled, shows_costs: args.show_costs };
    if is_live {
        HumanLog::live(stderr, look, Arc::new(SystemClock::start()), columns)
    } else {
        HumanLog::plain(stderr, look)
    }
}

fn lang(config: &Config) -> Lang {
    match config.settings.language {
        config::Language::En => Lang::En,
        config::Language::Es => Lang::Es,
    }
}

fn variable(world: &World, name: &str) -> Option<String> {
    world.variable(name).map(str::to_owned)
}

/// Returns how wide the terminal of the log is now.
fn columns() -> usize {
    const USUAL: usize = 80;
    let size = rustix::termios::tcgetwinsize(io::stderr());
    size.map_or(USUAL, |size| if size.ws_col == 0 { USUAL } else { size.ws_col.into() })
}
