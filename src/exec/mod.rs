//! Floor 3: supervised and confined processes.
