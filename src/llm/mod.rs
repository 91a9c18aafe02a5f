//! Floor 4: models behind wires, from scripts, and from recordings.
