//! What nobody may do, whatever the rules say.

/// What nobody may do, whatever the rules say.
#[derive(Clone, Debug, Default)]
pub struct Guardrails {}
