//! `--numa-binding`: chooses the CPUs that a rank may use by the location of its GPU. Does not need
//! `numactl`.
//!
//! ```text
//! /sys ─► machine::Machine ──bind──► CpuList ─► pre_exec: sched_setaffinity
//!         (a snapshot)      (pure)
//! ```
//! Source: torch/numa/binding.py, torch 2.11. The GPU of a rank is the one that CUDA shows at its
//! local rank.

pub mod machine;

use std::cmp::Reverse;

use anyhow::{Context as _, ensure};

use crate::numa::machine::Cpu;
pub use crate::numa::machine::{CpuList, Machine};

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
pub fn bind(mode: Mode, machine: &Machine, gpu: usize) -> anyhow::Result<CpuList> {
    let node = machine
        .gpus
        .get(gpu)
        .with_context(|| no_gpu(gpu, machine.gpus.len()))?;
    let cpus = match mode {
        Mode::Node => machine.of_node(*node),
        Mode::Socket => machine.of_socket(*node),
        Mode::Exclusive => machine.of_rank(*node, gpu)?,
        Mode::CoreComplex => machine.of_cache(*node, gpu),
    };
    ensure!(
        !cpus.0.is_empty(),
        "this process may use no CPU of NUMA node {node}"
    );
    Ok(cpus)
}

/// Says that a local rank has none of the visible GPUs.
pub fn no_gpu(local_rank: usize, visible: usize) -> String {
    format!("local rank {local_rank} has no GPU to bind to, {visible} are visible")
}

impl Machine {
    fn of_node(&self, node: usize) -> CpuList {
        let cpus = self.nodes.get(&node);
        cpus.map(|cpus| cpus.and(&self.allowed)).unwrap_or_default()
    }

    fn of_socket(&self, node: usize) -> CpuList {
        let package = |node| Some(self.cpus.get(self.nodes.get(node)?.0.first()?)?.package);
        let nodes = self.nodes.keys();
        let same = nodes.filter(|other| **other == node || package(other) == package(&node));
        CpuList(same.flat_map(|&node| self.of_node(node).0).collect())
    }

    /// Divides the cores of the node into equal parts; remaining cores go to the first GPUs of the
    /// node, one each.
    fn of_rank(&self, node: usize, gpu: usize) -> anyhow::Result<CpuList> {
        let groups = self.groups(node, |cpu| &cpu.core);
        let (cores, gpus) = (groups.len(), self.index_on(node, self.gpus.len()));
        ensure!(
            cores >= gpus,
            "NUMA node {node} has {cores} physical cores for {gpus} GPUs"
        );
        let (each, more) = (cores / gpus, cores % gpus);
        let index = self.index_on(node, gpu);
        let start = index * each + index.min(more);
        let own = groups
            .into_iter()
            .skip(start)
            .take(each + usize::from(index < more));
        Ok(CpuList(own.flat_map(|core| core.0).collect()))
    }

    /// Assigns the node's caches to its GPUs in turn, ordered by their number of CPUs and then by
    /// their first CPU.
    fn of_cache(&self, node: usize, gpu: usize) -> CpuList {
        let mut caches = self.groups(node, |cpu| &cpu.cache);
        caches.sort_by_key(|cpus| Reverse(cpus.0.len()));
        let index = self.index_on(node, gpu).checked_rem(caches.len());
        index
            .map(|index| caches.swap_remove(index))
            .unwrap_or_default()
    }

    /// Returns the node's CPUs in groups, ordered by their lowest CPU.
    fn groups(&self, node: usize, group_of: impl Fn(&Cpu) -> &CpuList) -> Vec<CpuList> {
        let cpus = self.of_node(node);
        let mut groups: Vec<CpuList> = Vec::new();
        for cpu in &cpus.0 {
            if !groups.iter().any(|group| group.0.contains(cpu)) {
                let group = self.cpus.get(cpu).map(|cpu| group_of(cpu).and(&cpus));
                let mut group = group.unwrap_or_default();
                group.0.insert(*cpu);
                groups.push(group);
            }
        }
        groups
    }

    /// Returns the number of GPUs of the node before this one.
    fn index_on(&self, node: usize, gpu: usize) -> usize {
        let before = &self.gpus[..gpu];
        before.iter().filter(|&&other| other == node).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CpuList {
        text.parse().expect("a list")
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
        let refusal = |mode, machine: &Machine, rank| {
            let refused = bind(mode, machine, rank);
            refused.expect_err("it has none").to_string()
        };
        for (mode, gpus, rank, refused) in [
            (
                Mode::Exclusive,
                &[3; 5][..],
                0,
                "NUMA node 3 has 4 physical cores for 5 GPUs",
            ),
            (
                Mode::Node,
                &[0],
                1,
                "local rank 1 has no GPU to bind to, 1 are visible",
            ),
        ] {
            assert_eq!(refusal(mode, &machine(gpus), rank), refused);
        }
        let narrow = Machine {
            allowed: list("1,17,5"),
            ..machine(&[2])
        };
        let refused = "this process may use no CPU of NUMA node 2";
        assert_eq!(refusal(Mode::Node, &narrow, 0), refused);
    }

    #[test]
    fn modes_have_torchrun_s_names() {
        let modes = ["node", "socket", "exclusive", "core-complex", "numa"];
        let modes = modes.map(|name| <Mode as clap::ValueEnum>::from_str(name, false).ok());
        let known = [Mode::Node, Mode::Socket, Mode::Exclusive, Mode::CoreComplex].map(Some);
        assert_eq!((&modes[..4], modes[4]), (&known[..], None));
    }
}
