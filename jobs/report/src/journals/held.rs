//! Finds the files that a process has locked, without taking their locks: taking a lock for a moment
//! would refuse a rank that starts in that moment.
//!
//! The kernel lists only locks of this machine, and only those of processes that this one can see: a
//! process in a container sees no locks of other containers.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;

/// The number of a file system, as the kernel lists it: major and minor.
type Device = (u32, u32);

/// Files that are locked as a whole.
pub(crate) struct LockedFiles(BTreeSet<(u64, Device)>);

/// Returns the locked files that the kernel of this machine lists; none if it does not.
pub(crate) fn locked() -> LockedFiles {
    LockedFiles(parse(
        &fs::read_to_string("/proc/locks").unwrap_or_default(),
    ))
}

impl LockedFiles {
    pub(crate) fn contains(&self, file: &File) -> bool {
        let Ok(inode) = file.metadata().map(|meta| meta.ino()) else {
            return false;
        };
        let lowest = (inode, Device::default());
        let mut devices = self.0.range(lowest..).take_while(|(of, _)| *of == inode);
        match devices.next() {
            None => false,
            // Small inode numbers are frequent: those of each tmpfs begin at 1.
            Some((_, first)) => device(file).is_none_or(|device| {
                device == *first || devices.any(|(_, other)| *other == device)
            }),
        }
    }
}

/// Returns the device of the file's mount; `None` if the kernel does not tell. The device that `stat`
/// reports is another one on Btrfs, whose subvolumes have devices of their own.
fn device(file: &File) -> Option<Device> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mount = info
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?
        .trim();
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut lines = mounts.lines().map(str::split_whitespace);
    let mut words = lines.find(|words| words.clone().next() == Some(mount))?;
    let (major, minor) = words.nth(2)?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Parses lines such as `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1310747 0 EOF`; a waiting lock has an
/// arrow after the number. See proc_locks(5).
fn parse(text: &str) -> BTreeSet<(u64, Device)> {
    let file = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", _, file, ..] = words[..] else {
            return None;
        };
        let mut parts = file.splitn(3, ':');
        let mut device = || u32::from_str_radix(parts.next()?, 16).ok();
        let device = (device()?, device()?);
        Some((parts.next()?.parse().ok()?, device))
    };
    text.lines().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::journal::Journal;

    #[test]
    fn an_open_journal_is_held_and_can_be_opened_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal_rank0.jsonl");
        let journal = Journal::open(&path).unwrap();
        let file = File::open(&path).unwrap();
        assert!(device(&file).is_some());
        assert!(locked().contains(&file));
        drop(journal);
        assert!(!locked().contains(&file));
    }

    #[test]
    fn a_lock_on_a_file_of_another_device_with_the_same_inode_is_not_one_on_this_file() {
        let file = tempfile::tempfile().unwrap();
        let (inode, ours) = (file.metadata().unwrap().ino(), device(&file).unwrap());
        let of = |devices: &[Device]| {
            LockedFiles(devices.iter().map(|device| (inode, *device)).collect())
        };
        let other = (ours.0, ours.1 + 1);
        assert!(!of(&[other]).contains(&file));
        assert!(of(&[other, ours]).contains(&file));
        assert!(!of(&[]).contains(&file));
    }

    #[test]
    fn locks_of_other_kinds_and_those_who_wait_do_not_count() {
        let text = "1: POSIX  ADVISORY  WRITE 1 fe:00:1 0 EOF\n2: FLOCK  ADVISORY  WRITE 7 fe:1a:22 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 8 fe:00:33 0 EOF\n3: FLOCK  ADVISORY  READ 9 fe:00:44 0 EOF\nodd\n";
        assert_eq!(parse(text), BTreeSet::from([(22, (0xfe, 0x1a))]));
    }
}
