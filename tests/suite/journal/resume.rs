//! Sessions go on.
