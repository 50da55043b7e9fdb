//! One rank's part of a sequence.

use std::ops::Range;

use crate::assign::Assign;

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
}

impl Portion {
    /// Returns part `nth` of `parts` parts of `0 .. count`.
    pub fn new(assign: Assign, (nth, parts): (usize, usize), count: u64) -> Self {
        let (nth, parts) = (nth as u64, parts.max(1) as u64);
        match assign {
            Assign::Dynamic => Self::All,
            Assign::Modulo => Self::Every {
                first: nth,
                step: parts,
            },
            Assign::Block => Self::Block(block(nth, parts, count)),
        }
    }

    /// Returns whether the part contains `number`.
    pub fn has(&self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::Every { first, step } => number % step == *first,
            Self::Block(range) => range.contains(&number),
        }
    }
}

/// Cuts as `numpy.array_split` does: the first `count % parts` blocks are longer by one.
fn block(nth: u64, parts: u64, count: u64) -> Range<u64> {
    let (each, longer) = (count / parts, count % parts);
    let start = nth * each + nth.min(longer);
    start..start + each + u64::from(nth < longer)
}

/// Returns which of `parts` parts of `0 .. count` has `number`; with [`Assign::Dynamic`] each part
/// has all numbers, and this is the first.
pub(super) fn owner(assign: Assign, number: u64, parts: usize, count: u64) -> usize {
    let parts = parts.max(1) as u64;
    let (each, longer) = (count / parts, count % parts);
    let of_longer = longer * (each + 1);
    let owner = match assign {
        Assign::Dynamic => 0,
        Assign::Modulo => number % parts,
        Assign::Block if number < of_longer => number / (each + 1),
        Assign::Block => longer + (number - of_longer) / each.max(1),
    };
    owner as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(assign: Assign, parts: usize, count: u64) -> Vec<Vec<u64>> {
        let part = |nth| Portion::new(assign, (nth, parts), count);
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
    fn a_number_is_in_the_part_of_its_owner_alone() {
        for assign in [Assign::Modulo, Assign::Block] {
            for (parts, count) in [(1, 5), (3, 7), (3, 2), (4, 8), (8, 3)] {
                for number in 0..count {
                    let has = |nth: &usize| Portion::new(assign, (*nth, parts), count).has(number);
                    let found: Vec<_> = (0..parts).filter(has).collect();
                    assert_eq!(found, [owner(assign, number, parts, count)]);
                }
            }
        }
    }
}
