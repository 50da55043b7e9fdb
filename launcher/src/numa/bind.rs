//! Chooses the CPUs of a rank, by binding mode. Pure.

use crate::numa::cpus::CpuList;
use crate::numa::error::NumaError;
use crate::numa::machine::{Cpu, Machine};

/// The mode of `--numa-binding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// All CPUs of the GPU's NUMA node.
    Node,
    /// All CPUs of all NUMA nodes in that node's socket.
    Socket,
    /// Physical cores of that node that no other rank gets.
    Exclusive,
    /// The CPUs of that node that share one cache.
    CoreComplex,
}

/// Returns the CPUs for the rank of GPU `gpu`, among those that this process may use.
///
/// # Errors
/// Returns an error for a GPU that does not exist, or a NUMA node with too few CPUs.
pub fn bind(mode: Mode, machine: &Machine, gpu: usize) -> Result<CpuList, NumaError> {
    let visible = machine.gpus.len();
    let node = *machine.gpus.get(gpu).ok_or(NumaError::NoGpu {
        local_rank: gpu,
        visible,
    })?;
    let cpus = match mode {
        Mode::Node => machine.of_node(node),
        Mode::Socket => machine.of_socket(node),
        Mode::Exclusive => machine.of_rank(node, gpu)?,
        Mode::CoreComplex => machine.of_cache(node, gpu),
    };
    if cpus.0.is_empty() {
        Err(NumaError::NoCpu(node))
    } else {
        Ok(cpus)
    }
}

impl Machine {
    fn of_node(&self, node: usize) -> CpuList {
        self.nodes
            .get(&node)
            .map(|cpus| cpus.and(&self.allowed))
            .unwrap_or_default()
    }

    fn of_socket(&self, node: usize) -> CpuList {
        let package = |node: usize| {
            self.nodes
                .get(&node)?
                .0
                .first()
                .and_then(|cpu| self.cpus.get(cpu))
                .map(|cpu| cpu.package)
        };
        let same = self
            .nodes
            .keys()
            .filter(|&&other| other == node || package(other) == package(node));
        CpuList(same.flat_map(|&node| self.of_node(node).0).collect())
    }

    /// Divides the cores of the node into equal parts; remaining cores go to the first GPUs of the
    /// node, one each.
    fn of_rank(&self, node: usize, gpu: usize) -> Result<CpuList, NumaError> {
        let cores = self.groups(node, |cpu| &cpu.core);
        let (gpus, index) = (self.gpus_of(node), self.index_on(node, gpu));
        if cores.len() < gpus {
            return Err(NumaError::TooFewCores {
                node,
                cores: cores.len(),
                gpus,
            });
        }
        let (each, more) = (cores.len() / gpus, cores.len() % gpus);
        let (start, count) = (
            index * each + index.min(more),
            each + usize::from(index < more),
        );
        Ok(CpuList(
            cores[start..start + count]
                .iter()
                .flat_map(|core| core.0.clone())
                .collect(),
        ))
    }

    /// Assigns the node's caches to its GPUs in turn, ordered by their number of CPUs and then by
    /// their first CPU.
    fn of_cache(&self, node: usize, gpu: usize) -> CpuList {
        let mut caches = self.groups(node, |cpu| &cpu.cache);
        caches.sort_by_key(|cpus| std::cmp::Reverse(cpus.0.len()));
        match caches.len() {
            0 => CpuList::default(),
            count => caches[self.index_on(node, gpu) % count].clone(),
        }
    }

    /// Returns the node's CPUs in groups, ordered by their lowest CPU.
    fn groups(&self, node: usize, group_of: impl Fn(&Cpu) -> &CpuList) -> Vec<CpuList> {
        let cpus = self.of_node(node);
        let mut groups: Vec<CpuList> = Vec::new();
        for cpu in &cpus.0 {
            if !groups.iter().any(|group| group.0.contains(cpu)) {
                let group = self
                    .cpus
                    .get(cpu)
                    .map(|cpu| group_of(cpu).and(&cpus))
                    .unwrap_or_default();
                groups.push(CpuList(group.0.into_iter().chain([*cpu]).collect()));
            }
        }
        groups
    }

    fn gpus_of(&self, node: usize) -> usize {
        self.gpus.iter().filter(|&&other| other == node).count()
    }

    /// Returns the number of GPUs of the node before this one.
    fn index_on(&self, node: usize, gpu: usize) -> usize {
        self.gpus[..gpu]
            .iter()
            .filter(|&&other| other == node)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CpuList {
        CpuList::parse(text).expect("a list")
    }

    /// Returns a machine of two sockets, each with two nodes of four cores with two threads: CPUs c
    /// and c + 16 are one core, and two cores share a cache.
    fn machine(gpus: &[usize]) -> Machine {
        let node = |node: usize| {
            (
                node,
                list(&format!(
                    "{}-{},{}-{}",
                    node * 4,
                    node * 4 + 3,
                    node * 4 + 16,
                    node * 4 + 19
                )),
            )
        };
        let cpu = |cpu: usize| {
            let core = cpu % 16;
            let cache = core - core % 2;
            let cache = list(&format!(
                "{cache}-{},{}-{}",
                cache + 1,
                cache + 16,
                cache + 17
            ));
            (
                cpu,
                Cpu {
                    package: core / 8,
                    core: list(&format!("{core},{}", core + 16)),
                    cache,
                },
            )
        };
        Machine {
            nodes: (0..4).map(node).collect(),
            cpus: (0..32).map(cpu).collect(),
            gpus: gpus.to_vec(),
            allowed: list("0-31"),
        }
    }

    fn bound(mode: Mode, machine: &Machine) -> String {
        let gpus = 0..machine.gpus.len();
        gpus.map(|gpu| bind(mode, machine, gpu).expect("CPUs").to_string())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn cpus_are_bound_as_by_torchrun() {
        let of = |mode, gpus: &[usize]| bound(mode, &machine(gpus));
        // All CPUs near the GPU, or all nodes of its package.
        assert_eq!(of(Mode::Node, &[1, 0]), "4-7,20-23 0-3,16-19");
        assert_eq!(of(Mode::Socket, &[1, 2]), "0-7,16-23 8-15,24-31");
        // Physical cores are divided, and the first GPUs get the rest.
        let exclusive = of(Mode::Exclusive, &[0, 0, 1, 0]);
        assert_eq!(exclusive, "0-1,16-17 2,18 4-7,20-23 3,19");
        // Caches go round among the GPUs of a node, larger ones first.
        let complex = of(Mode::CoreComplex, &[0, 0, 0]);
        assert_eq!(complex, "0-1,16-17 2-3,18-19 0-1,16-17");
        let allowed = |cpus, gpus| Machine {
            allowed: list(cpus),
            ..machine(gpus)
        };
        let uneven = allowed("0,2-3,18", &[0, 0]);
        assert_eq!(bound(Mode::CoreComplex, &uneven), "2-3,18 0");
        // Only allowed CPUs are given.
        assert_eq!(bound(Mode::Node, &allowed("1,17,5", &[0])), "1,17");
    }

    #[test]
    fn a_rank_without_gpu_core_or_cpu_is_refused() {
        let of = |mode, gpus: &[usize], rank| bind(mode, &machine(gpus), rank);
        let too_few = NumaError::TooFewCores {
            node: 3,
            cores: 4,
            gpus: 5,
        };
        assert_eq!(of(Mode::Exclusive, &[3; 5], 0), Err(too_few));
        let no_gpu = NumaError::NoGpu {
            local_rank: 1,
            visible: 1,
        };
        assert_eq!(of(Mode::Node, &[0], 1), Err(no_gpu));
        let narrow = Machine {
            allowed: list("1,17,5"),
            ..machine(&[2])
        };
        assert_eq!(bind(Mode::Node, &narrow, 0), Err(NumaError::NoCpu(2)));
    }

    #[test]
    fn modes_have_torchrun_s_names() {
        let modes = ["node", "socket", "exclusive", "core-complex", "numa"];
        let modes = modes.map(|name| <Mode as clap::ValueEnum>::from_str(name, false).ok());
        let known = [Mode::Node, Mode::Socket, Mode::Exclusive, Mode::CoreComplex].map(Some);
        assert_eq!((&modes[..4], modes[4]), (&known[..], None));
    }
}
