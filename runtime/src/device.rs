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
use std::fmt;
use tch::Device;

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

#[cfg(test)]
mod tests {
    use super::*;

    const NO_DRIVER: &str = "no NVIDIA driver: /proc/driver/nvidia is missing";

    fn gpus(count: usize) -> Visible {
        Visible::Cuda { count }
    }

    fn none() -> Visible {
        Visible::None {
            reason: NO_DRIVER.to_owned(),
        }
    }

    /// Parses `rank/world id device config`, with `-` for an absent value.
    fn request(text: &str) -> DeviceRequest {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (rank, world) = words[0].split_once('/').unwrap();
        let given = |word: &str| (word != "-").then(|| word.to_owned());
        DeviceRequest {
            local_rank: rank.parse().ok(),
            local_world_size: world.parse().unwrap(),
            policy_device_id: words[1].parse().ok(),
            policy_device: given(words[2]),
            config_device: given(words[3]),
            placed: None,
        }
    }

    fn decide(text: &str, visible: Visible) -> (String, String, Vec<String>) {
        let decision = resolve(&request(text), &visible).unwrap();
        (name(decision.device), decision.reason, decision.warnings)
    }

    #[test]
    fn one_local_rank_follows_the_weightiest_wish() {
        let table = [
            ("0/1 - - -", "cuda:0: the first of 8 visible devices"),
            ("-/1 - - -", "cuda:0: the first of 8 visible devices"),
            ("0/1 3 - -", "cuda:3: the policy device id asks for it"),
            ("0/1 3 cuda -", "cuda:3: the policy device id asks for it"),
            ("0/1 3 - cuda:5", "cuda:3: the policy device id asks for it"),
            ("0/1 - cuda:1 -", "cuda:1: the policy device asks for it"),
            ("0/1 - cuda:1 cuda", "cuda:1: the policy device asks for it"),
            ("0/1 - cuda cuda:5", "cuda:0: the policy device asks for it"),
            ("0/1 - - cuda:5", "cuda:5: the policy's config asks for it"),
            ("0/1 - - cuda", "cuda:0: the policy's config asks for it"),
            ("0/1 - - cpu", "cpu: the policy's config asks for it"),
            ("0/1 - cpu cuda:5", "cpu: the policy device asks for it"),
            ("-/4 2 - -", "cuda:2: the policy device id asks for it"),
        ];
        for (text, reason) in table {
            let (device, found, _) = decide(text, gpus(8));
            assert_eq!(found, reason, "{text}");
            assert!(reason.starts_with(&device), "{text}");
        }
    }

    #[test]
    fn several_local_ranks_take_their_own_device() {
        let table = [
            (
                "3/4 - - -",
                gpus(4),
                "cuda:3: LOCAL_RANK=3 of 4 local ranks",
            ),
            (
                "3/4 - - -",
                gpus(1),
                "cuda:0: the only visible device, LOCAL_RANK=3 of 4 local ranks",
            ),
            (
                "3/4 - - cuda",
                gpus(8),
                "cuda:3: LOCAL_RANK=3 of 4 local ranks",
            ),
            (
                "3/4 - cuda:3 -",
                gpus(8),
                "cuda:3: LOCAL_RANK=3 of 4 local ranks",
            ),
            (
                "3/4 - - -",
                none(),
                "cpu: no CUDA device (no NVIDIA driver: /proc/driver/nvidia is missing)",
            ),
        ];
        for (text, visible, reason) in table {
            let (device, found, warnings) = decide(text, visible);
            assert_eq!(found, reason, "{text}");
            assert!(reason.starts_with(&device), "{text}");
            assert_eq!(warnings, Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn more_ranks_than_devices_share_them_and_say_so() {
        let (device, _, warnings) = decide("3/4 - - -", gpus(2));
        assert_eq!(
            (device.as_str(), warnings),
            (
                "cuda:1",
                vec!["4 local ranks share 2 CUDA devices".to_owned()]
            )
        );
    }

    #[test]
    fn local_rank_overrules_a_wish_with_a_warning_that_names_both() {
        let (device, _, warnings) = decide("1/4 0 - cuda:5", gpus(4));
        assert_eq!(device, "cuda:1");
        assert_eq!(
            warnings,
            [
                "the policy device id asks for cuda:0, overruled by cuda:1: LOCAL_RANK=1 of 4 local ranks",
                "the policy's config asks for cuda:5, overruled by cuda:1: LOCAL_RANK=1 of 4 local ranks",
            ]
        );
    }

    fn placed(text: &str, device: usize, visible: &Visible) -> Result<Decision, DeviceError> {
        let placed = Some(Placed {
            device,
            reason: "rollout worker 1 is placed on GPU 3".to_owned(),
        });
        resolve(
            &DeviceRequest {
                placed,
                ..request(text)
            },
            visible,
        )
    }

    #[test]
    fn a_placed_rank_takes_its_place_whatever_its_local_rank() {
        for text in [
            "1/2 - - -",
            "0/1 - - -",
            "1/2 3 - -",
            "1/2 - cuda -",
            "1/2 - cuda:3 -",
        ] {
            let decision = placed(text, 3, &gpus(4)).unwrap();
            assert_eq!(
                decision.reason, "cuda:3: rollout worker 1 is placed on GPU 3",
                "{text}"
            );
            assert_eq!(
                (decision.device, decision.warnings),
                (Device::Cuda(3), vec![]),
                "{text}"
            );
        }
        let decision = placed("1/2 - - cuda:0", 3, &gpus(4)).unwrap();
        assert_eq!(decision.warnings.len(), 1, "a config file is overruled");
        assert_eq!(placed("1/2 - - -", 3, &none()).unwrap().device, Device::Cpu);
        assert_eq!(
            placed("1/2 - cpu -", 3, &gpus(4)).unwrap().device,
            Device::Cpu
        );
    }

    #[test]
    fn a_place_that_contradicts_a_wish_or_the_machine_is_refused() {
        let text = |words: &str, count| placed(words, 3, &gpus(count)).unwrap_err().to_string();
        let place = "rollout worker 1 is placed on GPU 3";
        assert_eq!(
            text("1/2 1 - -", 4),
            format!("the policy device id asks for cuda:1, but {place}; leave one of them out")
        );
        assert_eq!(
            text("1/2 - - -", 2),
            format!("{place}, which is cuda:3 here, but only cuda:0 to cuda:1 are visible")
        );
    }

    #[test]
    fn explicit_cpu_is_honoured_with_several_ranks_and_beside_an_id() {
        assert_eq!(decide("1/4 - cpu cuda", gpus(4)).0, "cpu");
        let (device, _, warnings) = decide("0/1 2 cpu -", gpus(4));
        assert_eq!(device, "cpu");
        assert_eq!(
            warnings,
            ["the policy device id asks for cuda:2, overruled by cpu"]
        );
    }

    #[test]
    fn two_explicit_wishes_that_differ_are_a_warning() {
        let (device, _, warnings) = decide("0/1 2 cuda:1 -", gpus(4));
        assert_eq!(device, "cuda:2");
        assert_eq!(
            warnings,
            [
                "the policy device asks for cuda:1, overruled by cuda:2: the policy device id asks for it"
            ]
        );
    }

    #[test]
    fn config_falls_back_to_cpu_with_a_warning() {
        let (device, reason, warnings) = decide("0/1 - - cuda", none());
        assert_eq!(
            (device.as_str(), reason),
            ("cpu", format!("cpu: no CUDA device ({NO_DRIVER})"))
        );
        assert_eq!(
            warnings,
            [format!(
                "the policy's config asks for cuda, overruled by cpu: no CUDA device ({NO_DRIVER})"
            )]
        );
    }

    #[test]
    fn nothing_asked_on_a_machine_without_cuda_is_the_cpu_without_a_warning() {
        assert_eq!(
            decide("-/1 - - -", none()),
            (
                "cpu".into(),
                format!("cpu: no CUDA device ({NO_DRIVER})"),
                vec![]
            )
        );
    }

    #[test]
    fn several_ranks_asked_for_a_gpu_on_a_machine_without_cuda_are_warned() {
        let (device, _, warnings) = decide("1/2 - cuda:1 -", none());
        assert_eq!(device, "cpu");
        assert!(
            warnings[0].starts_with("the policy device asks for cuda:1, overruled by cpu"),
            "{warnings:?}"
        );
    }

    #[test]
    fn what_cannot_be_had_is_an_error_that_names_what_is_visible() {
        let table = [
            (
                "0/1 4 - -",
                gpus(4),
                "the policy device id asks for cuda:4, but cuda:0 to cuda:3 are visible",
            ),
            (
                "0/1 -1 - -",
                gpus(4),
                "the policy device id asks for cuda:-1, but cuda:0 to cuda:3 are visible",
            ),
            (
                "0/1 - cuda:1 -",
                gpus(1),
                "the policy device asks for cuda:1, but only cuda:0 is visible",
            ),
            (
                "0/1 - - cuda:9",
                gpus(2),
                "the policy's config asks for cuda:9, but cuda:0 to cuda:1 are visible",
            ),
            (
                "0/1 - tpu -",
                gpus(1),
                "the policy device is `tpu`, expected `cpu`, `cuda` or `cuda:N`",
            ),
            (
                "0/1 - cuda:+1 -",
                gpus(4),
                "the policy device is `cuda:+1`, expected `cpu`, `cuda` or `cuda:N`",
            ),
            (
                "0/1 - - cuda:",
                gpus(4),
                "the policy's config is `cuda:`, expected `cpu`, `cuda` or `cuda:N`",
            ),
        ];
        for (text, visible, message) in table {
            assert_eq!(
                resolve(&request(text), &visible).unwrap_err().to_string(),
                message,
                "{text}"
            );
        }
    }

    #[test]
    fn a_gpu_asked_for_on_a_machine_without_cuda_is_an_error() {
        let there_is_none = format!("but there is no CUDA device ({NO_DRIVER})");
        let err = |text| resolve(&request(text), &none()).unwrap_err().to_string();
        assert_eq!(
            err("0/1 0 - -"),
            format!("the policy device id asks for cuda:0, {there_is_none}")
        );
        assert_eq!(
            err("0/1 - cuda -"),
            format!("the policy device asks for cuda, {there_is_none}")
        );
        assert_eq!(
            err("0/1 - cuda:0 cpu"),
            format!("the policy device asks for cuda:0, {there_is_none}")
        );
    }
}
