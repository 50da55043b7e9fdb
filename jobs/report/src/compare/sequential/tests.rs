use std::ops::Range;

use serde_json::json;

use super::*;
use crate::compare::side::SideJob;

const TEST: SequentialTest = SequentialTest {
    question: Question::Regression,
    margin: 0.05,
    level: 0.05,
};

/// Returns jobs `j0`, `j1`, … of these lengths; the seeds replace their own ones.
fn jobs(lengths: &[u64], seed: Option<u64>) -> Vec<Job> {
    let entry = |(index, length): (usize, &u64)| {
        json!({"name": format!("j{index}"), "policy_type": "scripted", "num_episodes": length,
               "arena_env_args": {"environment": "reach"}, "seed": seed})
    };
    let entries: Vec<_> = lengths.iter().enumerate().map(entry).collect();
    jobs::file::parse(&json!({"jobs": entries})).unwrap()
}

/// Returns a reference with `count` episodes of each job; `solved` says which were solved.
fn reference(jobs: &[Job], count: u64, solved: fn(u64) -> Option<bool>) -> Side {
    let of = |job: &Job| {
        let result = |episode| EpisodeResult {
            episode,
            seed: seed::episode(1, job, episode),
            solved: solved(episode),
            return_: 0.0,
            max_reward: None,
            length: 1,
        };
        let side = SideJob {
            episodes: (0..count).map(result).collect(),
            ..SideJob::default()
        };
        (job.name.clone(), side)
    };
    Side::of_jobs(jobs.iter().map(of).collect())
}

fn comparison(jobs: &[Job], reference: &Side) -> SequentialComparison {
    SequentialComparison::new(jobs, 1, reference, TEST).unwrap()
}

/// Adds the rounds with the same outcome in all of `jobs`, and looks.
fn rounds(found: &mut SequentialComparison, jobs: usize, rounds: Range<u64>, solved: bool) -> bool {
    for round in rounds {
        (0..jobs).for_each(|job| found.add(JobIndex(job), round, Some(solved)));
    }
    found.look()
}

#[test]
fn a_round_counts_when_all_of_its_episodes_have_ended() {
    let jobs = jobs(&[50, 50], None);
    let mut found = comparison(&jobs, &reference(&jobs, 50, |_| Some(true)));
    for episode in 0..50 {
        found.add(JobIndex(0), episode, Some(false));
    }
    assert!(!found.look(), "nothing of the other job");
    assert_eq!(found.decision(String::new()).rounds, 0);
    found.add(JobIndex(1), 1, Some(false));
    assert!(!found.look(), "round 0 is not complete");
    found.add(JobIndex(1), 0, Some(false));
    found.look();
    assert_eq!(found.decision(String::new()).rounds, 2);
}

#[test]
fn the_first_round_that_decides_is_the_decision_however_many_have_ended() {
    let jobs = jobs(&[60, 60], None);
    let reference = reference(&jobs, 60, |_| Some(true));
    let (mut late, mut early) = (comparison(&jobs, &reference), comparison(&jobs, &reference));
    assert!(rounds(&mut late, 2, 0..60, false));
    assert!((0..60).any(|round| rounds(&mut early, 2, round..round + 1, false)));
    let decision = late.decision(String::new());
    assert_eq!(decision, early.decision(String::new()));
    assert_eq!(decision.verdict, Verdict::Regression);
    assert!(decision.rounds < 10, "{decision:?}");
    assert_eq!(decision.only_a, decision.rounds * 2);
}

#[test]
fn the_same_outcomes_pass_and_are_the_same() {
    let jobs = jobs(&[100, 100], None);
    let reference = reference(&jobs, 100, |episode| Some(episode % 3 > 0));
    for (question, verdict) in [
        (Question::Regression, Verdict::Passed),
        (Question::Reproduction, Verdict::Same),
    ] {
        let test = SequentialTest { question, ..TEST };
        let mut found = SequentialComparison::new(&jobs, 1, &reference, test).unwrap();
        for episode in 0..100 {
            (0..2).for_each(|job| found.add(JobIndex(job), episode, Some(episode % 3 > 0)));
        }
        assert!(found.look());
        let decision = found.decision(String::new());
        assert_eq!(decision.verdict, verdict);
        assert!((50..70).contains(&decision.rounds), "{decision:?}");
    }
}

#[test]
fn a_gain_is_a_difference_and_no_loss() {
    let jobs = jobs(&[100], None);
    let reference = reference(&jobs, 100, |_| Some(false));
    for (question, verdict) in [
        (Question::Regression, Verdict::Passed),
        (Question::Reproduction, Verdict::Different),
    ] {
        let test = SequentialTest { question, ..TEST };
        let mut found = SequentialComparison::new(&jobs, 1, &reference, test).unwrap();
        assert!(rounds(&mut found, 1, 0..100, true));
        assert_eq!(found.decision(String::new()).verdict, verdict);
    }
}

#[test]
fn rounds_end_with_the_shortest_job_or_with_the_reference() {
    let jobs = jobs(&[9, 4], None);
    let of = |count| comparison(&jobs, &reference(&jobs, count, |_| Some(true)));
    assert_eq!(
        [of(20), of(3)].map(|found| found.comparable_rounds()),
        [4, 3]
    );
    let mut found = of(20);
    assert!(!rounds(&mut found, 2, 0..9, true));
    let decision = found.decision(String::new());
    assert_eq!((decision.verdict, decision.rounds), (Verdict::Undecided, 4));
    assert_eq!((decision.both, decision.difference), (8, Some(0.0)));
}

#[test]
fn an_error_completes_its_round_and_does_not_count() {
    let jobs = jobs(&[3], None);
    let solved = |episode: u64| (episode != 1).then_some(true);
    let mut found = comparison(&jobs, &reference(&jobs, 3, solved));
    found.add(JobIndex(0), 0, None);
    found.add(JobIndex(0), 1, Some(true));
    found.add(JobIndex(0), 2, Some(true));
    found.look();
    let decision = found.decision(String::new());
    assert_eq!((decision.rounds, decision.errors, decision.both), (3, 2, 1));
}

#[test]
fn a_score_replaces_an_error_and_the_first_score_counts() {
    let jobs = jobs(&[1], None);
    let mut found = comparison(&jobs, &reference(&jobs, 1, |_| Some(true)));
    for solved in [None, Some(false), Some(true), None] {
        found.add(JobIndex(0), 0, solved);
    }
    found.look();
    assert_eq!(found.decision(String::new()).only_a, 1);
}

#[test]
fn what_is_not_in_the_run_is_left_out() {
    let jobs = jobs(&[1], None);
    let mut found = comparison(&jobs, &reference(&jobs, 1, |_| Some(true)));
    found.add(JobIndex(7), 0, Some(true));
    found.add(JobIndex(0), u64::MAX, Some(true));
    assert!(!found.look());
}

#[test]
fn jobs_with_one_seed_are_one_cluster() {
    let (own, shared) = (jobs(&[100; 3], None), jobs(&[100; 3], Some(4)));
    let of = |jobs: &[Job]| comparison(jobs, &reference(jobs, 100, |_| Some(true)));
    assert_eq!(
        (of(&own).clustered_jobs(), of(&shared).clustered_jobs()),
        (0, 3)
    );
    let rounds_of = |jobs: &[Job]| {
        let mut found = of(jobs);
        assert!(rounds(&mut found, 3, 0..100, false));
        found.decision(String::new()).rounds
    };
    assert!(rounds_of(&shared) > rounds_of(&own));
}

#[test]
fn a_reference_without_pairs_is_refused_by_name() {
    let own = jobs(&[5], None);
    let refusal = |jobs: &[Job], seed: u64, side: &Side| {
        SequentialComparison::new(jobs, seed, side, TEST)
            .unwrap_err()
            .to_string()
    };
    let full = reference(&own, 5, |_| Some(true));
    assert_eq!(
        refusal(&own, 2, &full),
        "job `j0` has other seeds in ``; give both runs the same --seed, or their jobs the same `seed`"
    );
    let empty = reference(&own, 0, |_| Some(true));
    assert_eq!(refusal(&own, 1, &empty), "`` has no episode 0 of job `j0`");
    let two = jobs(&[5, 5], None);
    assert_eq!(refusal(&two, 1, &full), "`` has no job `j1`");
    assert_eq!(refusal(&[], 1, &full), "no job is pending");
    let mut steps = own.clone();
    steps[0].length = Length::Steps(9);
    assert_eq!(
        refusal(&steps, 1, &full),
        "job `j0` has no num_episodes, so that its episodes have no pairs"
    );
}
