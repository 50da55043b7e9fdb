//! Numbers of episodes or ranks, written as ranges.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// Numbers as ascending ranges that do not touch; written as `0,3-5`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Numbers(Vec<RangeInclusive<u64>>);

impl Numbers {
    /// Returns the numbers of a range.
    pub(crate) fn between(range: Range<u64>) -> Self {
        let last = range.end.saturating_sub(1);
        Self(Vec::from_iter(
            (!range.is_empty()).then_some(range.start..=last),
        ))
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether `number` is in one of the ranges.
    pub fn has(&self, number: u64) -> bool {
        let next = self.0.partition_point(|range| *range.end() < number);
        self.0
            .get(next)
            .is_some_and(|range| range.contains(&number))
    }

    /// Returns how many numbers there are.
    pub fn count(&self) -> u64 {
        let count = |range: &RangeInclusive<u64>| (range.end() - range.start()).saturating_add(1);
        self.0.iter().map(count).fold(0, u64::saturating_add)
    }

    /// Returns the numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().cloned().flatten()
    }

    /// Returns the numbers below `end`.
    #[must_use]
    pub fn below(&self, end: u64) -> Self {
        let some = self.0.iter().filter(|range| *range.start() < end);
        let below = |range: &RangeInclusive<u64>| *range.start()..=*range.end().min(&(end - 1));
        Self(some.map(below).collect())
    }

    /// Returns the numbers that are not among `others`, which are ascending.
    #[must_use]
    pub fn without(&self, others: impl Iterator<Item = u64>) -> Self {
        let mut others = others.peekable();
        let mut left = Vec::new();
        for range in &self.0 {
            let mut next = Some(*range.start());
            while let Some(other) = others.next_if(|other| other <= range.end()) {
                let before = next.filter(|next| *next < other);
                left.extend(before.map(|next| next..=other - 1));
                next = next.and_then(|next| Some(next.max(other.checked_add(1)?)));
            }
            left.extend(
                next.map(|next| next..=*range.end())
                    .filter(|rest| !rest.is_empty()),
            );
        }
        Self(left)
    }

    /// Returns the text for a sentence: `0, 3-5`.
    pub fn text(&self) -> String {
        self.to_string().replace(',', ", ")
    }

    /// Returns the highest number.
    pub(crate) fn last(&self) -> u64 {
        self.0.last().map_or(0, |range| *range.end())
    }

    /// Returns the numbers of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::new([&self.0[..], &other.0].concat())
    }

    /// Sorts the ranges, and merges those that overlap or touch.
    fn new(mut ranges: Vec<RangeInclusive<u64>>) -> Self {
        ranges.sort_by_key(|range| *range.start());
        let mut joined: Vec<RangeInclusive<u64>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if *range.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => joined.push(range),
            }
        }
        Self(joined)
    }
}

impl FromIterator<u64> for Numbers {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        Self::new(numbers.into_iter().map(|number| number..=number).collect())
    }
}

impl FromStr for Numbers {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        // A job has at most a million episodes.
        let number = |text: &str| text.trim().parse::<u32>().ok().map(u64::from);
        let range = |piece: &str| {
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            let range = number(first)?..=number(last)?;
            (range.start() <= range.end()).then_some(range)
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        ranges.map(Self::new).ok_or_else(|| {
            Refusal::new(format_args!(
                "`{text}` is not a list of episodes: expected numbers and ranges, for example \
                 `0,3-5`"
            ))
        })
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, range) in self.0.iter().enumerate() {
            f.write_str(if nth > 0 { "," } else { "" })?;
            match range.start() == range.end() {
                true => write!(f, "{}", range.start())?,
                false => write!(f, "{}-{}", range.start(), range.end())?,
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for Numbers {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<Numbers> for String {
    fn from(numbers: Numbers) -> Self {
        numbers.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_know_what_they_have() {
        let numbers: Numbers = "7,0-2".parse().unwrap();
        let had: Vec<_> = (0..10).filter(|number| numbers.has(*number)).collect();
        assert_eq!((had, numbers.count()), (vec![0, 1, 2, 7], 4));
        let [none, some] = [0, 2].map(|end| numbers.below(end));
        assert_eq!((none.is_empty(), some.text()), (true, "0-1".to_owned()));
    }

    #[test]
    fn neighbours_are_one_range() {
        let shown = |numbers: &[u64]| numbers.iter().copied().collect::<Numbers>().text();
        assert_eq!(shown(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(shown(&[]), "");
    }

    #[test]
    fn a_stranger_may_name_the_highest_number_there_is() {
        let numbers: Numbers = [u64::MAX, u64::MAX - 1, u64::MAX, 3].into_iter().collect();
        assert_eq!(numbers.count(), 3);
        assert_eq!(numbers.text(), format!("3, {}-{}", u64::MAX - 1, u64::MAX));
        assert_eq!(numbers.without(numbers.iter()), Numbers(Vec::new()));
    }

    proptest! {
        #[test]
        fn what_is_left_without_others_is_in_none_of_them(
            all in vec(0_u64..40, 0..20), others in btree_set(0_u64..40, 0..20)
        ) {
            let all: Numbers = all.into_iter().collect();
            let left: Vec<_> = all.without(others.iter().copied()).iter().collect();
            let wanted: Vec<_> = all.iter().filter(|number| !others.contains(number)).collect();
            prop_assert_eq!(left, wanted);
        }
    }
}
