//! Floor 4: what people and programs get to see of a run.
