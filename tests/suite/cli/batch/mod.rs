//! `architect batch`: many tasks, each an ordinary session.

mod budget;
mod emit;
mod fixture;
mod live_table;
mod manifest;
mod open_files;
mod repositories;
mod results;
mod shared;
mod stopping;
mod thousand;
