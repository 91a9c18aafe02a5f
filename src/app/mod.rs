//! Floor 6: composition — the only place that knows every adapter.

pub mod context;
