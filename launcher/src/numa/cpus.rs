//! A set of CPUs in the kernel's notation, as `0-3,8`.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};

use serde::{Serialize, Serializer};

/// Largest number of CPUs that Linux supports (`CONFIG_NR_CPUS` of the largest configurations).
const MOST_CPUS: usize = 8192;

/// A set of CPU numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuList(pub BTreeSet<usize>);

impl CpuList {
    /// Parses the kernel's notation; an empty text is the empty set.
    pub fn parse(text: &str) -> Option<CpuList> {
        let mut cpus = BTreeSet::new();
        for range in text.trim().split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >= MOST_CPUS {
                return None;
            }
            cpus.extend(first..=last);
        }
        Some(CpuList(cpus))
    }

    /// Returns the CPUs in both sets.
    pub fn and(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.intersection(&other.0).copied().collect())
    }
}

impl Display for CpuList {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for &cpu in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let range = |(first, last): &(usize, usize)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        f.write_str(&ranges.iter().map(range).collect::<Vec<_>>().join(","))
    }
}

impl Serialize for CpuList {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_and_numbers_are_read() {
        let list = CpuList::parse("0-2,8\n").expect("a list");
        assert_eq!(list.0, BTreeSet::from([0, 1, 2, 8]));
        assert_eq!(CpuList::parse(""), Some(CpuList::default()));
    }

    #[test]
    fn what_is_no_list_is_none() {
        for text in ["x", "3-1", "0-999999999", "-1", "1-"] {
            assert_eq!(CpuList::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(cpus in proptest::collection::btree_set(0_usize..300, 0..40)) {
            let list = CpuList(cpus);
            prop_assert_eq!(CpuList::parse(&list.to_string()), Some(list));
        }
    }
}
