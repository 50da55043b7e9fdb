//! Disks that are soon full.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A small file system of its own, which is unmounted on drop.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts one of this size, as `mount` has it: `2m`. Returns `None`, with a message, for
    /// somebody who may not.
    pub fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]);
        let output = mount.arg(dir.path()).output().unwrap();
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            eprintln!("skipped, the right to mount a small disk is missing: {text}");
            return None;
        }
        Some(Self(dir))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // If the mount stays busy, the folder below it is kept.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
