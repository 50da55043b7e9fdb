//! Lists the EGL devices of this machine.

use std::path::Path;
use std::sync::OnceLock;

use crate::env::egl::ffi::{DeviceHandle, query_devices};
use crate::env::egl::{EglDevice, EglDriver};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_address_is_told_without_its_function() {
        assert_eq!(
            without_function("0000:3b:00.0").as_deref(),
            Some("0000:3b:00")
        );
        assert_eq!(
            [without_function("vgem"), without_function("soc.0")],
            [None, None]
        );
    }

    #[test]
    fn mesa_alone_is_a_device_without_a_card() {
        let Ok(devices) = devices() else {
            return rig::need::lacks("EGL", "there is no library");
        };
        assert_eq!(devices.known.len(), devices.handles.len());
        if devices.known.len() == 1 && !Path::new("/dev/dri").exists() {
            let software = EglDevice {
                driver: EglDriver::Software,
                pci: None,
            };
            assert_eq!(devices.known, [software]);
        }
    }
}
