//! Floor 4: the user's commands at fixed points of a run.
