//! The six states: their contents, how they are entered, and their transitions.

pub(crate) mod calling;
pub(crate) mod closing;
pub(crate) mod compacting;
pub(crate) mod done;
pub(crate) mod executing;
pub(crate) mod preparing;
