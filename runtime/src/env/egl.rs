//! Which EGL device draws the pictures of a rank.
//!
//! EGL and CUDA each count the GPUs of a machine in an order of their own, and EGL counts Mesa's
//! devices as well. An index of one says nothing about the other. Two things do:
//!
//! 1. The PCI address, which means the same to everybody. CUDA knows that of its device; EGL names
//!    the DRM file of its own, whose address is in `/sys/class/drm`.
//! 2. `EGL_CUDA_DEVICE_NV`, the number of the device as CUDA counts in this process, thus after
//!    `CUDA_VISIBLE_DEVICES`, which EGL's list takes no notice of (NVIDIA/cuda-python#2865,
//!    RLinf/RLinf#1458). Containers without `/dev/dri` have nothing else. Drivers have given one
//!    number to several devices; such a number is not believed.
//!
//! ```text
//! --egl-device N        ─► device N, or an error
//! GPU of the rank       ─► its own device ─► others of NVIDIA ─► other cards ─► Mesa on the CPU
//! no GPU                ─► the first that opens
//! ```
//!
//! In each group but the first, local ranks begin at different devices. What does not open is passed
//! over. Whoever does not get the device of their GPU is told by [`note`].

use std::fmt;

mod devices;
mod ffi;

#[cfg(test)]
mod tests;

pub use devices::devices;

/// How a container comes by the EGL part of NVIDIA's driver, without which EGL knows only Mesa.
const CONTAINER_HELP: &str = "a container gets that of the GPU with NVIDIA_DRIVER_CAPABILITIES=all \
                              (docker run -e) or --nv (apptainer)";

/// One EGL device; its index is its place in EGL's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EglDevice {
    /// Who draws.
    pub driver: Driver,
    /// PCI address `domain:bus:device` of a card whose DRM file EGL names.
    pub pci: Option<String>,
}

/// Who draws on an EGL device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// NVIDIA's driver.
    Nvidia {
        /// The device as CUDA counts in this process.
        cuda: Option<usize>,
    },
    /// The driver of another card, usually Mesa's.
    OtherCard,
    /// Mesa's entry for a card that NVIDIA's kernel driver has: it is listed, but does not open.
    MesaOnNvidia,
    /// Mesa on the CPU.
    Software,
}

impl fmt::Display for EglDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.driver {
            Driver::Nvidia { .. } => "NVIDIA",
            Driver::OtherCard => "another card",
            Driver::MesaOnNvidia => "Mesa on an NVIDIA card",
            Driver::Software => "Mesa on the CPU",
        })?;
        if let Driver::Nvidia { cuda: Some(cuda) } = self.driver {
            write!(f, ", cuda:{cuda}")?;
        }
        self.pci.as_ref().map_or(Ok(()), |pci| write!(f, ", {pci}"))
    }
}

/// A GPU by all of its names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gpu {
    /// Index as CUDA counts in this process.
    pub index: usize,
    /// Index as `nvidia-smi` counts.
    pub number: Option<u32>,
    /// PCI address `domain:bus:device`.
    pub pci: Option<String>,
}

/// On what somebody wants to draw.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// This EGL device and no other.
    pub device: Option<u32>,
    /// The GPU whose EGL device it should be.
    pub gpu: Option<Gpu>,
    /// Spreads ranks over devices that are as good as each other.
    pub local_rank: usize,
}

/// How good a device is for a GPU, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Own,
    Unidentified,
    OfAnotherGpu,
    OtherCard,
    Software,
    DoesNotOpen,
}

/// Indices of devices in the order in which they are to be tried.
///
/// # Errors
/// A device that was asked for by its number and is not there, with those that are.
pub fn candidates(devices: &[EglDevice], wanted: &Wanted) -> Result<Vec<usize>, String> {
    if let Some(device) = wanted.device {
        let index = device as usize;
        return devices.get(index).map(|_| vec![index]).ok_or_else(|| refusal(device, devices));
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

fn standing(devices: &[EglDevice], device: &EglDevice, gpu: &Gpu) -> Standing {
    let cuda = match device.driver {
        Driver::Nvidia { cuda } => cuda,
        Driver::OtherCard => return Standing::OtherCard,
        Driver::MesaOnNvidia => return Standing::DoesNotOpen,
        Driver::Software => return Standing::Software,
    };
    let is_own = match (&device.pci, &gpu.pci) {
        (Some(device), Some(gpu)) => Some(device == gpu),
        _ => cuda.filter(|_| is_unique(devices, device.driver)).map(|cuda| cuda == gpu.index),
    };
    match is_own {
        Some(true) => Standing::Own,
        Some(false) => Standing::OfAnotherGpu,
        None => Standing::Unidentified,
    }
}

fn is_unique(devices: &[EglDevice], driver: Driver) -> bool {
    devices.iter().filter(|device| device.driver == driver).count() == 1
}

/// `0: NVIDIA, cuda:0; 1: Mesa on the CPU`
fn list(devices: &[EglDevice]) -> String {
    let each = devices.iter().enumerate().map(|(index, device)| format!("{index}: {device}"));
    each.collect::<Vec<_>>().join("; ")
}

fn refusal(device: u32, devices: &[EglDevice]) -> String {
    let list = list(devices);
    match devices.len() {
        0 => format!("--egl-device {device}: there is no EGL device"),
        1 => format!("--egl-device {device}: there is 1 EGL device ({list})"),
        count => format!("--egl-device {device}: there are {count} EGL devices ({list})"),
    }
}

/// What the user should know when device `taken` draws: nothing if it is the GPU's own, or if no GPU
/// was asked for. `reasons` say why those that were tried before it did not open.
pub fn note(devices: &[EglDevice], wanted: &Wanted, taken: usize, reasons: &[String]) -> Option<String> {
    let gpu = wanted.gpu.as_ref().filter(|_| wanted.device.is_none())?;
    let device = devices.get(taken)?;
    let standings = devices.iter().map(|device| standing(devices, device, gpu)).collect::<Vec<_>>();
    if standings[taken] == Standing::Own {
        return None;
    }
    let cuda = gpu.index;
    let why = if standings.contains(&Standing::Own) {
        format!("the EGL device of cuda:{cuda} does not open ({})", reasons.join("; "))
    } else if standings.contains(&Standing::Unidentified) {
        format!("which EGL device belongs to cuda:{cuda} is not known ({})", list(devices))
    } else {
        format!("no EGL device belongs to cuda:{cuda} ({})", list(devices))
    };
    let mut note = match device.driver {
        Driver::Software => format!("EGL draws pictures on the CPU: {why}; {CONTAINER_HELP}"),
        _ => format!("EGL draws pictures on device {taken}: {why}"),
    };
    if devices.len() > 1 {
        note.push_str("; --egl-device takes another");
    }
    Some(note)
}
