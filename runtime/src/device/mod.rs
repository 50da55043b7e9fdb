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

use jobs::refusal::Refusal;
use tch::Device;

use crate::device::gpu::name;

mod cards;
pub mod gpu;

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
pub enum VisibleDevices {
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

impl Decision {
    /// Takes a device for a reason, against the wishes that it does not meet.
    fn new(device: Device, reason: String, wishes: &[Wish]) -> Self {
        let unmet = wishes.iter().filter(|wish| !wish.is_met_by(device));
        let warning = |wish: &Wish| format!("{wish}, overruled by {reason}");
        let warnings = unmet.map(warning).collect();
        Self {
            device,
            reason,
            warnings,
        }
    }

    fn without_cuda(why: &str, wishes: &[Wish]) -> Self {
        Self::new(Device::Cpu, format!("cpu: no CUDA device ({why})"), wishes)
    }
}

/// The policy's config file asks, which often has just a default.
const CONFIG: &str = "the policy's config";

/// A request for a device: who asks, and for which.
#[derive(Clone, Copy, Debug)]
struct Wish {
    source: &'static str,
    asked: Asked,
}

/// A device as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Cpu,
    /// This GPU, or any.
    Cuda(Option<i64>),
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = self.source;
        match self.asked {
            Asked::Cpu => write!(f, "{source} asks for cpu"),
            Asked::Cuda(None) => write!(f, "{source} asks for cuda"),
            Asked::Cuda(Some(index)) => write!(f, "{source} asks for cuda:{index}"),
        }
    }
}

impl Wish {
    /// Returns all requests, the most important first.
    fn all(request: &DeviceRequest) -> Result<Vec<Self>, Refusal> {
        let id = request.policy_device_id.map(|id| {
            Ok(Self {
                source: "the policy device id",
                asked: Asked::Cuda(Some(id)),
            })
        });
        let named = [
            ("the policy device", &request.policy_device),
            (CONFIG, &request.config_device),
        ];
        let named = named
            .into_iter()
            .filter_map(|(source, name)| Some(Self::named(source, name.as_deref()?)));
        id.into_iter().chain(named).collect()
    }

    fn named(source: &'static str, name: &str) -> Result<Self, Refusal> {
        let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let index = |name: &str| name.strip_prefix("cuda:").filter(is_number)?.parse().ok();
        let asked = match name.trim() {
            "cpu" => Some(Asked::Cpu),
            "cuda" => Some(Asked::Cuda(None)),
            other => index(other).map(|index| Asked::Cuda(Some(index))),
        };
        let wanted = "expected `cpu`, `cuda` or `cuda:N`";
        let asked =
            asked.ok_or_else(|| Refusal::new(format_args!("{source} is `{name}`, {wanted}")))?;
        Ok(Self { source, asked })
    }

    fn is_config(&self) -> bool {
        self.source == CONFIG
    }

    fn is_met_by(&self, device: Device) -> bool {
        match (self.asked, device) {
            (Asked::Cpu, Device::Cpu) | (Asked::Cuda(None), Device::Cuda(_)) => true,
            (Asked::Cuda(Some(asked)), Device::Cuda(index)) => usize::try_from(asked) == Ok(index),
            _ => false,
        }
    }

    /// Returns the requested device, if it is available.
    fn granted(&self, visible: &VisibleDevices) -> Result<Device, Refusal> {
        let absent = |visible| Err(Refusal::new(format_args!("{self}, but {visible}")));
        match (self.asked, visible) {
            (Asked::Cpu, _) => Ok(Device::Cpu),
            (_, VisibleDevices::None { reason }) => {
                absent(format!("there is no CUDA device ({reason})"))
            }
            (Asked::Cuda(index), VisibleDevices::Cuda { count }) => {
                match usize::try_from(index.unwrap_or(0)) {
                    Ok(index) if index < *count => Ok(Device::Cuda(index)),
                    _ if *count == 1 => absent("only cuda:0 is visible".to_owned()),
                    _ => absent(format!("cuda:0 to cuda:{} are visible", count - 1)),
                }
            }
        }
    }
}

/// Chooses the device of this rank.
///
/// # Errors
/// Returns a [`Refusal`] if a request cannot be read, or is not met although it has to be.
pub fn resolve(request: &DeviceRequest, visible: &VisibleDevices) -> Result<Decision, Refusal> {
    let wishes = Wish::all(request)?;
    let is_explicit_cpu = |wish: &&Wish| wish.asked == Asked::Cpu && !wish.is_config();
    if let Some(cpu) = wishes.iter().find(is_explicit_cpu) {
        let mut decision = Decision::new(Device::Cpu, "cpu".to_owned(), &wishes);
        decision.reason = format!("cpu: {} asks for it", cpu.source);
        return Ok(decision);
    }
    if let Some(placed) = &request.placed {
        return by_placement(placed, &wishes, visible);
    }
    match (request.local_rank, request.local_world_size) {
        (Some(rank), world) if world > 1 => Ok(by_local_rank(rank, world, &wishes, visible)),
        _ => by_wish(&wishes, visible),
    }
}

/// Chooses the placed device: no other device will do, unless there is none at all.
fn by_placement(
    placed: &Placed,
    wishes: &[Wish],
    visible: &VisibleDevices,
) -> Result<Decision, Refusal> {
    let Placed {
        device: index,
        reason,
    } = placed;
    let device = Device::Cuda(*index);
    let is_against = |wish: &&Wish| !wish.is_config() && !wish.is_met_by(device);
    if let Some(wish) = wishes.iter().find(is_against) {
        let reason = format_args!("{wish}, but {reason}; leave one of them out");
        return Err(Refusal::new(reason));
    }
    match visible {
        VisibleDevices::None { reason } => Ok(Decision::without_cuda(reason, wishes)),
        VisibleDevices::Cuda { count } if index >= count => Err(Refusal::new(format_args!(
            "{reason}, which is cuda:{index} here, but only cuda:0 to cuda:{} are visible",
            count - 1
        ))),
        VisibleDevices::Cuda { .. } => {
            let reason = format!("cuda:{index}: {reason}");
            Ok(Decision::new(device, reason, wishes))
        }
    }
}

/// Chooses a device for one of several ranks on this node: each takes its own.
fn by_local_rank(
    local_rank: usize,
    local_world: usize,
    wishes: &[Wish],
    visible: &VisibleDevices,
) -> Decision {
    let count = match visible {
        VisibleDevices::None { reason } => return Decision::without_cuda(reason, wishes),
        VisibleDevices::Cuda { count } => *count,
    };
    let ranks = format!("LOCAL_RANK={local_rank} of {local_world} local ranks");
    let index = local_rank % count;
    if count == 1 {
        let reason = format!("cuda:0: the only visible device, {ranks}");
        return Decision::new(Device::Cuda(0), reason, wishes);
    }
    let reason = format!("cuda:{index}: {ranks}");
    let mut decision = Decision::new(Device::Cuda(index), reason, wishes);
    if local_world > count {
        let shared = format!("{local_world} local ranks share {count} CUDA devices");
        decision.warnings.insert(0, shared);
    }
    decision
}

/// Chooses the device for the only rank on this node: the most important request, which must be
/// met.
fn by_wish(wishes: &[Wish], visible: &VisibleDevices) -> Result<Decision, Refusal> {
    let Some((first, others)) = wishes.split_first() else {
        return Ok(by_default(visible));
    };
    if let VisibleDevices::None { reason } = visible
        && first.is_config()
        && first.asked != Asked::Cpu
    {
        return Ok(Decision::without_cuda(reason, wishes));
    }
    let device = first.granted(visible)?;
    let reason = format!("{}: {} asks for it", name(device), first.source);
    // Explicit options are meant to override a config file, so that needs no warning.
    let mut explicit = others.to_vec();
    explicit.retain(|wish| !wish.is_config());
    Ok(Decision::new(device, reason, &explicit))
}

fn by_default(visible: &VisibleDevices) -> Decision {
    let reason = match visible {
        VisibleDevices::None { reason } => return Decision::without_cuda(reason, &[]),
        VisibleDevices::Cuda { count: 1 } => "cuda:0: the only visible device".to_owned(),
        VisibleDevices::Cuda { count } => {
            format!("cuda:0: the first of {count} visible devices")
        }
    };
    Decision::new(Device::Cuda(0), reason, &[])
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
