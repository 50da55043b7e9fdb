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

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tch::Device;

use crate::clock::now;
use crate::device::gpu;

mod gauge;
mod peaks;
mod processes;
mod share;

pub use peaks::GpuPart;
pub use processes::OtherProcesses;
pub use share::GpuBusy;

use gauge::Gauge;
use peaks::{Peaks, Whole, gpu_part};

/// Interval of GPU samples; the driver averages over at most one second.
const EVERY: Duration = Duration::from_secs(1);

/// Interval of memory samples, in multiples of [`EVERY`]: they are expensive, because the kernel
/// walks all pages of a process.
const MEMORY_EVERY: u64 = 5;

/// The handle of the measuring thread.
pub struct Meter {
    shared: Arc<MeterShared>,
    thread: Option<JoinHandle<()>>,
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

struct MeterShared {
    device: Device,
    /// The NVML handle; `None` without a GPU or if the driver does not answer.
    gauge: OnceLock<Option<Gauge>>,
    others: OtherProcesses,
    state: Mutex<MeterState>,
    changed: Condvar,
}

#[derive(Default)]
struct MeterState {
    is_over: bool,
    /// Utilization since the rank began.
    busy: GpuBusy,
    job: JobMeasure,
}

/// Measurements of the current job.
#[derive(Clone, Copy, Default)]
struct JobMeasure {
    /// Number of the job, so that a sample that began in an earlier job is dropped.
    number: u64,
    busy_before: GpuBusy,
    /// Bytes of the GPU in use outside libtorch when the job began.
    before_bytes: Option<u64>,
    peaks: Peaks,
}

impl Meter {
    /// Starts the thread for a rank on `device`.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(device: Device) -> std::io::Result<Self> {
        let mut meter = Self::at_rest(device);
        let own = Arc::clone(&meter.shared);
        meter.thread = Some(
            std::thread::Builder::new()
                .name("meter".to_owned())
                .spawn(move || own.run())?,
        );
        Ok(meter)
    }

    /// Returns a meter without a thread, which samples only on request.
    fn at_rest(device: Device) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self {
            shared: Arc::new(MeterShared {
                device,
                gauge: OnceLock::new(),
                others: OtherProcesses::default(),
                state,
                changed,
            }),
            thread: None,
        }
    }

    /// Starts the measurement of a job, before its environments exist.
    pub fn begin(&self) {
        // The first query creates the CUDA context. Its memory belongs to the policy and must not
        // count as growth.
        gpu::memory(self.shared.device);
        let before_bytes = self.shared.others_bytes();
        let mut state = self.shared.state();
        let (number, busy_before) = (state.job.number + 1, state.busy);
        state.job = JobMeasure {
            number,
            busy_before,
            before_bytes,
            peaks: Peaks::default(),
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
        let state = self.shared.state();
        let JobMeasure {
            busy_before,
            peaks: Peaks { host_bytes, gpu },
            ..
        } = state.job;
        JobUse {
            host_bytes,
            gpu,
            gpu_busy: state.busy.since(busy_before).share(),
        }
    }

    /// Returns how long the GPU was busy since the rank began; `None` if the driver does not report
    /// it.
    pub fn busy(&self) -> Option<GpuBusy> {
        Some(self.shared.state().busy).filter(|busy| busy.seen_s > 0.0)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            thread.join().ok();
        }
    }
}

impl MeterShared {
    fn state(&self) -> MutexGuard<'_, MeterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut last = now();
        for round in 1.. {
            let state = self
                .changed
                .wait_timeout_while(self.state(), EVERY, |state| !state.is_over);
            if state.unwrap_or_else(PoisonError::into_inner).0.is_over {
                return;
            }
            let since = std::mem::replace(&mut last, now());
            if let Some(share) = self.gauge().and_then(Gauge::busy) {
                self.state()
                    .busy
                    .add(share, last.saturating_duration_since(since));
            }
            if round % MEMORY_EVERY == 1 {
                self.look();
            }
        }
    }

    fn look(&self) {
        let JobMeasure {
            number,
            before_bytes,
            ..
        } = self.state().job;
        let own = std::process::id();
        let envs = processes::descendants(own, &self.others.pids());
        if envs.is_empty() {
            return;
        }
        let (host_bytes, gpu) = (
            processes::memory_bytes(&envs),
            self.gpu_part(own, &envs, before_bytes),
        );
        let mut state = self.state();
        if state.job.number == number {
            state.job.peaks.add(host_bytes, gpu);
        }
    }

    fn gpu_part(
        &self,
        own: u32,
        envs: &BTreeSet<u32>,
        before_bytes: Option<u64>,
    ) -> Option<GpuPart> {
        let whole = || {
            Some(Whole {
                others_bytes: self.others_bytes()?,
                before_bytes: before_bytes?,
            })
        };
        gpu_part(&self.gauge()?.by_process(), own, envs, whole())
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
