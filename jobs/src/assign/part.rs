//! One rank's part of a sequence.

use std::ops::Range;

use crate::assign::Assign;
use crate::seed;

/// Seed of the permutations of [`Assign::Shuffle`]. Changing it would deal a continued run
/// differently.
const SHUFFLE: u64 = 0x7272_756e;

/// One of several parts of `0 .. count`, which together contain every number once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Portion {
    /// All numbers.
    All,
    /// `first`, and every `step`-th number after it.
    Every {
        /// The first number.
        first: u64,
        /// The distance between two numbers.
        step: u64,
    },
    /// A contiguous range.
    Block(Range<u64>),
    /// The listed numbers, ascending.
    These(Vec<u64>),
}

impl Portion {
    /// Returns part `nth` of `parts` parts of `0 .. count`; each `stream` has its own permutation.
    pub fn new(assign: Assign, (nth, parts): (usize, usize), count: u64, stream: u64) -> Self {
        let (nth, parts) = (nth as u64, parts.max(1) as u64);
        match assign {
            Assign::Dynamic => Self::All,
            Assign::Modulo => Self::Every {
                first: nth,
                step: parts,
            },
            Assign::Block => Self::Block(block(nth, parts, count)),
            Assign::Shuffle => {
                let dealt = (0..parts).cycle().zip(permutation(count, stream));
                let mut own: Vec<_> = dealt
                    .filter(|(part, _)| *part == nth)
                    .map(|(_, number)| number)
                    .collect();
                own.sort_unstable();
                Self::These(own)
            }
        }
    }

    /// Returns whether the part contains `number`.
    pub fn has(&self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::Every { first, step } => number % step == *first,
            Self::Block(range) => range.contains(&number),
            Self::These(numbers) => numbers.binary_search(&number).is_ok(),
        }
    }
}

/// Cuts as `numpy.array_split` does: the first `count % parts` blocks are longer by one.
fn block(nth: u64, parts: u64, count: u64) -> Range<u64> {
    let (each, longer) = (count / parts, count % parts);
    let start = nth * each + nth.min(longer);
    start..start + each + u64::from(nth < longer)
}

/// Returns a permutation of `0 .. count` that depends on `stream` only (Fisher and Yates;
/// Durstenfeld 1964).
fn permutation(count: u64, stream: u64) -> Vec<u64> {
    let mut numbers: Vec<_> = (0..count).collect();
    for last in (1..numbers.len()).rev() {
        // The modulo favours small numbers by 2^-31 at most: a job has at most a million episodes.
        let other = seed::noise(SHUFFLE, stream, last as u64) % (last as u64 + 1);
        numbers.swap(last, other as usize);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(assign: Assign, parts: usize, count: u64) -> Vec<Vec<u64>> {
        let part = |nth| Portion::new(assign, (nth, parts), count, 0);
        (0..parts)
            .map(|nth| (0..count).filter(|number| part(nth).has(*number)).collect())
            .collect()
    }

    #[test]
    fn blocks_are_those_of_numpys_array_split() {
        let found = parts(Assign::Block, 3, 7);
        assert_eq!(found, [vec![0, 1, 2], vec![3, 4], vec![5, 6]]);
        assert_eq!(parts(Assign::Block, 3, 2), [vec![0], vec![1], vec![]]);
        let shown = parts(Assign::Modulo, 3, 7);
        assert_eq!(shown, [vec![0, 3, 6], vec![1, 4], vec![2, 5]]);
    }

    #[test]
    fn a_permutation_stays_what_it_was() {
        assert_eq!(permutation(10, 0), [1, 7, 8, 0, 5, 4, 3, 2, 6, 9]);
        assert_ne!(permutation(10, 0), permutation(10, 1));
    }

    #[test]
    fn a_shuffle_breaks_the_step_of_the_world_size() {
        // Ten tasks of 4 episodes each are dealt to 4 ranks. With modulo each rank would get the
        // same episode of every task.
        let of_rank = &parts(Assign::Shuffle, 4, 40)[0];
        let phases: std::collections::BTreeSet<_> =
            of_rank.iter().map(|number| number % 4).collect();
        assert_eq!((of_rank.len(), phases.len()), (10, 4));
    }
}
