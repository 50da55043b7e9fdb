//! Chooses the EGL device that renders the images of a rank.
//!
//! EGL and CUDA each list the GPUs of a machine in their own order, and EGL lists Mesa's devices as
//! well. An index in one list says nothing about the other. Two properties do:
//!
//! 1. The PCI address, which has the same meaning everywhere. CUDA knows that of its device; EGL
//!    names the DRM file of its device, whose address is in `/sys/class/drm`.
//! 2. `EGL_CUDA_DEVICE_NV`, the CUDA index of the device in this process, that is, after
//!    `CUDA_VISIBLE_DEVICES`, which EGL's list ignores (NVIDIA/cuda-python#2865, RLinf/RLinf#1458).
//!    Containers without `/dev/dri` have nothing else. Some drivers give one number to several
//!    devices; such a number is ignored.
//!
//! ```text
//! --egl-device N        ─► device N, or an error
//! GPU of the rank       ─► its own device ─► other NVIDIA devices ─► other cards ─► Mesa (CPU)
//! no GPU                ─► the first that opens
//! ```
//!
//! Within each group, local ranks start at different devices. Devices that do not
//! open are skipped. [`note`] tells the user if a rank does not get the device of its GPU.

use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

use jobs::refusal::Refusal;

use crate::env::egl::ffi::{DeviceHandle, query_devices};

mod ffi;

#[cfg(test)]
mod tests;

pub use ffi::CurrentContext;

/// How to make NVIDIA's EGL driver available in a container; without it EGL lists only Mesa.
const CONTAINER_HELP: &str = "a container gets that of the GPU with NVIDIA_DRIVER_CAPABILITIES=all \
                              (docker run -e) or --nv (apptainer)";

/// One EGL device. Its index is its position in EGL's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EglDevice {
    /// The driver that renders on it.
    pub driver: EglDriver,
    /// PCI address `domain:bus:device`, if EGL names the DRM file of the card.
    pub pci: Option<String>,
}

/// The driver of an EGL device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EglDriver {
    /// NVIDIA's driver.
    Nvidia {
        /// CUDA index of the device in this process.
        cuda: Option<usize>,
    },
    /// The driver of another card, usually Mesa's.
    OtherCard,
    /// Mesa's entry for a card that NVIDIA's kernel driver owns. It is listed but does not open.
    MesaOnNvidia,
    /// Mesa on the CPU.
    Software,
}

impl fmt::Display for EglDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.driver {
            EglDriver::Nvidia { .. } => "NVIDIA",
            EglDriver::OtherCard => "another card",
            EglDriver::MesaOnNvidia => "Mesa on an NVIDIA card",
            EglDriver::Software => "Mesa on the CPU",
        })?;
        if let EglDriver::Nvidia { cuda: Some(cuda) } = self.driver {
            write!(f, ", cuda:{cuda}")?;
        }
        self.pci.as_ref().map_or(Ok(()), |pci| write!(f, ", {pci}"))
    }
}

/// The identifiers of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gpu {
    /// CUDA index in this process.
    pub index: usize,
    /// Index in `nvidia-smi`.
    pub number: Option<u32>,
    /// PCI address `domain:bus:device`.
    pub pci: Option<String>,
}

/// The request for an EGL device.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EglRequest {
    /// Index of the EGL device to use, with no alternative.
    pub device: Option<u32>,
    /// The GPU whose EGL device is preferred.
    pub gpu: Option<Gpu>,
    /// Local rank, which spreads ranks over equally suitable devices.
    pub local_rank: usize,
}

/// How well a device suits a GPU, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Suitability {
    Own,
    Unidentified,
    OfAnotherGpu,
    OtherCard,
    Software,
    DoesNotOpen,
}

/// Returns the indices of the devices in the order in which to try them.
///
/// # Errors
/// Returns an error with the available devices if the requested index does not exist.
pub fn candidates(devices: &[EglDevice], wanted: &EglRequest) -> Result<Vec<usize>, Refusal> {
    if let Some(device) = wanted.device {
        let index = device as usize;
        if index >= devices.len() {
            return Err(Refusal::at(
                format_args!("--egl-device {device}"),
                there_are(devices),
            ));
        }
        return Ok(vec![index]);
    }
    let mut order: Vec<usize> = (0..devices.len()).collect();
    if let Some(gpu) = &wanted.gpu {
        let standing = |index: &usize| standing(devices, &devices[*index], gpu);
        order.sort_by_key(standing);
        for group in order.chunk_by_mut(|a, b| standing(a) == standing(b)) {
            group.rotate_left(wanted.local_rank % group.len());
        }
    }
    Ok(order)
}

fn standing(devices: &[EglDevice], device: &EglDevice, gpu: &Gpu) -> Suitability {
    let cuda = match device.driver {
        EglDriver::Nvidia { cuda } => cuda,
        EglDriver::OtherCard => return Suitability::OtherCard,
        EglDriver::MesaOnNvidia => return Suitability::DoesNotOpen,
        EglDriver::Software => return Suitability::Software,
    };
    let alike = devices.iter().filter(|one| one.driver == device.driver);
    let is_unique = alike.count() == 1;
    let is_own = match (&device.pci, &gpu.pci) {
        (Some(device), Some(gpu)) => Some(device == gpu),
        // Such a number counts if no other device has it.
        _ => cuda.filter(|_| is_unique).map(|cuda| cuda == gpu.index),
    };
    match is_own {
        Some(true) => Suitability::Own,
        Some(false) => Suitability::OfAnotherGpu,
        None => Suitability::Unidentified,
    }
}

/// Formats the list of devices: `0: NVIDIA, cuda:0; 1: Mesa on the CPU`.
fn list(devices: &[EglDevice]) -> String {
    let each = devices.iter().enumerate();
    let each = each.map(|(index, device)| format!("{index}: {device}"));
    each.collect::<Vec<_>>().join("; ")
}

fn there_are(devices: &[EglDevice]) -> String {
    let list = list(devices);
    match devices.len() {
        0 => "there is no EGL device".to_owned(),
        1 => format!("there is 1 EGL device ({list})"),
        count => format!("there are {count} EGL devices ({list})"),
    }
}

/// Returns the message for the user when device `taken` renders. `None` if it is the GPU's own
/// device, or if no GPU was requested. `reasons` say why the devices that were tried before did not
/// open.
pub fn note(
    devices: &[EglDevice],
    wanted: &EglRequest,
    taken: usize,
    reasons: &[String],
) -> Option<String> {
    let gpu = wanted.gpu.as_ref().filter(|_| wanted.device.is_none())?;
    let device = devices.get(taken)?;
    let standings = devices.iter().map(|device| standing(devices, device, gpu));
    let standings: Vec<_> = standings.collect();
    if standings[taken] == Suitability::Own {
        return None;
    }
    let cuda = gpu.index;
    let why = if standings.contains(&Suitability::Own) {
        format!(
            "the EGL device of cuda:{cuda} does not open ({})",
            reasons.join("; ")
        )
    } else if standings.contains(&Suitability::Unidentified) {
        format!(
            "which EGL device belongs to cuda:{cuda} is not known ({})",
            list(devices)
        )
    } else {
        format!("no EGL device belongs to cuda:{cuda} ({})", list(devices))
    };
    let mut note = match device.driver {
        EglDriver::Software => format!("EGL draws pictures on the CPU: {why}; {CONTAINER_HELP}"),
        _ => format!("EGL draws pictures on device {taken}: {why}"),
    };
    if devices.len() > 1 {
        note.push_str("; --egl-device takes another");
    }
    Some(note)
}

/// Folder in which the kernel describes graphics cards.
const DRM: &str = "/sys/class/drm";

/// The devices that EGL lists.
pub struct Devices {
    /// Properties of each device, in EGL's order.
    pub known: Vec<EglDevice>,
    /// EGL's handle of each device, in the same order.
    pub handles: Vec<DeviceHandle>,
}

/// Returns the EGL devices of this process. The first call loads EGL and its drivers, which takes
/// some milliseconds and megabytes; later calls return the cached result.
///
/// # Errors
/// Returns the message of the library if EGL is not installed, or too old to list devices.
pub fn devices() -> Result<&'static Devices, &'static str> {
    static DEVICES: OnceLock<Result<Devices, String>> = OnceLock::new();
    DEVICES.get_or_init(query).as_ref().map_err(String::as_str)
}

fn query() -> Result<Devices, String> {
    let handles = query_devices()?;
    let known = handles.iter().map(describe).collect();
    tracing::debug!(devices = ?known, "EGL lists");
    Ok(Devices { known, handles })
}

fn describe(device: &DeviceHandle) -> EglDevice {
    let file = device.drm_file();
    let card = file
        .as_ref()
        .and_then(|file| Path::new(file).file_name())
        .map(|name| Path::new(DRM).join(name).join("device"));
    let name_of = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
    let kernel_driver = card
        .as_ref()
        .and_then(|card| name_of(&card.join("driver").canonicalize().ok()?));
    let driver = if device.has("EGL_NV_device_cuda") {
        EglDriver::Nvidia {
            cuda: device.cuda(),
        }
    } else if device.has("EGL_MESA_device_software") {
        EglDriver::Software
    } else if kernel_driver.as_deref() == Some("nvidia") {
        EglDriver::MesaOnNvidia
    } else {
        EglDriver::OtherCard
    };
    let pci = card.and_then(|card| without_function(&name_of(&card.canonicalize().ok()?)?));
    EglDevice { driver, pci }
}

/// Returns `0000:3b:00` for `0000:3b:00.0`; a card that is not on a PCI bus has no address.
fn without_function(name: &str) -> Option<String> {
    let (address, _) = name.split_once('.')?;
    (address.split(':').count() == 3).then(|| address.to_owned())
}
