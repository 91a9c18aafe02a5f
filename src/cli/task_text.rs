//! Reading the task: from an argument, a file, or standard input on request.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use architect::types::TimeSpan;
use architect::workspace::image::{ImageError, ImageSource, is_image};
use architect::workspace::normalize_path;

use super::args::ImageArgs;
use super::error::CliError;
use super::standard_input::read_stdin;

/// The maximum size of a task, in bytes.
const MAX_TASK_BYTES: u64 = 10 * 1024 * 1024;

/// Returns the task. With a prompt, standard input is read only on request, because waiting for an input that never
/// ends is the most common way for a headless program to hang. The wait is limited by the time limit of the run.
pub(crate) fn read_task(
    prompt: Option<&str>,
    append_stdin: bool,
    timeout: Option<TimeSpan>,
) -> Result<String, CliError> {
    let mut task = match prompt {
        Some(prompt) => read_argument(prompt, timeout)?,
        None if append_stdin => String::new(),
        None => {
            return Err(CliError::usage("no task was given")
                .hint("give it as an argument: architect run \"…\"")
                .hint("`architect run -` reads it from standard input, `architect run @FILE` from a file"));
        }
    };
    if append_stdin && prompt != Some("-") {
        let input = read_stdin_text(timeout)?;
        task = [task.trim_end(), input.as_str()].join(if task.is_empty() { "" } else { "\n\n" });
    }
    if task.trim().is_empty() {
        let read = match prompt {
            Some("-") => " (nothing came from standard input)",
            _ if append_stdin => " (nothing came from standard input either)",
            Some(_) | None => "",
        };
        return Err(CliError::usage(format!("the task is empty{read}")).hint("describe what to do"));
    }
    Ok(task)
}

/// Reads the images of a task.
pub(crate) fn read_images(args: &ImageArgs) -> Result<Vec<ImageSource>, CliError> {
    let read = |path: &PathBuf| {
        let failed = |error| format!("could not read the image {}: {error}", path.display());
        let source = ImageSource::open(path).map_err(failed).map_err(CliError::usage)?;
        match is_image(&source.bytes) {
            true => Ok(source),
            false => Err(CliError::usage(failed(ImageError::UnknownFormat))),
        }
    };
    args.files.iter().map(read).collect()
}

/// Returns a message for a session, given in the same forms as a task.
pub(crate) fn read_message(message: &str) -> Result<String, CliError> {
    let text = read_argument(message, None)?;
    if text.trim().is_empty() {
        return Err(CliError::usage("the message is empty").hint("say what the session should do"));
    }
    Ok(text)
}

/// Returns the text of an argument: the argument itself, or the content of a file or standard input.
fn read_argument(argument: &str, timeout: Option<TimeSpan>) -> Result<String, CliError> {
    match (argument, argument.strip_prefix('@')) {
        ("-", _) => read_stdin_text(timeout),
        (_, Some(path)) => read_file(path),
        (_, None) => Ok(argument.to_owned()),
    }
}

fn read_stdin_text(timeout: Option<TimeSpan>) -> Result<String, CliError> {
    if io::stdin().is_terminal() {
        super::output::print_stderr("Reading the task from the terminal; end it with Ctrl-D.");
    }
    decode_text(read_stdin(MAX_TASK_BYTES, timeout)?, "standard input")
}

fn read_file(path: &str) -> Result<String, CliError> {
    let unreadable = |error: io::Error| {
        CliError::usage(format!("could not read the task from {path}: {error}"))
            .hint("a task that begins with @ names a file")
    };
    // A FIFO or a device could block forever, or never end.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(CliError::usage(format!("{path} is not a regular file")));
    }
    if leads_out(path).map_err(unreadable)? {
        return Err(CliError::usage(format!(
            "{path} is a link out of this folder, to a file that may be private"
        ))
        .hint("name the file itself"));
    }
    let file = fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(MAX_TASK_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_TASK_BYTES {
        return Err(CliError::usage(format!("{path} is longer than {MAX_TASK_BYTES} bytes")));
    }
    decode_text(bytes, path)
}

/// Returns whether a path in the current folder is that of a file elsewhere: a repository may contain a link to a secret.
fn leads_out(path: &str) -> io::Result<bool> {
    let here = Path::new(".").canonicalize()?;
    let named = normalize_path(&std::path::absolute(path)?);
    let is_named_here = named.starts_with(&here) || named.starts_with(std::path::absolute(".")?);
    Ok(is_named_here && !Path::new(path).canonicalize()?.starts_with(here))
}

fn decode_text(mut bytes: Vec<u8>, name: &str) -> Result<String, CliError> {
    // Some editors write a byte order mark at the beginning.
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) if error.as_bytes().contains(&0) => {
            Err(CliError::usage(format!("{name} is not text")))
        }
        // A diff may contain lines in another encoding.
        Err(error) => {
            log::warn!("{name} is not valid UTF-8; invalid parts were replaced by \u{fffd}");
            Ok(String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
    }
}
