//! The technical log, on standard error.

use std::io::Write;
use std::sync::OnceLock;

use architect::net::Secrets;
use architect::view::{ci_commands, sanitize};
use log::LevelFilter;

/// Values that are masked in log lines, once they are known.
static SECRETS: OnceLock<Secrets> = OnceLock::new();

/// Starts the technical log: as much as the configuration says, or more for each `-v`. The secrets are masked in it.
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

/// Sets the log up; until the configuration is read, it has warnings.
pub(crate) fn init() {
    let mut builder = env_logger::Builder::new();
    // At their lowest level the libraries write down every byte of a connection, keys included.
    builder.filter_level(LevelFilter::Debug).filter_module("architect", LevelFilter::Trace);
    builder.format(|out, record| {
        let level = record.level().as_str().to_lowercase();
        let secrets = SECRETS.get().cloned().unwrap_or_default();
        let text = secrets.mask_all(&record.args().to_string());
        let text = format!("{level}: {}", sanitize::multiline(&text));
        writeln!(out, "{}", ci_commands::escape_commands(&text, super::output::is_read_by_ci()))
    });
    // Another log may be there already, when the library's user has one.
    if builder.try_init().is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}
