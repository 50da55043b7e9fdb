//! A snapshot of what `/sys` says about CPUs, caches, NUMA nodes and the location of GPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context as _;
use jobs::numbers::Numbers;
use serde::{Serialize, Serializer};

/// Largest number of CPUs that Linux supports (`CONFIG_NR_CPUS` of the largest configurations).
const MOST_CPUS: u64 = 8192;

/// The topology of the machine, as far as binding needs it.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The CPUs of each NUMA node.
    pub nodes: BTreeMap<usize, CpuList>,
    /// The topology of each CPU.
    pub cpus: BTreeMap<usize, Cpu>,
    /// The NUMA node of each GPU that CUDA shows, in CUDA's order.
    pub gpus: Vec<usize>,
    /// The CPUs that this process may use.
    pub allowed: CpuList,
}

/// One CPU, that is one hardware thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// The socket that contains it.
    pub package: usize,
    /// The hardware threads of its physical core.
    pub core: CpuList,
    /// The CPUs that share its largest cache.
    pub cache: CpuList,
}

/// A set of CPU numbers, in the kernel's notation as `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuList(pub BTreeSet<usize>);

impl CpuList {
    /// Returns the CPUs in both sets.
    pub fn and(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.intersection(&other.0).copied().collect())
    }
}

impl FromStr for CpuList {
    type Err = anyhow::Error;

    /// Parses the kernel's notation; an empty text is the empty set.
    fn from_str(text: &str) -> anyhow::Result<CpuList> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(CpuList::default());
        }
        let cpus: Option<Numbers> = text.parse().ok();
        let cpus = cpus.filter(|cpus| cpus.below(MOST_CPUS) == *cpus);
        let cpus = cpus.with_context(|| format!("`{text}` is not a list of CPUs"))?;
        Ok(CpuList(cpus.iter().map(|cpu| cpu as usize).collect()))
    }
}

impl Display for CpuList {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let cpus = self.0.iter().map(|&cpu| cpu as u64);
        Display::fmt(&cpus.collect::<Numbers>(), f)
    }
}

impl Serialize for CpuList {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Machine {
    /// Reads the topology below `root`, which is `/sys`. `gpus` are bus addresses such as
    /// `0000:41:00.0`.
    ///
    /// # Errors
    /// Returns an error for a file that is missing or cannot be parsed.
    pub fn read(root: &Path, gpus: &[&str], allowed: CpuList) -> anyhow::Result<Machine> {
        let mut machine = Machine {
            allowed,
            ..Machine::default()
        };
        for (node, folder) in numbered(&root.join("devices/system/node"), "node")? {
            let cpus = value(&folder.join("cpulist"))?;
            machine.nodes.insert(node, cpus);
        }
        for (cpu, folder) in numbered(&root.join("devices/system/cpu"), "cpu")? {
            // An offline CPU has no topology.
            if folder.join("topology").exists() {
                machine.cpus.insert(cpu, Cpu::read(&folder)?);
            }
        }
        for address in gpus {
            let device = root.join("bus/pci/devices").join(address.to_lowercase());
            let node: i64 = value(&device.join("numa_node"))?;
            // The value is -1 if the firmware does not report it: a machine with one node.
            machine.gpus.push(usize::try_from(node).unwrap_or(0));
        }
        Ok(machine)
    }

    /// Returns the CPUs that this process may use; none if `/proc` does not tell.
    pub fn allowed() -> CpuList {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut lines = status.lines();
        let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        list.and_then(|list| list.parse().ok()).unwrap_or_default()
    }
}

impl Cpu {
    fn read(folder: &Path) -> anyhow::Result<Cpu> {
        let core: CpuList = value(&folder.join("topology/thread_siblings_list"))?;
        let (mut most, mut largest) = (0, core.clone());
        for (_, cache) in numbered(&folder.join("cache"), "index").unwrap_or_default() {
            let kind: String = value(&cache.join("type"))?;
            let size: String = value(&cache.join("size")).unwrap_or_default();
            let bytes = bytes(&size).filter(|_| matches!(&*kind, "Data" | "Unified"));
            if let Some(bytes) = bytes.filter(|bytes| *bytes > most) {
                (most, largest) = (bytes, value(&cache.join("shared_cpu_list"))?);
            }
        }
        Ok(Cpu {
            package: value(&folder.join("topology/physical_package_id"))?,
            core,
            cache: largest,
        })
    }
}

/// Parses a cache size such as `32768K`.
fn bytes(size: &str) -> Option<u64> {
    let digits = size.trim_end_matches(|unit: char| !unit.is_ascii_digit());
    let unit = match &size[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Returns the entries `<name><number>` of a folder.
fn numbered(folder: &Path, name: &str) -> anyhow::Result<Vec<(usize, PathBuf)>> {
    let cannot_read = || format!("cannot read `{}`", folder.display());
    let entries = fs::read_dir(folder).with_context(cannot_read)?;
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix(name)?.parse().ok();
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths
        .filter_map(|path| Some((number(&path)?, path)))
        .collect())
}

/// Returns what a file says.
fn value<T: FromStr>(path: &Path) -> anyhow::Result<T> {
    let cannot_read = || format!("cannot read `{}`", path.display());
    let text = fs::read_to_string(path).with_context(cannot_read)?;
    let value = text.trim().parse().ok();
    value.with_context(|| format!("{}: it is `{}`", cannot_read(), text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::write;

    /// Returns a tree with one node, two CPUs that are one core, and a GPU.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        write(root.path(), "devices/system/node/node0/cpulist", "0-1");
        write(root.path(), "devices/system/node/possible", "0");
        write(root.path(), "bus/pci/devices/0000:4a:00.0/numa_node", "-1");
        for cpu in 0..2 {
            let of = |file: &str| format!("devices/system/cpu/cpu{cpu}/{file}");
            write(root.path(), &of("topology/physical_package_id"), "0");
            write(root.path(), &of("topology/thread_siblings_list"), "0-1");
            for (index, kind, size) in [
                (0, "Data", "48K"),
                (1, "Instruction", "64M"),
                (2, "Unified", "2M"),
            ] {
                write(root.path(), &of(&format!("cache/index{index}/type")), kind);
                write(root.path(), &of(&format!("cache/index{index}/size")), size);
                let cpus = if index == 2 {
                    "0-1".to_owned()
                } else {
                    cpu.to_string()
                };
                write(
                    root.path(),
                    &of(&format!("cache/index{index}/shared_cpu_list")),
                    &cpus,
                );
            }
        }
        root
    }

    #[test]
    fn a_tree_is_read_whole() {
        let root = tree();
        let machine =
            Machine::read(root.path(), &["0000:4A:00.0"], CpuList::default()).expect("a machine");
        let both: CpuList = "0-1".parse().expect("a list");
        assert_eq!(
            (machine.nodes, machine.gpus),
            (BTreeMap::from([(0, both.clone())]), vec![0])
        );
        assert_eq!(
            machine.cpus[&1],
            Cpu {
                package: 0,
                core: both.clone(),
                cache: both
            }
        );
    }

    #[test]
    fn a_missing_file_is_named() {
        let root = tree();
        let err = Machine::read(root.path(), &["0000:01:00.0"], CpuList::default())
            .expect_err("no such GPU");
        assert!(
            format!("{err:#}").contains("0000:01:00.0/numa_node`: No such file"),
            "{err}"
        );
    }

    #[test]
    fn ranges_and_numbers_are_read() {
        for (text, cpus) in [("0-2,8\n", &[0, 1, 2, 8][..]), ("", &[])] {
            let list: CpuList = text.parse().expect("a list");
            assert!(list.0.iter().eq(cpus), "{text}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["x", "3-1", "0-999999999", "-1", "1-"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }
}
