//! Cuts a job's episodes into blocks, the units that are leased.

use std::ops::Range;

use crate::job::Job;

/// Cuts the chosen episodes of a job with `count` episodes into blocks of at most `most`.
///
/// A block lies within one build of the environments. Blocks shrink towards the end of the job, so
/// that ranks end at about the same time: a block has at least one episode and at most one rank's
/// share of half of what is left (guided self-scheduling, Polychronopoulos and Kuck 1987, halved).
pub fn blocks(job: &Job, count: u64, most: u64, world_size: usize) -> Vec<Range<u64>> {
    let mut left = job.selected(count);
    let mut blocks = Vec::new();
    for build in job.rebuilds(count) {
        let mut episodes = build.filter(|episode| job.selects(*episode));
        while let Some(first) = episodes.next() {
            let size = left
                .div_ceil(2 * world_size.max(1) as u64)
                .clamp(1, most.max(1));
            let rest = episodes.by_ref().take(size as usize - 1);
            let (last, taken) = rest.fold((first, 1), |(_, taken), episode| (episode, taken + 1));
            blocks.push(first..last + 1);
            left -= taken;
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::Numbers;
    use crate::samples;
    use proptest::prelude::*;
    use serde_json::json;

    fn job(rebuilds: u64) -> Job {
        samples::job(json!({"num_episodes": 1000, "num_rebuilds": rebuilds}))
    }

    fn sizes(count: u64, most: u64, world: usize) -> Vec<u64> {
        blocks(&job(1), count, most, world)
            .iter()
            .map(|block| block.end - block.start)
            .collect()
    }

    #[test]
    fn the_last_blocks_are_small() {
        assert_eq!(sizes(20, 4, 2), [4, 4, 3, 3, 2, 1, 1, 1, 1]);
        assert_eq!(sizes(4, 4, 2), [1; 4]);
        assert_eq!(sizes(3, 100, 1), [2, 1]);
    }

    #[test]
    fn a_block_of_chosen_episodes_may_have_gaps() {
        let only: Option<Numbers> = Some("0,5-7,900".parse().unwrap());
        let found = blocks(&Job { only, ..job(1) }, 1000, 2, 1);
        assert_eq!(found, [0..6, 6..8, 900..901]);
    }

    proptest! {
        #[test]
        fn blocks_have_every_episode_once_and_keep_to_one_build(
            count in 1u64..400, most in 1u64..20, world in 1usize..=64, rebuilds in 1u64..5
        ) {
            let job = job(rebuilds);
            let blocks = blocks(&job, count, most, world);
            let all: Vec<_> = blocks.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..count).collect::<Vec<_>>());
            let builds = job.rebuilds(count);
            prop_assert!(blocks.iter().all(|block| block.end - block.start <= most
                && builds.iter().any(|build| build.start <= block.start && block.end <= build.end)));
        }
    }
}
