//! Floor 3: the workspace — paths that cannot leave it, and its index.
