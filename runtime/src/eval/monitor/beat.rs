//! The heartbeat of a rank: its state as a fold of what happened, which the other ranks, the
//! launcher and the user read at their own pace; and what it is when a launch begins. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jobs::assign::Work;
use jobs::episode::Episode;
use jobs::job::{Job, JobIndex, Length, Status};
use jobs::journal::Line;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::eval::monitor::meter::GpuBusy;
use crate::eval::monitor::view::EarlierResults;

/// The state of one rank. Only ranks of the same launch read it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// Environment steps so far; grows with every step.
    pub steps: u64,
    /// Name of the job that the rank runs now.
    pub job: String,
    /// Number of finished episodes of that job.
    pub done: u64,
    /// Number of episodes that the job has for this rank; 0 if unknown.
    pub of: u64,
    /// Number of finished episodes of that job that were successful.
    pub solved: u64,
    /// True if the rank has no work now and waits for the others.
    pub arrived: bool,
    /// Number of episodes of all jobs that this rank has finished in this launch.
    pub ended: u64,
    /// Number of those episodes that were successful.
    pub ended_solved: u64,
    /// Number of those episodes that an error ended.
    pub errors: u64,
    /// Number of episodes of all jobs that are assigned to this rank in this launch; 0 if unknown.
    pub own: u64,
    /// Number of jobs, or parts of jobs, that this rank has finished in this launch.
    pub jobs_done: u64,
    /// Number of jobs that are assigned to this rank; 0 if any of them is split between ranks.
    pub jobs: u64,
    /// Seconds in which at least one environment was at work.
    pub sim_s: f64,
    /// Seconds in which the policy ran inference.
    pub infer_s: f64,
    /// Device of the policy: `cpu` or `cuda:1`.
    pub device: String,
    /// Bytes of GPU memory in use, by any process.
    pub gpu_used: u64,
    /// Total bytes of GPU memory.
    pub gpu_total: u64,
    /// Number of answers of environments and policy so far. Only the launcher of this node is told,
    /// see [`crate::eval::monitor::pulse`].
    #[serde(skip)]
    pub moves: u64,
    /// Whether episodes run, so that answers are to be expected.
    #[serde(skip)]
    pub is_stepping: bool,
    /// How long the GPU was busy, for any process; `None` if the driver does not report it.
    pub gpu_busy: Option<GpuBusy>,
    /// The finished episodes of this launch by job; `None` without a tracker, which alone needs
    /// them.
    pub by_job: Option<BTreeMap<JobIndex, JobTally>>,
    /// PID and number of the batches of outcomes that this process has put into the store, see
    /// [`crate::eval::monitor::early_stop`].
    pub batches: (u32, u64),
}

/// The finished episodes of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobTally {
    /// Number of finished episodes.
    #[serde(rename = "n")]
    pub ended: u64,
    /// Number of those episodes that were successful.
    #[serde(rename = "s")]
    pub solved: u64,
}

impl Beat {
    /// Returns whether the rank itself has made progress since `last`. The GPU fields are ignored,
    /// because other processes change them as well.
    pub fn has_moved_since(&self, last: &Self) -> bool {
        let same_gpu = Self {
            gpu_used: last.gpu_used,
            gpu_total: last.gpu_total,
            gpu_busy: last.gpu_busy,
            ..self.clone()
        };
        same_gpu != *last
    }

    /// Counts a finished episode.
    pub fn count(&mut self, episode: &Episode) {
        let solved = u64::from(episode.success == Some(true));
        self.done += 1;
        self.solved += solved;
        self.ended += 1;
        self.ended_solved += solved;
        self.errors += u64::from(episode.error.is_some());
        if let Some(by_job) = &mut self.by_job {
            by_job.entry(episode.job_index).or_default().count(episode);
        }
    }
}

impl JobTally {
    /// Counts a finished episode.
    pub fn count(&mut self, episode: &Episode) {
        self.ended += 1;
        self.solved += u64::from(episode.success == Some(true));
    }
}

/// Counts the episodes of the whole run, and those that were finished before this launch, which
/// began at `launched`.
pub fn before(jobs: &[Job], lines: &[Line], launched: &str) -> EarlierResults {
    let pending = || jobs.iter().filter(|job| job.status == Status::Pending);
    let policy = |job: &Job| {
        let path = job.policy_config.get("model_path").and_then(Value::as_str);
        (job.policy_type.clone(), path.map(str::to_owned))
    };
    let mut before = EarlierResults {
        expected: pending().map(|job| Some(job.selected(count(job)?))).sum(),
        policies: pending().map(policy).collect::<BTreeSet<_>>().len(),
        has_variants: pending().any(|job| job.variant.is_some()),
        ..EarlierResults::default()
    };
    let mut seen = BTreeSet::new();
    for episode in scored(lines).filter(|episode| episode.ended.as_str() < launched) {
        if seen.insert((episode.job_index, episode.episode)) {
            let of_job = before.by_job.entry(episode.job_index);
            of_job.or_default().count(episode);
        }
    }
    before
}

/// Returns this rank's first heartbeat: what it finished in this launch before a restart, and its
/// whole share of the work, `None` with leases.
pub fn own(work: Option<&[Work]>, lines: &[Line], launched: &str, rank: usize) -> Beat {
    let mut beat = Beat {
        by_job: Some(BTreeMap::new()),
        ..Beat::default()
    };
    let of_launch = |episode: &&Episode| episode.rank == rank && episode.ended.as_str() >= launched;
    let of_launch = scored(lines).filter(of_launch);
    of_launch.for_each(|episode| beat.count(episode));
    (beat.done, beat.solved) = (0, 0);
    let Some(work) = work else { return beat };
    // Every rank ends its parts of all jobs near the end of the run, so they tell nothing.
    if !work.iter().any(is_part) {
        beat.jobs = work.len() as u64;
    }
    let done = scored(lines).map(|episode| (episode.job_index, episode.episode));
    let done: BTreeSet<(JobIndex, u64)> = done.collect();
    let left = |work: &Work| {
        let left = work.episodes(0..count(&work.job)?);
        let left = left.filter(|episode| !done.contains(&(work.job.index, *episode)));
        Some(left.count() as u64)
    };
    let left: Option<u64> = work.iter().map(left).sum();
    beat.own = left.map_or(0, |left| left + beat.ended);
    beat
}

/// Returns whether other ranks run a part of the job, too.
fn is_part(work: &Work) -> bool {
    let Some(count) = count(&work.job) else {
        return work.share.is_some_and(|share| share.count < share.total);
    };
    (work.episodes(0..count).count() as u64) < work.job.selected(count)
}

fn scored(lines: &[Line]) -> impl Iterator<Item = &Episode> {
    lines.iter().filter_map(|line| match line {
        Line::Episode(episode) if episode.error.is_none() => Some(&**episode),
        _ => None,
    })
}

fn count(job: &Job) -> Option<u64> {
    if let Length::Episodes(count) = job.length {
        Some(count)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::episode::Episode;
    use jobs::placement::Placement;
    use jobs::{assign, samples};
    use serde_json::json;

    fn jobs() -> Vec<Job> {
        crate::eval::tests::jobs([json!({}), json!({"name": "b"})])
    }

    fn ended(job: usize, episode: u64, rank: usize, at: &str, error: Option<&str>) -> Line {
        Line::from(Episode {
            rank,
            ended: at.to_owned(),
            error: error.map(str::to_owned),
            ..samples::episode(job, "a", episode)
        })
    }

    #[test]
    fn two_checkpoints_of_a_type_are_two_policies() {
        let mut jobs = jobs();
        jobs[1]
            .policy_config
            .insert("model_path".to_owned(), json!("checkpoints/2000"));
        assert_eq!(before(&jobs, &[], "").policies, 2);
    }

    #[test]
    fn what_was_done_before_is_told_apart_from_what_this_launch_did() {
        let lines = [
            ended(0, 0, 0, "2026-01-01T00:00:01.000Z", None),
            ended(0, 1, 1, "2026-01-01T00:00:02.000Z", Some("a crash")),
            ended(0, 1, 0, "2026-01-01T00:01:01.000Z", None),
            ended(1, 1, 1, "2026-01-01T00:01:01.000Z", None),
        ];
        let launched = "2026-01-01T00:01:00.000Z";
        let before = before(&jobs(), &lines, launched);
        assert_eq!((before.expected, before.policies), (Some(8), 1));
        let one = JobTally {
            ended: 1,
            solved: 1,
        };
        assert_eq!(before.by_job, BTreeMap::from([(JobIndex(0), one)]));
        let work = assign::work(
            &jobs(),
            &Placement::of_ranks(0..2),
            assign::Assignment::default(),
            0,
        );
        let own = own(Some(&work), &lines, launched, 0);
        assert_eq!((own.ended, own.own, own.jobs, own.done), (1, 3, 1, 0));
        assert_eq!(own.by_job, Some(BTreeMap::from([(JobIndex(0), one)])));
    }

    #[test]
    fn jobs_that_are_split_between_ranks_are_counted_by_episodes_alone() {
        let jobs_of = |ranks: usize| {
            let by_episodes = assign::Assignment {
                shard: assign::Shard::Episodes,
                ..assign::Assignment::default()
            };
            let placement = Placement::of_ranks(0..ranks);
            let work = assign::work(&jobs(), &placement, by_episodes, 0);
            let own = own(Some(&work), &[], "", 0);
            (own.jobs, own.own)
        };
        assert_eq!([jobs_of(1), jobs_of(2)], [(2, 8), (0, 4)]);
    }
}
