//! Command lines, read as a shell reads them.
//!
//! What is read is what the shell would do, or nothing: a line that uses something rare is [`Unreadable`], and then
//! nobody may say that he knows what it does. Nothing is expanded or run.

mod grammar;
mod reader;
mod syntax;
mod word;

pub(super) use reader::is_variable;
pub(super) use syntax::{
    Assignment, Body, Command, Form, Pipeline, Redirect, Redirection, Script, Simple, Word,
};
pub(super) use word::PIPED;

use reader::Reader;

/// Why a command line could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable(pub(super) &'static str);

/// Reads a command line.
pub(super) fn read(line: &str) -> Result<Script, Unreadable> {
    script(line, 0)
}

/// Reads a command line that stands inside another one.
pub(super) fn script(line: &str, depth: usize) -> Result<Script, Unreadable> {
    Reader::new(line, depth)?.whole()
}

impl Script {
    /// Calls `see` for every command, those inside of groups and words included, outermost first.
    pub(super) fn each<'a>(&'a self, see: &mut dyn FnMut(&'a Command)) {
        for command in self.pipelines.iter().flat_map(|pipeline| &pipeline.stages) {
            command.each(see);
        }
    }
}

impl Command {
    /// Calls `see` for this command and every one inside of it.
    pub(super) fn each<'a>(&'a self, see: &mut dyn FnMut(&'a Command)) {
        see(self);
        match &self.body {
            Body::Simple(simple) => {
                let values = simple.assignments.iter().flat_map(|set| &set.values);
                values.chain(&simple.words).for_each(|word| word.each(see));
            }
            Body::Group { scripts, words, .. } => {
                for word in words {
                    word.each(see);
                }
                for script in scripts {
                    script.each(see);
                }
            }
            Body::Function { body, .. } => body.each(see),
        }
        self.redirections.iter().for_each(|redirection| redirection.target.each(see));
    }
}

impl Word {
    fn each<'a>(&'a self, see: &mut dyn FnMut(&'a Command)) {
        self.scripts.iter().for_each(|script| script.each(see));
    }
}

#[cfg(test)]
mod tests;
