//! The README and the pages of `docs/` agree with the program: what is generated is up to date, and examples run.

mod examples;
mod generated;
mod pages;
