mod simulation;

use super::*;
use crate::eval::tests::leases::serve;
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

/// A rank, and what it tells.
struct Part {
    early_stop: EarlyStop,
    beat: Beat,
}

impl Part {
    fn new(rank: usize) -> Self {
        let comparison = (rank == 0).then(comparison);
        Self {
            early_stop: EarlyStop::new(rank, 2, comparison),
            beat: Beat::default(),
        }
    }

    /// Ends the unsolved episodes of this job.
    fn run(&mut self, job: usize) -> &mut Self {
        (0..EPISODES).for_each(|number| self.early_stop.add(&episode(job, number, job, false)));
        self
    }

    fn tell(&mut self, store: &Store) {
        self.early_stop.publish(store, &mut self.beat);
    }

    /// Returns whether there is a decision, if `far` has told this last.
    fn decides(&mut self, store: &Store, far: &Beat) -> bool {
        let beats = [&self.beat, far];
        self.early_stop.decides(Some(store), beats.into_iter())
    }
}

#[test]
fn rank_0_decides_from_the_outcomes_of_all_and_tells_them() {
    let store = store();
    let (mut near, mut far) = (Part::new(0), Part::new(1));
    far.run(1).tell(&store);
    assert!(!far.early_stop.decides(Some(&store), [].into_iter()));
    assert!(!near.decides(&store, &far.beat), "nothing of its own job");
    near.run(0);
    assert!(near.decides(&store, &far.beat));
    let text = report::tables::decision(&near.early_stop.decision().unwrap());
    assert!(text.starts_with("regression after "), "{text}");
    assert!(far.early_stop.decides(Some(&store), [].into_iter()));
}

#[test]
fn a_rank_that_is_started_again_is_read_from_its_first_batch() {
    let store = store();
    let (mut near, mut far) = (Part::new(0), Part::new(1));
    for number in 0..3 {
        far.early_stop.add(&episode(1, number, 1, true));
        far.tell(&store);
    }
    near.run(0);
    assert!(!near.decides(&store, &far.beat));
    // Its next life has told as many batches before it is looked at.
    let pid = far.beat.batches.0 + 1;
    let all = (0..EPISODES).map(|number| Outcome(JobIndex(1), number, Some(false)));
    let all = serde_json::to_vec(&all.collect::<Vec<_>>()).unwrap();
    store.set(&batch_key(1, pid, 0), &all).unwrap();
    far.beat.batches = (pid, 4);
    assert!(near.decides(&store, &far.beat));
}

#[test]
fn journals_are_judged_before_the_first_episode() {
    let lines: Vec<Line> = (0..2)
        .flat_map(|job| (0..EPISODES).map(move |number| episode(job, number, job, false).into()))
        .collect();
    let (mut near, mut far) = (Part::new(0), Part::new(1));
    near.early_stop.begin(&lines);
    far.early_stop.begin(&lines);
    assert_eq!(far.early_stop.unsent.len() as u64, EPISODES, "its own");
    let store = store();
    assert!(near.decides(&store, &Beat::default()));
    assert!(far.early_stop.decides(Some(&store), [].into_iter()));
}

#[test]
fn more_outcomes_than_a_batch_holds_are_several_batches() {
    let store = store();
    let mut far = Part::new(1);
    far.early_stop.unsent = vec![Outcome(JobIndex(1), 0, Some(true)); BATCH + 1];
    far.tell(&store);
    assert_eq!(far.beat.batches.1, 2);
    assert!(far.early_stop.unsent.is_empty());
}

#[test]
fn a_heartbeat_that_somebody_has_spoilt_does_no_harm() {
    let store = store();
    let (mut near, mut far) = (Part::new(0), Part::new(1));
    near.run(0);
    let spoilt = Beat {
        batches: (7, u64::MAX),
        ..Beat::default()
    };
    assert!(!near.decides(&store, &spoilt));
    far.run(1).tell(&store);
    assert!(near.decides(&store, &far.beat));
}

#[test]
fn outcomes_are_told_soon_and_heartbeats_alone_at_their_own_pace() {
    let store = store();
    let (mut far, usual) = (Part::new(1), Duration::from_secs(1));
    assert_eq!(far.early_stop.pace(usual), usual);
    far.run(1);
    assert_eq!(
        far.early_stop.pace(usual),
        PERIOD + Duration::from_millis(2)
    );
    far.tell(&store);
    assert_eq!(far.early_stop.pace(usual), usual);
}

#[test]
fn a_single_rank_needs_no_store() {
    let mut only = Part::new(0);
    only.run(0).run(1);
    assert!(only.early_stop.decides(None, [].into_iter()));
}
