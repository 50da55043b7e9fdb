//! Chooses the device on which this rank computes, once, with the reason.
//!
//! ```text
//! `cpu` requested ─► cpu
//! placed, or --workers-per-gpu ─► cuda:N of the placement; another explicit request is an error
//! several local ranks ─► cuda:LOCAL_RANK (cuda:0 if only one is visible);
//!                        other requests are overruled with a warning
//! one local rank ─► policy device id ─► policy device ─► the policy's config ─► cuda:0
//! no CUDA ─► cpu, unless an explicit request for a GPU applies to this rank alone: an error
//! ```

use c10d::cuda;
use tch::Device;

mod cards;
pub mod gpu;
mod request;
mod wish;

pub use crate::device::request::{
    DeviceError, DeviceRequest, Placed, RequestSource, VisibleDevices,
};
use crate::device::wish::{RequestedDevice, Wish};

/// The chosen device, with messages for the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Device of the policy.
    pub device: Device,
    /// One line with the device and the reason: `cuda:3: LOCAL_RANK=3 of 4 local ranks`.
    pub reason: String,
    /// Warnings about requests that are not met.
    pub warnings: Vec<String>,
}

/// Loads CUDA, if there is a driver, and counts its devices.
pub fn visible() -> VisibleDevices {
    let counted = cuda::load()
        .map_err(|none| none.to_string())
        .and_then(|cuda| cuda.device_count().map_err(|err| err.to_string()));
    match counted {
        Ok(0) => VisibleDevices::None {
            reason: "the driver shows no device".to_owned(),
        },
        Ok(count) => VisibleDevices::Cuda { count },
        Err(reason) => VisibleDevices::None { reason },
    }
}

/// Chooses the device of this rank.
pub fn resolve(request: &DeviceRequest, visible: &VisibleDevices) -> Result<Decision, DeviceError> {
    let wishes = Wish::all(request)?;
    if let Some(cpu) = wishes.iter().find(|wish| wish.is_explicit_cpu()) {
        let reason = format!("cpu: {} asks for it", cpu.source);
        return Ok(Decision {
            device: Device::Cpu,
            reason,
            warnings: overruled(&wishes, Device::Cpu, "cpu"),
        });
    }
    if let Some(placed) = &request.placed {
        return by_placement(placed, &wishes, visible);
    }
    match (request.local_rank, visible) {
        (Some(local_rank), _) if request.local_world_size > 1 => Ok(by_local_rank(
            local_rank,
            request.local_world_size,
            &wishes,
            visible,
        )),
        _ => by_wish(&wishes, visible),
    }
}

/// Chooses the placed device: no other device will do, unless there is none at all.
fn by_placement(
    placed: &Placed,
    wishes: &[Wish],
    visible: &VisibleDevices,
) -> Result<Decision, DeviceError> {
    let Placed {
        device: index,
        reason,
    } = placed;
    let device = Device::Cuda(*index);
    let other = wishes
        .iter()
        .find(|wish| wish.source != RequestSource::Config && !wish.is_met_by(device));
    if let Some(wish) = other {
        let (source_name, asked, reason) = (wish.source, wish.asked.to_string(), reason.clone());
        return Err(DeviceError::Contradiction {
            source_name,
            asked,
            reason,
        });
    }
    let (device, reason) = match visible {
        VisibleDevices::None { reason } => (Device::Cpu, format!("cpu: no CUDA device ({reason})")),
        VisibleDevices::Cuda { count } if index >= count => {
            return Err(DeviceError::Unplaceable {
                reason: reason.clone(),
                device: *index,
                count: *count,
            });
        }
        VisibleDevices::Cuda { .. } => (device, format!("cuda:{index}: {reason}")),
    };
    Ok(Decision {
        device,
        warnings: overruled(wishes, device, &reason),
        reason,
    })
}

/// Chooses a device for one of several ranks on this node: each takes its own.
fn by_local_rank(
    local_rank: usize,
    local_world: usize,
    wishes: &[Wish],
    visible: &VisibleDevices,
) -> Decision {
    let ranks = format!("LOCAL_RANK={local_rank} of {local_world} local ranks");
    let mut warnings = vec![];
    let (device, reason) = match visible {
        VisibleDevices::None { reason } => (Device::Cpu, format!("cpu: no CUDA device ({reason})")),
        VisibleDevices::Cuda { count: 1 } => (
            Device::Cuda(0),
            format!("cuda:0: the only visible device, {ranks}"),
        ),
        VisibleDevices::Cuda { count } => {
            if local_world > *count {
                warnings.push(format!(
                    "{local_world} local ranks share {count} CUDA devices"
                ));
            }
            let index = local_rank % count;
            (Device::Cuda(index), format!("cuda:{index}: {ranks}"))
        }
    };
    warnings.extend(overruled(wishes, device, &reason));
    Decision {
        device,
        reason,
        warnings,
    }
}

/// Chooses the device for the only rank on this node: the most important request, which must be
/// met.
fn by_wish(wishes: &[Wish], visible: &VisibleDevices) -> Result<Decision, DeviceError> {
    let Some((first, others)) = wishes.split_first() else {
        return Ok(by_default(visible));
    };
    if let (RequestSource::Config, VisibleDevices::None { reason }) = (first.source, visible)
        && first.asked != RequestedDevice::Cpu
    {
        let reason = format!("cpu: no CUDA device ({reason})");
        return Ok(Decision {
            device: Device::Cpu,
            warnings: overruled(wishes, Device::Cpu, &reason),
            reason,
        });
    }
    let device = first.granted(visible)?;
    let reason = format!("{}: {} asks for it", name(device), first.source);
    // Explicit options are meant to override a config file, so that needs no warning.
    let explicit: Vec<_> = others
        .iter()
        .copied()
        .filter(|wish| wish.source != RequestSource::Config)
        .collect();
    Ok(Decision {
        device,
        warnings: overruled(&explicit, device, &reason),
        reason,
    })
}

fn by_default(visible: &VisibleDevices) -> Decision {
    let (device, reason) = match visible {
        VisibleDevices::Cuda { count: 1 } => (
            Device::Cuda(0),
            "cuda:0: the only visible device".to_owned(),
        ),
        VisibleDevices::Cuda { count } => (
            Device::Cuda(0),
            format!("cuda:0: the first of {count} visible devices"),
        ),
        VisibleDevices::None { reason } => (Device::Cpu, format!("cpu: no CUDA device ({reason})")),
    };
    Decision {
        device,
        reason,
        warnings: vec![],
    }
}

/// Returns a warning for each request that `device` does not meet, naming both.
fn overruled(wishes: &[Wish], device: Device, why: &str) -> Vec<String> {
    let unmet = wishes.iter().filter(|wish| !wish.is_met_by(device));
    unmet
        .map(|wish| {
            format!(
                "{} asks for {}, overruled by {why}",
                wish.source, wish.asked
            )
        })
        .collect()
}

fn name(device: Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    }
}

/// Returns the device that a policy configuration requests; `policy_device_id` wins over
/// `policy_device`.
pub fn of_config(config: &serde_json::Map<String, serde_json::Value>) -> Option<String> {
    let id = config
        .get("policy_device_id")
        .and_then(serde_json::Value::as_u64);
    let device = config
        .get("policy_device")
        .and_then(serde_json::Value::as_str);
    id.map(|id| format!("cuda:{id}"))
        .or(device.map(str::to_owned))
}

#[cfg(test)]
mod tests;
