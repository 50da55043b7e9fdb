//! The batch sizes up to which batches are filled.

/// Returns the next batch size for `rows` rows, at most `most`: 1, 2, 3, 4, 6, 8, 12, 16, 24 and so
/// on. No batch grows by as much as half.
pub fn bucket(rows: usize, most: usize) -> usize {
    let power = rows.next_power_of_two();
    let between = power / 4 * 3;
    let next = if rows <= between { between } else { power };
    next.min(most).max(rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_powers_of_two_and_those_between() {
        let mut sizes: Vec<_> = (1..=48).map(|rows| bucket(rows, usize::MAX)).collect();
        sizes.dedup();
        assert_eq!(sizes, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]);
    }

    #[test]
    fn the_planner_counts_these_sizes() {
        for most in [1, 7, 24, 48] {
            let mut sizes: Vec<_> = (1..=most).map(|rows| bucket(rows, most) as u64).collect();
            sizes.dedup();
            assert_eq!(sizes, jobs::captured_graphs::batch_sizes(most as u64));
        }
    }

    proptest! {
        #[test]
        fn a_batch_grows_by_less_than_half_and_never_beyond_the_limit(rows in 1usize..10_000, most in 1usize..10_000) {
            let size = bucket(rows, most);
            prop_assert!(size >= rows && 2 * size < 3 * rows.max(2) + 1);
            prop_assert!(size <= most.max(rows));
            prop_assert_eq!(bucket(size, most), size);
        }
    }
}
