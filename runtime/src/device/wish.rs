//! One request for a device, and whether a device meets it.

use crate::device::request::{DeviceError, DeviceRequest, RequestSource, VisibleDevices};
use std::fmt;
use tch::Device;

/// A request for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) source: RequestSource,
    pub(super) asked: RequestedDevice,
}

/// A device as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestedDevice {
    Cpu,
    AnyCuda,
    Cuda(i64),
}

impl fmt::Display for RequestedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::AnyCuda => f.write_str("cuda"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl Wish {
    /// Returns all requests, the most important first.
    pub(super) fn all(request: &DeviceRequest) -> Result<Vec<Self>, DeviceError> {
        let id = request.policy_device_id.map(|id| {
            Ok(Self {
                source: RequestSource::DeviceId,
                asked: RequestedDevice::Cuda(id),
            })
        });
        let named = [
            (RequestSource::PolicyDevice, &request.policy_device),
            (RequestSource::Config, &request.config_device),
        ];
        let named = named
            .into_iter()
            .filter_map(|(source, name)| Some(Self::named(source, name.as_deref()?)));
        id.into_iter().chain(named).collect()
    }

    fn named(source: RequestSource, name: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown {
            source_name: source,
            found: name.to_owned(),
        };
        let asked = match name.trim() {
            "cpu" => RequestedDevice::Cpu,
            "cuda" => RequestedDevice::AnyCuda,
            other => {
                let index = other
                    .strip_prefix("cuda:")
                    .filter(|index| index.bytes().all(|b| b.is_ascii_digit()));
                RequestedDevice::Cuda(
                    index
                        .and_then(|index| index.parse().ok())
                        .ok_or_else(unknown)?,
                )
            }
        };
        Ok(Self { source, asked })
    }

    pub(super) fn is_explicit_cpu(&self) -> bool {
        self.asked == RequestedDevice::Cpu && self.source != RequestSource::Config
    }

    pub(super) fn is_met_by(&self, device: Device) -> bool {
        match (self.asked, device) {
            (RequestedDevice::Cpu, Device::Cpu) | (RequestedDevice::AnyCuda, Device::Cuda(_)) => {
                true
            }
            (RequestedDevice::Cuda(asked), Device::Cuda(index)) => {
                usize::try_from(asked) == Ok(index)
            }
            _ => false,
        }
    }

    /// Returns the requested device, if it is available.
    pub(super) fn granted(&self, visible: &VisibleDevices) -> Result<Device, DeviceError> {
        let (index, count) = match (self.asked, visible) {
            (RequestedDevice::Cpu, _) => return Ok(Device::Cpu),
            (RequestedDevice::AnyCuda, VisibleDevices::Cuda { .. }) => return Ok(Device::Cuda(0)),
            (RequestedDevice::Cuda(index), VisibleDevices::Cuda { count }) => (index, *count),
            (_, VisibleDevices::None { reason }) => {
                return Err(self.absent(format!("there is no CUDA device ({reason})")));
            }
        };
        match usize::try_from(index) {
            Ok(index) if index < count => Ok(Device::Cuda(index)),
            _ if count == 1 => Err(self.absent("only cuda:0 is visible".to_owned())),
            _ => Err(self.absent(format!("cuda:0 to cuda:{} are visible", count - 1))),
        }
    }

    fn absent(&self, visible: String) -> DeviceError {
        DeviceError::Absent {
            source_name: self.source,
            asked: self.asked.to_string(),
            visible,
        }
    }
}
