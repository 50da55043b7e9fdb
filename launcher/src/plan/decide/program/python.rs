//! Finds the Python interpreter for scripts, and looks up executables.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::cli::Environment;
use crate::node::Node;
use crate::plan::error::PlanError;

/// The search path of `execvp` without a `PATH` (glibc's `_CS_PATH`).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Names of the interpreter, in order of preference.
const NAMES: [&str; 2] = ["python3", "python"];

/// Files that mark an environment: one of `venv`, one of conda.
const ENVIRONMENT_MARKS: [&str; 2] = ["pyvenv.cfg", "conda-meta"];

/// Returns the Python interpreter for scripts. Torchrun uses the interpreter that it runs in; rrun
/// has none, so it uses the first of these:
///
/// ```text
/// PYTHON_EXEC              as torchrun
/// <venv>/bin/python        if rrun is in <venv>/bin, or was called by a link there
/// python3 or python        in the first folder of PATH that has one; active environments are first
/// $VIRTUAL_ENV/bin/python  if PATH has none
/// ```
/// `VIRTUAL_ENV` comes last because it may still be set when `PATH` has moved on to another
/// environment.
///
/// # Errors
/// Returns an error if there is none of these.
pub fn interpreter(env: &Environment, node: &Node) -> Result<OsString, PlanError> {
    if let Some(given) = env.get("PYTHON_EXEC") {
        return Ok(given.to_owned());
    }
    let beside = [&node.called_as, &node.executable]
        .into_iter()
        .find_map(|rrun| beside(rrun));
    let found = beside.or_else(|| folders(env).find_map(|folder| python_in(&folder)));
    let found = found.or_else(|| python_in(&Path::new(env.non_empty("VIRTUAL_ENV")?).join("bin")));
    found
        .map(PathBuf::into_os_string)
        .ok_or(PlanError::NoPython)
}

/// Returns the interpreter of the environment whose `bin` folder contains this file. A folder such
/// as `/usr/bin` belongs to no environment; there the active environment counts.
fn beside(rrun: &Path) -> Option<PathBuf> {
    let bin = rrun.parent()?;
    let environment = bin.parent()?;
    ENVIRONMENT_MARKS
        .iter()
        .any(|mark| environment.join(mark).exists())
        .then(|| bin.join("python"))
        .filter(|python| is_executable(python))
}

fn python_in(folder: &Path) -> Option<PathBuf> {
    NAMES
        .into_iter()
        .map(|name| folder.join(name))
        .find(|path| is_executable(path))
}

/// Returns the file that `execvp(program)` would execute: `program` itself if it contains a slash,
/// else the first match in `PATH`.
pub fn find(program: &OsStr, env: &Environment) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| is_executable(path));
    }
    folders(env)
        .map(|folder| folder.join(program))
        .find(|path| is_executable(path))
}

fn folders(env: &Environment) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(env.get("PATH").unwrap_or(OsStr::new(DEFAULT_PATH)))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Returns a folder that contains executables with these names.
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

    /// Returns the interpreter for an `rrun` at this path.
    fn python_of(rrun: &Path, env: &Environment) -> Result<OsString, PlanError> {
        let node = Node {
            executable: rrun.to_path_buf(),
            called_as: rrun.to_path_buf(),
            ..Node::default()
        };
        interpreter(env, &node)
    }

    fn elsewhere(env: &Environment) -> Result<OsString, PlanError> {
        python_of(Path::new("/nonexistent/bin/rrun"), env)
    }

    fn in_path(folders: &[&Path]) -> String {
        std::env::join_paths(folders)
            .unwrap()
            .into_string()
            .unwrap()
    }

    #[test]
    fn the_variable_wins_unchecked() {
        let (venv, env) = (
            folder(&["bin/python", "pyvenv.cfg"]),
            [("PYTHON_EXEC", "mypython"), ("PATH", "")],
        );
        assert_eq!(
            python_of(&venv.path().join("bin/rrun"), &Environment::from(env)),
            Ok("mypython".into())
        );
    }

    #[test]
    fn rrun_of_an_environment_runs_its_interpreter_whatever_is_active() {
        let (venv, other) = (
            folder(&["bin/python", "pyvenv.cfg"]),
            folder(&["bin/python3"]),
        );
        let path = in_path(&[&other.path().join("bin")]);
        let env = Environment::from([("VIRTUAL_ENV", text(other.path())), ("PATH", path.as_str())]);
        assert_eq!(
            python_of(&venv.path().join("bin/rrun"), &env),
            Ok(venv.path().join("bin/python").into())
        );
        let linked = Node {
            executable: "/opt/rrun".into(),
            called_as: venv.path().join("bin/rrun"),
            ..Node::default()
        };
        assert_eq!(
            interpreter(&env, &linked),
            Ok(venv.path().join("bin/python").into())
        );
    }

    #[test]
    fn a_folder_that_is_no_environment_s_leaves_it_to_path() {
        let (system, active) = (folder(&["bin/python"]), folder(&["bin/python"]));
        let path = in_path(&[&active.path().join("bin"), &system.path().join("bin")]);
        let env = Environment::from([("PATH", path.as_str())]);
        assert_eq!(
            python_of(&system.path().join("bin/rrun"), &env),
            Ok(active.path().join("bin/python").into())
        );
    }

    #[test]
    fn a_variable_that_stayed_behind_does_not_beat_path() {
        let (stale, first, later) = (
            folder(&["bin/python"]),
            folder(&["python"]),
            folder(&["python3"]),
        );
        let env =
            |path: &str| Environment::from([("VIRTUAL_ENV", text(stale.path())), ("PATH", path)]);
        let both = in_path(&[first.path(), later.path()]);
        assert_eq!(
            elsewhere(&env(&both)),
            Ok(first.path().join("python").into())
        );
        assert_eq!(
            elsewhere(&env("/nonexistent")),
            Ok(stale.path().join("bin/python").into())
        );
    }

    #[test]
    fn python3_comes_before_python() {
        let (both, one) = (folder(&["python", "python3"]), folder(&["python"]));
        let env = |folder: &tempfile::TempDir| {
            Environment::from([("PATH", text(folder.path())), ("VIRTUAL_ENV", "/no")])
        };
        assert_eq!(
            elsewhere(&env(&both)),
            Ok(both.path().join("python3").into())
        );
        assert_eq!(elsewhere(&env(&one)), Ok(one.path().join("python").into()));
    }

    #[test]
    fn without_any_the_launch_is_refused() {
        assert_eq!(
            elsewhere(&Environment::from([("PATH", "/nonexistent")])),
            Err(PlanError::NoPython)
        );
    }

    #[test]
    fn a_program_is_found_by_path_or_by_its_own_slash() {
        let bin = folder(&["prog"]);
        fs::write(bin.path().join("plain"), "").unwrap();
        let env = Environment::from([("PATH", text(bin.path()))]);
        assert_eq!(
            find(OsStr::new("prog"), &env),
            Some(bin.path().join("prog"))
        );
        assert_eq!(find(OsStr::new("plain"), &env), None);
        assert_eq!(find(OsStr::new("./prog"), &env), None);
        assert_eq!(
            find(bin.path().join("prog").as_os_str(), &Environment::default()),
            Some(bin.path().join("prog"))
        );
    }
}
