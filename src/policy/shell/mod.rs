//! A parser for command lines of a shell.
//!
//! The result contains everything that the shell would run. A line with rare syntax is an [`UnparsableLine`], and its
//! effect is unknown. Nothing is expanded or run.

mod grammar;
mod parser;
mod syntax;
mod word;

pub(super) use parser::{is_name, is_variable};
pub(super) use syntax::{
    Assignment, CommandKind, Redirection, RedirectionKind, ShellCommand, ShellPipeline,
    ShellScript, ShellWord, WordForm,
};
pub(super) use word::PROCESS_SUBSTITUTION;

use parser::ShellParser;

/// The reason why a command line could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnparsableLine(pub(super) &'static str);

type ParseResult<T> = Result<T, UnparsableLine>;

fn fail<T>(why: &'static str) -> ParseResult<T> {
    Err(UnparsableLine(why))
}

/// Parses a command line.
pub(super) fn parse_line(line: &str) -> ParseResult<ShellScript> {
    parse_nested(line, 0)
}

/// Parses a command line that is nested in another one.
pub(super) fn parse_nested(line: &str, depth: usize) -> ParseResult<ShellScript> {
    ShellParser::new(line, depth)?.parse_text()
}

#[cfg(test)]
mod tests;
