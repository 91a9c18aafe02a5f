//! The README and the pages of `docs/` agree with the program.

mod generated;
mod pages;
