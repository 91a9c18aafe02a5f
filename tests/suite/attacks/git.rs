//! Attacks through git: what the next git command of the user would run or follow.
