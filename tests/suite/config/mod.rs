//! Configuration: files, variables and options, above each other.

mod command;
mod layers;
mod options;
mod problems;
mod project;
mod setup;
