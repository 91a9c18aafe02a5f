//! Configuration: files, variables and options, above each other.

mod config_command;
mod fixture;
mod layers;
mod options;
mod problems;
mod project;
