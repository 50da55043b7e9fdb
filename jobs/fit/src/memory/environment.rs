//! Estimates the memory of environments on the GPU that they render on.

use jobs::bytes::ByteSize;
use jobs::environments::DECLARED_MEMORY;
use jobs::job::Job;
use serde_json::Value;

use crate::memory::amount::MemoryAmount;
use crate::memory::measured::Measured;

/// Simulators in Python with published memory needs: a part of the environment's name, and GiB per
/// environment.
///
/// OmniGibson, which BEHAVIOR is built on, takes about 10 (RLinf's BEHAVIOR report: 11.5 before
/// tuning, 8.2 after it). s000 says 4 to 6, for its small scenes.
const PUBLISHED: &[(&str, f64)] = &[("omnigibson", 10.0), ("behavior", 10.0)];

/// The GPU memory of a job's environments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EnvironmentMemory {
    /// The memory of one.
    pub(super) each: MemoryAmount,
    /// How much of all together is certain.
    pub(super) certain: ByteSize,
}

impl EnvironmentMemory {
    /// Uses what the job declares in its arguments (`env_memory_gb`), otherwise what was measured,
    /// otherwise what is published.
    pub(super) fn of(job: &Job, measured: &Measured) -> Self {
        let declared = job.env_args.get(DECLARED_MEMORY).and_then(Value::as_f64);
        if let Some(ByteSize(each)) = declared.and_then(ByteSize::of_gib) {
            return Self {
                each: MemoryAmount::estimated(each),
                certain: ByteSize(u64::MAX),
            };
        }
        if let Some(found) = measured.environment(job) {
            return found;
        }
        let name = job.environment.to_lowercase();
        let published = PUBLISHED.iter().find(|(part, _)| name.contains(part));
        let each = published.and_then(|(_, gib)| ByteSize::of_gib(*gib));
        Self {
            each: each.map_or(MemoryAmount::UNKNOWN, |ByteSize(each)| {
                MemoryAmount::estimated(each)
            }),
            certain: ByteSize(0),
        }
    }

    /// Returns the memory of `count` environments in one rank; none take nothing.
    pub(super) fn of_count(&self, count: usize) -> MemoryAmount {
        let all = self.each * count as u64;
        MemoryAmount {
            certain: all.bytes.min(self.certain),
            ..all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    use crate::memory::measured::tests::measured;

    const GIB: u64 = 1 << 30;

    fn job(name: &str, declared: Value) -> Job {
        let args = json!({"environment": name, "num_envs": 4, "env_memory_gb": declared});
        jobs::samples::job(json!({"arena_env_args": args}))
    }

    #[test]
    fn the_job_goes_before_measurements_and_these_before_what_is_published() {
        let plain = job("omnigibson_radio", Value::Null);
        let of = |job: &Job, measured: &Measured| EnvironmentMemory::of(job, measured);
        let published = of(&plain, &Measured::default()).of_count(1);
        assert_eq!(published, MemoryAmount::estimated(10 * GIB));
        let peaks = json!({"peak_env_vram_bytes": 28 * GIB});
        let measured = measured([(plain.clone(), peaks)]);
        let found = of(&plain, &measured).of_count(2);
        assert_eq!(found, MemoryAmount::certain(14 * GIB));
        let shown = of(&job("omnigibson_radio", json!(2.5)), &measured).of_count(1);
        assert_eq!(shown, MemoryAmount::certain(5 * GIB / 2));
    }

    #[test]
    fn only_what_was_measured_is_certain() {
        let plain = job("reach", Value::Null);
        let peaks = |is_estimate| json!({"peak_env_vram_bytes": 4 * GIB, "env_vram_is_estimate": is_estimate});
        let certain = |is_estimate: bool| {
            let measured = measured([(plain.clone(), peaks(is_estimate))]);
            let found = EnvironmentMemory::of(&plain, &measured).of_count(8);
            assert_eq!(found.bytes.0, 8 * GIB);
            found.certain.0
        };
        assert_eq!([certain(false), certain(true)], [4 * GIB, 0]);
    }

    #[test]
    fn a_measurement_without_a_gpu_says_nothing_about_one() {
        let reach = job("reach", Value::Null);
        let measured = measured([(reach.clone(), json!({"peak_rss_bytes": GIB}))]);
        let found = EnvironmentMemory::of(&reach, &measured);
        assert_eq!(found.of_count(1), MemoryAmount::UNKNOWN);
        assert_eq!(found.of_count(0), MemoryAmount::default());
    }

    #[test]
    fn what_cannot_be_a_declaration_is_none() {
        for declared in [json!(-1.0), json!("two"), json!(1e300)] {
            let found = EnvironmentMemory::of(&job("reach", declared), &Measured::default()).each;
            assert_eq!(found, MemoryAmount::UNKNOWN);
        }
    }
}
