//! Sessions: the stored records, their survival of crashes, and resuming.

mod concurrent_create;
mod crash;
mod damage;
pub(crate) mod fixture;
mod fork_and_export;
mod index;
mod interrupted_effects;
mod interrupts;
mod large_journal;
mod replay;
mod resume;
mod store;
mod stored_journals;
mod summaries;
mod timestamps;
mod trace;
