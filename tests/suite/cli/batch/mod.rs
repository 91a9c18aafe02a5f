//! `architect batch`: many tasks, each an ordinary session.

mod budget;
mod emit;
mod fixture;
mod manifest;
mod repositories;
mod results;
mod shared;
mod stopping;
mod thousand;
