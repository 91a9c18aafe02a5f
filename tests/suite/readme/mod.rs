//! The README and the pages of `docs/` agree with the program: what is generated is up to date, examples run, links lead
//! somewhere, and what is named exists.

mod examples;
mod generated;
mod links;
mod names;
mod pages;
mod picture;
