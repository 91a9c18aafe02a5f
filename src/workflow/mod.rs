//! Floor 6: runs made of runs.
