//! Tests of all API formats, and their fixtures.

mod corruption;
pub(super) mod fixtures;
mod images;
mod options;
