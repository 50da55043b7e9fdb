//! Peak memory of the environments of a job. Pure: no I/O.

use std::collections::{BTreeMap, BTreeSet};

/// The resources that a job used besides its policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobUse {
    /// Peak memory of the environments' processes in bytes; `None` without such processes.
    pub host_bytes: Option<u64>,
    /// Peak GPU memory of the environments' processes; `None` if unknown.
    pub gpu: Option<GpuPart>,
    /// Share of the time in which the GPU was busy, 0 to 1.
    pub gpu_busy: Option<f64>,
}

/// GPU memory of the environments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuPart {
    /// Bytes of all their processes together.
    pub bytes: u64,
    /// True if the number is estimated from the growth of the whole GPU, because the driver does
    /// not report memory by process.
    pub is_estimate: bool,
}

impl JobUse {
    /// Adds a sample. A measured value replaces an estimate.
    pub fn add(&mut self, host_bytes: u64, gpu: Option<GpuPart>) {
        self.host_bytes = self.host_bytes.max(Some(host_bytes));
        self.gpu = match (self.gpu, gpu) {
            (Some(known), Some(new)) if known.is_estimate == new.is_estimate => Some(GpuPart {
                bytes: known.bytes.max(new.bytes),
                ..known
            }),
            (Some(known), Some(new)) => Some(if known.is_estimate { new } else { known }),
            (known, new) => known.or(new),
        };
    }
}

/// Returns the GPU memory of the processes `envs` of the rank with PID `own`: measured if the
/// driver knows the rank, otherwise the growth of what is not the policy's.
pub fn gpu_part(
    by_process: &BTreeMap<u32, u64>,
    own: u32,
    envs: &BTreeSet<u32>,
    growth: Option<u64>,
) -> Option<GpuPart> {
    let is_estimate = !by_process.contains_key(&own);
    let bytes = match is_estimate {
        true => growth?,
        false => envs.iter().filter_map(|pid| by_process.get(pid)).sum(),
    };
    Some(GpuPart { bytes, is_estimate })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bytes: u64, is_estimate: bool) -> Option<GpuPart> {
        Some(GpuPart { bytes, is_estimate })
    }

    #[test]
    fn a_driver_that_knows_the_rank_knows_its_environments() {
        let by_process = BTreeMap::from([(7, 100), (8, 20), (9, 30), (99, 1000)]);
        let found = gpu_part(&by_process, 7, &BTreeSet::from([8, 9, 10]), Some(500));
        assert_eq!(found, part(50, false));
    }

    #[test]
    fn a_driver_that_knows_other_numbers_leaves_an_estimate_or_nothing() {
        let by_process = BTreeMap::from([(70_000, 100)]);
        let envs = BTreeSet::from([8]);
        assert_eq!(gpu_part(&by_process, 7, &envs, Some(500)), part(500, true));
        assert_eq!(gpu_part(&by_process, 7, &envs, None), None);
    }

    #[test]
    fn the_highest_counts_and_what_is_told_before_what_is_estimated() {
        let peak = |gpu| JobUse {
            host_bytes: Some(9),
            gpu,
            gpu_busy: None,
        };
        let mut peaks = JobUse::default();
        peaks.add(5, part(80, true));
        peaks.add(9, part(70, true));
        assert_eq!(peaks, peak(part(80, true)));
        peaks.add(3, part(10, false));
        peaks.add(3, part(60, true));
        peaks.add(3, None);
        assert_eq!(peaks, peak(part(10, false)));
    }
}
