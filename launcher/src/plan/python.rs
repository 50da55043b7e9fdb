//! Which interpreter runs a script, and where an executable is.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::cli::Environment;
use crate::plan::error::PlanError;

/// What `execvp` searches without a `PATH` (glibc's `_CS_PATH`).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// `PYTHON_EXEC`, else that of the active virtual environment, else `python3` or `python` from `PATH`. Torchrun takes the
/// interpreter that it runs in; we have none.
///
/// # Errors
/// None of these.
pub fn interpreter(env: &Environment) -> Result<OsString, PlanError> {
    if let Some(given) = env.get("PYTHON_EXEC") {
        return Ok(given.to_owned());
    }
    let venv = env.non_empty("VIRTUAL_ENV").map(|folder| Path::new(folder).join("bin/python"));
    if let Some(python) = venv.filter(|python| is_executable(python)) {
        return Ok(python.into());
    }
    let found = ["python3", "python"].into_iter().find_map(|name| find(OsStr::new(name), env));
    found.map(PathBuf::into_os_string).ok_or(PlanError::NoPython)
}

/// The file that `execvp(program)` would take: `program` itself if it has a slash, else the first in `PATH`.
pub fn find(program: &OsStr, env: &Environment) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| is_executable(path));
    }
    let path = env.get("PATH").unwrap_or(OsStr::new(DEFAULT_PATH));
    std::env::split_paths(path).map(|folder| folder.join(program)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A folder with executables of these names in it.
    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder
    }

    fn text(path: &Path) -> &str {
        path.to_str().unwrap()
    }

    #[test]
    fn the_variable_wins_unchecked() {
        let env = Environment::from([("PYTHON_EXEC", "mypython"), ("PATH", "")]);
        assert_eq!(interpreter(&env), Ok("mypython".into()));
    }

    #[test]
    fn an_active_virtual_environment_comes_before_path() {
        let (venv, bin) = (folder(&["bin/python"]), folder(&["python3"]));
        let env = Environment::from([("VIRTUAL_ENV", text(venv.path())), ("PATH", text(bin.path()))]);
        assert_eq!(interpreter(&env), Ok(venv.path().join("bin/python").into()));
    }

    #[test]
    fn python3_comes_before_python() {
        let (both, one) = (folder(&["python", "python3"]), folder(&["python"]));
        let env =
            |folder: &tempfile::TempDir| Environment::from([("PATH", text(folder.path())), ("VIRTUAL_ENV", "/no")]);
        assert_eq!(interpreter(&env(&both)), Ok(both.path().join("python3").into()));
        assert_eq!(interpreter(&env(&one)), Ok(one.path().join("python").into()));
    }

    #[test]
    fn without_any_the_launch_is_refused() {
        assert_eq!(interpreter(&Environment::from([("PATH", "/nonexistent")])), Err(PlanError::NoPython));
    }

    #[test]
    fn a_program_is_found_by_path_or_by_its_own_slash() {
        let bin = folder(&["prog"]);
        fs::write(bin.path().join("plain"), "").unwrap();
        let env = Environment::from([("PATH", text(bin.path()))]);
        assert_eq!(find(OsStr::new("prog"), &env), Some(bin.path().join("prog")));
        assert_eq!(find(OsStr::new("plain"), &env), None);
        assert_eq!(find(OsStr::new("./prog"), &env), None);
        assert_eq!(find(bin.path().join("prog").as_os_str(), &Environment::default()), Some(bin.path().join("prog")));
    }
}
