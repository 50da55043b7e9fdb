//! The number of CPUs, and the instructions that the libraries need.

use std::fs;

use jobs::count::counted;

use crate::node::control_group::ControlGroups;
use crate::tools::doctor::diagnosis::Diagnosis;
use crate::tools::doctor::machine::value;

/// What `/proc/cpuinfo` calls AVX. libmujoco of its wheels for x86-64 is compiled for it.
const NEEDED: &str = "avx";

/// Instructions with which libtorch computes several times as fast, the best first.
const FAST: [(&str, &str); 2] = [("avx512f", "AVX-512"), ("avx2", "AVX2")];

/// What is known about the CPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CpuFacts {
    /// Number of CPUs in the affinity mask.
    cpus: usize,
    /// Number of CPUs whose time the control group may use.
    quota: Option<f64>,
    /// Name of the first CPU.
    model: Option<String>,
    /// Names of instruction sets, if the architecture is x86-64 and they are known.
    flags: Option<Vec<String>>,
}

impl CpuFacts {
    pub(super) fn read(cpus: usize, groups: &ControlGroups) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let text = |name| value(&cpuinfo, name, ':');
        let flags = text("flags").filter(|_| cfg!(target_arch = "x86_64"));
        Self {
            cpus,
            quota: groups.cpus(),
            model: text("model name").map(str::to_owned),
            flags: flags.map(|flags| flags.split_whitespace().map(str::to_owned).collect()),
        }
    }

    pub(super) fn judged(&self) -> Diagnosis {
        let name = "CPU";
        let cpus = counted(self.cpus, "CPU");
        let model = self.model.as_deref().unwrap_or("of unknown model");
        let Some(flags) = &self.flags else {
            return Diagnosis::ok(name, format!("{cpus}, {model}"));
        };
        let has = |wanted: &str| flags.iter().any(|flag| flag == wanted);
        if !has(NEEDED) {
            let found = format!("{cpus}, {model}, without AVX, which MuJoCo's library needs");
            let remedy = "use another machine; in a virtual machine, pass the host's CPU model on";
            return Diagnosis::failed(name, found, remedy);
        }
        let Some((_, fastest)) = FAST.into_iter().find(|(flag, _)| has(flag)) else {
            let found = format!("{cpus}, {model}, without AVX2: policies run slowly on it");
            let remedy = "use a GPU, or another machine; in a virtual machine, pass the host's CPU \
                          model on";
            return Diagnosis::warning(name, found, remedy);
        };
        let found = format!("{cpus}, {model}, {fastest}");
        match self.quota.filter(|quota| *quota < self.cpus as f64) {
            Some(quota) => {
                let found =
                    format!("{found}; the control group allows the time of {quota:.1} CPUs");
                let remedy = "start no more ranks than that, or raise the limit (docker --cpus, \
                              resources.limits.cpu)";
                Diagnosis::warning(name, found, remedy)
            }
            None => Diagnosis::ok(name, found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::doctor::diagnosis::Health;

    #[test]
    fn the_best_instructions_are_named_and_few_of_them_or_little_time_is_told() {
        for (flags, quota, health, found) in [
            (
                &["sse2", "avx", "avx2"][..],
                None,
                Health::Ok,
                "8 CPUs, EPYC, AVX2",
            ),
            (
                &["avx", "avx2", "avx512f"],
                Some(8.0),
                Health::Ok,
                "AVX-512",
            ),
            (&["sse2"], None, Health::Failed, ""),
            (&["sse2", "avx"], None, Health::Warning, ""),
            (
                &["avx", "avx2"],
                Some(1.5),
                Health::Warning,
                "the time of 1.5 CPUs",
            ),
        ] {
            let facts = CpuFacts {
                cpus: 8,
                quota,
                model: Some("EPYC".to_owned()),
                flags: Some(flags.iter().map(|flag| (*flag).to_owned()).collect()),
            };
            let judged = facts.judged();
            assert_eq!(judged.health, health, "{judged:?}");
            assert!(judged.found.ends_with(found), "{judged:?}");
        }
        let not_listed = CpuFacts::default().judged();
        assert_eq!(not_listed.health, Health::Ok, "none is missed");
    }
}
