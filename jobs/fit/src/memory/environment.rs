//! Estimates the memory of environments on the GPU that they render on.

use jobs::bytes::ByteSize;
use jobs::job::Job;
use jobs::known::fields::DECLARED_MEMORY;
use serde_json::Value;

use crate::memory::CONTEXT;
use crate::memory::measured::Measured;
use crate::memory::part::Part;
use jobs::simulators::{Simulator, SimulatorMemory};

/// Simulators in Python with published memory needs: a part of the environment's name, and GiB per
/// environment.
///
/// OmniGibson, which BEHAVIOR is built on, takes about 10 (RLinf's BEHAVIOR report: 11.5 before
/// tuning, 8.2 after it). s000 says 4 to 6, for its small scenes.
const PUBLISHED: &[(&str, f64)] = &[("omnigibson", 10.0), ("behavior", 10.0)];

/// The memory of a job's environments: `base` once per rank, and `each` per environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Environment {
    pub(super) base: Part,
    pub(super) each: Part,
}

impl Environment {
    /// Uses what the job declares in its arguments (`env_memory_gb`), otherwise what was measured,
    /// otherwise what is published.
    pub(super) fn of(job: &Job, measured: &Measured) -> Self {
        let nothing = Part::default();
        let declared = job
            .env_args
            .get(DECLARED_MEMORY)
            .and_then(Value::as_f64)
            .and_then(ByteSize::of_gib);
        if let Some(ByteSize(each)) = declared {
            return Self {
                base: nothing,
                each: Part::certain(each),
            };
        }
        if let Some(line) = measured.find(job).and_then(|entry| entry.gpu) {
            // The measured rank had a CUDA context, which is counted separately.
            let base = Part::certain(line.base.0.saturating_sub(CONTEXT));
            return Self {
                base,
                each: Part::certain(line.slope.0),
            };
        }
        let memory = match Simulator::of(&job.environment) {
            Some(simulator) => simulator.row().memory,
            None => published(&job.environment),
        };
        let each = match memory {
            SimulatorMemory::Gib(gib) => ByteSize::of_gib(gib),
            SimulatorMemory::Unknown => None,
        };
        Self {
            base: nothing,
            each: each.map_or(Part::UNKNOWN, |ByteSize(bytes)| Part::estimated(bytes)),
        }
    }

    /// Returns the memory of `count` environments in one rank; none take nothing.
    pub(super) fn of_count(&self, count: usize) -> Part {
        if count == 0 {
            Part::default()
        } else {
            self.base + self.each * count as u64
        }
    }
}

/// Returns what is published about an environment in Python.
fn published(environment: &str) -> SimulatorMemory {
    let name = environment.to_lowercase();
    let found = PUBLISHED.iter().find(|(part, _)| name.contains(part));
    found.map_or(SimulatorMemory::Unknown, |(_, gib)| {
        SimulatorMemory::Gib(*gib)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    use crate::memory::measured::{Entry, Line};

    const GIB: u64 = 1 << 30;

    fn job(name: &str, declared: Value) -> Job {
        let entry = json!({"name": "a", "arena_env_args": {"environment": name, "env_memory_gb": declared},
                           "policy_type": "scripted", "num_episodes": 1});
        jobs::file::parse(&json!({"jobs": [entry]}))
            .unwrap()
            .remove(0)
    }

    #[test]
    fn the_job_goes_before_measurements_and_these_before_what_is_published() {
        let mut measured = Measured::default();
        let plain = job("omnigibson_radio", Value::Null);
        let each = |job: &Job, measured: &Measured| Environment::of(job, measured).each;
        assert_eq!(each(&plain, &measured), Part::estimated(10 * GIB));
        let line = Line {
            base: ByteSize(CONTEXT + GIB),
            slope: ByteSize(7 * GIB),
        };
        measured.add(Entry::new(&plain, [1, 4], Line::default(), Some(line)));
        assert_eq!(
            Environment::of(&plain, &measured).of_count(2),
            Part::certain(15 * GIB)
        );
        assert_eq!(
            each(&job("omnigibson_radio", json!(2.5)), &measured),
            Part::certain(5 * GIB / 2)
        );
    }

    #[test]
    fn a_measurement_without_a_gpu_says_nothing_about_one() {
        let mut measured = Measured::default();
        let reach = job("reach", Value::Null);
        measured.add(Entry::new(&reach, [1, 4], Line::default(), None));
        assert_eq!(Environment::of(&reach, &measured).each, Part::UNKNOWN);
        assert_eq!(
            Environment::of(&reach, &measured).of_count(0),
            Part::default()
        );
    }

    #[test]
    fn what_cannot_be_a_declaration_is_none() {
        for declared in [json!(-1.0), json!("two"), json!(1e300)] {
            assert_eq!(
                Environment::of(&job("reach", declared), &Measured::default()).each,
                Part::UNKNOWN
            );
        }
    }
}
