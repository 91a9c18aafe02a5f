//! Floor 4: the journal — sessions that survive, and what can be folded from them.
