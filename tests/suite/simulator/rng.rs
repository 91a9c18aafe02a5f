//! Random numbers from a seed.

use std::sync::{Arc, Mutex};

use architect::types::TimeSpan;

/// A source of random numbers. Clones share their state.
#[derive(Clone)]
pub(crate) struct Rng(Arc<Mutex<RngState>>);

struct RngState {
    seed: u64,
    drawn: usize,
    choices: Option<Choices>,
}

/// The positions of a seed's numbers that are returned one after the other, counted from zero. `None` stands for
/// [`QUIET`], as does the end of the list.
pub(super) type Choices = Vec<Option<usize>>;

/// The number for an uneventful choice: no fault, a short delay, the second of two.
const QUIET: u64 = 1;

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with_choices(seed, None)
    }

    /// Returns a source of these numbers of the seed; without a list, of all.
    pub(super) fn with_choices(seed: u64, choices: Option<Choices>) -> Self {
        Self(Arc::new(Mutex::new(RngState { seed, drawn: 0, choices })))
    }

    /// Returns the count of returned numbers.
    pub(super) fn drawn(&self) -> usize {
        self.0.lock().unwrap().drawn
    }

    /// Returns the next number (`SplitMix64`).
    pub(super) fn next(&self) -> u64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut state = self.0.lock().unwrap();
        let nth = state.drawn;
        state.drawn += 1;
        let choice = match &state.choices {
            Some(choices) => choices.get(nth).copied().flatten(),
            None => Some(nth),
        };
        let Some(nth) = choice else { return QUIET };
        let first = state.seed.wrapping_mul(GAMMA) ^ 0x5bd1_e995;
        let mut z = first.wrapping_add(GAMMA.wrapping_mul(nth as u64 + 1));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below this one.
    pub(crate) fn below(&self, most: u64) -> u64 {
        self.next() % most
    }

    /// Returns true with a probability of one in so many.
    pub(super) fn once_in(&self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub(super) fn of<T: Clone>(&self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()].clone()
    }

    /// Returns a duration: mostly short, sometimes long, rarely infinite.
    pub(super) fn delay(&self) -> TimeSpan {
        match self.below(20) {
            0 => TimeSpan::from_secs(1_000_000_000),
            1 => TimeSpan::from_secs(self.below(4_000)),
            2..8 => TimeSpan::from_millis(self.below(5_000)),
            _ => TimeSpan(self.below(50)),
        }
    }
}
