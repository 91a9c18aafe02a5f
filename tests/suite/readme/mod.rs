//! The README and the pages of `docs/` agree with the program: generated sections are up to date, examples run, links
//! have targets, and named options, keys and tools exist.

mod examples;
mod generated;
mod links;
mod names;
mod pages;
mod picture;
