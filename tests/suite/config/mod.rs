//! Configuration: files, variables and options.

mod config_command;
mod fixture;
mod help;
mod layers;
mod options;
mod problems;
mod project;
