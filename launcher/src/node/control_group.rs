//! Reads the limits of the control groups of this process, versions 1 and 2: the lowest of the
//! group and all groups above it.

use std::fs;
use std::path::{Path, PathBuf};

/// From this on, version 1 means no limit: the largest number of pages, in bytes.
const NO_LIMIT: u64 = 1 << 62;

/// Names of a limit in the two versions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitFile {
    /// File of version 2.
    pub(crate) v2: &'static str,
    /// Controller and file of version 1, if it has such a limit.
    pub(crate) v1: Option<(&'static str, &'static str)>,
}

/// The memory that processes may use, in bytes.
pub(crate) const MEMORY: LimitFile = LimitFile {
    v2: "memory.max",
    v1: Some(("memory", "memory.limit_in_bytes")),
};

/// The swap that processes may use, in bytes. Version 1 only limits memory and swap together.
pub(crate) const SWAP: LimitFile = LimitFile {
    v2: "memory.swap.max",
    v1: None,
};

/// The number of processes and threads.
pub(crate) const PROCESSES: LimitFile = LimitFile {
    v2: "pids.max",
    v1: Some(("pids", "pids.max")),
};

/// The control groups of a process.
#[derive(Clone, Debug)]
pub(crate) struct ControlGroups {
    /// Content of `/proc/self/cgroup`.
    groups: String,
    /// Where the hierarchies are mounted.
    root: PathBuf,
}

impl ControlGroups {
    /// Returns those of this process.
    pub(crate) fn of_this_process() -> Self {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::new(&groups, Path::new("/sys/fs/cgroup"))
    }

    pub(crate) fn new(groups: &str, root: &Path) -> Self {
        Self {
            groups: groups.to_owned(),
            root: root.to_owned(),
        }
    }

    /// Returns the lowest limit, if there is one.
    pub(crate) fn limit(&self, file: LimitFile) -> Option<u64> {
        let v1 = file.v1.map(|(controller, v1)| self.texts(controller, v1));
        let texts = self.texts("", file.v2).into_iter();
        texts
            .chain(v1.into_iter().flatten())
            .filter_map(|text| text.trim().parse().ok())
            .filter(|limit| *limit < NO_LIMIT)
            .min()
    }

    /// Returns how many CPUs' time the processes may use per second, if that is limited.
    pub(crate) fn cpus(&self) -> Option<f64> {
        let v2 = self.texts("", "cpu.max").into_iter();
        let v2 = v2.filter_map(|text| {
            let (quota, period) = text.trim().split_once(' ')?;
            ratio(quota, period)
        });
        let quotas = self.texts("cpu", "cpu.cfs_quota_us").into_iter();
        let periods = self.texts("cpu", "cpu.cfs_period_us");
        let v1 = quotas
            .zip(periods)
            .filter_map(|(quota, period)| ratio(&quota, &period));
        v2.chain(v1).min_by(f64::total_cmp)
    }

    /// Returns the contents of a file in the group of a controller and in those above it. The
    /// controller of version 2 has no name.
    fn texts(&self, controller: &str, file: &str) -> Vec<String> {
        let Some(path) = self.path(controller) else {
            return Vec::new();
        };
        let mount = self.root.join(controller);
        let relative = Path::new(path.trim_start_matches('/'));
        // In a container, the path may be that of the host; then only the mounted group is there.
        let groups = relative.ancestors().map(|above| mount.join(above));
        groups
            .filter_map(|group| fs::read_to_string(group.join(file)).ok())
            .collect()
    }

    /// Returns the group's path below the mount point: the part behind `4:cpu,cpuacct:`.
    fn path(&self, controller: &str) -> Option<&str> {
        self.groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let is_found = controllers.split(',').any(|known| known == controller);
            is_found.then_some(path)
        })
    }
}

fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_lowest_limit_above_a_group_counts() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "job/memory.max", "4294967296\n");
        write(root.path(), "job/step/memory.max", "max\n");
        write(root.path(), "job/cpu.max", "150000 100000\n");
        write(root.path(), "job/step/cpu.max", "max 100000\n");
        let groups = ControlGroups::new("0::/job/step\n", root.path());
        assert_eq!(groups.limit(MEMORY), Some(4 << 30));
        assert_eq!(groups.cpus(), Some(1.5));
        assert_eq!(groups.limit(PROCESSES), None);
    }

    #[test]
    fn version_1_has_a_folder_for_each_controller() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "memory/a/memory.limit_in_bytes", "1073741824");
        write(
            root.path(),
            "memory/memory.limit_in_bytes",
            "9223372036854771712",
        );
        write(root.path(), "cpu/a/cpu.cfs_quota_us", "-1\n");
        write(root.path(), "cpu/a/cpu.cfs_period_us", "100000\n");
        write(root.path(), "pids/pids.max", "max\n");
        let text = "9:name=systemd:/\n4:memory:/a\n3:cpu,cpuacct:/a\n2:pids:/\n0::/\n";
        let groups = ControlGroups::new(text, root.path());
        assert_eq!(groups.limit(MEMORY), Some(1 << 30));
        assert_eq!((groups.cpus(), groups.limit(PROCESSES)), (None, None));
    }

    #[test]
    fn in_a_container_the_mounted_group_counts() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "memory.max", "2147483648\n");
        let groups = ControlGroups::new("0::/docker/0123\n", root.path());
        assert_eq!(groups.limit(MEMORY), Some(2 << 30));
    }
}
