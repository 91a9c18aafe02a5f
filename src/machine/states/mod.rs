//! The six states: what each holds, how it is entered, and what each of its events leads to.

pub(crate) mod calling;
pub(crate) mod closing;
pub(crate) mod compacting;
pub(crate) mod done;
pub(crate) mod executing;
pub(crate) mod preparing;
