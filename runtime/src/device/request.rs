//! What asks for a device: the inputs of the choice, and the errors of requests that cannot be met.

use std::fmt;

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

/// The requested device is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The name is not that of a known device.
    #[error("{source_name} is `{found}`, expected `cpu`, `cuda` or `cuda:N`")]
    Unknown {
        /// RequestSource of the request.
        source_name: RequestSource,
        /// The requested name.
        found: String,
    },
    /// The index is beyond the visible devices.
    #[error("{source_name} asks for {asked}, but {visible}")]
    Absent {
        /// RequestSource of the request.
        source_name: RequestSource,
        /// The device in torch's notation.
        asked: String,
        /// The visible devices.
        visible: String,
    },
    /// The placement names a GPU that this process cannot see.
    #[error("{reason}, which is cuda:{device} here, but only cuda:0 to cuda:{} are visible", .count - 1)]
    Unplaceable {
        /// RequestSource of the placement.
        reason: String,
        /// CUDA index of the GPU.
        device: usize,
        /// Number of visible devices.
        count: usize,
    },
    /// The placement and an explicit request name different devices.
    #[error("{source_name} asks for {asked}, but {reason}; leave one of them out")]
    Contradiction {
        /// RequestSource of the request.
        source_name: RequestSource,
        /// The device in torch's notation.
        asked: String,
        /// RequestSource of the placement.
        reason: String,
    },
}

/// The source of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestSource {
    /// The explicit device index.
    DeviceId,
    /// The explicit device name.
    PolicyDevice,
    /// The policy's config file.
    Config,
}

impl fmt::Display for RequestSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeviceId => "the policy device id",
            Self::PolicyDevice => "the policy device",
            Self::Config => "the policy's config",
        })
    }
}
