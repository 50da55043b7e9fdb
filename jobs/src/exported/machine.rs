//! Whether a machine can run the code of a package.
//!
//! Nothing else checks that: an instruction that the CPU lacks ends the process by SIGILL.

use std::collections::BTreeSet;
use std::fs;

use crate::exported::{Description, TorchKeys};
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
