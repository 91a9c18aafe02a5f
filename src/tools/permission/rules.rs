//! The rules of the user.

/// The rules of the user.
#[derive(Clone, Debug, Default)]
pub struct Rules {}
