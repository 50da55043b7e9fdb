use std::io::Write as _;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tests::lines;
use jobs::episode::{End, Episode, EpisodeOutcome};
use jobs::plan::Identity;

/// Returns a side that was not read from files.
pub(super) fn side_of(jobs: BTreeMap<String, SideJob>) -> Side {
    Side {
        path: PathBuf::new(),
        jobs,
    }
}

/// Returns an episode whose seed is that of its number, or another.
fn outcome(episode: u64, other_seed: bool, success: Option<bool>) -> (u64, SideEpisode) {
    let outcome = EpisodeOutcome {
        episode,
        seed: episode * 7 + u64::from(other_seed),
        success,
        end: End::Success,
        length: 10 + episode,
        return_: f64::from(u8::from(success == Some(true))),
    };
    (episode, outcome.into())
}

/// Returns a job of a side: its task, and a letter for each episode. `1` is solved, `0` is not, `x`
/// is an error, `s` is solved from another seed, and `-` did not run.
fn side_job(task: &str, outcomes: &str) -> SideJob {
    let job = jobs::samples::job(json!({"arena_env_args": {"environment": task}}));
    let numbered = (0..)
        .zip(outcomes.chars())
        .filter(|(_, letter)| *letter != '-');
    let of = |(number, letter)| {
        let solved = (letter != 'x').then_some(letter != '0');
        outcome(number, letter == 's', solved)
    };
    SideJob {
        task: task.to_owned(),
        identity: Some(Identity::of(&job, 1)),
        episodes: numbered.map(of).collect(),
        ..SideJob::default()
    }
}

fn of_jobs<'a>(jobs: impl IntoIterator<Item = (&'a str, SideJob)>) -> Side {
    let jobs = jobs.into_iter().map(|(name, job)| (name.to_owned(), job));
    side_of(jobs.collect())
}

/// Returns a side of jobs with these names, tasks and outcomes; a name with a star is a variant.
fn side(jobs: &str) -> Side {
    let job = |words: &str| {
        let words: Vec<_> = words.split(' ').collect();
        let name = words[0].trim_end_matches('*').to_owned();
        let is_variant = words[0].ends_with('*');
        let job = side_job(words[1], words[2]);
        (name, SideJob { is_variant, ..job })
    };
    side_of(jobs.split(", ").map(job).collect())
}

fn compared(a: &Side, b: &Side) -> Comparison {
    compare(a, b, &BTreeMap::new())
}

fn renamed(from: &str, to: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(from.to_owned(), to.to_owned())])
}

#[test]
fn variants_are_no_further_pairs_of_their_control() {
    let both = side("x reach 10, x_dark* reach 00");
    let found = compared(&both, &both);
    assert_eq!((found.overall.pairs, found.per_task["reach"].pairs), (2, 2));
    assert_eq!(found.overall.rate_a, Some(0.5));
    assert_eq!(found.per_job["x_dark"].pairs, 2);
    let alone = side("x_dark* reach 00");
    assert_eq!(compared(&alone, &alone).overall.pairs, 2);
}

#[test]
fn of_several_lines_about_an_episode_the_first_that_was_scored_counts() {
    let ended = |episode: Episode, second| Episode {
        ended: lines::at(second),
        ..episode
    };
    let [solved, unsolved] = [true, false].map(|is_solved| lines::episode(0, 0, is_solved));
    let broken = lines::broken(solved.clone(), "a crash");
    let file = tempfile::Builder::new()
        .suffix(".jsonl")
        .tempfile()
        .unwrap();
    for episode in [ended(broken, 1), ended(solved, 3), ended(unsolved, 2)] {
        writeln!(&file, "{}", json!(episode)).unwrap();
    }
    let side = Side::read(file.path()).unwrap();
    let counts = side.jobs["a"].episodes[&0].outcome;
    assert_eq!((counts.success, counts.end), (Some(false), End::TimeLimit));
}

#[test]
fn pairs_are_counted_by_task_and_over_all() {
    let found = compared(
        &side("x reach 1100, y push 10"),
        &side("x reach 1010, y push 11"),
    );
    let counts = crate::tests::simulated::pairs([2, 1, 2, 1]);
    assert_eq!(found.overall.counts, counts);
    assert_eq!(found.overall.pairs, 6);
    assert_eq!(found.overall.difference, Some(1.0 / 6.0));
    let push = &found.per_task["push"];
    assert_eq!((push.rate_a, push.rate_b), (Some(0.5), Some(1.0)));
    assert_eq!(found.per_task["reach"].mcnemar.unwrap().p, 1.0);
    assert_eq!(found.overall.returns.unwrap().mean, 1.0 / 6.0);
    assert_eq!(found.unpaired, Unpaired::default());
    assert_eq!(found.warnings.len(), 0);
}

#[test]
fn largest_rewards_are_compared_where_both_have_one() {
    let of = |rewards: [Option<f64>; 3]| {
        let mut job = side_job("pusht", "100");
        for (outcome, most) in job.episodes.values_mut().zip(rewards) {
            outcome.max_reward = most;
        }
        of_jobs([("x", job)])
    };
    let [low, high] = [Some(0.5), Some(1.0)];
    let found = compared(&of([high, low, low]), &of([high, high, None]));
    assert_eq!(found.overall.max_rewards.unwrap().mean, 0.25);
    let none = of([None; 3]);
    assert_eq!(compared(&none, &none).overall.max_rewards, None);
}

#[test]
fn what_is_no_pair_is_counted_and_not_mixed_in() {
    let found = compared(
        &side("x reach 11x1, only reach 1"),
        &side("x reach -s1x1, new reach 1"),
    );
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
    assert_eq!(found.overall.difference, None);
    assert_eq!(found.overall.mcnemar, None);
}

#[test]
fn jobs_of_other_names_are_paired_where_it_is_said() {
    let a = side("reach reach 1, push push 1");
    let b = side("reach_random reach 0, push push 1");
    let found = compare(&a, &b, &renamed("reach", "reach_random"));
    assert_eq!(found.overall.pairs, 2);
    assert_eq!(found.unpaired, Unpaired::default());
}

#[test]
fn a_job_that_is_the_partner_of_another_is_not_paired_with_its_namesake() {
    let both = side("old reach 1, new reach 0, x push 0");
    let found = compare(&both, &both, &renamed("old", "new"));
    assert_eq!(found.per_job.keys().collect::<Vec<_>>(), ["old", "x"]);
    assert_eq!(found.unpaired.jobs_of_a, ["new"]);
    assert_eq!(found.unpaired.jobs_of_b, ["old"]);
}

#[test]
fn what_differs_beside_the_policy_is_told() {
    let with = |chunk: u64, device: &str, task: &str| SideJob {
        settings: [
            ("chunk_length", json!(chunk)),
            ("device", json!(device)),
            // Each side has imported a package that the other one has not.
            (
                "env_versions",
                json!({"numpy": format!("2.{chunk}"), "torch": "2.11", device: "1.0"}),
            ),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
        ..side_job(task, "1")
    };
    let a = of_jobs([
        ("x", with(16, "cuda:0", "reach")),
        ("y", with(16, "cuda:0", "reach")),
    ]);
    let b = of_jobs([
        ("x", with(8, "cuda:1", "reach")),
        ("y", with(8, "cuda:1", "push")),
    ]);
    let task = "arena_env_args.environment is \"reach\" in A and \"push\" in B (y)";
    let chunk = "chunk_length is 16 in A and 8 in B (2 jobs x, y)";
    let numpy = "env_versions.numpy is 2.16 in A and 2.8 in B (2 jobs x, y)";
    assert_eq!(compared(&a, &b).warnings, [task, chunk, numpy]);
}

proptest! {
    #[test]
    fn every_episode_is_in_a_pair_or_counted(
        ours in proptest::collection::btree_map(0u64..20, (any::<bool>(), proptest::option::of(any::<bool>())), 0..15),
        theirs in proptest::collection::btree_map(0u64..20, (any::<bool>(), proptest::option::of(any::<bool>())), 0..15)
    ) {
        let of = |found: &BTreeMap<u64, (bool, Option<bool>)>| {
            let episodes = found.iter().map(|(number, (seed, solved))| outcome(*number, *seed, *solved));
            of_jobs([("x", SideJob { episodes: episodes.collect(), ..side_job("reach", "") })])
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
