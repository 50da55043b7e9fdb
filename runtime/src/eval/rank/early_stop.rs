//! Ends a run as soon as a sequential test has decided (`--stop-when`).
//!
//! ```text
//! rank 1 ── outcomes/1/1, outcomes/1/2, … ──► store ──► rank 0: SequentialComparison
//! rank 2 ── outcomes/2/1, … ───────────────►    ▲              │ a round decides
//!    ▲                                          └── decided ───┘
//!    └──────────── begins no more episodes ◄────────┘
//! ```
//! Every rank publishes the outcomes of its episodes, every tenth of a second and at least once a
//! second. Only rank 0 reads the
//! reference and looks at the rounds. The store carries the outcomes because the journals of other
//! nodes may not be visible. A rank that is restarted publishes its journal again, and rank 0 reads
//! all batches again; what is there twice counts once.

use std::time::{Duration, Instant, SystemTime};

use jobs::episode::Episode;
use jobs::job::JobIndex;
use jobs::journal::{Decision, Line};
use jobs::time::rfc3339;
use report::compare::sequential::SequentialComparison;
use report::tables;
use serde::{Deserialize, Serialize};

use crate::eval::monitor::stop::StopRequest;
use c10d::{DistError, Store};

/// Number of outcomes in a batch, at most: some 100 KB.
const BATCH: usize = 5000;

/// Time limit for the value of a key that is there.
const ANSWER: Duration = Duration::from_secs(1);

/// Interval of exchanges when episodes end, for one rank; each further rank adds a millisecond,
/// because rank 0 asks for the outcomes of all.
const PERIOD: Duration = Duration::from_millis(100);

/// Time that the other ranks wait for rank 0 to judge what the journals have, so that they do not
/// start on a run that is decided. Without an answer they start.
const JUDGED: Duration = Duration::from_secs(120);

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Outcome {
    job: JobIndex,
    episode: u64,
    /// Whether it was solved; `None` if it ended with an error.
    solved: Option<bool>,
}

impl Outcome {
    fn of(episode: &Episode) -> Self {
        let is_solved = episode.success == Some(true);
        Self {
            job: episode.job_index,
            episode: episode.episode,
            solved: episode.error.is_none().then_some(is_solved),
        }
    }
}

/// The part of a rank in the decision whether the run ends early.
pub struct EarlyStop {
    rank: usize,
    stop: StopRequest,
    /// Outcomes of this rank that are not in the store yet.
    unsent: Vec<Outcome>,
    judge: Option<Judge>,
    /// Interval of exchanges when episodes end.
    period: Duration,
    /// When outcomes were last exchanged.
    exchanged: Option<Instant>,
}

/// The part of rank 0.
struct Judge {
    comparison: SequentialComparison,
    /// Number of batches of each rank that were read.
    read: Vec<i64>,
}

impl EarlyStop {
    /// Creates the part of a rank; rank 0 has the `comparison`.
    pub fn new(
        rank: usize,
        world_size: usize,
        stop: StopRequest,
        comparison: Option<SequentialComparison>,
    ) -> Self {
        let judge = |comparison| Judge {
            comparison,
            read: vec![0; world_size],
        };
        Self {
            rank,
            stop,
            unsent: Vec::new(),
            judge: comparison.map(judge),
            period: PERIOD + Duration::from_millis(world_size as u64),
            exchanged: None,
        }
    }

    /// Returns whether outcomes should be exchanged when an episode ends at `now`.
    pub fn is_due(&self, now: Instant) -> bool {
        let is_over = |then: Instant| now.saturating_duration_since(then) >= self.period;
        self.exchanged.is_none_or(is_over)
    }

    /// Takes note of an exchange.
    pub fn exchanged(&mut self, now: Instant) {
        self.exchanged = Some(now);
    }

    /// Judges what the journals have before any rank starts an episode; returns a message as
    /// [`EarlyStop::exchange`] does. The other ranks wait for rank 0.
    pub fn begin(&mut self, lines: &[Line], store: Option<&Store>) -> Option<String> {
        for line in lines {
            let Line::Episode(episode) = line else {
                continue;
            };
            let outcome = Outcome::of(episode);
            if episode.rank == self.rank {
                self.unsent.push(outcome);
            }
            if let Some(judge) = &mut self.judge {
                judge.add(outcome);
            }
        }
        let decided = self.exchange(store);
        let Some(store) = store else { return decided };
        if self.judge.is_some() {
            // If this fails, the other ranks start after a time limit.
            let _ = store.set("judged", b"");
        } else if store.wait("judged", JUDGED).is_ok() {
            self.exchange(Some(store));
        }
        decided
    }

    /// Takes note of an episode of this rank that is in the journal.
    pub fn ended(&mut self, episode: &Episode) {
        let outcome = Outcome::of(episode);
        self.unsent.push(outcome);
        if let Some(judge) = &mut self.judge {
            judge.add(outcome);
        }
    }

    /// Publishes what has ended, and looks whether there is a decision. Errors are ignored: what
    /// was not published is published with the next call. Returns a message for the user when this
    /// rank decides.
    pub fn exchange(&mut self, store: Option<&Store>) -> Option<String> {
        let decided = match (&mut self.judge, store) {
            (None, Some(store)) => {
                if let Err(err) = publish(store, self.rank, &mut self.unsent) {
                    tracing::debug!(%err, "cannot publish outcomes");
                }
                store.check("decided").unwrap_or(false)
            }
            (None, None) => false,
            (Some(judge), store) => {
                self.unsent.clear();
                if let Some(Err(err)) = store.map(|store| judge.read(store, self.rank)) {
                    tracing::debug!(%err, "cannot read the outcomes of other ranks");
                }
                judge.comparison.look()
            }
        };
        if !decided || self.stop.is_decided() {
            return None;
        }
        self.stop.decide();
        if let (Some(_), Some(store)) = (&self.judge, store) {
            // If this fails, the other ranks run their work to the end.
            let _ = store.set("decided", b"");
        }
        let decision = self.decision()?;
        Some(tables::decision(&decision))
    }

    /// Returns a table of the reference beside this run; `None` on other ranks than rank 0.
    pub fn table(&self) -> Option<String> {
        Some(self.judge.as_ref()?.comparison.table())
    }

    /// Returns the result so far; `None` on other ranks than rank 0.
    pub fn decision(&self) -> Option<Decision> {
        let judge = self.judge.as_ref()?;
        let at = rfc3339(SystemTime::now());
        Some(judge.comparison.decision(at))
    }
}

impl Judge {
    fn add(&mut self, outcome: Outcome) {
        let Outcome {
            job,
            episode,
            solved,
        } = outcome;
        self.comparison.add(job, episode, solved);
    }

    /// Reads the batches of the other ranks that are new.
    fn read(&mut self, store: &Store, own: usize) -> Result<(), DistError> {
        for rank in (0..self.read.len()).filter(|rank| *rank != own) {
            let published = store.add(&count_key(rank), 0)?;
            while self.read[rank] < published {
                let next = self.read[rank] + 1;
                let batch = store.get(&batch_key(rank, next), ANSWER)?;
                let outcomes: Vec<Outcome> = serde_json::from_slice(&batch).unwrap_or_default();
                outcomes.into_iter().for_each(|outcome| self.add(outcome));
                self.read[rank] = next;
            }
        }
        Ok(())
    }
}

/// Publishes outcomes in batches. The count grows after its batch is there, so that a rank that dies
/// between the two is overwritten by its restart, and nobody has read it.
fn publish(store: &Store, rank: usize, unsent: &mut Vec<Outcome>) -> Result<(), DistError> {
    while !unsent.is_empty() {
        let sent = unsent.len().min(BATCH);
        let text = serde_json::to_vec(&unsent[..sent]).expect("an outcome has no map");
        let next = store.add(&count_key(rank), 0)? + 1;
        store.set(&batch_key(rank, next), &text)?;
        store.add(&count_key(rank), 1)?;
        unsent.drain(..sent);
    }
    Ok(())
}

fn count_key(rank: usize) -> String {
    format!("outcomes/{rank}")
}

fn batch_key(rank: usize, batch: i64) -> String {
    format!("outcomes/{rank}/{batch}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use c10d::StoreAddr;
    use jobs::samples;
    use report::compare::Side;
    use report::compare::sequential::SequentialTest;
    use serde_json::json;

    const EPISODES: u64 = 40;

    /// Starts a store, and returns the part of an evaluation.
    fn store() -> Store {
        let addr = StoreAddr {
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        let server = Store::connect(&addr, 1, true, Duration::from_secs(60)).unwrap();
        server.prefix("rrun/eval/none/0")
    }

    fn jobs() -> Vec<jobs::job::Job> {
        let entry = |name: &str| {
            json!({"name": name, "arena_env_args": {"environment": "reach"},
                   "policy_type": "scripted", "num_episodes": EPISODES})
        };
        jobs::file::parse(&json!({"jobs": [entry("a"), entry("b")]})).unwrap()
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

    fn rank(rank: usize) -> EarlyStop {
        let comparison = (rank == 0).then(comparison);
        EarlyStop::new(rank, 2, StopRequest::default(), comparison)
    }

    #[test]
    fn rank_0_decides_from_the_outcomes_of_all_and_tells_them() {
        let store = store();
        let (mut near, mut far) = (rank(0), rank(1));
        for number in 0..EPISODES {
            far.ended(&episode(1, number, 1, false));
        }
        assert_eq!(far.exchange(Some(&store)), None);
        assert_eq!(
            near.exchange(Some(&store)),
            None,
            "nothing of the other job"
        );
        for number in 0..EPISODES {
            near.ended(&episode(0, number, 0, false));
        }
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
        let lines: Vec<Line> = (0..EPISODES)
            .map(|number| episode(1, number, 1, false).into())
            .collect();
        far.unsent = lines.iter().filter_map(outcome).collect();
        far.exchange(Some(&store));
        let mut again = rank(1);
        again.unsent = lines.iter().filter_map(outcome).collect();
        again.exchange(Some(&store));
        let own: Vec<Line> = (0..EPISODES)
            .map(|number| episode(0, number, 0, false).into())
            .collect();
        let mut near = rank(0);
        near.begin(&own, Some(&store));
        assert!(near.stop.is_decided());
        assert_eq!(near.judge.as_ref().unwrap().read, [0, 2]);
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
        assert_eq!(store.add(&count_key(1), 0).unwrap(), 2);
        assert!(far.unsent.is_empty());
    }

    #[test]
    fn a_single_rank_needs_no_store() {
        let mut only = EarlyStop::new(0, 1, StopRequest::default(), Some(comparison()));
        for number in 0..EPISODES {
            only.ended(&episode(0, number, 0, false));
            only.ended(&episode(1, number, 0, false));
        }
        assert!(only.exchange(None).is_some() && only.stop.is_decided());
    }
}
