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

use std::fmt;

use tch::Device;

use c10d::cuda;

pub mod gpu;
#[cfg(test)]
mod tests;

/// The inputs of the choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRequest {
    /// `LOCAL_RANK`, if it is set.
    pub local_rank: Option<usize>,
    /// `LOCAL_WORLD_SIZE`: the number of ranks on this node.
    pub local_world_size: usize,
    /// `--policy-device-id` or the job's `policy_device_id`.
    pub policy_device_id: Option<i64>,
    /// `--policy-device` or the job's `policy_device`: `cpu`, `cuda` or `cuda:N`.
    pub policy_device: Option<String>,
    /// The device in the policy's config file, often just a default.
    pub config_device: Option<String>,
    /// The GPU to which the placement assigns this rank.
    pub placed: Option<Placed>,
}

/// The placement of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// CUDA index of the GPU.
    pub device: usize,
    /// The source of the placement, such as `rollout worker 1 is placed on GPU 3`.
    pub reason: String,
}

/// The CUDA devices that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visible {
    /// At least one device.
    Cuda {
        /// Number of devices.
        count: usize,
    },
    /// No device.
    None {
        /// The reason why there is none.
        reason: String,
    },
}

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

/// The requested device is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The name is not that of a known device.
    #[error("{source_name} is `{found}`, expected `cpu`, `cuda` or `cuda:N`")]
    Unknown {
        /// Source of the request.
        source_name: Source,
        /// The requested name.
        found: String,
    },
    /// The index is beyond the visible devices.
    #[error("{source_name} asks for {asked}, but {visible}")]
    Absent {
        /// Source of the request.
        source_name: Source,
        /// The device in torch's notation.
        asked: String,
        /// The visible devices.
        visible: String,
    },
    /// The placement names a GPU that this process cannot see.
    #[error("{reason}, which is cuda:{device} here, but only cuda:0 to cuda:{} are visible", .count - 1)]
    Unplaceable {
        /// Source of the placement.
        reason: String,
        /// CUDA index of the GPU.
        device: usize,
        /// Number of visible devices.
        count: usize,
    },
    /// The placement and an explicit request name different devices.
    #[error("{source_name} asks for {asked}, but {reason}; leave one of them out")]
    Contradiction {
        /// Source of the request.
        source_name: Source,
        /// The device in torch's notation.
        asked: String,
        /// Source of the placement.
        reason: String,
    },
}

/// The source of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The explicit device index.
    DeviceId,
    /// The explicit device name.
    PolicyDevice,
    /// The policy's config file.
    Config,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeviceId => "the policy device id",
            Self::PolicyDevice => "the policy device",
            Self::Config => "the policy's config",
        })
    }
}

/// Loads CUDA, if there is a driver, and counts its devices.
pub fn visible() -> Visible {
    let counted = cuda::load()
        .map_err(|none| none.reason)
        .and_then(|cuda| cuda.device_count().map_err(|err| err.to_string()));
    match counted {
        Ok(0) => Visible::None {
            reason: "the driver shows no device".to_owned(),
        },
        Ok(count) => Visible::Cuda { count },
        Err(reason) => Visible::None { reason },
    }
}

/// Chooses the device of this rank.
pub fn resolve(request: &DeviceRequest, visible: &Visible) -> Result<Decision, DeviceError> {
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

/// A request for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    source: Source,
    asked: Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Cpu,
    AnyCuda,
    Cuda(i64),
}

impl fmt::Display for Asked {
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
    fn all(request: &DeviceRequest) -> Result<Vec<Self>, DeviceError> {
        let id = request.policy_device_id.map(|id| {
            Ok(Self {
                source: Source::DeviceId,
                asked: Asked::Cuda(id),
            })
        });
        let named = [
            (Source::PolicyDevice, &request.policy_device),
            (Source::Config, &request.config_device),
        ];
        let named = named
            .into_iter()
            .filter_map(|(source, name)| Some(Self::named(source, name.as_deref()?)));
        id.into_iter().chain(named).collect()
    }

    fn named(source: Source, name: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown {
            source_name: source,
            found: name.to_owned(),
        };
        let asked = match name.trim() {
            "cpu" => Asked::Cpu,
            "cuda" => Asked::AnyCuda,
            other => {
                let index = other
                    .strip_prefix("cuda:")
                    .filter(|index| index.bytes().all(|b| b.is_ascii_digit()));
                Asked::Cuda(
                    index
                        .and_then(|index| index.parse().ok())
                        .ok_or_else(unknown)?,
                )
            }
        };
        Ok(Self { source, asked })
    }

    fn is_explicit_cpu(&self) -> bool {
        self.asked == Asked::Cpu && self.source != Source::Config
    }

    fn is_met_by(&self, device: Device) -> bool {
        match (self.asked, device) {
            (Asked::Cpu, Device::Cpu) | (Asked::AnyCuda, Device::Cuda(_)) => true,
            (Asked::Cuda(asked), Device::Cuda(index)) => usize::try_from(asked) == Ok(index),
            _ => false,
        }
    }

    /// Returns the requested device, if it is available.
    fn granted(&self, visible: &Visible) -> Result<Device, DeviceError> {
        let (index, count) = match (self.asked, visible) {
            (Asked::Cpu, _) => return Ok(Device::Cpu),
            (Asked::AnyCuda, Visible::Cuda { .. }) => return Ok(Device::Cuda(0)),
            (Asked::Cuda(index), Visible::Cuda { count }) => (index, *count),
            (_, Visible::None { reason }) => {
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

/// Chooses the placed device: no other device will do, unless there is none at all.
fn by_placement(
    placed: &Placed,
    wishes: &[Wish],
    visible: &Visible,
) -> Result<Decision, DeviceError> {
    let Placed {
        device: index,
        reason,
    } = placed;
    let device = Device::Cuda(*index);
    let other = wishes
        .iter()
        .find(|wish| wish.source != Source::Config && !wish.is_met_by(device));
    if let Some(wish) = other {
        let (source_name, asked, reason) = (wish.source, wish.asked.to_string(), reason.clone());
        return Err(DeviceError::Contradiction {
            source_name,
            asked,
            reason,
        });
    }
    let (device, reason) = match visible {
        Visible::None { reason } => (Device::Cpu, format!("cpu: no CUDA device ({reason})")),
        Visible::Cuda { count } if index >= count => {
            return Err(DeviceError::Unplaceable {
                reason: reason.clone(),
                device: *index,
                count: *count,
            });
        }
        Visible::Cuda { .. } => (device, format!("cuda:{index}: {reason}")),
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
    visible: &Visible,
) -> Decision {
    let ranks = format!("LOCAL_RANK={local_rank} of {local_world} local ranks");
    let mut warnings = vec![];
    let (device, reason) = match visible {
        Visible::None { reason } => (Device::Cpu, format!("cpu: no CUDA device ({reason})")),
        Visible::Cuda { count: 1 } => (
            Device::Cuda(0),
            format!("cuda:0: the only visible device, {ranks}"),
        ),
        Visible::Cuda { count } => {
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
fn by_wish(wishes: &[Wish], visible: &Visible) -> Result<Decision, DeviceError> {
    let Some((first, others)) = wishes.split_first() else {
        return Ok(by_default(visible));
    };
    if let (Source::Config, Visible::None { reason }) = (first.source, visible)
        && first.asked != Asked::Cpu
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
        .filter(|wish| wish.source != Source::Config)
        .collect();
    Ok(Decision {
        device,
        warnings: overruled(&explicit, device, &reason),
        reason,
    })
}

fn by_default(visible: &Visible) -> Decision {
    let (device, reason) = match visible {
        Visible::Cuda { count: 1 } => (
            Device::Cuda(0),
            "cuda:0: the only visible device".to_owned(),
        ),
        Visible::Cuda { count } => (
            Device::Cuda(0),
            format!("cuda:0: the first of {count} visible devices"),
        ),
        Visible::None { reason } => (Device::Cpu, format!("cpu: no CUDA device ({reason})")),
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
