//! What was installed with the launcher, see [`jobs::installed`], and whether the packages beside an
//! installed `rrun-rank` are those that it was built for. The dynamic linker would only name a
//! symbol.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};

use jobs::installed::is_torch_of_ours;
pub use jobs::installed::{IN_SOURCE, rank_binary, suites};

/// What installs a matching torch.
const PIP_TORCH: &str = "pip install 'torch>=2.11,<2.13'";

/// libmujoco's file, whose name has the version.
const MUJOCO: &str = "libmujoco.so.3.17.0";

/// The flag in `/proc/cpuinfo` of the instructions that MuJoCo was compiled for.
const AVX: &str = "avx";

/// Returns the folder of the examples and installers, as a command line names it.
///
/// # Errors
/// Returns an error if this program is not known.
pub fn examples() -> io::Result<Option<PathBuf>> {
    let Some(folder) = suites(&std::env::current_exe()?) else {
        return Ok(None);
    };
    let in_source = Path::new(IN_SOURCE);
    let is_source = match (folder.canonicalize(), in_source.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    };
    Ok(Some(if is_source { in_source.into() } else { folder }))
}

/// Returns the command that makes the venv or checkpoint at a path, as the examples name it:
/// `.simulators/pusht`; `folder` has the installers.
pub fn install_command(path: &str, folder: &Path) -> Option<String> {
    let mut parts = path.split('/');
    let (root, name) = (parts.next()?, parts.next()?);
    let (installer, variable, names) = match root {
        ".simulators" => ("simulators/install.sh", "RRUN_SIMULATORS", name),
        ".policies" => ("policies/install.sh", "RRUN_POLICIES", ""),
        _ => return None,
    };
    let installer = folder.join(installer);
    let command = format!("{} {names}", installer.display());
    let command = command.trim_end();
    if folder == Path::new(IN_SOURCE) {
        Some(command.to_owned())
    } else if installer.is_file() {
        Some(format!("{variable}={root} {command}"))
    } else {
        None
    }
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
) -> anyhow::Result<()> {
    let package = binary.parent().filter(|folder| folder.ends_with("rrun"));
    let Some(packages) = package.and_then(Path::parent) else {
        return Ok(());
    };
    let mut elsewhere = library_path.into_iter().flat_map(std::env::split_paths);
    if elsewhere.any(|folder| folder.join("libtorch_cpu.so").is_file()) {
        return Ok(());
    }

    let torch = packages.join("torch");
    let path = torch.display();
    ensure!(
        torch.join("lib/libtorch_cpu.so").is_file(),
        "`{path}` is missing: the package torch must be in the same folder as the package rrun \
         ({PIP_TORCH})"
    );
    if let Some(found) = torch_version(&torch)
        && !is_torch_of_ours(&found)
    {
        bail!("`{path}` is torch {found}, expected 2.11 or 2.12 ({PIP_TORCH})");
    }
    let mujoco = packages.join("mujoco").join(MUJOCO);
    ensure!(
        mujoco.is_file(),
        "`{}` is missing: the package mujoco 3.17.0 must be in the same folder as the package \
         rrun (pip install mujoco==3.17.0)",
        mujoco.display()
    );
    let cpuinfo = cpuinfo();
    let mut flags = cpuinfo.lines().filter(|line| line.starts_with("flags"));
    let lacks_avx = |flags: &str| !flags.split_whitespace().any(|flag| flag == AVX);
    ensure!(
        !flags.next().is_some_and(lacks_avx),
        "this CPU has no AVX instructions, which MuJoCo needs"
    );
    Ok(())
}

/// Returns the version that the package torch gives in its `version.py`.
fn torch_version(torch: &Path) -> Option<String> {
    let text = std::fs::read_to_string(torch.join("version.py")).ok()?;
    let mut lines = text.lines();
    let version = lines.find_map(|line| line.strip_prefix("__version__ = "))?;
    Some(version.trim_matches(['\'', '"']).to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn cpu() -> String {
        "processor: 0\nflags\t\t: fpu sse avx avx2\n".to_owned()
    }

    /// Returns why a program is refused; nothing if it is not.
    fn refusal(
        binary: &Path,
        library_path: Option<&OsStr>,
        cpuinfo: impl FnOnce() -> String,
    ) -> String {
        let checked = check(binary, library_path, cpuinfo);
        checked.map_or_else(|err| err.to_string(), |()| String::new())
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
            let refused = refusal(&binary, None, cpu);
            assert_eq!(refused.is_empty(), is_accepted, "{refused}");
            let named = format!("is torch {version}, expected 2.11 or 2.12");
            assert!(is_accepted || refused.contains(&named), "{refused}");
        }
    }

    #[test]
    fn a_missing_package_is_named() {
        let (folder, binary) = packages("2.11.0");
        for package in ["mujoco/libmujoco.so.3.17.0", "torch"] {
            let path = folder.path().join(package);
            let removed = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
            removed.unwrap();
            let refused = refusal(&binary, None, cpu);
            let named = format!("`{}` is missing: the package ", path.display());
            assert!(refused.starts_with(&named), "{refused}");
        }
    }

    #[test]
    fn a_libtorch_in_the_library_path_is_not_judged() {
        let (folder, binary) = packages("2.13.0");
        let paths = format!("/nowhere:{}", folder.path().join("torch/lib").display());
        assert_eq!(refusal(&binary, Some(OsStr::new(&paths)), cpu), "");
    }

    #[test]
    fn a_cpu_without_avx_is_refused() {
        let (_folder, binary) = packages("2.11.0");
        let old = || "flags\t\t: fpu sse avx2x\n".to_owned();
        assert!(refusal(&binary, None, old).contains("no AVX instructions"));
        assert_eq!(refusal(&binary, None, String::new), "", "unknown flags");
    }

    #[test]
    fn installers_are_named_as_far_as_they_are_there() {
        let source = Path::new(IN_SOURCE);
        assert_eq!(
            install_command(".simulators/libero", source).as_deref(),
            Some("jobs/suites/simulators/install.sh libero")
        );
        assert_eq!(
            install_command(".policies/checkpoints/act", source).as_deref(),
            Some("jobs/suites/policies/install.sh")
        );
        assert_eq!(install_command("outputs/policy", source), None);
        let package = tempfile::tempdir().unwrap();
        assert_eq!(install_command(".simulators/libero", package.path()), None);
    }

    #[test]
    fn a_program_built_from_the_source_is_not_judged() {
        let binary = Path::new("/x/target/release/rrun-rank");
        assert_eq!(refusal(binary, None, String::new), "");
    }
}
