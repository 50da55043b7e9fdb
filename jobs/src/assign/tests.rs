use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::file::parse;

const STATIC: [Assign; 2] = [Assign::Modulo, Assign::Block];

fn entry(name: usize, length: &str, count: u64) -> serde_json::Value {
    json!({"name": format!("j{name}"), "arena_env_args": {"environment": "reach"}, "policy_type": "zero_action",
           length: count})
}

fn jobs(entries: Vec<serde_json::Value>) -> Vec<Job> {
    parse(&json!({"jobs": entries})).unwrap()
}

/// Returns jobs of these lengths; 0 stands for a job in steps.
fn of_lengths(lengths: &[u64]) -> Vec<Job> {
    let entries = lengths.iter().enumerate().map(|(name, count)| match count {
        0 => entry(name, "num_steps", 7),
        count => entry(name, "num_episodes", *count),
    });
    jobs(entries.collect())
}

/// Counts how often each job and episode is in the work of all ranks; a job in steps has episode 0.
fn counts(jobs: &[Job], assignment: Assignment, world: usize) -> BTreeMap<(usize, u64), usize> {
    let mut counts = BTreeMap::new();
    let placement = Placement::of_ranks(vec![0; world]);
    for work in (0..world).flat_map(|rank| work(jobs, &placement, assignment, rank)) {
        let count = if let Length::Episodes(count) = work.job.length {
            count
        } else {
            1
        };
        work.episodes(0..count)
            .for_each(|episode| *counts.entry((work.job.index.0, episode)).or_default() += 1);
    }
    counts
}

fn each_once(jobs: &[Job]) -> BTreeMap<(usize, u64), usize> {
    let episodes = |job: &Job| {
        if let Length::Episodes(count) = job.length {
            count
        } else {
            1
        }
    };
    jobs.iter()
        .flat_map(|job| (0..episodes(job)).map(|episode| ((job.index.0, episode), 1)))
        .collect()
}

proptest! {
    #[test]
    fn every_job_and_episode_is_one_ranks_by_every_rule(
        lengths in proptest::collection::vec(0u64..70, 1..12), world in 1usize..=64
    ) {
        let jobs = of_lengths(&lengths);
        for (assign, shard) in STATIC.into_iter().flat_map(|rule| [(rule, Shard::Jobs), (rule, Shard::Episodes)]) {
            prop_assert_eq!(counts(&jobs, Assignment { assign, shard }, world), each_once(&jobs), "{:?} {:?}", assign, shard);
        }
    }

    #[test]
    fn parts_of_a_job_differ_by_one_episode_at_most(count in 1u64..300, world in 1usize..=64) {
        for assign in STATIC {
            let sizes = (0..world).map(|nth| {
                let part = Portion::new(assign, (nth, world), count);
                (0..count).filter(|number| part.has(*number)).count()
            });
            let sizes: Vec<_> = sizes.collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{:?}", assign);
        }
    }

    #[test]
    fn shared_jobs_are_dealt_by_environments_whatever_the_rule(
        shared in proptest::collection::vec(any::<bool>(), 1..6), world in 1usize..9, workers in 1usize..4,
        times in 1usize..3, episodes in 1u64..40
    ) {
        let processes = |count: usize| Placement::of_ranks(0..count).env;
        let placement = Placement { env: processes(workers), rollout: processes(world) };
        let jobs = mixed(&shared, world * workers * times, episodes);
        for (assign, shard) in STATIC.into_iter().flat_map(|rule| [(rule, Shard::Jobs), (rule, Shard::Episodes)]) {
            let mut seen: Vec<_> = (0..world)
                .flat_map(|rank| work(&jobs, &placement, Assignment { assign, shard }, rank))
                .flat_map(|work| work.episodes(0..episodes).map(|e| (work.job.index, e)).collect::<Vec<_>>())
                .collect();
            seen.sort_unstable();
            let all: Vec<_> = jobs.iter().flat_map(|job| (0..episodes).map(|e| (job.index, e))).collect();
            prop_assert_eq!(seen, all);
        }
    }
}

/// Returns jobs of which some are shared; each has `total` environments.
fn mixed(shared: &[bool], total: usize, episodes: u64) -> Vec<Job> {
    let entries = shared.iter().enumerate().map(|(name, shared)| {
        let mut entry = entry(name, "num_episodes", episodes);
        if *shared {
            entry["total_num_envs"] = total.into();
        }
        entry
    });
    jobs(entries.collect())
}

fn names(jobs: &[Job], assignment: Assignment, rank: usize, world: usize) -> Vec<String> {
    let placement = Placement::of_ranks(vec![0; world]);
    work(jobs, &placement, assignment, rank)
        .into_iter()
        .map(|work| work.job.name)
        .collect()
}

#[test]
fn a_job_goes_to_index_modulo_world_size() {
    let jobs = of_lengths(&[1; 5]);
    assert_eq!(names(&jobs, Assignment::default(), 1, 2), ["j1", "j3"]);
    let block = Assignment {
        assign: Assign::Block,
        ..Assignment::default()
    };
    assert_eq!(names(&jobs, block, 0, 2), ["j0", "j1", "j2"]);
}

#[test]
fn a_rank_has_as_many_copies_as_seats() {
    let jobs = mixed(&[true, false, false], 8, 1);
    let own = work(&jobs, &Placement::of_ranks(0..2), Assignment::default(), 1);
    let copies: Vec<_> = own
        .iter()
        .map(|work| (work.job.name.as_str(), work.job.num_envs, work.seats.len()))
        .collect();
    assert_eq!(copies, [("j0", 4, 4), ("j1", 1, 1)]);
    assert_eq!(jobs[0].num_envs, 8, "the job itself has them all");
}

#[test]
fn a_completed_job_does_not_move_the_others() {
    let with_done = |done: usize| {
        let mut jobs = of_lengths(&[1; 4]);
        jobs[..done]
            .iter_mut()
            .for_each(|job| job.status = Status::Completed);
        names(&jobs, Assignment::default(), 1, 2)
    };
    assert_eq!(with_done(0), ["j1", "j3"]);
    assert_eq!(with_done(1), ["j1", "j3"]);
    assert_eq!(with_done(2), ["j3"]);
}

#[test]
fn jobs_of_one_episode_are_spread_over_the_ranks() {
    let jobs = of_lengths(&[1; 8]);
    let by_episode = Assignment {
        shard: Shard::Episodes,
        ..Assignment::default()
    };
    let own = |rank| {
        let work = work(&jobs, &Placement::of_ranks(vec![0; 4]), by_episode, rank);
        work.into_iter()
            .filter(|work| work.runs(0))
            .map(|work| work.job.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(own(0), vec!["j0".to_owned(), "j4".to_owned()]);
    assert_eq!(own(3), vec!["j3".to_owned(), "j7".to_owned()]);
}

#[test]
fn a_rank_is_done_with_a_job_when_its_own_episodes_are() {
    let by_episode = Assignment {
        shard: Shard::Episodes,
        ..Assignment::default()
    };
    let jobs = of_lengths(&[5, 0]);
    let work = work(&jobs, &Placement::of_ranks(vec![0; 2]), by_episode, 1);
    assert!(!work[0].is_done(&[1]));
    assert!(work[0].is_done(&[1, 3]));
    assert!(!work[1].is_done(&[]), "a job in steps has no count");
}

#[test]
fn only_the_chosen_episodes_run() {
    let chosen = "j1:1-2,4"
        .parse::<Only>()
        .unwrap()
        .choose(of_lengths(&[3, 6, 3]))
        .unwrap();
    let own = work(
        &chosen,
        &Placement::of_ranks(vec![0; 1]),
        Assignment::default(),
        0,
    );
    let found = own
        .iter()
        .map(|work| work.episodes(0..6).collect::<Vec<_>>())
        .collect::<Vec<_>>();
    assert_eq!(found, [[1, 2, 4]]);
}

mod part {
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
}

mod idle {
    use serde_json::json;

    use super::*;
    use crate::assign::{Work, work};
    use crate::placement::Placement;
    use crate::samples;

    fn jobs(lengths: &[(&str, u64)]) -> Vec<Job> {
        let fields = |(index, (word, length)): (usize, &(&str, u64))| {
            let mut fields = json!({"name": format!("j{index}"), "num_episodes": null});
            fields[*word] = (*length).into();
            fields
        };
        samples::jobs(lengths.iter().enumerate().map(fields))
    }

    fn idle_of(lengths: &[(&str, u64)], world_size: usize, assign: Assign, shard: Shard) -> usize {
        idle(&jobs(lengths), world_size, Assignment { assign, shard })
    }

    #[test]
    fn one_job_leaves_all_but_one_rank_idle_unless_its_episodes_are_dealt() {
        let one = [("num_episodes", 50)];
        for assign in [Assign::Modulo, Assign::Block, Assign::Dynamic] {
            assert_eq!(idle_of(&one, 4, assign, Shard::Jobs), 3, "{assign:?}");
            assert_eq!(idle_of(&one, 4, assign, Shard::Episodes), 0, "{assign:?}");
        }
    }

    #[test]
    fn fewer_episodes_than_ranks_and_jobs_in_steps_leave_ranks_idle() {
        for assign in [Assign::Modulo, Assign::Block, Assign::Dynamic] {
            assert_eq!(
                idle_of(&[("num_episodes", 3)], 4, assign, Shard::Episodes),
                1,
                "{assign:?}"
            );
            assert_eq!(
                idle_of(&[("num_steps", 100)], 4, assign, Shard::Episodes),
                3,
                "{assign:?}"
            );
        }
    }

    #[test]
    fn as_many_jobs_as_ranks_leave_none_idle() {
        let four = [("num_episodes", 1); 4];
        assert_eq!(idle_of(&four, 4, Assign::Modulo, Shard::Jobs), 0);
        assert_eq!(idle_of(&four, 6, Assign::Block, Shard::Jobs), 2);
    }

    #[test]
    fn a_large_launch_is_counted_in_one_pass_over_its_episodes() {
        let many = [("num_episodes", 1_000_000)];
        for assign in [Assign::Modulo, Assign::Block, Assign::Dynamic] {
            assert_eq!(idle_of(&many, 16_384, assign, Shard::Episodes), 0);
            assert_eq!(idle_of(&many, 16_384, assign, Shard::Jobs), 16_383);
        }
    }

    #[test]
    fn the_ranks_that_are_counted_are_those_without_work() {
        let jobs = jobs(&[("num_episodes", 3), ("num_steps", 9), ("num_episodes", 2)]);
        for (assign, shard) in [
            (Assign::Modulo, Shard::Jobs),
            (Assign::Modulo, Shard::Episodes),
            (Assign::Block, Shard::Jobs),
            (Assign::Block, Shard::Episodes),
        ] {
            let assignment = Assignment { assign, shard };
            for ranks in 1..9 {
                let placement = Placement::of_ranks(vec![0; ranks]);
                let is_idle = |rank: &usize| {
                    let works = work(&jobs, &placement, assignment, *rank);
                    let runs = |work: &Work| match work.job.length {
                        Length::Episodes(count) => work.episodes(0..count).next().is_some(),
                        Length::Steps(_) | Length::Policy => true,
                    };
                    !works.iter().any(runs)
                };
                let wanted = (0..ranks).filter(is_idle).count();
                assert_eq!(
                    idle(&jobs, ranks, assignment),
                    wanted,
                    "{ranks} {assignment:?}"
                );
            }
        }
    }
}

mod stages {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::assign::work;
    use crate::placement::Placement;
    use crate::samples;

    fn jobs(lengths: &[u64]) -> Vec<Job> {
        let entry = |(index, length): (usize, &u64)| {
            json!({"name": format!("j{index}"), "num_episodes": length,
                   "arena_env_args": {"environment": "reach", "num_envs": 2}})
        };
        samples::jobs(lengths.iter().enumerate().map(entry))
    }

    #[test]
    fn stages_grow_by_half_of_what_was_done() {
        let by_job = Assignment::default();
        let found = stages(&jobs(&[40, 12]), by_job, 1);
        assert_eq!(found, [0..5, 5..10, 10..15, 15..22, 22..33, 33..40]);
        assert_eq!(stages(&jobs(&[40]), by_job, 1).len(), 1, "one job");
    }

    #[test]
    fn a_stage_keeps_all_environments_busy() {
        let by_episode = Assignment {
            assign: Assign::Dynamic,
            shard: Shard::Episodes,
        };
        assert_eq!(stages(&jobs(&[40, 40]), by_episode, 8)[0], 0..16);
    }

    #[test]
    fn a_job_that_is_over_has_no_part_of_a_later_stage() {
        let works = work(
            &jobs(&[9, 4]),
            &Placement::of_ranks(vec![0]),
            Assignment::default(),
            0,
        );
        let only = |stage| {
            let of = |work: &Work| Some(work.in_stage(&stage)?.job.only?.to_string());
            works.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(only(0..5), [Some("0-4".to_owned()), None]);
        assert_eq!(only(5..9), [Some("5-8".to_owned()), None]);
        assert_eq!(works[1].in_stage(&(0..5)), Some(works[1].clone()));
        assert_eq!(works[1].in_stage(&(5..9)), None);
    }

    proptest! {
        #[test]
        fn all_stages_of_all_ranks_have_every_episode_once(
            lengths in prop::collection::vec(1_u64..60, 1..4), ranks in 1_usize..4, by_episode: bool,
        ) {
            let jobs = jobs(&lengths);
            let shard = if by_episode { Shard::Episodes } else { Shard::Jobs };
            let assignment = Assignment { shard, ..Assignment::default() };
            let placement = Placement::of_ranks(vec![0; ranks]);
            let mut found: Vec<Vec<u64>> = vec![Vec::new(); jobs.len()];
            for stage in stages(&jobs, assignment, ranks) {
                for rank in 0..ranks {
                    let works = work(&jobs, &placement, assignment, rank);
                    for work in works.iter().filter_map(|work| work.in_stage(&stage)) {
                        let index = work.job.index.0;
                        found[index].extend(work.episodes(0..lengths[index]));
                    }
                }
            }
            for (found, length) in found.iter_mut().zip(&lengths) {
                found.sort_unstable();
                prop_assert_eq!(&*found, &(0..*length).collect::<Vec<_>>());
            }
        }
    }
}
