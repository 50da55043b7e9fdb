//! Estimates the memory of environments on the GPU that they render on.

use jobs::bytes::ByteSize;
use jobs::environments::DECLARED_MEMORY;
use jobs::job::Job;
use serde_json::Value;

use crate::memory::CONTEXT;
use crate::memory::measured::Measured;
use crate::memory::part::MemoryAmount;
use jobs::simulators::{Simulator, SimulatorMemory};

/// Simulators in Python with published memory needs: a part of the environment's name, and GiB per
/// environment.
///
/// OmniGibson, which BEHAVIOR is built on, takes about 10 (RLinf's BEHAVIOR report: 11.5 before
/// tuning, 8.2 after it). s000 says 4 to 6, for its small scenes.
const PUBLISHED: &[(&str, f64)] = &[("omnigibson", 10.0), ("behavior", 10.0)];

/// The memory of a job's environments: `base` once per rank, and `each` per environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EnvironmentMemory {
    pub(super) base: MemoryAmount,
    pub(super) each: MemoryAmount,
}

impl EnvironmentMemory {
    /// Uses what the job declares in its arguments (`env_memory_gb`), otherwise what was measured,
    /// otherwise what is published.
    pub(super) fn of(job: &Job, measured: &Measured) -> Self {
        let nothing = MemoryAmount::default();
        let declared = job
            .env_args
            .get(DECLARED_MEMORY)
            .and_then(Value::as_f64)
            .and_then(ByteSize::of_gib);
        if let Some(ByteSize(each)) = declared {
            return Self {
                base: nothing,
                each: MemoryAmount::certain(each),
            };
        }
        if let Some(line) = measured.find(job).and_then(|entry| entry.gpu) {
            // The measured rank had a CUDA context, which is counted separately.
            let base = MemoryAmount::certain(line.base.0.saturating_sub(CONTEXT));
            return Self {
                base,
                each: MemoryAmount::certain(line.slope.0),
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
            each: each.map_or(MemoryAmount::UNKNOWN, |ByteSize(bytes)| {
                MemoryAmount::estimated(bytes)
            }),
        }
    }

    /// Returns the memory of `count` environments in one rank; none take nothing.
    pub(super) fn of_count(&self, count: usize) -> MemoryAmount {
        if count == 0 {
            MemoryAmount::default()
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

    use crate::memory::measured::{LinearMemory, MeasuredEnvironment};

    const GIB: u64 = 1 << 30;

    fn job(name: &str, declared: Value) -> Job {
        let args = json!({"environment": name, "env_memory_gb": declared});
        jobs::samples::job(json!({"arena_env_args": args}))
    }

    fn measured(job: &Job, gpu: Option<LinearMemory>) -> Measured {
        let mut measured = Measured::default();
        let memory = LinearMemory::default();
        measured.add(MeasuredEnvironment::new(job, [1, 4], memory, gpu));
        measured
    }

    #[test]
    fn the_job_goes_before_measurements_and_these_before_what_is_published() {
        let plain = job("omnigibson_radio", Value::Null);
        let each = |job: &Job, measured: &Measured| EnvironmentMemory::of(job, measured).each;
        let published = each(&plain, &Measured::default());
        assert_eq!(published, MemoryAmount::estimated(10 * GIB));
        let line = LinearMemory {
            base: ByteSize(CONTEXT + GIB),
            slope: ByteSize(7 * GIB),
        };
        let measured = measured(&plain, Some(line));
        let found = EnvironmentMemory::of(&plain, &measured).of_count(2);
        assert_eq!(found, MemoryAmount::certain(15 * GIB));
        let shown = each(&job("omnigibson_radio", json!(2.5)), &measured);
        assert_eq!(shown, MemoryAmount::certain(5 * GIB / 2));
    }

    #[test]
    fn a_measurement_without_a_gpu_says_nothing_about_one() {
        let reach = job("reach", Value::Null);
        let measured = measured(&reach, None);
        let found = EnvironmentMemory::of(&reach, &measured).each;
        assert_eq!(found, MemoryAmount::UNKNOWN);
        let shown = EnvironmentMemory::of(&reach, &measured).of_count(0);
        assert_eq!(shown, MemoryAmount::default());
    }

    #[test]
    fn what_cannot_be_a_declaration_is_none() {
        for declared in [json!(-1.0), json!("two"), json!(1e300)] {
            let found = EnvironmentMemory::of(&job("reach", declared), &Measured::default()).each;
            assert_eq!(found, MemoryAmount::UNKNOWN);
        }
    }
}
