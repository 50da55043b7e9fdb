//! What torch writes into the metadata of a package: what its library was compiled for.
//!
//! torch/_inductor/codecache.py, torch 2.11: `get_device_information`.

use std::collections::BTreeMap;

use crate::refusal::Refusal;

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

impl TorchKeys {
    /// Parses the metadata of a package; returns the other keys, too.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, BTreeMap<String, String>), Refusal> {
        let keys = serde_json::from_slice(bytes)
            .map_err(|err| Refusal::new(format_args!("expected a JSON object of strings: {err}")));
        let mut keys: BTreeMap<String, String> = keys?;
        let mut take = |key: &str| keys.remove(key).ok_or_else(|| missing(key));
        let device = take("AOTI_DEVICE_KEY")?;
        if device != "cpu" && device != "cuda" {
            return Err(Refusal::new(format_args!(
                "`AOTI_DEVICE_KEY` is {device:?}, expected `cpu` or `cuda`"
            )));
        }
        let found = take("AOTI_COMPUTE_CAPABILITY")?;
        let compute_capability = match (device.as_str(), found.parse()) {
            ("cpu", _) => None,
            (_, Ok(capability)) => Some(capability),
            (_, Err(_)) => {
                return Err(Refusal::new(format_args!(
                    "`AOTI_COMPUTE_CAPABILITY` is {found:?}, expected a number such as 90"
                )));
            }
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

    /// Checks the GPUs that may run it, of which the first has the index `first`; none are known if
    /// there are no capabilities.
    ///
    /// # Errors
    /// Refuses a package that was compiled for none of them.
    pub fn check_gpus(&self, first: usize, capabilities: &[u32]) -> Result<(), Refusal> {
        match (self.compute_capability, capabilities) {
            (Some(found), [wanted, ..]) if !capabilities.contains(&found) => {
                Err(Refusal::new(format_args!(
                    "it was compiled for GPUs of compute capability {found}, but GPU {first} has \
                     {wanted}; export it on such a GPU"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses metadata without a key.
pub(super) fn missing(key: &str) -> Refusal {
    Refusal::new(format_args!("there is no `{key}`, which torch 2.11 writes"))
}
