//! Placeholder.
pub mod machine;
pub mod model;
