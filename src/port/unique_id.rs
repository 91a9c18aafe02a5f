//! Unique identifiers.

use std::time::{Duration, SystemTime};

use uuid::{NoContext, Timestamp, Uuid};

/// Returns a unique identifier. Later identifiers sort after earlier ones if the clock is correct.
pub fn unique_id() -> Uuid {
    // The library itself panics if the clock shows a time before 1970.
    match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(_) => Uuid::now_v7(),
        Err(_) => id_at(Duration::ZERO),
    }
}

fn id_at(since: Duration) -> Uuid {
    Uuid::new_v7(Timestamp::from_unix(NoContext, since.as_secs(), since.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_1970_are_different_ones_too() {
        assert_ne!(id_at(Duration::ZERO), id_at(Duration::ZERO));
        assert!(id_at(Duration::ZERO) < unique_id());
    }
}
