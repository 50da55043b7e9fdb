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

mod gauge;
mod peaks;
mod processes;
mod share;

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tch::Device;

use crate::clock::now;
use crate::device::gpu;
use crate::eval::monitor::meter::gauge::Gauge;
use crate::eval::monitor::meter::peaks::gpu_part;

pub use peaks::{GpuPart, JobUse};
pub use processes::OtherProcesses;
pub use share::GpuBusy;

/// Interval of GPU samples; the driver averages over at most one second.
const EVERY: Duration = Duration::from_secs(1);

/// Interval of memory samples, in multiples of [`EVERY`]: they are expensive, because the kernel
/// walks all pages of a process.
const MEMORY_EVERY: u64 = 5;

/// The handle of the measuring thread.
pub struct Meter {
    shared: Arc<Shared>,
    /// The thread, and what tells it to end when it is dropped.
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

struct Shared {
    device: Device,
    /// The NVML handle; `None` without a GPU or if the driver does not answer.
    gauge: OnceLock<Option<Gauge>>,
    others: OtherProcesses,
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
        let thread = std::thread::Builder::new().name("meter".to_owned());
        let thread = thread.spawn(move || shared.run(&ended))?;
        meter.thread = Some((end, thread));
        Ok(meter)
    }

    /// Returns a meter without a thread, which samples only on request.
    fn at_rest(device: Device) -> Self {
        let shared = Shared {
            device,
            gauge: OnceLock::new(),
            others: OtherProcesses::default(),
            samples: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            thread: None,
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

    /// Returns the list of the processes that are not measured.
    pub fn others(&self) -> OtherProcesses {
        self.shared.others.clone()
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

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            // A panic of the thread was printed when it happened.
            thread.join().ok();
        }
    }
}

impl Shared {
    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
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
        let others = self.others.pids().clone();
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
            let opened = Gauge::open(gauge::LIBRARY, &gpu.uuid);
            opened
                .inspect_err(|err| tracing::debug!("no metrics of {}: {err}", gpu.uuid))
                .ok()
        };
        self.gauge.get_or_init(open).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

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
}
