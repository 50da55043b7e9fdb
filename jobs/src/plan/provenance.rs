//! Provenance: the run ids and job fingerprints by which the journal lines of a run are recognized.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use crate::job::{Job, Length};
use crate::journal::{Accepted, AcceptedJob, Provenance, Stamp, Stamps};
use crate::numbers::Numbers;
use crate::plan::RunPlan;
use crate::plan::identity::Identity;
use crate::sha256;

/// Length of a fingerprint in hex digits: 64 bits.
const LETTERS: usize = 16;

/// Returns the fingerprint of a job in a run with this base seed, as 16 hex digits: a hash of what
/// its results depend on. The number of episodes is not part of it.
pub fn fingerprint(job: &Job, base_seed: u64) -> String {
    let mut text = serde_json::Value::from(job.name.as_str()).to_string();
    for (field, value) in Identity::of(job, base_seed).without_coverage() {
        text += &format!("\n{field}={value}");
    }
    sha256::of(text)[..LETTERS].to_owned()
}

impl RunPlan {
    /// Returns the provenance in this plan, completed as it would be if the plan was written now.
    pub(crate) fn known_by(&self) -> Provenance {
        let mut known = self.provenance.clone();
        // No line has the id of a merged folder until that folder is continued.
        if known.runs.is_empty() && !self.id.is_empty() {
            known.runs.push(self.id.clone());
        }
        for job in &self.jobs {
            let of_job = known.jobs.entry(job.name.clone()).or_default();
            if of_job.is_empty() {
                of_job.push(fingerprint(job, self.seed));
            }
        }
        known
    }

    /// Returns which journal lines are results of this run.
    pub fn accepted(&self) -> Accepted {
        let known = self.known_by();
        let mut runs: HashSet<_> = known.runs.into_iter().collect();
        if !self.id.is_empty() {
            runs.insert(self.id.clone());
        }
        let accepted = |job: &Job| AcceptedJob {
            index: job.index,
            fingerprints: known.jobs.get(&job.name).cloned().unwrap_or_default(),
            planned: planned(job),
        };
        let jobs = self.jobs.iter();
        let jobs = jobs.map(|job| (job.name.clone(), accepted(job)));
        Accepted {
            runs,
            jobs: Some(jobs.collect()),
        }
    }

    /// Returns the stamps that a rank of `launch` puts on its lines.
    pub fn stamps(&self, launch: Option<&str>) -> Stamps {
        let known = self.known_by();
        let first = |job: &Job| {
            Some((
                job.name.clone(),
                known.jobs.get(&job.name)?.first()?.clone(),
            ))
        };
        Stamps {
            plain: Stamp {
                run: Some(self.id.clone().into()).filter(|id: &Cow<str>| !id.is_empty()),
                launch: launch.map(|id| id.to_owned().into()),
                fingerprint: None,
            },
            jobs: self.jobs.iter().filter_map(first).collect(),
        }
    }

    /// Returns whether the plan already lists the run id and fingerprints of the lines that are
    /// written now; adds them if not.
    pub(super) fn knows_its_lines(&mut self) -> bool {
        let mut known = self.known_by();
        if !self.id.is_empty() && !known.runs.contains(&self.id) {
            known.runs.push(self.id.clone());
        }
        let is_known = known == self.provenance;
        self.provenance = known;
        is_known
    }

    /// Takes over the fingerprints of `found` for the jobs in `staying`, by name.
    pub(super) fn known_as(mut self, found: &Self, staying: &BTreeSet<&str>) -> Self {
        let mut known = found.known_by();
        known.jobs.retain(|name, _| staying.contains(name.as_str()));
        self.provenance = known;
        self.provenance = self.known_by();
        self
    }
}

/// The episodes of a job that counts them.
fn planned(job: &Job) -> Option<Numbers> {
    match job.length {
        Length::Episodes(count) => Some(job.selection(count)),
        Length::Steps(_) | Length::Policy => None,
    }
}

/// Returns the provenance of several plans together.
pub fn joined<'a>(plans: impl Iterator<Item = &'a RunPlan>) -> Provenance {
    let mut joined = Provenance::default();
    for plan in plans {
        let known = plan.known_by();
        joined.runs.extend(known.runs);
        for (name, mut of_job) in known.jobs {
            joined.jobs.entry(name).or_default().append(&mut of_job);
        }
    }
    for list in joined.jobs.values_mut().chain([&mut joined.runs]) {
        list.sort();
        list.dedup();
    }
    joined
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(words: &str, episodes: u64, seed: u64) -> String {
        let entry = json!({"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted",
                           "num_episodes": episodes, "language_instruction": words});
        let jobs = crate::file::parse(&json!({"jobs": [entry]})).unwrap();
        fingerprint(&jobs[0], seed)
    }

    #[test]
    fn a_fingerprint_follows_from_what_results_depend_on_and_stays_the_same() {
        // If this value changes, every run that was begun before becomes a foreign one, unless its
        // plan lists its own fingerprints.
        assert_eq!(of("touch", 4, 42), "86da9cd685da7334");
        assert_eq!(of("touch", 4, 42), of("touch", 9, 42));
        assert_ne!(of("touch", 4, 42), of("touch it", 4, 42));
        assert_ne!(of("touch", 4, 42), of("touch", 4, 7));
    }
}
