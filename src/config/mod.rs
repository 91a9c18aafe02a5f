//! Floor 4: configuration, in layers, each value with where it comes from.
