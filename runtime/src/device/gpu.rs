//! What the GPU of a rank is and holds, as CUDA and libtorch report it, and whether this process
//! has lost it; and where it stands among those of the machine, which are counted in two ways.
//!
//! CUDA counts the fastest GPU first, unless `CUDA_DEVICE_ORDER` is `PCI_BUS_ID`. `nvidia-smi` and
//! simulators, which get that variable, count by address. It is the same where all GPUs are.

use std::fs::{self, File};
use std::path::Path;
use std::sync::LazyLock;

use jobs::journal::RankGpu;
use jobs::refusal::Refusal;
use tch::Device;
use torchlib::cuda::{self, Cuda, DeviceMemory};
use torchlib::torch_error::{first_line, is_context_lost};

use crate::device::VisibleDevices;
use crate::env;

/// Returns the CUDA devices that this process can see. Loads CUDA, if there is a driver.
///
/// # Errors
/// Returns an error if the driver does not answer.
pub fn visible() -> Result<VisibleDevices, Refusal> {
    let cuda = match cuda::load() {
        Ok(cuda) => cuda,
        Err(reason) => return Ok(Err(reason.to_string())),
    };
    Ok(match cuda.device_count().map_err(Refusal::new)? {
        0 => Err("the driver shows no device".to_owned()),
        count => Ok(count),
    })
}

/// Returns CUDA and the index of a device; `None` on a CPU.
fn cuda_of(device: Device) -> Option<(Cuda, usize)> {
    match device {
        Device::Cuda(index) => Some((cuda::load().ok()?, index)),
        _ => None,
    }
}

/// Returns the used and the total bytes of the device's memory; `None` on a CPU or if the driver
/// does not answer.
pub fn memory(device: Device) -> Option<(u64, u64)> {
    let (cuda, index) = cuda_of(device)?;
    let memory = cuda.memory(index).ok()?;
    let used = memory.total_bytes.saturating_sub(memory.free_bytes);
    Some((used, memory.total_bytes))
}

/// Returns the name of a device: `cpu` or `cuda:1`.
pub fn name(device: Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    }
}

/// Returns the GPU's index, name, memory size and UUID as its driver reports them.
pub fn described(device: Device) -> Option<RankGpu> {
    let (cuda, index) = cuda_of(device)?;
    let facts = cuda.device(index).ok()?;
    Some(RankGpu {
        index,
        name: facts.name,
        bytes: facts.total_bytes,
        uuid: facts.uuid,
    })
}

/// Returns the memory with the peaks of libtorch since the last call, and resets them.
pub fn take_peak(device: Device) -> Option<DeviceMemory> {
    let (cuda, index) = cuda_of(device)?;
    let memory = cuda.memory(index).ok()?;
    // If the reset fails, the next peak covers a longer time; it is still a correct upper bound.
    cuda.reset_peak(index).ok();
    Some(memory)
}

/// Returns the bytes that libtorch has reserved from the device now.
pub fn reserved_bytes(device: Device) -> Option<u64> {
    let (cuda, index) = cuda_of(device)?;
    cuda.reserved(index).ok()
}

/// Returns a sentence if `error` means that this process has lost `device`: only another process
/// can use it again.
pub fn lost(device: Device, error: &str) -> Option<String> {
    let Device::Cuda(index) = device else {
        return None;
    };
    let mut reason = error.to_owned();
    if !is_context_lost(error) {
        // cuBLAS and other libraries report CUDA failures in their own words, so ask CUDA itself.
        reason = cuda::load().ok()?.memory(index).err()?.to_string();
        is_context_lost(&reason).then_some(())?;
    }
    let gpu = described(device).map(|gpu| format!(" ({}, {})", gpu.name, gpu.uuid));
    let (name, gpu) = (name(device), gpu.unwrap_or_default());
    let reason = first_line(&reason).trim_start_matches("libtorch: ");
    Some(format!("{name}{gpu} is lost to this process: {reason}"))
}

/// Returns the GPU number for the name of a video: the CUDA index, or 0 without a GPU.
pub fn number(device: Device) -> usize {
    match device {
        Device::Cuda(index) => index,
        _ => 0,
    }
}

/// Returns the identifiers of the GPU that CUDA calls `device`: CUDA index, physical number and PCI
/// address.
pub fn of_machine(device: Device) -> Option<env::Gpu> {
    let Device::Cuda(index) = device else {
        return None;
    };
    let facts = cuda::load().ok().and_then(|cuda| cuda.device(index).ok());
    let pci = facts.map(|facts| facts.pci);
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let number = pci.as_deref().and_then(number_by_address);
    Some(env::Gpu {
        index,
        number: number.or_else(|| physical(index, visible.as_deref())),
        pci,
    })
}

/// Returns the index that `nvidia-smi` gives to CUDA's `index` if all GPUs are the same.
/// `nvidia-smi` counts all GPUs of the machine, CUDA only those in `CUDA_VISIBLE_DEVICES`. Returns
/// `None` if that list has UUIDs, because they have no index.
fn physical(index: usize, visible: Option<&str>) -> Option<u32> {
    match visible.filter(|list| !list.trim().is_empty()) {
        None => u32::try_from(index).ok(),
        Some(list) => list.split(',').nth(index)?.trim().parse().ok(),
    }
}

/// The folder in which the driver describes each GPU, in a folder of its PCI address.
const FOLDER: &str = "/proc/driver/nvidia/gpus";

/// A GPU that this process may open.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Card {
    /// PCI address with function, `0000:3b:00.0`.
    address: String,
    model: String,
}

/// Returns the index by address of the GPU at `pci` (`domain:bus:device`), if not all GPUs of the
/// machine are the same.
fn number_by_address(pci: &str) -> Option<u32> {
    static CARDS: LazyLock<Vec<Card>> = LazyLock::new(|| {
        let opens = |minor: &str| File::open(format!("/dev/nvidia{minor}")).is_ok();
        cards(Path::new(FOLDER), opens)
    });
    number_among(&CARDS, pci)
}

fn number_among(cards: &[Card], pci: &str) -> Option<u32> {
    if cards.windows(2).all(|pair| pair[0].model == pair[1].model) {
        return None;
    }
    let mut cards = cards.iter();
    let place = cards.position(|card| card.address.starts_with(pci))?;
    u32::try_from(place).ok()
}

/// Returns the GPUs in the order of their addresses. `opens` tells whether a control group lets
/// this process open the device file with a minor number: neither CUDA nor `nvidia-smi` count
/// others.
fn cards(folder: &Path, opens: impl Fn(&str) -> bool) -> Vec<Card> {
    let card = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("information")).ok()?;
        let address = entry.file_name().into_string().ok()?;
        let model = field(&text, "Model:")?.to_owned();
        opens(field(&text, "Device Minor:")?).then_some(Card { address, model })
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut cards: Vec<_> = entries.filter_map(card).collect();
    cards.sort_unstable();
    cards
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_renderer_is_the_policys_gpu_whatever_cuda_calls_it() {
        assert_eq!(physical(1, None), Some(1));
        assert_eq!(physical(1, Some("4,6")), Some(6));
        assert_eq!(physical(0, Some("GPU-8a6c")), None);
    }

    #[test]
    fn a_cpu_is_never_lost() {
        assert_eq!(
            lost(Device::Cpu, "CUDA error: unspecified launch failure"),
            None
        );
    }

    /// Returns a driver's folder with these GPUs: address, model, minor number.
    fn driver(gpus: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (address, model, minor) in gpus {
            let gpu = folder.path().join(address);
            fs::create_dir(&gpu).unwrap();
            let text = format!(
                "Model: \t\t {model}\nIRQ:   \t\t 42\nBus Location: \t {address}\nDevice Minor: \t {minor}\n"
            );
            fs::write(gpu.join("information"), text).unwrap();
        }
        folder
    }

    const MIXED: [(&str, &str, &str); 3] = [
        ("0000:af:00.0", "NVIDIA H100", "2"),
        ("0000:3b:00.0", "NVIDIA T4", "0"),
        ("0000:5e:00.0", "NVIDIA T4", "1"),
    ];

    #[test]
    fn where_gpus_differ_each_has_the_number_of_its_address() {
        let cards = cards(driver(&MIXED).path(), |_| true);
        assert_eq!(number_among(&cards, "0000:af:00"), Some(2), "CUDA's first");
        assert_eq!(number_among(&cards, "0000:3b:00"), Some(0));
        assert_eq!(number_among(&cards, "0000:00:02"), None);
    }

    #[test]
    fn gpus_that_a_control_group_hides_are_not_counted() {
        let cards = cards(driver(&MIXED).path(), |minor| minor != "0");
        assert_eq!(number_among(&cards, "0000:af:00"), Some(1));
    }

    #[test]
    fn where_all_gpus_are_the_same_cudas_number_is_right() {
        let same = [
            ("0000:3b:00.0", "NVIDIA L4", "0"),
            ("0000:5e:00.0", "NVIDIA L4", "1"),
        ];
        assert_eq!(
            number_among(&cards(driver(&same).path(), |_| true), "0000:5e:00"),
            None
        );
        assert_eq!(
            number_among(&cards(Path::new("/nowhere"), |_| true), "0000:5e:00"),
            None
        );
    }
}
