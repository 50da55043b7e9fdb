use std::ops::Range;

use jobs::episode::{End, EpisodeOutcome};
use jobs::job::Length;
use jobs::seed;
use serde_json::json;

use super::*;
use crate::compare::side::SideJob;
use crate::compare::tests::side_of;
use crate::tests::simulated::{Numbers, share};

const TEST: SequentialTest = SequentialTest {
    question: Question::Regression,
    margin: 0.05,
    level: 0.05,
};

/// Returns jobs `j0`, `j1`, … of these lengths; the seeds replace their own ones.
fn jobs(lengths: &[u64], seed: Option<u64>) -> Vec<Job> {
    let entry = |(index, length): (usize, &u64)| json!({"name": format!("j{index}"), "num_episodes": length, "seed": seed});
    jobs::samples::jobs(lengths.iter().enumerate().map(entry))
}

/// Returns a reference with `count` episodes of each job; `solved` says which were solved.
fn reference(jobs: &[Job], count: u64, solved: fn(u64) -> Option<bool>) -> Side {
    let of = |job: &Job| {
        let result = |episode| {
            let outcome = EpisodeOutcome {
                episode,
                seed: seed::episode(1, job, episode),
                success: solved(episode),
                end: End::Success,
                length: 1,
                return_: 0.0,
            };
            (episode, outcome.into())
        };
        let side = SideJob {
            episodes: (0..count).map(result).collect(),
            ..SideJob::default()
        };
        (job.name.clone(), side)
    };
    side_of(jobs.iter().map(of).collect())
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

/// Returns the decision about 100 rounds of two jobs.
fn decided(
    question: Question,
    reference_solved: fn(u64) -> Option<bool>,
    solved: fn(u64) -> Option<bool>,
) -> Decision {
    let jobs = jobs(&[100, 100], None);
    let test = SequentialTest { question, ..TEST };
    let reference = reference(&jobs, 100, reference_solved);
    let mut found = SequentialComparison::new(&jobs, 1, &reference, test).unwrap();
    for episode in 0..100 {
        (0..2).for_each(|job| found.add(JobIndex(job), episode, solved(episode)));
    }
    assert!(found.look());
    found.decision(String::new())
}

#[test]
fn the_same_outcomes_pass_and_are_the_same() {
    for (question, verdict) in [
        (Question::Regression, Verdict::Passed),
        (Question::Reproduction, Verdict::Same),
    ] {
        let solved = |episode: u64| Some(!episode.is_multiple_of(3));
        let decision = decided(question, solved, solved);
        assert_eq!(decision.verdict, verdict);
        assert!((50..70).contains(&decision.rounds), "{decision:?}");
    }
}

#[test]
fn a_gain_is_a_difference_and_no_loss() {
    for (question, verdict) in [
        (Question::Regression, Verdict::Passed),
        (Question::Reproduction, Verdict::Different),
    ] {
        let decision = decided(question, |_| Some(false), |_| Some(true));
        assert_eq!(decision.verdict, verdict);
    }
}

#[test]
fn rounds_end_with_the_shortest_job_or_with_the_reference() {
    let jobs = jobs(&[9, 4], None);
    let of = |count| comparison(&jobs, &reference(&jobs, count, |_| Some(true)));
    let shown = [of(20), of(3)].map(|found| found.comparable_rounds());
    assert_eq!(shown, [4, 3]);
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
    assert_eq!(of(&own).clustered_jobs(), 0);
    assert_eq!(of(&shared).clustered_jobs(), 3);
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
        let refused = SequentialComparison::new(jobs, seed, side, TEST).unwrap_err();
        refused.to_string()
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
    let wanted = "job `j0` has no num_episodes, so that its episodes have no pairs";
    assert_eq!(refusal(&steps, 1, &full), wanted);
}

fn with_claim(jobs: &[Job], claim: &str, test: SequentialTest) -> SequentialComparison {
    SequentialComparison::with_claim(jobs, 1, claim.parse().unwrap(), test).unwrap()
}

const REPRODUCTION: SequentialTest = SequentialTest {
    question: Question::Reproduction,
    margin: 0.1,
    level: 0.05,
};

#[test]
fn a_run_far_from_its_claim_is_different_after_a_few_rounds() {
    let jobs = jobs(&[100, 100], None);
    let mut found = with_claim(&jobs, "460/500", REPRODUCTION);
    assert!(rounds(&mut found, 2, 0..100, false));
    let decision = found.decision(String::new());
    assert_eq!(decision.verdict, Verdict::Different);
    assert!(decision.rounds < 10, "{decision:?}");
    assert_eq!((decision.both, decision.only_a, decision.only_b), (0, 0, 0));
    assert_eq!(decision.neither, 2 * decision.rounds);
    assert_eq!(decision.difference, Some(-0.92));
    assert_eq!(decision.against, "460 of 500 (92.0 %)");
}

#[test]
fn a_run_that_solves_the_claimed_share_is_the_same_within_the_margin_said_before_it() {
    let jobs = jobs(&[400, 400], None);
    let test = SequentialTest {
        margin: 0.08,
        ..REPRODUCTION
    };
    let mut found = with_claim(&jobs, "900/1000", test);
    let smallest = found.smallest_margin().unwrap();
    assert!((0.03..0.08).contains(&smallest), "{smallest}");
    for episode in 0..400 {
        (0..2).for_each(|job| found.add(JobIndex(job), episode, Some(episode % 10 > 0)));
    }
    assert!(found.look());
    let decision = found.decision(String::new());
    assert_eq!(decision.verdict, Verdict::Same);
    assert!((100..400).contains(&decision.rounds), "{decision:?}");
    let table = found.table();
    let all = "| all | 90.0 %, 900 of 1000 (88.0 to 91.7) |";
    assert!(table.contains(all), "{table}");
    assert!(table.contains("| j0  | -"), "{table}");
}

#[test]
fn a_claim_of_few_episodes_cannot_be_reproduced_closely() {
    let found = with_claim(&jobs(&[1000], None), "9/10", REPRODUCTION);
    let smallest = found.smallest_margin().unwrap();
    assert!(smallest > 0.4, "{smallest}");
}

impl Numbers {
    fn is_below(&mut self, share: f64) -> bool {
        self.next() < share
    }

    fn solved(&mut self, episodes: u64, rate: f64) -> u64 {
        (0..episodes).filter(|_| self.is_below(rate)).count() as u64
    }
}

/// Returns the share of 10 000 runs whose verdict against a claim is `wrong`, if the policy of the
/// claim solves `claimed` and that of the run `rate`. Looks come every twenty episodes.
fn wrong_verdicts(wrong: Verdict, claimed: f64, rate: f64) -> f64 {
    share(10_000, Numbers(5), |numbers| {
        let claim = Claim {
            solved: numbers.solved(300, claimed),
            episodes: 300,
        };
        let reference = Reference::of_claim(claim, REPRODUCTION);
        let mut sums = PairedSums::new(1);
        let verdict = (0..15).find_map(|_| {
            (0..20).for_each(|_| sums.add(1, i32::from(numbers.is_below(rate))));
            reference.verdict(REPRODUCTION, &sums)
        });
        verdict == Some(wrong)
    })
}

#[test]
fn verdicts_about_claims_are_wrong_at_most_as_often_as_the_level_says() {
    for (claimed, rate) in [(0.9, 0.9), (0.5, 0.5)] {
        let share = wrong_verdicts(Verdict::Different, claimed, rate);
        assert!(share <= REPRODUCTION.level, "{claimed} {rate}: {share}");
    }
    for (claimed, rate) in [(0.95, 0.85), (0.85, 0.95), (0.55, 0.45)] {
        let share = wrong_verdicts(Verdict::Same, claimed, rate);
        assert!(share <= REPRODUCTION.level, "{claimed} {rate}: {share}");
    }
    let found = wrong_verdicts(Verdict::Different, 0.9, 0.6);
    assert!(found > 0.99, "a difference of 30 points is found: {found}");
}
