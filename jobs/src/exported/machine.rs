//! What the library of a package was compiled for, and whether a machine can run it.
//!
//! Nothing else checks that: an instruction that the CPU lacks ends the process by SIGILL. Torch
//! writes the metadata in torch/_inductor/codecache.py, torch 2.11: `get_device_information`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::exported::Description;
use crate::refusal::Refusal;

/// What a machine can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The architecture, as `uname -m` names it.
    pub architecture: String,
    /// Flags of the CPU, as `/proc/cpuinfo` names them; `None` if they are not known.
    pub cpu_flags: Option<BTreeSet<String>>,
}

impl Machine {
    /// Examines this machine.
    pub fn here() -> Self {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            architecture: std::env::consts::ARCH.to_owned(),
            cpu_flags: cpu_flags(&text),
        }
    }

    /// Checks platform and CPU.
    pub(super) fn check(&self, keys: &TorchKeys, description: &Description) -> Result<(), Refusal> {
        if keys.platform != "linux" || keys.machine != self.architecture {
            return Err(Refusal::new(format_args!(
                "it was compiled for {} on {}, but this machine is linux on {}",
                keys.platform, keys.machine, self.architecture
            )));
        }
        let Some(flags) = &self.cpu_flags else {
            return Ok(());
        };
        let of_isa = keys.cpu_isa.split_whitespace().flat_map(flags_of);
        let native = description.cpu_flags.iter().cloned();
        let needed: BTreeSet<String> = of_isa.chain(native).collect();
        let missing: Vec<&str> = needed.difference(flags).map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(format_args!(
            "it was compiled for a CPU with {}, which this CPU lacks; export it on this machine, or \
             with `--isa avx2`",
            missing.join(", ")
        )))
    }
}

/// Returns the flags of the first CPU; `None` where there is no line of them.
fn cpu_flags(text: &str) -> Option<BTreeSet<String>> {
    let line = text.lines().find(|line| line.starts_with("flags"))?;
    let (_, flags) = line.split_once(':')?;
    Some(flags.split_whitespace().map(str::to_owned).collect())
}

/// Returns the flags of `/proc/cpuinfo` that code for an instruction set of
/// torch/_inductor/cpu_vec_isa.py needs (`_arch_flags` there).
fn flags_of(isa: &str) -> Vec<String> {
    let flags: &[&str] = match isa {
        "AVX2" => &["avx2", "fma", "f16c"],
        "AVX512" => &["avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"],
        "AMX_TILE" => &["amx_tile", "amx_bf16", "amx_int8"],
        // Without vector instructions; and those of ARM, whose CPUs all have them.
        "INVALID_VEC_ISA" | "ASIMD" | "NEON" => &[],
        other => return vec![other.to_lowercase()],
    };
    flags.iter().copied().map(str::to_owned).collect()
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exported::testing::{description, keys};

    fn machine(flags: &str) -> Machine {
        Machine {
            architecture: "x86_64".to_owned(),
            cpu_flags: cpu_flags(&format!("processor : 0\nflags\t\t: {flags}\n")),
        }
    }

    #[test]
    fn a_cpu_that_lacks_an_instruction_set_is_refused_with_its_name() {
        let full = "fpu fma f16c avx2 avx512f avx512dq avx512vl avx512bw avx512_vnni";
        let package = TorchKeys {
            cpu_isa: "AVX512 AVX512_VNNI".to_owned(),
            ..keys()
        };
        assert_eq!(machine(full).check(&package, &description()), Ok(()));
        let refusal = machine("fpu fma f16c avx2").check(&package, &description());
        assert_eq!(
            refusal.unwrap_err().to_string(),
            "it was compiled for a CPU with avx512_vnni, avx512bw, avx512dq, avx512f, avx512vl, \
             which this CPU lacks; export it on this machine, or with `--isa avx2`"
        );
    }

    #[test]
    fn what_the_compiler_used_beyond_the_instruction_set_counts_too() {
        let mut native = description();
        native.cpu_flags = vec!["avx512_bf16".to_owned()];
        let refusal = machine("fma f16c avx2").check(&keys(), &native);
        let told = refusal.unwrap_err().to_string();
        assert!(told.contains("a CPU with avx512_bf16, which"), "{told}");
    }

    #[test]
    fn another_architecture_is_refused() {
        let package = TorchKeys {
            machine: "aarch64".to_owned(),
            ..keys()
        };
        let refusal = machine("avx2").check(&package, &description());
        let wanted = "it was compiled for linux on aarch64, but this machine is linux on x86_64";
        assert_eq!(refusal.unwrap_err().to_string(), wanted);
    }

    #[test]
    fn this_machine_has_flags() {
        let here = Machine::here();
        let is_known = here.cpu_flags.is_some_and(|flags| flags.contains("fpu"));
        assert!(is_known || here.architecture != "x86_64");
    }
}
