//! Floor 4: the tools, and who may call them.
