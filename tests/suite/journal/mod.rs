//! Sessions: what is written, what survives, and how they go on.

mod claims;
mod copies;
mod crash;
mod damage;
mod half_done;
mod huge;
mod index;
mod interrupts;
mod kept;
mod replay;
mod resume;
mod store;
mod summaries;
mod times;
mod trace;
mod world;
