//! The facts about this node, read once before anything is decided.

use std::fs;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use jobs::programs::find;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::node::control_group::{ControlGroups, MEMORY, SWAP};
use crate::node::nvml::GpuMemory;
use crate::numa::Machine;

pub(crate) mod control_group;
pub mod nvml;

/// The folder in which NVIDIA's kernel driver has one folder per GPU, each with a file
/// `information`.
const GPU_FOLDER: &str = "/proc/driver/nvidia/gpus";

/// The node on which this launcher runs.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Number of CPUs in the affinity mask of this process.
    pub cpus: usize,
    /// The NVIDIA GPUs, whether `CUDA_VISIBLE_DEVICES` hides them or not.
    pub gpus: Vec<NodeGpu>,
    /// The limits on open files, if they can be read.
    pub open_files: Option<FileLimit>,
    /// The range of ports that the kernel uses for outgoing connections: the first and the last.
    pub connection_ports: Option<(u16, u16)>,
    /// Path of the running `rrun`, with links resolved.
    pub executable: PathBuf,
    /// Path under which `rrun` was called, which may be a link.
    pub called_as: PathBuf,
    /// Queries the memory of [`Node::gpus`], in their order. The query takes a moment, so it is
    /// made only if needed.
    pub gpu_memory: Option<fn() -> Vec<GpuMemory>>,
    /// Bytes of memory and swap that the processes of a launch can use in all, if that can be read.
    pub memory: Option<u64>,
    /// The name of this node, with its domain if `/etc/hosts` has it.
    pub full_name: String,
    /// A random UUID (version 4), the run id of a launch without one.
    pub uuid: String,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeGpu {
    /// Its UUID, as `GPU-8f2b…`; empty if the driver does not report it.
    pub uuid: String,
    /// Its PCI bus address, as `0000:41:00.0`; empty if the driver does not report it.
    pub address: String,
}

/// Limits on the number of open files (`ulimit -n`); `u64::MAX` means no limit.
///
/// The launcher raises its own to the maximum, because a store for many ranks has one or two
/// connections for each of them, and the usual soft limit is 1024. Ranks keep what the launcher was
/// given: a program that calls `select` cannot use more, and other programs close all descriptors
/// up to their limit when they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// The limit in force (`ulimit -Sn`).
    pub soft: u64,
    /// The limit to which the process may raise it (`ulimit -Hn`).
    pub hard: u64,
}

impl FileLimit {
    /// Returns the limits of this process.
    pub fn current() -> Option<FileLimit> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        Some(FileLimit { soft, hard })
    }

    /// Returns the same limits with the soft limit raised to the hard one.
    pub fn raised(self) -> FileLimit {
        FileLimit {
            soft: self.hard,
            ..self
        }
    }

    /// Sets the limits of this process.
    ///
    /// # Errors
    /// Returns an error if the hard limit is above that of the process or above `fs.nr_open`.
    pub fn apply(self) -> nix::Result<()> {
        setrlimit(Resource::RLIMIT_NOFILE, self.soft, self.hard)
    }
}

impl Node {
    /// Reads the facts.
    ///
    /// # Errors
    /// Returns an error if `/proc` is not that of Linux.
    pub fn read() -> io::Result<Node> {
        Ok(Node {
            cpus: cpus(),
            gpus: gpus(Path::new(GPU_FOLDER), Path::new("/dev")),
            open_files: FileLimit::current(),
            connection_ports: connection_ports(),
            gpu_memory: Some(nvml::memory),
            executable: std::env::current_exe()?.canonicalize()?,
            called_as: called_as(),
            memory: memory(
                &fs::read_to_string("/proc/meminfo").unwrap_or_default(),
                &ControlGroups::of_this_process(),
            ),
            full_name: full_name(),
            uuid: fs::read_to_string("/proc/sys/kernel/random/uuid")?
                .trim()
                .to_owned(),
        })
    }

    /// Returns the number of GPUs that CUDA shows with this `CUDA_VISIBLE_DEVICES` (`None`: not
    /// set, all GPUs).
    ///
    /// CUDA C++ Programming Guide, "CUDA Environment Variables": the list ends before its first
    /// invalid entry. A repeated entry hides everything (torch/cuda/__init__.py, torch 2.11:
    /// `_parse_visible_devices`). Of several MIG instances a process sees one.
    pub fn visible_gpus(&self, visible_devices: Option<&str>) -> usize {
        match visible_devices {
            Some(list) if list.trim_start().starts_with("MIG-") => 1,
            list => self.whole_gpus(list).len(),
        }
    }

    /// Returns the same GPUs as indices of [`Node::gpus`], in CUDA's order, without MIG instances.
    pub fn whole_gpus(&self, visible_devices: Option<&str>) -> Vec<usize> {
        let Some(list) = visible_devices else {
            return (0..self.gpus.len()).collect();
        };
        let items = list.split(',');
        let mut seen = Vec::new();
        for index in items.map_while(|item| self.gpu_index(item.trim())) {
            if seen.contains(&index) {
                return Vec::new();
            }
            seen.push(index);
        }
        seen
    }

    /// Returns the memory of the GPUs that CUDA shows, in its order; empty if it is not known.
    pub fn memory_of(&self, visible_devices: Option<&str>) -> Vec<GpuMemory> {
        let visible = self.whole_gpus(visible_devices);
        let read = self.gpu_memory.filter(|_| !visible.is_empty());
        let all = read.map(|read| read()).unwrap_or_default();
        match all.len() == self.gpus.len() {
            true => visible.into_iter().map(|index| all[index]).collect(),
            false => Vec::new(),
        }
    }

    /// Returns the GPU that an entry names by index or by a prefix of its UUID.
    fn gpu_index(&self, item: &str) -> Option<usize> {
        if item.starts_with("GPU-") {
            let all = 0..self.gpus.len();
            let mut matches = all.filter(|&index| self.gpus[index].uuid.starts_with(item));
            return matches.next().filter(|_| matches.next().is_none());
        }
        item.parse().ok().filter(|&index| index < self.gpus.len())
    }
}

/// Returns the memory and swap of the machine, each as far as the control groups allow it.
fn memory(meminfo: &str, groups: &ControlGroups) -> Option<u64> {
    let allowed = |machine: u64, limit| groups.limit(limit).unwrap_or(u64::MAX).min(machine);
    let memory = allowed(kib(meminfo, "MemTotal:")?, MEMORY);
    let swap = allowed(kib(meminfo, "SwapTotal:").unwrap_or(0), SWAP);
    memory.checked_add(swap)
}

/// Returns the number of KiB after `name` in a text of the kernel, in bytes.
pub fn kib(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the path under which the shell found the command: the path in its name, or its place in
/// `PATH`.
fn called_as() -> PathBuf {
    let name = PathBuf::from(std::env::args_os().next().unwrap_or_default());
    if name.components().count() > 1 {
        return std::path::absolute(&name).unwrap_or(name);
    }
    find(&name, std::env::var_os("PATH").as_deref()).unwrap_or(name)
}

fn connection_ports() -> Option<(u16, u16)> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let (first, last) = range.trim().split_once(char::is_whitespace)?;
    Some((first.parse().ok()?, last.trim().parse().ok()?))
}

fn cpus() -> usize {
    match Machine::allowed().0.len() {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        cpus => cpus,
    }
}

/// Returns the GPUs that the driver knows and that have a device file on this node (or in this
/// container), in the order of their bus addresses.
fn gpus(folder: &Path, dev: &Path) -> Vec<NodeGpu> {
    let Ok(entries) = fs::read_dir(folder) else {
        return gpus_by_device_file(dev);
    };
    let mut addresses: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    addresses.sort();
    let gpu = |path: &PathBuf| {
        let text = fs::read_to_string(path.join("information")).unwrap_or_default();
        let minor = field(&text, "Device Minor");
        let has_file = minor.is_none_or(|minor| dev.join(format!("nvidia{minor}")).exists());
        has_file.then(|| NodeGpu {
            uuid: field(&text, "GPU UUID").unwrap_or_default().to_owned(),
            address: path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        })
    };
    addresses.iter().filter_map(gpu).collect()
}

/// Returns the GPUs if `/proc` has no folder of the driver: in a container with device files only.
fn gpus_by_device_file(dev: &Path) -> Vec<NodeGpu> {
    let entries = fs::read_dir(dev).into_iter().flatten().flatten();
    let is_gpu = |name: &str| {
        let minor = name.strip_prefix("nvidia");
        minor.is_some_and(|minor| minor.parse::<u32>().is_ok())
    };
    let gpus = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_gpu));
    gpus.map(|_| NodeGpu::default()).collect()
}

/// Returns the value of a line `Name: \t value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))
        .map(str::trim)
}

/// Returns the full name of this machine according to `/etc/hosts`, or else its host name. No name
/// server is asked, because a bad one takes seconds to answer.
pub fn full_name() -> String {
    let name = jobs::host::name();
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    name_with_domain(&name, &hosts).unwrap_or(name)
}

/// Returns the first name with a dot on the line of `/etc/hosts` that contains `name`.
fn name_with_domain(name: &str, hosts: &str) -> Option<String> {
    let names = |line: &str| -> Vec<String> {
        let line = line.split('#').next().unwrap_or_default();
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    };
    let known = hosts
        .lines()
        .map(names)
        .find(|names| names.iter().any(|known| known == name))?;
    known.into_iter().find(|known| known.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(gpus: usize) -> Node {
        let gpu = |index| NodeGpu {
            uuid: format!("GPU-{index}f-{index}"),
            ..NodeGpu::default()
        };
        Node {
            gpus: (0..gpus).map(gpu).collect(),
            ..Node::default()
        }
    }

    #[test]
    fn all_gpus_are_visible_or_those_of_the_list_up_to_its_first_invalid_entry() {
        assert_eq!(node(4).visible_gpus(None), 4);
        let lists = [
            "3, 0", "0,9,1", "-1", "", "0,x", "1,0,1", "GPU-1f,2", "GPU-", "MIG-5",
        ];
        assert_eq!(
            lists.map(|list| node(4).visible_gpus(Some(list))),
            [2, 1, 0, 0, 1, 0, 2, 0, 1]
        );
    }

    #[test]
    fn a_gpu_without_device_file_does_not_count() {
        let (proc, dev) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (address, minor) in [
            ("0000:41:00.0", 1),
            ("0000:01:00.0", 0),
            ("0000:81:00.0", 2),
        ] {
            let text = format!(
                "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n"
            );
            crate::tests::write(proc.path(), &format!("{address}/information"), &text);
        }
        for name in ["nvidia0", "nvidia1", "nvidiactl"] {
            fs::write(dev.path().join(name), "").unwrap();
        }
        let gpu = |uuid: &str, address: &str| NodeGpu {
            uuid: uuid.to_owned(),
            address: address.to_owned(),
        };
        let found = gpus(proc.path(), dev.path());
        assert_eq!(
            found,
            [gpu("GPU-0", "0000:01:00.0"), gpu("GPU-1", "0000:41:00.0")]
        );
        assert_eq!(gpus(&proc.path().join("none"), dev.path()).len(), 2);
    }

    /// Returns the memory in MiB that a task has on a machine with 64 GiB and 8 GiB of swap, where
    /// its control groups have these files.
    fn memory_in_groups(files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            crate::tests::write(root.path(), file, text);
        }
        let meminfo = "MemTotal:       67108864 kB\nSwapTotal:       8388608 kB\n";
        let groups = ControlGroups::new("0::/job/step/task\n", root.path());
        memory(meminfo, &groups).unwrap() >> 20
    }

    const TWO_GIB: &str = "2147483648\n";

    #[test]
    fn a_memory_limit_counts_whether_swap_is_limited_or_not() {
        let limited = |memory: &str, swap: &str| {
            let files = [
                ("job/step/task/memory.max", memory),
                ("job/step/task/memory.swap.max", swap),
            ];
            memory_in_groups(&files)
        };
        assert_eq!(limited("max\n", "max\n"), 72 << 10);
        assert_eq!(limited(TWO_GIB, "0\n"), 2 << 10);
        assert_eq!(
            limited(TWO_GIB, "max\n"),
            10 << 10,
            "with the machine's swap"
        );
        assert_eq!(limited("max\n", "0\n"), 64 << 10);
        assert_eq!(
            memory_in_groups(&[("job/step/task/memory.max", TWO_GIB)]),
            10 << 10
        );
    }

    #[test]
    fn a_memory_limit_of_a_group_above_counts() {
        let files = [
            ("job/memory.max", TWO_GIB),
            ("job/memory.swap.max", "0\n"),
            ("job/step/memory.max", "4294967296\n"),
            ("job/step/task/memory.max", "max\n"),
            ("job/step/task/memory.swap.max", "max\n"),
        ];
        assert_eq!(memory_in_groups(&files), 2 << 10);
    }

    #[test]
    fn this_node_has_a_cpu_an_executable_and_a_uuid() {
        let node = Node::read().unwrap();
        assert!(node.open_files.is_some_and(|files| files.hard > 3));
        assert!(
            node.connection_ports
                .is_some_and(|(first, last)| first <= last)
        );
        assert!(node.cpus > 0 && node.executable.is_absolute());
        assert_eq!((node.uuid.len(), &node.uuid[14..15]), (36, "4"));
    }

    #[test]
    fn the_name_with_domain_is_that_of_the_hosts_file() {
        let hosts = "127.0.0.1 localhost # node1\n10.0.0.1 node1 node1.cluster.org\n";
        assert_eq!(
            name_with_domain("node1", hosts).as_deref(),
            Some("node1.cluster.org")
        );
        assert_eq!(
            (
                name_with_domain("localhost", hosts),
                name_with_domain("node2", hosts)
            ),
            (None, None)
        );
    }

    #[test]
    fn the_limits_of_this_process_can_be_applied_again() {
        let limit = FileLimit::current().expect("Linux has limits");
        assert!(limit.soft > 3 && limit.soft <= limit.hard);
        assert_eq!(
            limit.raised(),
            FileLimit {
                soft: limit.hard,
                hard: limit.hard
            }
        );
        limit.apply().expect("they are what they are");
    }
}
