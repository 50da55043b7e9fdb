use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::samples;

const STATIC: [Assign; 2] = [Assign::Modulo, Assign::Block];

const BY_EPISODE: Assignment = Assignment {
    assign: Assign::Modulo,
    shard: Shard::Episodes,
};

/// Returns every rule that depends on jobs, world size and rank alone.
fn rules() -> impl Iterator<Item = Assignment> {
    let shards = [Shard::Jobs, Shard::Episodes].into_iter();
    shards.flat_map(|shard| STATIC.map(|assign| Assignment { assign, shard }))
}

/// Returns jobs of these lengths with these fields besides; 0 stands for a job in steps.
fn jobs(lengths: &[u64], fields: &Value) -> Vec<Job> {
    let entry = |(name, length): (usize, &u64)| {
        let mut entry = fields.clone();
        entry["name"] = format!("j{name}").into();
        entry["num_episodes"] = Some(*length).filter(|length| *length > 0).into();
        entry["num_steps"] = Some(7).filter(|_| *length == 0).into();
        entry
    };
    samples::jobs(lengths.iter().enumerate().map(entry))
}

fn of_lengths(lengths: &[u64]) -> Vec<Job> {
    jobs(lengths, &json!({}))
}

/// Counts how often each job and episode is in the work of all ranks; a job in steps has episode 0.
fn counts(jobs: &[Job], assignment: Assignment, world: usize) -> BTreeMap<(usize, u64), usize> {
    let mut counts = BTreeMap::new();
    let placement = Placement::of_ranks(vec![0; world]);
    for work in (0..world).flat_map(|rank| work(jobs, &placement, assignment, rank)) {
        work.episodes(0..work.job.episodes().unwrap_or(1))
            .for_each(|episode| *counts.entry((work.job.index.0, episode)).or_default() += 1);
    }
    counts
}

fn each_once(jobs: &[Job]) -> BTreeMap<(usize, u64), usize> {
    let episodes = |job: &Job| {
        let index = job.index.0;
        (0..job.episodes().unwrap_or(1)).map(move |episode| ((index, episode), 1))
    };
    jobs.iter().flat_map(episodes).collect()
}

proptest! {
    #[test]
    fn every_job_and_episode_is_one_ranks_by_every_rule(
        lengths in proptest::collection::vec(0u64..70, 1..12), world in 1usize..=64
    ) {
        let jobs = of_lengths(&lengths);
        for rule in rules() {
            prop_assert_eq!(counts(&jobs, rule, world), each_once(&jobs), "{:?}", rule);
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
        for rule in rules() {
            let mut seen: Vec<_> = (0..world)
                .flat_map(|rank| work(&jobs, &placement, rule, rank))
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
    let mut jobs = jobs(
        &vec![episodes; shared.len()],
        &json!({"total_num_envs": total}),
    );
    for (job, is_shared) in jobs.iter_mut().zip(shared) {
        if !is_shared {
            (job.num_envs, job.total_num_envs) = (1, None);
        }
    }
    jobs
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
    let own = |rank| {
        let work = work(&jobs, &Placement::of_ranks(vec![0; 4]), BY_EPISODE, rank);
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
    let jobs = of_lengths(&[5, 0]);
    let work = work(&jobs, &Placement::of_ranks(vec![0; 2]), BY_EPISODE, 1);
    assert!(!work[0].is_done(&[1]));
    assert!(work[0].is_done(&[1, 3]));
    assert!(!work[1].is_done(&[]), "a job in steps has no count");
}

#[test]
fn only_the_chosen_episodes_run() {
    let only: Only = "j1:1-2,4".parse().unwrap();
    let chosen = only.choose(of_lengths(&[3, 6, 3])).unwrap();
    let alone = Placement::of_ranks(vec![0]);
    let [own] = &work(&chosen, &alone, Assignment::default(), 0)[..] else {
        panic!("other jobs run")
    };
    assert!(own.episodes(0..6).eq([1, 2, 4]));
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
    use super::*;

    fn idle_of(length: u64, world_size: usize, assign: Assign, shard: Shard) -> usize {
        idle(
            &of_lengths(&[length]),
            world_size,
            Assignment { assign, shard },
        )
    }

    #[test]
    fn leases_leave_the_ranks_idle_for_which_there_is_no_unit() {
        let idle = |length, shard| idle_of(length, 4, Assign::Dynamic, shard);
        assert_eq!(idle(50, Shard::Jobs), 3);
        assert_eq!(idle(50, Shard::Episodes), 0);
        assert_eq!(idle(3, Shard::Episodes), 1);
        assert_eq!(idle(0, Shard::Episodes), 3, "a job in steps");
    }

    #[test]
    fn a_large_launch_is_counted_in_one_pass_over_its_episodes() {
        for assign in [Assign::Modulo, Assign::Block, Assign::Dynamic] {
            assert_eq!(idle_of(1_000_000, 16_384, assign, Shard::Episodes), 0);
            assert_eq!(idle_of(1_000_000, 16_384, assign, Shard::Jobs), 16_383);
        }
    }

    #[test]
    fn the_ranks_that_are_counted_are_those_without_work() {
        let jobs = of_lengths(&[3, 0, 2]);
        for rule in rules() {
            for ranks in 1..9 {
                let placement = Placement::of_ranks(vec![0; ranks]);
                let is_idle = |rank: &usize| {
                    let works = work(&jobs, &placement, rule, *rank);
                    let runs = |work: &Work| match work.job.length {
                        Length::Episodes(count) => work.episodes(0..count).next().is_some(),
                        Length::Steps(_) | Length::Policy => true,
                    };
                    !works.iter().any(runs)
                };
                let wanted = (0..ranks).filter(is_idle).count();
                assert_eq!(idle(&jobs, ranks, rule), wanted, "{ranks} {rule:?}");
            }
        }
    }
}

mod stages {
    use super::*;

    fn of_two_envs(lengths: &[u64]) -> Vec<Job> {
        let env_args = json!({"environment": "reach", "num_envs": 2});
        jobs(lengths, &json!({"arena_env_args": env_args}))
    }

    #[test]
    fn stages_grow_by_half_of_what_was_done() {
        let by_job = Assignment::default();
        let found = stages(&of_two_envs(&[40, 12]), by_job, 1);
        assert_eq!(found, [0..5, 5..10, 10..15, 15..22, 22..33, 33..40]);
        assert_eq!(stages(&of_two_envs(&[40]), by_job, 1).len(), 1, "one job");
    }

    #[test]
    fn a_stage_keeps_all_environments_busy() {
        let by_episode = Assignment {
            assign: Assign::Dynamic,
            shard: Shard::Episodes,
        };
        assert_eq!(stages(&of_two_envs(&[40, 40]), by_episode, 8)[0], 0..16);
    }

    #[test]
    fn a_job_that_is_over_has_no_part_of_a_later_stage() {
        let works = work(
            &of_two_envs(&[9, 4]),
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
            let jobs = of_two_envs(&lengths);
            let assignment = if by_episode { BY_EPISODE } else { Assignment::default() };
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

mod only {
    use super::*;

    fn jobs() -> Vec<Job> {
        samples::jobs([
            json!({"name": "reach", "num_episodes": 6}),
            json!({"name": "push", "num_episodes": 6, "status": "completed"}),
            json!({"name": "walk", "num_episodes": null, "num_steps": 6}),
        ])
    }

    fn choose(text: &str) -> Result<Vec<(String, Option<String>)>, String> {
        let only = text.parse::<Only>().map_err(|err| err.to_string())?;
        let chosen = only.choose(jobs()).map_err(|err| err.to_string())?;
        Ok(chosen
            .into_iter()
            .map(|job| (job.name, job.only.map(String::from)))
            .collect())
    }

    #[test]
    fn jobs_stay_in_the_order_of_the_file_and_numbers_are_joined() {
        let chosen = choose("walk; reach:5,0,3-4, 1").unwrap();
        let wanted = [
            ("reach".to_owned(), Some("0-1,3-5".to_owned())),
            ("walk".to_owned(), None),
        ];
        assert_eq!(chosen, wanted);
        let expected = Some("0,2");
        assert_eq!(choose("reach:0;reach:2").unwrap()[0].1.as_deref(), expected);
        assert_eq!(choose("reach:0;reach").unwrap()[0].1, None);
        let walk = "walk".parse::<Only>().unwrap().choose(jobs()).unwrap();
        assert_eq!(walk[0].index, JobIndex(0), "the first of the run");
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let refusal = |text: &str| choose(text).unwrap_err();
        let found = refusal("raech");
        assert_eq!(found, "--only: unknown job `raech`; did you mean `reach`?");
        let all = "--only: unknown job `x:y`; expected one of reach, push, walk";
        assert_eq!(refusal("x:y"), all);
        let wanted = "--only: job `push` is completed, only pending jobs run";
        assert_eq!(refusal("push"), wanted);
        assert_eq!(
            refusal("reach:2-6"),
            "--only: job `reach` has no episode 6: it has 6, numbered from 0"
        );
        assert!(refusal("walk:1").starts_with("--only: job `walk` has no num_episodes, so its"));
        assert_eq!(
            refusal("reach:5-2"),
            "`5-2` is not a list of episodes: expected numbers and ranges, for example `0,3-5`"
        );
        assert_eq!(
            refusal("reach:"),
            "`` is not a list of episodes: expected numbers and ranges, for example `0,3-5`"
        );
        assert!(refusal(" ; ").starts_with("no job is named"));
    }

    #[test]
    fn a_choice_is_a_text_in_the_plan() {
        let only: Only = "b;a:3,1".parse().unwrap();
        assert_eq!(serde_json::to_value(&only).unwrap(), json!("a:1,3;b"));
        let found = serde_json::from_value::<Only>(json!("a:1,3;b")).unwrap();
        assert_eq!(found, only);
    }
}
