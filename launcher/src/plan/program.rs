//! The program that each rank executes.
//!
//! ```text
//! script          <python> -u script args…
//! -m              <python> -u -m module args…
//! --no-python     program args…
//! --run-path      <python> -c <run_path.py> script args…     overrides the two above
//! eval, serve     rrun-rank eval args…                       a plain word without the flags above
//! merge, report…  nothing: a tool, refused behind options
//! ```
//! `${local_rank}` is substituted in the user's words if they are arguments of a foreign program.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use jobs::programs::{find, folders, is_executable};

use crate::cli::built_in::meant_by;
use crate::cli::commands::is_tool;
use crate::cli::{Cli, Environment};
use crate::installed::{self, rank_binary};
use crate::node::Node;
use crate::template::substitute;

/// Runs a script by runpy and records its exception, as torchrun's `run_script_path` does.
const RUN_PATH: &str = include_str!("run_path.py");

/// Names of the interpreter, in order of preference.
const NAMES: [&str; 2] = ["python3", "python"];

/// Files that mark an environment: one of `venv`, one of conda.
const ENVIRONMENT_MARKS: [&str; 2] = ["pyvenv.cfg", "conda-meta"];

/// A program to execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name in a failure report.
    pub title: String,
    /// Leading words, in which nothing is substituted.
    fixed: Vec<OsString>,
    /// Further words, in which `${local_rank}` is substituted.
    templates: Vec<OsString>,
}

impl Program {
    /// Returns the program that `cli` asks for.
    ///
    /// # Errors
    /// Returns an error for flags that exclude each other, and if the program or interpreter is not
    /// found.
    pub fn new(cli: &Cli, env: &Environment, node: &Node) -> anyhow::Result<Program> {
        if cli.is_built_in() {
            return built_in(cli, env, node);
        }
        if let Some(word) = cli.built_in() {
            refuse_word(word)?;
        }
        let title = cli.program.to_string_lossy().into_owned();
        let python = || interpreter(env, node);
        let (title, fixed) = match (cli.run_path, cli.no_python, cli.module) {
            (true, ..) => {
                let fixed = vec![python()?, "-c".into(), RUN_PATH.into()];
                ("run_script_path".to_owned(), fixed)
            }
            (false, true, true) => bail!(
                "Don't use both the '--no-python' flag and the '--module' flag at the same time."
            ),
            (false, true, false) => {
                let found = find(cli.program.as_ref(), env.get("PATH"));
                ensure!(found.is_some(), "No such file or directory: '{title}'");
                return Ok(Program {
                    title,
                    fixed: vec![cli.program.clone()],
                    templates: cli.args.clone(),
                });
            }
            (false, false, true) => (title, vec![python()?, "-u".into(), "-m".into()]),
            (false, false, false) => (title, vec![python()?, "-u".into()]),
        };
        let words = [&cli.program].into_iter().chain(&cli.args);
        Ok(Program {
            title,
            fixed,
            templates: words.cloned().collect(),
        })
    }

    /// Returns the program and arguments of one rank.
    pub fn argv(&self, local_rank: usize) -> Vec<OsString> {
        let rank = |name: &[u8]| (name == b"local_rank").then(|| local_rank.to_string());
        let filled = self.templates.iter().map(|word| substitute(word, rank));
        self.fixed.iter().cloned().chain(filled).collect()
    }
}

/// Refuses a plain word that is certainly no program: a tool behind options, a jobs file, which
/// Python would run without an error, and a misspelt command.
fn refuse_word(word: &str) -> anyhow::Result<()> {
    let extension = Path::new(word).extension().and_then(OsStr::to_str);
    ensure!(
        !is_tool(word),
        "`{word}` is a tool and takes no launch options: write it first, for example `rrun {word} \
         --help`; a file is ./{word}"
    );
    ensure!(
        !matches!(extension, Some("json" | "yaml" | "yml")),
        "`{word}` is no script; `rrun eval --jobs {word}` runs the jobs of a file"
    );
    match meant_by(word.as_ref()) {
        Some(meant) => bail!("there is no file `{word}`; did you mean `rrun {meant}`?"),
        None => Ok(()),
    }
}

fn built_in(cli: &Cli, env: &Environment, node: &Node) -> anyhow::Result<Program> {
    let binary = rank_binary(&node.executable).map_err(|missing| {
        anyhow!(
            "`{}` is missing; it runs `rrun eval` and `rrun serve`, and must be in the same folder \
             as `rrun`, or in the Python package `rrun` of the same venv",
            missing.display()
        )
    })?;
    let cpuinfo = || std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    installed::check(&binary, env.get("LD_LIBRARY_PATH"), cpuinfo)?;
    let words = [binary.as_os_str(), &cli.program].map(OsStr::to_owned);
    Ok(Program {
        title: cli.program.to_string_lossy().into_owned(),
        fixed: words.into_iter().chain(cli.args.clone()).collect(),
        templates: Vec::new(),
    })
}

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
pub fn interpreter(env: &Environment, node: &Node) -> anyhow::Result<OsString> {
    if let Some(given) = env.get("PYTHON_EXEC") {
        return Ok(given.to_owned());
    }
    let beside = [&node.called_as, &node.executable]
        .into_iter()
        .find_map(|rrun| beside(rrun));
    let found = beside.or_else(|| folders(env.get("PATH")).find_map(|folder| python_in(&folder)));
    let found = found.or_else(|| python_in(&Path::new(env.non_empty("VIRTUAL_ENV")?).join("bin")));
    found
        .map(PathBuf::into_os_string)
        .context("no python3 or python in PATH; activate an environment or set PYTHON_EXEC")
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::tests::environment;

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

    /// Returns the interpreter for an `rrun` that was called by this path.
    fn python_of(rrun: &Path, variables: &[(&str, &str)]) -> Option<OsString> {
        let node = Node {
            executable: "/opt/rrun".into(),
            called_as: rrun.to_path_buf(),
            ..Node::default()
        };
        interpreter(&environment(variables.iter().copied()), &node).ok()
    }

    /// Joins folders as in `PATH`.
    fn path(folders: &[&Path]) -> String {
        let path = std::env::join_paths(folders).unwrap();
        path.into_string().unwrap()
    }

    #[test]
    fn rrun_of_an_environment_runs_its_interpreter_whatever_is_active() {
        let venv = folder(&["bin/python", "pyvenv.cfg"]);
        let other = folder(&["bin/python3"]);
        let active = path(&[&other.path().join("bin")]);
        let root = path(&[other.path()]);
        let variables = [("VIRTUAL_ENV", &*root), ("PATH", &active)];
        let rrun = venv.path().join("bin/rrun");
        let own = Some(venv.path().join("bin/python").into());
        assert_eq!(python_of(&rrun, &variables), own);
        let node = Node {
            executable: rrun.clone(),
            called_as: rrun.clone(),
            ..Node::default()
        };
        assert_eq!(interpreter(&environment(variables), &node).ok(), own);
        let chosen = [("PYTHON_EXEC", "mypython"), ("PATH", "")];
        assert_eq!(
            python_of(&rrun, &chosen),
            Some("mypython".into()),
            "unchecked"
        );
    }

    #[test]
    fn elsewhere_the_first_of_path_counts() {
        let rrun = Path::new("/nonexistent/bin/rrun");
        let (system, active) = (folder(&["bin/python"]), folder(&["bin/python"]));
        let (first, both) = (folder(&["python"]), folder(&["python", "python3"]));
        let bin = |folder: &tempfile::TempDir| folder.path().join("bin");
        // A folder that is no environment's leaves it to PATH.
        let found = python_of(
            &bin(&system).join("rrun"),
            &[("PATH", &path(&[&bin(&active), &bin(&system)]))],
        );
        assert_eq!(found, Some(bin(&active).join("python").into()));
        // A variable that stayed behind does not beat PATH.
        let stale = path(&[active.path()]);
        let of = |path: &str| python_of(rrun, &[("VIRTUAL_ENV", &stale), ("PATH", path)]);
        let found = of(&path(&[first.path(), both.path()]));
        assert_eq!(found, Some(first.path().join("python").into()));
        let found = of("/nonexistent");
        assert_eq!(found, Some(bin(&active).join("python").into()));
        // python3 comes before python.
        let found = of(&path(&[both.path()]));
        assert_eq!(found, Some(both.path().join("python3").into()));
        assert_eq!(python_of(rrun, &[("PATH", "/nonexistent")]), None);
    }
}
