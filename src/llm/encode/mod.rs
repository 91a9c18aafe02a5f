//! Writing requests: each entry of a conversation is encoded once, whatever the number of requests it goes along with.

pub(super) mod json;
mod script;

pub(super) use script::{Group, Pen, Script};
