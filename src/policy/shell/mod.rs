//! A parser for command lines of a shell.
//!
//! The result is what the shell would run. A line with rare syntax is an [`UnparsableLine`], and its effect is unknown.
//! Nothing is expanded or run.

mod grammar;
mod parser;
mod syntax;
mod word;

pub(super) use parser::is_variable;
pub(super) use syntax::{
    Assignment, CommandBody, Pipeline, Redirection, RedirectionKind, ShellCommand, ShellScript,
    ShellWord, SimpleCommand, WordForm,
};
pub(super) use word::PROCESS_SUBSTITUTION;

use parser::ShellParser;

/// The reason why a command line could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnparsableLine(pub(super) &'static str);

/// Parses a command line.
pub(super) fn parse_line(line: &str) -> Result<ShellScript, UnparsableLine> {
    parse_nested(line, 0)
}

/// Parses a command line that is nested in another one.
pub(super) fn parse_nested(line: &str, depth: usize) -> Result<ShellScript, UnparsableLine> {
    ShellParser::new(line, depth)?.parse_text()
}

impl ShellScript {
    /// Calls `see` for every command, those inside of groups and words included, outermost first.
    pub(super) fn for_each_command<'a>(&'a self, see: &mut dyn FnMut(&'a ShellCommand)) {
        for command in self.pipelines.iter().flat_map(|pipeline| &pipeline.commands) {
            command.for_each_command(see);
        }
    }
}

impl ShellCommand {
    /// Calls `see` for this command and every one inside of it.
    pub(super) fn for_each_command<'a>(&'a self, see: &mut dyn FnMut(&'a ShellCommand)) {
        see(self);
        match &self.body {
            CommandBody::Simple(simple) => {
                let values = simple.assignments.iter().flat_map(|set| &set.values);
                values.chain(&simple.words).for_each(|word| word.for_each_command(see));
            }
            CommandBody::Group { scripts, words, .. } => {
                for word in words {
                    word.for_each_command(see);
                }
                for script in scripts {
                    script.for_each_command(see);
                }
            }
            CommandBody::Function { body, .. } => body.for_each_command(see),
        }
        self.redirections.iter().for_each(|redirection| redirection.target.for_each_command(see));
    }
}

impl ShellWord {
    fn for_each_command<'a>(&'a self, see: &mut dyn FnMut(&'a ShellCommand)) {
        self.scripts.iter().for_each(|script| script.for_each_command(see));
    }
}

#[cfg(test)]
mod tests;
