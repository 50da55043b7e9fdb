//! What torch writes into the metadata of a package: what its library was compiled for.
//!
//! torch/_inductor/codecache.py, torch 2.11: `get_device_information`.

use std::collections::BTreeMap;

/// What the library of a package was compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchKeys {
    /// `cpu` or `cuda`.
    pub device: String,
    /// The operating system, as Python names it: `linux`.
    pub platform: String,
    /// The architecture, as `uname -m` names it: `x86_64`.
    pub machine: String,
    /// Instruction sets that the code uses: `AVX512 AVX512_VNNI`.
    pub cpu_isa: String,
    /// Compute capability of the GPU, major and minor number together (`90`); none on a CPU.
    pub compute_capability: Option<u32>,
}

/// Why the metadata of torch cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TorchKeysError {
    /// It is not a JSON object of strings.
    #[error("expected a JSON object of strings: {0}")]
    Json(#[from] serde_json::Error),
    /// A key is missing.
    #[error("there is no `{key}`, which torch 2.11 writes")]
    Missing {
        /// Name of the key.
        key: &'static str,
    },
    /// The device is not one of ours.
    #[error("`AOTI_DEVICE_KEY` is {found:?}, expected `cpu` or `cuda`")]
    Device {
        /// The value.
        found: String,
    },
    /// The compute capability is not a number.
    #[error("`AOTI_COMPUTE_CAPABILITY` is {found:?}, expected a number such as 90")]
    Capability {
        /// The value.
        found: String,
    },
}

impl TorchKeys {
    /// Parses the metadata of a package; returns the other keys, too.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, BTreeMap<String, String>), TorchKeysError> {
        let mut keys: BTreeMap<String, String> = serde_json::from_slice(bytes)?;
        let mut take = |key: &'static str| keys.remove(key).ok_or(TorchKeysError::Missing { key });
        let device = take("AOTI_DEVICE_KEY")?;
        if device != "cpu" && device != "cuda" {
            return Err(TorchKeysError::Device { found: device });
        }
        let found = take("AOTI_COMPUTE_CAPABILITY")?;
        let compute_capability = match (device.as_str(), found.parse()) {
            ("cpu", _) => None,
            (_, Ok(capability)) => Some(capability),
            (_, Err(_)) => return Err(TorchKeysError::Capability { found }),
        };
        let torch = Self {
            device,
            platform: take("AOTI_PLATFORM")?,
            machine: take("AOTI_MACHINE")?,
            cpu_isa: take("AOTI_CPU_ISA")?,
            compute_capability,
        };
        Ok((torch, keys))
    }

    /// Returns whether it runs on a GPU.
    pub fn is_cuda(&self) -> bool {
        self.device == "cuda"
    }
}
