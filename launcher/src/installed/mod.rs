//! Where the files are that belong to the launcher: the binary of a rank, and the demo's jobs.
//!
//! ```text
//!                          rank                                  suites
//! target/release/rrun      target/release/rrun-rank              jobs/suites            from the source
//! <prefix>/bin/rrun        <prefix>/lib/python3.X/site-packages/rrun/{rrun-rank, suites}  from pip
//! /usr/local/bin/rrun      /usr/local/lib/python3.X/dist-packages/rrun/…          with Debian's pip
//! ```

pub mod libraries;

use std::path::{Path, PathBuf};

/// The binary that runs one rank of a built-in program.
const RANK_BINARY: &str = "rrun-rank";

/// Returns the path of `rrun-rank` for a launcher at `executable`: in the same folder, or in the
/// package that pip installs with it. If several versions of Python have the package, the newest
/// one's is taken.
///
/// # Errors
/// If there is none, returns the path in the same folder, which is missing.
pub fn rank_binary(executable: &Path) -> Result<PathBuf, PathBuf> {
    let beside = executable.with_file_name(RANK_BINARY);
    if beside.is_file() {
        return Ok(beside);
    }
    match installed(executable) {
        Some(binary) => Ok(binary),
        None => Err(beside),
    }
}

/// Returns the folder with the demo's jobs and policy for a launcher at `executable`, if it is
/// there.
pub fn suites(executable: &Path) -> Option<PathBuf> {
    let in_package = installed(executable).map(|binary| binary.with_file_name("suites"));
    let in_source = executable
        .ancestors()
        .nth(3)
        .map(|root| root.join("jobs/suites"));
    let folders = in_package.into_iter().chain(in_source);
    folders
        .into_iter()
        .find(|folder| folder.join("demo.json").is_file())
}

/// Returns `rrun-rank` of the Python package.
fn installed(executable: &Path) -> Option<PathBuf> {
    let prefix = executable.parent()?.parent()?;
    let mut found: Vec<((u32, u32), PathBuf)> = Vec::new();
    for library in ["lib", "lib64"] {
        let Ok(folders) = prefix.join(library).read_dir() else {
            continue;
        };
        for folder in folders.flatten() {
            let Some(version) = python_version(&folder.file_name().to_string_lossy()) else {
                continue;
            };
            for packages in ["site-packages", "dist-packages"] {
                let binary = folder.path().join(packages).join("rrun").join(RANK_BINARY);
                if binary.is_file() {
                    found.push((version, binary));
                }
            }
        }
    }
    found.into_iter().max().map(|(_, binary)| binary)
}

/// Returns the version in the name of a folder such as `python3.12`.
fn python_version(folder: &str) -> Option<(u32, u32)> {
    let (major, minor) = folder.strip_prefix("python")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Makes an empty file with its folders.
    fn touch(file: &Path) -> PathBuf {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
        file.to_owned()
    }

    #[test]
    fn the_binary_beside_the_launcher_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let executable = folder.path().join("bin/rrun");
        touch(
            &folder
                .path()
                .join("lib/python3.12/site-packages/rrun/rrun-rank"),
        );
        let beside = touch(&folder.path().join("bin/rrun-rank"));
        assert_eq!(rank_binary(&executable), Ok(beside));
    }

    #[test]
    fn the_package_of_the_newest_python_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let executable = folder.path().join("bin/rrun");
        assert!(rank_binary(&executable).is_err());

        let old = folder
            .path()
            .join("lib/python3.9/dist-packages/rrun/rrun-rank");
        let old = touch(&old);
        assert_eq!(rank_binary(&executable), Ok(old));

        let new = folder
            .path()
            .join("lib64/python3.12/site-packages/rrun/rrun-rank");
        let new = touch(&new);
        assert_eq!(rank_binary(&executable), Ok(new));
    }

    #[test]
    fn the_suites_are_in_the_package_or_in_the_source() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(suites(&root.join("target/release/rrun")), None);

        touch(&root.join("jobs/suites/demo.json"));
        let in_source = suites(&root.join("target/release/rrun"));
        assert_eq!(in_source, Some(root.join("jobs/suites")));

        let package = root.join("lib/python3.12/site-packages/rrun");
        touch(&package.join("rrun-rank"));
        touch(&package.join("suites/demo.json"));
        let in_package = suites(&root.join("bin/rrun"));
        assert_eq!(in_package, Some(package.join("suites")));
    }

    #[test]
    fn other_folders_are_no_pythons() {
        assert_eq!(python_version("python3.12"), Some((3, 12)));
        for name in ["python3", "pypy3.10", "python3.x", "gconv"] {
            assert_eq!(python_version(name), None, "{name}");
        }
    }
}
