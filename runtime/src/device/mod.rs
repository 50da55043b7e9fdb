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

use jobs::refusal::Refusal;
use tch::Device;

use crate::device::gpu::name;

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

/// The number of CUDA devices that this process may use, or the reason why there is none.
pub type VisibleDevices = Result<usize, String>;

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
    fn new(device: Device, why: &str, wishes: &[Wish]) -> Self {
        let reason = format!("{}: {why}", name(device));
        let unmet = wishes.iter().filter(|wish| !wish.is_met_by(device));
        let warnings = unmet.map(|wish| format!("{}, overruled by {reason}", wish.text()));
        Self {
            device,
            warnings: warnings.collect(),
            reason,
        }
    }

    fn without_cuda(why: &str, wishes: &[Wish]) -> Self {
        Self::new(Device::Cpu, &format!("no CUDA device ({why})"), wishes)
    }
}

/// The policy's config file asks, which often has just a default.
const CONFIG: &str = "the policy's config";

/// A request for a device: who asks, and for which: `cpu`, `cuda` or `cuda:N`.
#[derive(Clone, Debug)]
struct Wish {
    source: &'static str,
    device: String,
}

impl Wish {
    /// Returns all requests, the most important first.
    fn all(request: &DeviceRequest) -> Result<Vec<Self>, Refusal> {
        let mut wishes = Vec::new();
        if let Some(id) = request.policy_device_id {
            let (source, device) = ("the policy device id", format!("cuda:{id}"));
            wishes.push(Self { source, device });
        }
        for (source, asked) in [
            ("the policy device", &request.policy_device),
            (CONFIG, &request.config_device),
        ] {
            let Some(asked) = asked else {
                continue;
            };
            let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
            let index = asked.trim().strip_prefix("cuda:").filter(is_number);
            let device = match (asked.trim(), index.map(str::parse::<u32>)) {
                (device @ ("cpu" | "cuda"), _) => device.to_owned(),
                (_, Some(Ok(index))) => format!("cuda:{index}"),
                _ => {
                    return Err(Refusal::new(format_args!(
                        "{source} is `{asked}`, expected `cpu`, `cuda` or `cuda:N`"
                    )));
                }
            };
            wishes.push(Self { source, device });
        }
        Ok(wishes)
    }

    fn text(&self) -> String {
        format!("{} asks for {}", self.source, self.device)
    }

    fn is_config(&self) -> bool {
        self.source == CONFIG
    }

    fn is_met_by(&self, device: Device) -> bool {
        self.device == name(device) || (self.device == "cuda" && device.is_cuda())
    }

    /// Returns the requested device, if it is available.
    fn granted(&self, visible: &VisibleDevices) -> Result<Device, Refusal> {
        let devices = match visible {
            Err(reason) => format!("there is no CUDA device ({reason})"),
            Ok(1) => "only cuda:0 is visible".to_owned(),
            Ok(count) => format!("cuda:0 to cuda:{} are visible", count - 1),
        };
        let gpus = (0..*visible.as_ref().unwrap_or(&0)).map(Device::Cuda);
        let mut all = gpus.chain([Device::Cpu]);
        all.find(|device| self.is_met_by(*device))
            .ok_or_else(|| Refusal::new(format_args!("{}, but {devices}", self.text())))
    }
}

/// Chooses the device of this rank.
///
/// # Errors
/// Returns a [`Refusal`] if a request cannot be read, or is not met although it has to be.
pub fn resolve(request: &DeviceRequest, visible: &VisibleDevices) -> Result<Decision, Refusal> {
    let wishes = Wish::all(request)?;
    let mut explicit = wishes.iter().filter(|wish| !wish.is_config());
    if let Some(cpu) = explicit.find(|wish| wish.device == "cpu") {
        let reason = format!("{} asks for it", cpu.source);
        return Ok(Decision::new(Device::Cpu, &reason, &wishes));
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
    let mut explicit = wishes.iter().filter(|wish| !wish.is_config());
    if let Some(wish) = explicit.find(|wish| !wish.is_met_by(device)) {
        let wish = wish.text();
        let reason = format_args!("{wish}, but {reason}; leave one of them out");
        return Err(Refusal::new(reason));
    }
    match visible {
        Err(reason) => Ok(Decision::without_cuda(reason, wishes)),
        Ok(count) if index >= count => Err(Refusal::new(format_args!(
            "{reason}, which is cuda:{index} here, but only cuda:0 to cuda:{} are visible",
            count - 1
        ))),
        Ok(_) => Ok(Decision::new(device, reason, wishes)),
    }
}

/// Chooses a device for one of several ranks on this node: each takes its own.
fn by_local_rank(rank: usize, world: usize, wishes: &[Wish], visible: &VisibleDevices) -> Decision {
    let count = match visible {
        Err(reason) => return Decision::without_cuda(reason, wishes),
        Ok(count) => *count,
    };
    let mut reason = format!("LOCAL_RANK={rank} of {world} local ranks");
    if count == 1 {
        reason = format!("the only visible device, {reason}");
    }
    let mut decision = Decision::new(Device::Cuda(rank % count), &reason, wishes);
    if world > count && count > 1 {
        let shared = format!("{world} local ranks share {count} CUDA devices");
        decision.warnings.insert(0, shared);
    }
    decision
}

/// Chooses the device for the only rank on this node: the most important request, which must be
/// met unless it is a default.
fn by_wish(wishes: &[Wish], visible: &VisibleDevices) -> Result<Decision, Refusal> {
    let first = wishes.first();
    let is_firm = |wish: &Wish| !wish.is_config() || wish.device == "cpu";
    if let (Err(reason), false) = (visible, first.is_some_and(is_firm)) {
        return Ok(Decision::without_cuda(reason, wishes));
    }
    let Some(first) = first else {
        let reason = match visible {
            Ok(1) | Err(_) => "the only visible device".to_owned(),
            Ok(count) => format!("the first of {count} visible devices"),
        };
        return Ok(Decision::new(Device::Cuda(0), &reason, &[]));
    };
    let device = first.granted(visible)?;
    // Explicit options are meant to override a config file, so that needs no warning.
    let mut explicit = wishes.to_vec();
    explicit.retain(|wish| !wish.is_config());
    let reason = format!("{} asks for it", first.source);
    Ok(Decision::new(device, &reason, &explicit))
}

/// Returns the device that a policy configuration requests; `policy_device_id` wins over
/// `policy_device`.
pub fn of_config(config: &serde_json::Map<String, serde_json::Value>) -> Option<String> {
    match config.get("policy_device_id").and_then(|id| id.as_u64()) {
        Some(id) => Some(format!("cuda:{id}")),
        None => Some(config.get("policy_device")?.as_str()?.to_owned()),
    }
}

#[cfg(test)]
mod tests;
