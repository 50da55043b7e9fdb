//! Measures the memory of a rank's environments and the utilization of its GPU, in a background
//! thread.
//!
//! ```text
//! every second        gauge (NVML) ─► GpuBusy ─► heartbeats
//! every five seconds  processes (/proc), gauge ─► Peaks ─┬─► the line of the job's end
//! when a job ends     the same ──────────────────────────┘
//! ```
//! Policy and environments are told apart by process. The policy runs in this process, and libtorch
//! counts its memory. Environments run in processes that this one has started. Those that run in
//! the rank itself (MuJoCo) are part of its resident memory and cannot be separated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tch::Device;

use crate::clock::now;
use crate::device::gpu;
use crate::eval::monitor::meter::gauge::Gauge;
use crate::joined::JoinedThread;

mod gauge;
mod processes;

/// Interval of GPU samples; the driver averages over at most one second.
const EVERY: Duration = Duration::from_secs(1);

/// Interval of memory samples, in multiples of [`EVERY`]: they are expensive, because the kernel
/// walks all pages of a process.
const MEMORY_EVERY: u64 = 5;

/// The handle of the measuring thread.
pub struct Meter {
    shared: Arc<Shared>,
    _thread: Option<JoinedThread<Sender<()>>>,
}

struct Shared {
    device: Device,
    /// The NVML handle; `None` without a GPU or if the driver does not answer.
    gauge: OnceLock<Option<Gauge>>,
    /// Processes of this one that belong to no environment, such as those of trackers.
    others: Mutex<BTreeSet<u32>>,
    samples: Mutex<Samples>,
}

#[derive(Clone, Copy, Default)]
struct Samples {
    /// Utilization since the rank began.
    busy: GpuBusy,
    /// Number of the job, so that a sample that began in an earlier job is dropped.
    job: u64,
    /// Utilization when the job began.
    busy_before: GpuBusy,
    /// Bytes of the GPU in use outside libtorch when the job began.
    before_bytes: Option<u64>,
    peaks: JobUse,
}

impl Meter {
    /// Starts the thread for a rank on `device`.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(device: Device) -> std::io::Result<Self> {
        let mut meter = Self::at_rest(device);
        let shared = Arc::clone(&meter.shared);
        let (end, ended) = channel();
        let thread = Builder::new().name("meter".to_owned());
        let run = move || shared.run(&ended);
        meter._thread = Some(JoinedThread::spawn(thread, end, run)?);
        Ok(meter)
    }

    /// Returns a meter without a thread, which samples only on request.
    fn at_rest(device: Device) -> Self {
        let shared = Shared {
            device,
            gauge: OnceLock::new(),
            others: Mutex::default(),
            samples: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            _thread: None,
        }
    }

    /// Starts the measurement of a job, before its environments exist.
    pub fn begin(&self) {
        // The first query creates the CUDA context. Its memory belongs to the policy and must not
        // count as growth.
        gpu::memory(self.shared.device);
        let before_bytes = self.shared.others_bytes();
        let mut samples = self.shared.samples();
        *samples = Samples {
            busy: samples.busy,
            job: samples.job + 1,
            busy_before: samples.busy,
            before_bytes,
            peaks: JobUse::default(),
        };
    }

    /// Leaves a process and its descendants out of the measurements.
    pub fn leave_out(&self, pid: u32) {
        locked(&self.shared.others).insert(pid);
    }

    /// Returns the device of the policy.
    pub fn device(&self) -> Device {
        self.shared.device
    }

    /// Samples the memory now.
    pub fn look(&self) {
        self.shared.look();
    }

    /// Returns the resources that the job has used so far.
    pub fn job(&self) -> JobUse {
        let samples = *self.shared.samples();
        JobUse {
            gpu_busy: samples.busy.since(samples.busy_before).share(),
            ..samples.peaks
        }
    }

    /// Returns how long the GPU was busy since the rank began; `None` if the driver does not report
    /// it.
    pub fn busy(&self) -> Option<GpuBusy> {
        Some(self.shared.samples().busy).filter(|busy| busy.seen_s > 0.0)
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn samples(&self) -> MutexGuard<'_, Samples> {
        locked(&self.samples)
    }

    fn run(&self, ended: &Receiver<()>) {
        let (mut last, mut round) = (now(), 0);
        while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            let since = std::mem::replace(&mut last, now());
            if let Some(share) = self.gauge().and_then(Gauge::busy) {
                let since = last.saturating_duration_since(since);
                self.samples().busy.add(share, since);
            }
            if round % MEMORY_EVERY == 0 {
                self.look();
            }
            round += 1;
        }
    }

    fn look(&self) {
        let before = *self.samples();
        let own = std::process::id();
        let others = locked(&self.others).clone();
        let envs = processes::descendants(own, &others);
        if envs.is_empty() {
            return;
        }
        let host_bytes = processes::memory_bytes(&envs);
        let gpu = self.gpu_part(own, &envs, before.before_bytes);
        let mut samples = self.samples();
        if samples.job == before.job {
            samples.peaks.add(host_bytes, gpu);
        }
    }

    fn gpu_part(&self, own: u32, envs: &BTreeSet<u32>, before: Option<u64>) -> Option<GpuPart> {
        let by_process = self.gauge()?.by_process();
        let growth = self.others_bytes().zip(before);
        let growth = growth.map(|(now, before)| now.saturating_sub(before));
        gpu_part(&by_process, own, envs, growth)
    }

    /// Returns the bytes of the GPU in use outside libtorch.
    fn others_bytes(&self) -> Option<u64> {
        let used_bytes = self.gauge()?.used_bytes()?;
        Some(used_bytes.saturating_sub(gpu::reserved_bytes(self.device)?))
    }

    fn gauge(&self) -> Option<&Gauge> {
        let open = || {
            let gpu = gpu::described(self.device)?;
            let opened = Gauge::open(gpu::NVML, &gpu.uuid);
            opened
                .inspect_err(|err| tracing::debug!("no metrics of {}: {err}", gpu.uuid))
                .ok()
        };
        self.gauge.get_or_init(open).as_ref()
    }
}

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
fn gpu_part(
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

/// Maximum time that one sample covers. After a longer gap the thread, or the machine, was asleep.
const LONGEST: Duration = Duration::from_secs(5);

/// Busy time of a GPU since some beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuBusy {
    /// Seconds in which the GPU was busy.
    pub busy_s: f64,
    /// Seconds that the samples cover.
    pub seen_s: f64,
}

impl GpuBusy {
    /// Adds a sample: the GPU was busy for `share` of the time since the previous sample.
    pub fn add(&mut self, share: f64, since: Duration) {
        let seconds = since.min(LONGEST).as_secs_f64();
        self.busy_s += share.clamp(0.0, 1.0) * seconds;
        self.seen_s += seconds;
    }

    /// Returns the busy time since `before`, or all of it if the counters have been restarted.
    pub fn since(self, before: Self) -> Self {
        if self.seen_s < before.seen_s {
            return self;
        }
        Self {
            busy_s: (self.busy_s - before.busy_s).max(0.0),
            seen_s: self.seen_s - before.seen_s,
        }
    }

    /// Returns the utilization from 0 to 1; `None` if no time is covered.
    pub fn share(self) -> Option<f64> {
        (self.seen_s > 0.0).then(|| (self.busy_s / self.seen_s).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_job_has_the_memory_of_processes_that_ran_in_it_and_no_other() {
        let meter = Meter::at_rest(Device::Cpu);
        meter.begin();
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        meter.look();
        let job_use = meter.job();
        assert!(
            job_use.host_bytes.is_some_and(|bytes| bytes > 0),
            "{job_use:?}"
        );
        assert_eq!(
            (job_use.gpu, job_use.gpu_busy, meter.busy()),
            (None, None, None),
            "there is no GPU to ask"
        );
        meter.begin();
        assert_eq!(meter.job(), JobUse::default());
        drop(child.stdin.take());
        child.wait().unwrap();
    }

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

    #[test]
    fn a_sample_stands_for_the_time_since_the_one_before() {
        let mut busy = GpuBusy::default();
        assert_eq!(busy.share(), None);
        busy.add(1.0, Duration::from_secs(1));
        busy.add(0.0, Duration::from_secs(3));
        assert_eq!(busy.share(), Some(0.25));
        let before = busy;
        busy.add(0.5, Duration::from_secs(2));
        assert_eq!(busy.since(before).share(), Some(0.5));
        assert_eq!(busy.since(busy).share(), None, "no time has passed");
    }

    #[test]
    fn a_sleep_of_the_machine_is_not_work_and_a_new_beginning_is_not_negative() {
        let of = |busy_s, seen_s| GpuBusy { busy_s, seen_s };
        let mut busy = GpuBusy::default();
        busy.add(1.0, Duration::from_secs(3600));
        assert_eq!(busy, of(5.0, 5.0));
        let again = of(1.0, 4.0);
        assert_eq!(again.since(busy), again);
    }
}
