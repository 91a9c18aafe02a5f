//! The diagnostic log, on standard error.

use std::io::Write;
use std::sync::{Mutex, OnceLock};

use architect::net::Secrets;
use architect::view::human::PauseDrawing;
use architect::view::{ci_commands, sanitize};
use log::LevelFilter;

/// Values that are masked in log lines, once they are known.
static SECRETS: OnceLock<Secrets> = OnceLock::new();

/// The log of a run. It does not wait for a slow reader; on a terminal, other lines must not disturb its status area.
static RUN_LOG: Mutex<Option<PauseDrawing>> = Mutex::new(None);

/// Writes lines of the diagnostic log through the log of a run until that is closed.
pub(crate) fn write_through(log: Option<PauseDrawing>) {
    if let Ok(mut current) = RUN_LOG.lock() {
        *current = log;
    }
}

/// Flushes the log of a run, before other output to standard error.
pub(crate) fn flush() {
    let log = RUN_LOG.lock().ok().and_then(|log| log.clone());
    if let Some(log) = log {
        log.flush();
    }
}

/// Erases the status area for good, if there is one, because the process is about to end.
pub(crate) fn end_drawing() {
    let log = RUN_LOG.lock().ok().and_then(|mut log| log.take());
    if let Some(log) = log {
        log.end_drawing();
    }
}

/// Writes lines to standard error, above the status area if there is one.
fn write_lines(lines: &str) -> std::io::Result<()> {
    let log = RUN_LOG.lock().ok().and_then(|log| log.clone());
    if log.is_some_and(|log| log.write_lines(lines.to_owned())) {
        return Ok(());
    }
    super::output::write_stderr(lines.as_bytes())
}

/// Reports panics below the log of a run, not in its status area.
pub(crate) fn report_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let log = RUN_LOG.try_lock().ok().and_then(|log| log.clone());
        match log {
            Some(log) => log.during(|| report(panic)),
            None => report(panic),
        }
    }));
}

/// The target of the diagnostic log: standard error.
struct LogTarget;

impl Write for LogTarget {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        write_lines(&String::from_utf8_lossy(bytes)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// Configures the diagnostic log: its level is the configured one, or a higher one for each `-v`. The secrets are
/// masked.
pub(crate) fn configure(verbose: u8, level: LevelFilter, secrets: Secrets) {
    let _ = SECRETS.set(secrets);
    let of_flags = match verbose {
        0 => LevelFilter::Off,
        1 => LevelFilter::Info,
        2 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    log::set_max_level(level.max(of_flags));
}

/// Initializes the log. It contains warnings until the configuration is read.
pub(crate) fn init() {
    let mut builder = env_logger::Builder::new();
    // At their lowest level, the libraries log every byte of a connection, including keys.
    builder.filter_level(LevelFilter::Debug).filter_module("architect", LevelFilter::Trace);
    builder.target(env_logger::Target::Pipe(Box::new(LogTarget)));
    builder.format(|out, record| {
        let level = record.level().as_str().to_lowercase();
        let secrets = SECRETS.get().cloned().unwrap_or_default();
        let text = secrets.mask_all(&record.args().to_string());
        let text = format!("{level}: {}", sanitize::multiline(&text));
        writeln!(out, "{}", ci_commands::escape_commands(&text, super::output::is_read_by_ci()))
    });
    // The user of the library may have installed another log already.
    if builder.try_init().is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}
