//! Finds the file system of a folder.

use std::fs;
use std::path::Path;

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Where it is mounted.
    pub(super) point: String,
    /// Its type, as `ext4`, `nfs4` or `overlay`.
    pub(super) kind: String,
}

impl Mount {
    /// Returns the file system of a folder that exists.
    pub(super) fn of(folder: &Path) -> Option<Self> {
        let folder = folder.canonicalize().ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        Self::find(&folder, &mounts)
    }

    /// Finds the last of the longest mount points above a folder. `mounts` is in the format of
    /// `/proc/self/mountinfo` (man 5 proc_pid_mountinfo).
    fn find(folder: &Path, mounts: &str) -> Option<Self> {
        let mounts = mounts.lines().filter_map(Self::parse);
        mounts
            .filter(|mount| folder.starts_with(&mount.point))
            .max_by_key(|mount| mount.point.len())
    }

    fn parse(line: &str) -> Option<Self> {
        let (mount, source) = line.split_once(" - ")?;
        Some(Self {
            point: unescaped(mount.split(' ').nth(4)?),
            kind: source.split(' ').next()?.to_owned(),
        })
    }
}

/// Replaces the kernel's octal escapes of blanks.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /my\\040data rw - nfs4 server:/export rw,vers=4.2
31 30 0:27 / /my\\040data rw shared:5 - lustre mgs:/fs rw
";

    #[test]
    fn the_last_mount_at_the_longest_point_counts() {
        let kind = |folder: &str| Mount::find(Path::new(folder), MOUNTS).unwrap().kind;
        assert_eq!(kind("/home/a"), "ext4");
        assert_eq!(kind("/my data/runs"), "lustre");
        assert_eq!(kind("/my database"), "ext4");
        assert_eq!(Mount::find(Path::new("/a"), "no mounts"), None);
    }

    #[test]
    fn the_root_of_this_machine_is_mounted() {
        assert!(Mount::of(Path::new("/")).is_some());
    }
}
