//! How busy the GPUs are, and with which processes, from NVIDIA's management library (NVML).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::node::nvml::LIBRARY;

/// How long the driver may take to answer. One that hangs must not hide what else is known.
const LIMIT: Duration = Duration::from_secs(5);

/// How a GPU is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuUse {
    /// Its number in the order of bus addresses.
    pub index: u32,
    /// Product name, as `NVIDIA H200`; empty if the driver does not tell.
    pub name: String,
    /// Percent of the last moments (1/6 s to 1 s) in which a kernel ran; `None` if the driver does
    /// not tell.
    pub busy: Option<u32>,
    /// Memory in bytes that is not free.
    pub used: u64,
    /// Total memory in bytes.
    pub total: u64,
    /// Bytes of each process; `None` if the driver does not tell. In most containers there are no
    /// processes, or they have numbers of the host.
    pub processes: BTreeMap<u32, Option<u64>>,
}

/// The GPUs did not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the driver (NVML) does not answer: nothing after {} s", LIMIT.as_secs())]
pub struct NoAnswer;

/// A question to the driver that is under way.
#[derive(Debug)]
pub struct GpuQuestion {
    answer: Receiver<Vec<GpuUse>>,
}

impl GpuQuestion {
    /// Asks in a thread, which is left behind if the driver hangs.
    pub fn ask() -> GpuQuestion {
        GpuQuestion::ask_with(|| uses(LIBRARY).unwrap_or_default())
    }

    fn ask_with(look: impl FnOnce() -> Vec<GpuUse> + Send + 'static) -> GpuQuestion {
        let (tell, answer) = mpsc::channel();
        let work = move || {
            // Nobody may be waiting any more.
            let _ = tell.send(look());
        };
        // Without a thread there is no answer.
        let _ = std::thread::Builder::new()
            .name("nvml".to_owned())
            .spawn(work);
        GpuQuestion { answer }
    }

    /// Returns the use of every GPU; empty if there is no NVML.
    ///
    /// # Errors
    /// Returns [`NoAnswer`] if that takes too long.
    pub fn answer(self) -> Result<Vec<GpuUse>, NoAnswer> {
        self.answer_within(LIMIT)
    }

    fn answer_within(self, limit: Duration) -> Result<Vec<GpuUse>, NoAnswer> {
        self.answer.recv_timeout(limit).map_err(|_| NoAnswer)
    }
}

fn uses(library: impl AsRef<OsStr>) -> Result<Vec<GpuUse>, NvmlError> {
    let nvml = Nvml::builder().lib_path(library.as_ref()).init()?;
    let of = |index| {
        let device = nvml.device_by_index(index)?;
        let memory = device.memory_info()?;
        Ok(GpuUse {
            index,
            name: device.name().unwrap_or_default(),
            busy: device.utilization_rates().ok().map(|rates| rates.gpu),
            used: memory.total.saturating_sub(memory.free),
            total: memory.total,
            processes: processes(&device),
        })
    };
    (0..nvml.device_count()?).map(of).collect()
}

/// Returns the processes on a GPU. One that computes and renders is in both lists with the same
/// number.
fn processes(device: &Device) -> BTreeMap<u32, Option<u64>> {
    let computing = device.running_compute_processes().unwrap_or_default();
    let drawing = device.running_graphics_processes().unwrap_or_default();
    let mut most: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for process in computing.into_iter().chain(drawing) {
        let bytes = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        let known = most.entry(process.pid).or_default();
        *known = bytes.max(*known);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::nvml;

    #[test]
    fn use_and_processes_are_those_that_the_driver_tells() {
        let folder = tempfile::tempdir().expect("a folder");
        let library = nvml(folder.path());
        let gib = |count: u64| count << 30;
        let of = |index: u32, busy, total| GpuUse {
            index,
            name: String::new(),
            busy,
            used: gib(3),
            total: gib(total),
            processes: [
                (1, None),
                (std::process::id(), Some(gib(u64::from(index) + 1))),
            ]
            .into(),
        };
        let found = uses(&library).expect("it answers");
        assert_eq!(found, [of(0, None, 4), of(1, Some(37), 8)]);
        assert!(uses("/nowhere/none.so").is_err());
    }

    #[test]
    fn a_driver_that_hangs_is_not_waited_for() {
        let (_keep, hangs) = mpsc::channel::<()>();
        let question = GpuQuestion::ask_with(move || {
            let _ = hangs.recv();
            Vec::new()
        });
        assert_eq!(
            question.answer_within(Duration::from_millis(10)),
            Err(NoAnswer)
        );
    }
}
