//! Which libtorch this process has loaded: its folder and its version.

use std::fs;
use std::path::{Path, PathBuf};

use crate::torch_error::TorchError;

/// Major and minor number of a version of libtorch. Its C++ interface changes with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minor(pub u32, pub u32);

impl std::fmt::Display for Minor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Returns the folder of the libraries of libtorch that this process runs with.
///
/// # Errors
/// If /proc/self/maps cannot be read, or libtorch is not loaded.
pub fn folder() -> Result<PathBuf, TorchError> {
    let cannot = |err| TorchError::new(format!("cannot read /proc/self/maps: {err}"));
    let maps = fs::read_to_string("/proc/self/maps").map_err(cannot)?;
    folder_in(&maps).ok_or_else(|| TorchError::new("libtorch_cpu.so is not loaded"))
}

/// Returns the version of the libtorch that this process has loaded, such as `2.11.0+cu130`, if it
/// has a file that says it.
pub fn version() -> Option<String> {
    version_in(folder().ok()?.parent()?)
}

/// Returns major and minor number of the libtorch that this process has loaded, if it has a file
/// that says them.
pub fn minor() -> Option<Minor> {
    minor_of(&version()?)
}

/// Returns major and minor number of a version: `2.11.0+cu130` is 2.11.
fn minor_of(version: &str) -> Option<Minor> {
    let mut numbers = version.splitn(3, '.');
    let mut number = || numbers.next()?.parse().ok();
    Some(Minor(number()?, number()?))
}

/// Returns the folder from which a process has loaded libtorch; `maps` is the content of its
/// `/proc/self/maps`.
fn folder_in(maps: &str) -> Option<PathBuf> {
    let mut files = maps
        .lines()
        .filter_map(|line| line.find('/').map(|start| &line[start..]));
    let library = files.find(|file| file.ends_with("/libtorch_cpu.so"))?;
    Some(Path::new(library).parent()?.to_owned())
}

/// Returns libtorch's version: a wheel of torch has it in `version.py`, the libtorch archive in
/// `build-version`.
fn version_in(root: &Path) -> Option<String> {
    let read = |name: &str| fs::read_to_string(root.join(name)).ok();
    let of_wheel = |text: String| {
        let mut lines = text.lines();
        let version = lines.find_map(|line| line.strip_prefix("__version__ = "))?;
        Some(version.trim_matches(['\'', '"']).to_owned())
    };
    let wheel = read("version.py").and_then(of_wheel);
    wheel.or_else(|| read("build-version").map(|text| text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_torch_writes_them() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(version_in(folder.path()), None);
        fs::write(folder.path().join("build-version"), "2.11.0+cpu\n").unwrap();
        assert_eq!(version_in(folder.path()).as_deref(), Some("2.11.0+cpu"));
        fs::write(
            folder.path().join("version.py"),
            "x = 1\n__version__ = '2.12.1+cu130'\n",
        )
        .unwrap();
        assert_eq!(version_in(folder.path()).as_deref(), Some("2.12.1+cu130"));

        assert_eq!(minor_of("2.12.1+cu130"), Some(Minor(2, 12)));
        assert_eq!(minor_of("2.12"), Some(Minor(2, 12)));
        assert_eq!(minor_of("two"), None);
    }

    #[test]
    fn libtorch_is_where_it_was_loaded_from() {
        let maps = "7f00-7f01 r-xp 0 fe:00 12   /usr/lib/libc.so.6\n\
                    7f02-7f03 r-xp 0 fe:00 13   /opt/my venv/torch/lib/libtorch_cpu.so\n";
        assert_eq!(
            folder_in(maps),
            Some(PathBuf::from("/opt/my venv/torch/lib"))
        );
        assert_eq!(folder_in("7f00-7f01 rw-p 0 00:00 0\n"), None);
    }
}
