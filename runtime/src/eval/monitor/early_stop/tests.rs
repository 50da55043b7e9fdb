use super::*;
use crate::eval::lease::testing::serve;
use crate::eval::monitor::early_stop::batch::BATCH;
use jobs::journal::Line;
use jobs::samples;
use report::compare::Side;
use report::compare::sequential::SequentialTest;
use serde_json::json;

const EPISODES: u64 = 40;

/// Starts a store, and returns the part of an evaluation.
fn store() -> Store {
    serve().prefix("rrun/eval/none/0")
}

fn jobs() -> Vec<jobs::job::Job> {
    let entry = |name: &str| json!({"name": name, "num_episodes": EPISODES});
    crate::eval::tests::jobs(["a", "b"].map(entry))
}

fn episode(job: usize, number: u64, rank: usize, solved: bool) -> Episode {
    let jobs = jobs();
    Episode {
        seed: jobs::seed::episode(1, &jobs[job], number),
        success: Some(solved),
        rank,
        ..samples::episode(job, &jobs[job].name, number)
    }
}

/// Returns the comparison with a reference that has solved everything.
fn comparison() -> SequentialComparison {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("episodes.jsonl");
    let line = |episode: &Episode| serde_json::to_string(episode).unwrap() + "\n";
    let lines: String = (0..2)
        .flat_map(|job| (0..EPISODES).map(move |number| episode(job, number, 0, true)))
        .map(|episode| line(&episode))
        .collect();
    std::fs::write(&path, lines).unwrap();
    let test = SequentialTest {
        question: jobs::journal::Question::Regression,
        margin: 0.05,
        level: 0.05,
    };
    SequentialComparison::new(&jobs(), 1, &Side::read(&path).unwrap(), test).unwrap()
}

/// Tells a part of the unsolved episodes of this job.
fn run(part: &mut EarlyStop, job: usize) {
    (0..EPISODES).for_each(|number| part.ended(&episode(job, number, job, false)));
}

fn rank(rank: usize) -> EarlyStop {
    let comparison = (rank == 0).then(comparison);
    EarlyStop::new(rank, 2, StopRequest::default(), comparison)
}

#[test]
fn rank_0_decides_from_the_outcomes_of_all_and_tells_them() {
    let store = store();
    let (mut near, mut far) = (rank(0), rank(1));
    run(&mut far, 1);
    assert_eq!(far.exchange(Some(&store)), None);
    let undecided = near.exchange(Some(&store));
    assert_eq!(undecided, None, "nothing of the other job");
    run(&mut near, 0);
    let text = near.exchange(Some(&store)).unwrap();
    assert!(text.starts_with("regression after "), "{text}");
    assert!(!far.stop.is_decided());
    far.exchange(Some(&store));
    assert!(far.stop.is_decided());
    assert_eq!(near.exchange(Some(&store)), None, "said once");
}

#[test]
fn restarted_ranks_tell_and_read_everything_again() {
    let store = store();
    let mut far = rank(1);
    let of = |job: usize| {
        let lines = (0..EPISODES).map(|number| episode(job, number, job, false).into());
        lines.collect::<Vec<Line>>()
    };
    let lines = of(1);
    far.unsent = lines.iter().filter_map(outcome).collect();
    far.exchange(Some(&store));
    let mut again = rank(1);
    again.unsent = lines.iter().filter_map(outcome).collect();
    again.exchange(Some(&store));
    let mut near = rank(0);
    near.begin(&of(0), Some(&store));
    assert!(near.stop.is_decided());
    let mut late = rank(1);
    late.begin(&lines, Some(&store));
    assert!(late.stop.is_decided(), "before its first episode");
}

fn outcome(line: &Line) -> Option<Outcome> {
    match line {
        Line::Episode(episode) => Some(Outcome::of(episode)),
        _ => None,
    }
}

#[test]
fn more_outcomes_than_a_batch_holds_are_several_batches() {
    let store = store();
    let mut far = rank(1);
    let one = Outcome::of(&episode(1, 0, 1, true));
    far.unsent = vec![one; BATCH + 1];
    far.exchange(Some(&store));
    assert_eq!(store.add(OUTCOMES, 0).unwrap(), 2);
    assert!(far.unsent.is_empty());
}

#[test]
fn a_single_rank_needs_no_store() {
    let mut only = EarlyStop::new(0, 1, StopRequest::default(), Some(comparison()));
    run(&mut only, 0);
    run(&mut only, 1);
    assert!(only.exchange(None).is_some() && only.stop.is_decided());
}
