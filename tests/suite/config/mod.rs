//! Configuration: files, variables and options, above each other.

mod layers;
mod problems;
mod project;
mod setup;
