//! Where the files are that come with `rrun`: the binary of a rank, and the suites.
//!
//! ```text
//!                          rank                                  suites
//! target/release/rrun      target/release/rrun-rank              jobs/suites            from the source
//! <prefix>/bin/rrun        <prefix>/lib/python3.X/site-packages/rrun/{rrun-rank, suites}  from pip
//! /usr/local/bin/rrun      /usr/local/lib/python3.X/dist-packages/rrun/…          with Debian's pip
//! ```
//! Jobs files and the documentation name the suites by their place in the source, `jobs/suites/…`.
//! Such a path is looked for in the working directory, then in what is installed, so that the same
//! words work from anywhere.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;

use crate::tree;

/// The folder of the suites in the source, as paths name it.
pub const IN_SOURCE: &str = "jobs/suites";

/// The binary that runs one rank of a built-in program.
const RANK_BINARY: &str = "rrun-rank";

/// The versions of torch that `rrun-rank` runs with: 2.10 is for CUDA 12, and 2.13 lacks a symbol.
pub const TORCH: [&str; 2] = ["2.11", "2.12"];

/// What to do without such a torch.
pub const INSTALL_TORCH: &str = "`pip install 'torch>=2.11,<2.13'` into the venv of rrun (in the \
                                 source: ./setup.sh)";

/// Returns whether `rrun-rank` runs with this version of torch.
pub fn is_torch_of_ours(version: &str) -> bool {
    is_torch_of(&TORCH, version)
}

/// Returns whether a version of torch has one of these major and minor numbers.
pub fn is_torch_of(minors: &[&str], version: &str) -> bool {
    let mut rests = minors
        .iter()
        .filter_map(|minor| version.strip_prefix(minor));
    rests.any(|rest| rest.is_empty() || rest.starts_with('.'))
}

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
    installed(executable).ok_or(beside)
}

/// Returns the folder with the suites for a launcher or rank at `executable`, if it is there.
pub fn suites(executable: &Path) -> Option<PathBuf> {
    let of_rank = Some(executable.with_file_name("suites"));
    let of_launcher = installed(executable).map(|binary| binary.with_file_name("suites"));
    let root = executable.ancestors().nth(3);
    let in_source = root.map(|root| root.join(IN_SOURCE));
    let mut folders = [of_rank, of_launcher, in_source].into_iter().flatten();
    folders.find(|folder| folder.join("demo.json").is_file())
}

/// Returns where a path leads: one that begins with `jobs/suites/` and does not exist leads into
/// the suites that are installed with this program. Of `file.py:factory` the file counts.
pub fn found(path: &str) -> Cow<'_, str> {
    match installed_suites() {
        Some(suites) => found_in(suites, path),
        None => Cow::Borrowed(path),
    }
}

/// Returns the suites that are installed with this program.
fn installed_suites() -> Option<&'static Path> {
    static SUITES: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = || suites(&std::env::current_exe().ok()?);
    SUITES.get_or_init(found).as_deref()
}

/// Applies [`found`] to a path.
pub fn found_path(path: &Path) -> Cow<'_, Path> {
    match path.to_str().map(found) {
        Some(Cow::Owned(path)) => Cow::Owned(path.into()),
        Some(Cow::Borrowed(_)) | None => Cow::Borrowed(path),
    }
}

/// Applies [`found`] to all texts of a JSON value.
pub fn find_all(value: &mut Value) {
    if let Some(suites) = installed_suites() {
        find_all_in(suites, value);
    }
}

/// Applies [`found`] to all texts of a JSON value, with the suites of a folder.
pub fn find_all_in(suites: &Path, value: &mut Value) {
    tree::each_text_mut(value, &mut |text| {
        if let Cow::Owned(path) = found_in(suites, text) {
            *text = path;
        }
    });
}

fn found_in<'a>(suites: &Path, path: &'a str) -> Cow<'a, str> {
    let rest = path
        .strip_prefix(IN_SOURCE)
        .and_then(|rest| rest.strip_prefix('/'));
    let Some(rest) = rest else {
        return Cow::Borrowed(path);
    };
    let file = |text: &'a str| text.split(':').next().unwrap_or(text);
    if Path::new(file(path)).exists() || !suites.join(file(rest)).exists() {
        return Cow::Borrowed(path);
    }
    Cow::Owned(suites.join(rest).to_string_lossy().into_owned())
}

/// Returns `rrun-rank` of the Python package.
fn installed(executable: &Path) -> Option<PathBuf> {
    let prefix = executable.parent()?.parent()?;
    let libraries = ["lib", "lib64"].map(|library| prefix.join(library));
    let folders = libraries
        .iter()
        .filter_map(|library| library.read_dir().ok());
    let mut found: Vec<((u32, u32), PathBuf)> = Vec::new();
    for folder in folders.flatten().flatten() {
        let Some(version) = python_version(&folder.file_name().to_string_lossy()) else {
            continue;
        };
        for packages in ["site-packages", "dist-packages"] {
            let binary = folder.path().join(packages).join("rrun").join(RANK_BINARY);
            found.extend(binary.is_file().then_some((version, binary)));
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
    fn touch(folder: &tempfile::TempDir, file: &str) -> PathBuf {
        let file = folder.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        file
    }

    #[test]
    fn the_binary_beside_the_launcher_or_in_the_package_of_the_newest_python_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let executable = folder.path().join("bin/rrun");
        let beside = folder.path().join("bin/rrun-rank");
        assert_eq!(rank_binary(&executable), Err(beside));
        for file in [
            "lib/python3.9/dist-packages/rrun/rrun-rank",
            "lib64/python3.12/site-packages/rrun/rrun-rank",
            "bin/rrun-rank",
        ] {
            let file = touch(&folder, file);
            assert_eq!(rank_binary(&executable), Ok(file));
        }
    }

    #[test]
    fn the_suites_are_in_the_package_or_in_the_source() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(suites(&root.join("target/release/rrun")), None);

        touch(&folder, "jobs/suites/demo.json");
        let in_source = suites(&root.join("target/release/rrun"));
        assert_eq!(in_source, Some(root.join("jobs/suites")));

        touch(&folder, "lib/python3.12/site-packages/rrun/rrun-rank");
        let demo = touch(
            &folder,
            "lib/python3.12/site-packages/rrun/suites/demo.json",
        );
        let in_package = suites(&root.join("bin/rrun"));
        assert_eq!(in_package.as_deref(), demo.parent());
    }

    #[test]
    fn paths_of_the_source_lead_into_what_is_installed() {
        let folder = tempfile::tempdir().unwrap();
        let suites = folder.path().join("suites");
        touch(&folder, "suites/simulators/env.py");
        let installed = |rest: &str| format!("{}/{rest}", suites.display());
        for (path, wanted) in [
            ("jobs/suites/simulators", installed("simulators")),
            (
                "jobs/suites/simulators/env.py:make",
                installed("simulators/env.py:make"),
            ),
            ("jobs/suites/not_there", "jobs/suites/not_there".to_owned()),
            ("jobs/suites_of_mine", "jobs/suites_of_mine".to_owned()),
            (
                "/jobs/suites/simulators",
                "/jobs/suites/simulators".to_owned(),
            ),
        ] {
            assert_eq!(found_in(&suites, path), wanted, "{path}");
        }
    }

    #[test]
    fn other_folders_are_no_pythons() {
        assert_eq!(python_version("python3.12"), Some((3, 12)));
        for name in ["python3", "pypy3.10", "python3.x", "gconv"] {
            assert_eq!(python_version(name), None, "{name}");
        }
    }
}
