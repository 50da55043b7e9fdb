use proptest::prelude::*;
use serde_json::json;

use super::*;
use jobs::plan::Identity;

fn outcome(episode: u64, solved: Option<bool>) -> EpisodeResult {
    EpisodeResult {
        episode,
        seed: episode * 7,
        solved,
        return_: f64::from(u8::from(solved == Some(true))),
        max_reward: None,
        length: 10 + episode,
    }
}

fn side_job(task: &str, outcomes: &[Option<bool>]) -> SideJob {
    let entry = json!({"name": "a", "arena_env_args": {"environment": task}, "policy_type": "p", "num_episodes": 4});
    let job = jobs::file::parse(&json!({"jobs": [entry]}))
        .unwrap()
        .remove(0);
    let numbered = outcomes
        .iter()
        .enumerate()
        .map(|(number, solved)| outcome(number as u64, *solved));
    SideJob {
        task: task.to_owned(),
        identity: Some(Identity::of(&job, 1)),
        episodes: numbered.collect(),
        ..SideJob::default()
    }
}

fn side(jobs: &[(&str, SideJob)]) -> Side {
    Side::of_jobs(
        jobs.iter()
            .map(|(name, job)| ((*name).to_owned(), job.clone()))
            .collect(),
    )
}

fn compared(a: &Side, b: &Side) -> Comparison {
    compare(a, b, &BTreeMap::new())
}

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

#[test]
fn variants_are_no_further_pairs_of_their_control() {
    let variant = |outcomes: &[Option<bool>]| SideJob {
        is_variant: true,
        ..side_job("reach", outcomes)
    };
    let [control, dark] = [side_job("reach", &[YES, NO]), variant(&[NO, NO])];
    let both = side(&[("x", control), ("x_dark", dark.clone())]);
    let found = compared(&both, &both);
    assert_eq!((found.overall.pairs, found.per_task["reach"].pairs), (2, 2));
    assert_eq!(
        (found.overall.rate_a, found.per_job["x_dark"].pairs),
        (Some(0.5), 2)
    );
    let alone = side(&[("x_dark", dark)]);
    assert_eq!(compared(&alone, &alone).overall.pairs, 2);
}

#[test]
fn pairs_are_counted_by_task_and_over_all() {
    let a = side(&[
        ("x", side_job("reach", &[YES, YES, NO, NO])),
        ("y", side_job("push", &[YES, NO])),
    ]);
    let b = side(&[
        ("x", side_job("reach", &[YES, NO, YES, NO])),
        ("y", side_job("push", &[YES, YES])),
    ]);
    let found = compared(&a, &b);
    assert_eq!(
        found.overall.counts,
        PairCounts {
            both: 2,
            only_a: 1,
            only_b: 2,
            neither: 1
        }
    );
    assert_eq!(
        (found.overall.pairs, found.overall.difference),
        (6, Some(1.0 / 6.0))
    );
    assert_eq!(
        (found.per_task["push"].rate_a, found.per_task["push"].rate_b),
        (Some(0.5), Some(1.0))
    );
    assert_eq!(found.per_task["reach"].mcnemar.unwrap().p, 1.0);
    assert_eq!(found.overall.returns.unwrap().mean, 1.0 / 6.0);
    assert_eq!(
        (&found.unpaired, found.warnings.len()),
        (&Unpaired::default(), 0)
    );
}

#[test]
fn largest_rewards_are_compared_where_both_have_one() {
    let of = |rewards: [Option<f64>; 3]| {
        let mut job = side_job("pusht", &[YES, NO, NO]);
        job.episodes
            .iter_mut()
            .zip(rewards)
            .for_each(|(outcome, most)| outcome.max_reward = most);
        side(&[("x", job)])
    };
    let found = compared(
        &of([Some(1.0), Some(0.5), Some(0.5)]),
        &of([Some(1.0), Some(1.0), None]),
    );
    assert_eq!(found.overall.max_rewards.unwrap().mean, 0.25);
    let none = of([None; 3]);
    assert_eq!(compared(&none, &none).overall.max_rewards, None);
}

#[test]
fn what_is_no_pair_is_counted_and_not_mixed_in() {
    let mut other_seed = side_job("reach", &[YES, YES, YES, None, YES]);
    other_seed.episodes[1].seed = 99;
    other_seed.episodes.remove(0);
    let a = side(&[
        ("x", side_job("reach", &[YES, YES, None, YES])),
        ("only", side_job("reach", &[YES])),
    ]);
    let b = side(&[("x", other_seed), ("new", side_job("reach", &[YES]))]);
    let found = compared(&a, &b);
    let unpaired = Unpaired {
        jobs_of_a: vec!["only".to_owned()],
        jobs_of_b: vec!["new".to_owned()],
        episodes_of_a: 1,
        episodes_of_b: 1,
        other_seed: 1,
        errors_of_a: 1,
        errors_of_b: 1,
    };
    assert_eq!((found.overall.pairs, found.unpaired), (0, unpaired));
    assert_eq!(
        (found.overall.difference, found.overall.mcnemar),
        (None, None)
    );
}

#[test]
fn jobs_of_other_names_are_paired_where_it_is_said() {
    let a = side(&[
        ("reach", side_job("reach", &[YES])),
        ("push", side_job("push", &[YES])),
    ]);
    let b = side(&[
        ("reach_random", side_job("reach", &[NO])),
        ("push", side_job("push", &[YES])),
    ]);
    let renamed = BTreeMap::from([("reach".to_owned(), "reach_random".to_owned())]);
    let found = compare(&a, &b, &renamed);
    assert_eq!(
        (found.overall.pairs, found.unpaired),
        (2, Unpaired::default())
    );
}

#[test]
fn a_job_that_is_the_partner_of_another_is_not_paired_with_its_namesake() {
    let both = || {
        [
            ("old", side_job("reach", &[YES])),
            ("new", side_job("reach", &[NO])),
            ("x", side_job("push", &[NO])),
        ]
    };
    let renamed = BTreeMap::from([("old".to_owned(), "new".to_owned())]);
    let found = compare(&side(&both()), &side(&both()), &renamed);
    assert_eq!(found.per_job.keys().collect::<Vec<_>>(), ["old", "x"]);
    assert_eq!(
        (found.unpaired.jobs_of_a, found.unpaired.jobs_of_b),
        (vec!["new".to_owned()], vec!["old".to_owned()])
    );
}

#[test]
fn what_differs_beside_the_policy_is_told() {
    let with = |chunk: u64, device: &str, task: &str| SideJob {
        settings: [
            ("chunk_length".to_owned(), json!(chunk)),
            ("device".to_owned(), json!(device)),
        ]
        .into(),
        ..side_job(task, &[YES])
    };
    let a = side(&[
        ("x", with(16, "cuda:0", "reach")),
        ("y", with(16, "cuda:0", "reach")),
    ]);
    let b = side(&[
        ("x", with(8, "cuda:1", "reach")),
        ("y", with(8, "cuda:1", "push")),
    ]);
    assert_eq!(
        compared(&a, &b).warnings,
        [
            "arena_env_args.environment is \"reach\" in A and \"push\" in B (y)",
            "chunk_length is 16 in A and 8 in B (2 jobs x, y)"
        ]
    );
}

proptest! {
    #[test]
    fn every_episode_is_in_a_pair_or_counted(
        ours in proptest::collection::btree_map(0u64..20, (0u64..2, proptest::option::of(any::<bool>())), 0..15),
        theirs in proptest::collection::btree_map(0u64..20, (0u64..2, proptest::option::of(any::<bool>())), 0..15)
    ) {
        let of = |found: &BTreeMap<u64, (u64, Option<bool>)>| {
            let episodes = found.iter().map(|(number, (seed, solved))| EpisodeResult { seed: *seed, ..outcome(*number, *solved) });
            side(&[("x", SideJob { episodes: episodes.collect(), ..side_job("reach", &[]) })])
        };
        let found = compared(&of(&ours), &of(&theirs));
        let Unpaired { episodes_of_a, episodes_of_b, other_seed, errors_of_a, errors_of_b, .. } = found.unpaired;
        let common = ours.keys().filter(|number| theirs.contains_key(number)).count() as u64;
        prop_assert_eq!(episodes_of_a + common, ours.len() as u64);
        prop_assert_eq!(episodes_of_b + common, theirs.len() as u64);
        let broken = common - other_seed - found.overall.pairs;
        prop_assert!(errors_of_a.max(errors_of_b) <= broken && broken <= errors_of_a + errors_of_b);
        // With the sides swapped, the result has the opposite sign.
        let back = compared(&of(&theirs), &of(&ours)).overall;
        prop_assert_eq!(back.mcnemar, found.overall.mcnemar);
        prop_assert_eq!(back.difference.map(|d| -d), found.overall.difference.map(|d| if d == 0.0 { -0.0 } else { d }));
    }
}
