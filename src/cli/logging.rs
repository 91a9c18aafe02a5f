//! The technical log, on standard error.

use std::io::Write;

use architect::config::LogLevel;
use architect::view::{clean, workflow};
use log::LevelFilter;

/// Starts the technical log: as much as the configuration says, or more for each `-v`.
pub(crate) fn start(verbose: u8, level: LogLevel) {
    let of_flags = match verbose {
        0 => LevelFilter::Off,
        1 => LevelFilter::Info,
        2 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    log::set_max_level(filter(level).max(of_flags));
}

/// Sets the log up; until the configuration is read, it has warnings.
pub(crate) fn set_up() {
    let mut builder = env_logger::Builder::new();
    builder.filter_level(LevelFilter::Trace).format(|out, record| {
        let level = record.level().as_str().to_lowercase();
        let text = record.args().to_string();
        let text = format!("{level}: {}", clean::block(&text));
        writeln!(out, "{}", workflow::inert(&text, super::output::reads_commands()))
    });
    // Another log may be there already, when the library's user has one.
    if builder.try_init().is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::Off,
        LogLevel::Error => LevelFilter::Error,
        LogLevel::Warn => LevelFilter::Warn,
        LogLevel::Info => LevelFilter::Info,
        LogLevel::Debug => LevelFilter::Debug,
        LogLevel::Trace => LevelFilter::Trace,
    }
}
