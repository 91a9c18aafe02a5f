//! Floor 7: runs made of runs, and runs that are known beforehand.

pub mod scenario;
