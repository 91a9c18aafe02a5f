//! Sessions: what is written, what survives, and how they go on.

mod copies;
mod damage;
mod replay;
mod resume;
mod store;
mod world;
