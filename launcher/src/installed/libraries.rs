//! Checks, before a rank starts, that the packages beside an installed `rrun-rank` are those that it
//! was built for. The dynamic linker would only name a symbol.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The versions of torch that `rrun-rank` runs with: 2.10 is for CUDA 12, and 2.13 lacks a symbol.
const TORCH: [&str; 2] = ["2.11", "2.12"];

/// What installs a matching torch.
const PIP_TORCH: &str = "pip install 'torch>=2.11,<2.13'";

/// libmujoco's file, whose name has the version.
const MUJOCO: &str = "libmujoco.so.3.17.0";

/// The flag in `/proc/cpuinfo` of the instructions that MuJoCo was compiled for.
const AVX: &str = "avx";

/// The reason why `rrun-rank` would not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitInstall {
    /// The package torch is not beside the package rrun.
    #[error("`{}` is missing: the package torch must be in the same folder as the package rrun ({PIP_TORCH})", .0.display())]
    NoTorch(PathBuf),
    /// The package torch has another version.
    #[error("`{}` is torch {found}, expected 2.11 or 2.12 ({PIP_TORCH})", path.display())]
    OtherTorch {
        /// Folder of the package.
        path: PathBuf,
        /// Its version.
        found: String,
    },
    /// The package mujoco is missing, or has another version.
    #[error("`{}` is missing: the package mujoco 3.17.0 must be in the same folder as the package rrun (pip install mujoco==3.17.0)", .0.display())]
    NoMujoco(PathBuf),
    /// The CPU is too old for MuJoCo.
    #[error("this CPU has no AVX instructions, which MuJoCo needs")]
    NoAvx,
}

/// Checks the packages beside `binary`, an `rrun-rank` in `site-packages/rrun`. Other programs know
/// the folders of their libraries, and nothing is checked; nor is it if `library_path`, the value of
/// LD_LIBRARY_PATH, has a libtorch.
///
/// # Errors
/// If a package is missing or has another version, or the CPU is too old; `cpuinfo` returns the
/// content of `/proc/cpuinfo`.
pub fn check(
    binary: &Path,
    library_path: Option<&OsStr>,
    cpuinfo: impl FnOnce() -> String,
) -> Result<(), UnfitInstall> {
    let package = binary.parent().filter(|folder| folder.ends_with("rrun"));
    let Some(packages) = package.and_then(Path::parent) else {
        return Ok(());
    };
    let mut elsewhere = library_path.into_iter().flat_map(std::env::split_paths);
    if elsewhere.any(|folder| folder.join("libtorch_cpu.so").is_file()) {
        return Ok(());
    }

    let torch = packages.join("torch");
    if !torch.join("lib/libtorch_cpu.so").is_file() {
        return Err(UnfitInstall::NoTorch(torch));
    }
    if let Some(found) = torch_version(&torch)
        && !is_one_of_ours(&found)
    {
        return Err(UnfitInstall::OtherTorch { path: torch, found });
    }
    let mujoco = packages.join("mujoco").join(MUJOCO);
    if !mujoco.is_file() {
        return Err(UnfitInstall::NoMujoco(mujoco));
    }
    match cpuinfo().lines().find(|line| line.starts_with("flags")) {
        Some(flags) if !flags.split_whitespace().any(|flag| flag == AVX) => {
            Err(UnfitInstall::NoAvx)
        }
        _ => Ok(()),
    }
}

/// Returns the version that the package torch gives in its `version.py`.
fn torch_version(torch: &Path) -> Option<String> {
    let text = std::fs::read_to_string(torch.join("version.py")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("__version__ = "))?;
    Some(line.trim_matches(['\'', '"']).to_owned())
}

fn is_one_of_ours(version: &str) -> bool {
    TORCH.iter().any(|minor| {
        version
            .strip_prefix(minor)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn cpu() -> String {
        "processor: 0\nflags\t\t: fpu sse avx avx2\n".to_owned()
    }

    /// Makes site-packages with the three packages. Returns the folder and `rrun-rank`.
    fn packages(torch: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let version = format!("__version__ = '{torch}'\n");
        for (file, text) in [
            ("rrun/rrun-rank", ""),
            ("torch/lib/libtorch_cpu.so", ""),
            ("torch/version.py", &version),
            ("mujoco/libmujoco.so.3.17.0", ""),
        ] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let binary = folder.path().join("rrun/rrun-rank");
        (folder, binary)
    }

    #[test]
    fn torch_2_11_and_2_12_are_accepted_and_others_refused_by_their_version() {
        for (version, is_accepted) in [
            ("2.11.0+cu130", true),
            ("2.12.1", true),
            ("2.13.0", false),
            ("2.10.0+cu128", false),
            ("2.110.0", false),
        ] {
            let (_folder, binary) = packages(version);
            let found = check(&binary, None, cpu).map_err(|err| err.to_string());
            match found {
                Ok(()) => assert!(is_accepted, "{version}"),
                Err(err) => {
                    assert!(!is_accepted, "{err}");
                    assert!(err.contains(&format!("is torch {version}")), "{err}");
                }
            }
        }
    }

    #[test]
    fn a_missing_package_is_named() {
        let (folder, binary) = packages("2.11.0");
        fs::remove_file(folder.path().join("mujoco/libmujoco.so.3.17.0")).unwrap();
        let refused = check(&binary, None, cpu);
        assert!(
            matches!(refused, Err(UnfitInstall::NoMujoco(_))),
            "{refused:?}"
        );
        fs::remove_dir_all(folder.path().join("torch")).unwrap();
        let refused = check(&binary, None, cpu);
        assert_eq!(
            refused,
            Err(UnfitInstall::NoTorch(folder.path().join("torch")))
        );
    }

    #[test]
    fn a_libtorch_in_the_library_path_is_not_judged() {
        let (folder, binary) = packages("2.13.0");
        let paths = format!("/nowhere:{}", folder.path().join("torch/lib").display());
        assert_eq!(check(&binary, Some(OsStr::new(&paths)), cpu), Ok(()));
    }

    #[test]
    fn a_cpu_without_avx_is_refused() {
        let (_folder, binary) = packages("2.11.0");
        let old = "flags\t\t: fpu sse avx2x\n";
        assert_eq!(
            check(&binary, None, || old.to_owned()),
            Err(UnfitInstall::NoAvx)
        );
        assert_eq!(check(&binary, None, String::new), Ok(()), "unknown flags");
    }

    #[test]
    fn a_program_built_from_the_source_is_not_judged() {
        assert_eq!(
            check(Path::new("/x/target/release/rrun-rank"), None, String::new),
            Ok(())
        );
    }
}
