//! A snapshot of what `/sys` says about CPUs, caches, NUMA nodes and the location of GPUs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::numa::cpus::CpuList;
use crate::numa::error::NumaError;

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

impl Machine {
    /// Reads the topology below `root`, which is `/sys`. `gpus` are bus addresses such as
    /// `0000:41:00.0`.
    ///
    /// # Errors
    /// Returns an error for a file that is missing or cannot be parsed.
    pub fn read(root: &Path, gpus: &[&str], allowed: CpuList) -> Result<Machine, NumaError> {
        let mut nodes = BTreeMap::new();
        for (node, folder) in numbered(&root.join("devices/system/node"), "node")? {
            nodes.insert(node, list(&folder.join("cpulist"))?);
        }
        let mut cpus = BTreeMap::new();
        for (cpu, folder) in numbered(&root.join("devices/system/cpu"), "cpu")? {
            // An offline CPU has no topology.
            if folder.join("topology").exists() {
                cpus.insert(cpu, Cpu::read(&folder)?);
            }
        }
        let node_of = |address: &&str| {
            let node: i64 = number(
                &root
                    .join("bus/pci/devices")
                    .join(address.to_lowercase())
                    .join("numa_node"),
            )?;
            // The value is -1 if the firmware does not report it: a machine with one node.
            Ok(usize::try_from(node).unwrap_or(0))
        };
        let gpus = gpus.iter().map(node_of).collect::<Result<_, _>>()?;
        Ok(Machine {
            nodes,
            cpus,
            gpus,
            allowed,
        })
    }

    /// Returns the affinity mask of this process.
    pub fn allowed() -> CpuList {
        let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else {
            return CpuList::default();
        };
        CpuList(
            (0..CpuSet::count())
                .filter(|&cpu| set.is_set(cpu).unwrap_or(false))
                .collect(),
        )
    }
}

impl Cpu {
    fn read(folder: &Path) -> Result<Cpu, NumaError> {
        let package = number(&folder.join("topology/physical_package_id"))?;
        let core = list(&folder.join("topology/thread_siblings_list"))?;
        let mut largest: Option<(u64, CpuList)> = None;
        for (_, cache) in numbered(&folder.join("cache"), "index").unwrap_or_default() {
            let kind = text(&cache.join("type"))?;
            let bytes = text(&cache.join("size")).ok().and_then(|size| bytes(&size));
            let Some(bytes) = bytes.filter(|_| matches!(kind.as_str(), "Data" | "Unified")) else {
                continue;
            };
            if largest.as_ref().is_none_or(|(most, _)| bytes > *most) {
                largest = Some((bytes, list(&cache.join("shared_cpu_list"))?));
            }
        }
        let cache = largest.map_or_else(|| core.clone(), |(_, cpus)| cpus);
        Ok(Cpu {
            package,
            core,
            cache,
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
fn numbered(folder: &Path, name: &str) -> Result<Vec<(usize, PathBuf)>, NumaError> {
    let entries = fs::read_dir(folder).map_err(|err| refusal(folder, err))?;
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix(name)?.parse().ok();
    Ok(entries
        .flatten()
        .filter_map(|entry| Some((number(&entry.path())?, entry.path())))
        .collect())
}

fn list(path: &Path) -> Result<CpuList, NumaError> {
    CpuList::parse(&text(path)?).ok_or_else(|| refusal(path, "it is not a list of CPUs"))
}

fn number<T: std::str::FromStr>(path: &Path) -> Result<T, NumaError> {
    text(path)?
        .parse()
        .map_err(|_| refusal(path, "it is not a number"))
}

fn text(path: &Path) -> Result<String, NumaError> {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .map_err(|err| refusal(path, err))
}

fn refusal(path: &Path, reason: impl ToString) -> NumaError {
    NumaError::File {
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, format!("{text}\n")).expect("written");
    }

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
        let both = CpuList::parse("0-1").expect("a list");
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
            err.to_string()
                .contains("0000:01:00.0/numa_node`: No such file"),
            "{err}"
        );
    }

    #[test]
    fn this_machine_lets_us_use_a_cpu() {
        assert!(!Machine::allowed().0.is_empty());
    }
}
