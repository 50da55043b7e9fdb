//! Checks the Pythons of simulators and policies: each imports what its workers import.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jobs::count::counted;
use jobs::file::JobFile;
use jobs::finding::Finding;
use jobs::rules;
use jobs::secrets;
use serde::Deserialize;

use crate::cli::Environment;
use crate::installed::suites;
use crate::plan::missing::{self, NeededPython};
use crate::process::timed;
use crate::tools::doctor::Site;
use crate::tools::doctor::check::at_once;

/// Imports the modules in its arguments, and prints what came of it behind [`ANSWER`].
const SCRIPT: &str = "\
import importlib, json, platform, sys
imported, failed = {}, {}
for name in sys.argv[1:]:
    try: imported[name] = str(getattr(importlib.import_module(name), '__version__', ''))
    except BaseException as err: failed[name] = f'{type(err).__name__}: {err}'
answer = {'python': platform.python_version(), 'imported': imported, 'failed': failed}
print('\\nrrun-doctor', json.dumps(answer), flush=True)
";

/// The beginning of the line with the answer; modules may print more lines.
const ANSWER: &str = "rrun-doctor ";

/// What is imported in the venvs that the installers of `jobs/suites` make.
const MODULES: [(&str, &[&str]); 7] = [
    ("pusht", &["gymnasium", "gym_pusht"]),
    ("pusher", &["gymnasium", "mujoco"]),
    ("fetch", &["gymnasium", "gymnasium_robotics"]),
    ("metaworld", &["gymnasium", "metaworld"]),
    ("aloha", &["gymnasium", "gym_aloha"]),
    ("libero", &["robosuite", "libero"]),
    ("lerobot", &["numpy", "lerobot"]),
];

/// The variable that says by what MuJoCo renders.
const RENDERER: &str = "MUJOCO_GL";

/// Most characters of an error of Python.
const ERROR_LENGTH: usize = 200;

/// The answer of an interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct PythonAnswer {
    python: String,
    /// Versions by module, empty if unknown.
    imported: BTreeMap<String, String>,
    /// Errors by module.
    failed: BTreeMap<String, String>,
}

/// Examines the interpreters that a jobs file names, or those that the installers have made.
pub(super) fn examine(site: &Site) -> Vec<Finding> {
    let Some(jobs) = &site.jobs else {
        let venvs = venvs(site);
        if venvs.is_empty() {
            return vec![Finding::note("Python", NO_VENVS)];
        }
        return all_imported(&venvs, site.timeout);
    };
    match needed(jobs, &site.env, site.visible_gpus()) {
        Ok((first, pythons)) => {
            let named =
                |python: NeededPython| (format!("Python {}", short(&python.python)), python);
            let pythons: Vec<_> = pythons.into_iter().map(named).collect();
            [vec![first], all_imported(&pythons, site.timeout)].concat()
        }
        Err(reason) => {
            let remedy = "correct the jobs file, or install what is missing";
            vec![Finding::failed("jobs", reason, remedy)]
        }
    }
}

fn all_imported(pythons: &[(String, NeededPython)], timeout: Duration) -> Vec<Finding> {
    at_once(pythons, |(name, python)| {
        vec![imported(name, python, timeout)]
    })
}

/// Reads a jobs file and checks it as a launch does. Returns the interpreters that it needs.
fn needed(
    path: &Path,
    env: &Environment,
    gpus: usize,
) -> Result<(Finding, Vec<NeededPython>), String> {
    let file = JobFile::read(path).map_err(|err| err.to_string())?;
    let of_file = |reason: String| format!("`{}`: {reason}", path.display());
    secrets::check(&file.jobs, file.model_server.as_ref())
        .map_err(|err| of_file(err.to_string()))?;
    let jobs = file.jobs;
    rules::check(&jobs, path).map_err(|err| err.to_string())?;
    let pythons = missing::pythons(&jobs, env, gpus).map_err(|err| of_file(err.to_string()))?;
    let found = format!(
        "`{}`: {}, and the files that they name",
        path.display(),
        counted(jobs.len(), "job")
    );
    Ok((Finding::ok("jobs", found), pythons))
}

/// Returns the interpreters of the venvs that the installers have made, by name. Those in the
/// working directory may be a stranger's, so only the installers' own folders are looked into.
fn venvs(site: &Site) -> Vec<(String, NeededPython)> {
    let suites = suites(&site.node.executable);
    let root = suites.and_then(|suites| suites.ancestors().nth(2).map(Path::to_owned));
    let folder = |variable: &str, usual: &str| {
        let given = site.env.non_empty(variable).map(PathBuf::from);
        given.or_else(|| Some(root.as_ref()?.join(usual)))
    };
    let simulators = in_folder("simulator", folder("RRUN_SIMULATORS", ".simulators"));
    let policies = in_folder("policy", folder("RRUN_POLICIES", ".policies"));
    [simulators, policies].concat()
}

/// What is said without venvs.
const NO_VENVS: &str = "no venvs of simulators or policies; --jobs FILE checks those that a jobs \
                        file names";

/// Returns the interpreters of the venvs that an installer has made in a folder, by name.
fn in_folder(what: &str, folder: Option<PathBuf>) -> Vec<(String, NeededPython)> {
    let entries = folder.and_then(|folder| folder.read_dir().ok());
    let mut venvs: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|venv| venv.join("bin/python").exists())
        .collect();
    venvs.sort();
    let needed = venvs.into_iter().map(|venv| {
        let name = venv.file_name().unwrap_or_default().to_string_lossy();
        let known = MODULES.into_iter().find(|(known, _)| *known == name);
        let modules = known.map_or(&["gymnasium"] as &[_], |(_, modules)| modules);
        let python = NeededPython {
            python: venv.join("bin/python"),
            modules: modules.iter().map(|name| (*name).to_owned()).collect(),
            ..NeededPython::default()
        };
        (format!("{what} {name}"), python)
    });
    needed.collect()
}

/// Imports in an interpreter what its workers import.
fn imported(name: &str, needed: &NeededPython, timeout: Duration) -> Finding {
    let mut command = needed.command();
    command.args(["-c", SCRIPT]).args(&needed.modules);
    // As ranks do: MuJoCo's default is a window.
    let is_given = needed.variables.iter().any(|(name, _)| name == RENDERER);
    if !is_given && std::env::var_os(RENDERER).is_none() {
        command.env(RENDERER, "egl");
    }
    let answer = match timed::run(&mut command, timeout) {
        Ok(ended) => answer(&ended.stdout).ok_or_else(|| {
            let last = ended.stderr.lines().rfind(|line| !line.trim().is_empty());
            format!(
                "it ended with {}: {}",
                ended.status,
                last.unwrap_or_default()
            )
        }),
        Err(err) => Err(format!("{err:#}")),
    };
    judged(name, needed, answer)
}

fn answer(stdout: &str) -> Option<PythonAnswer> {
    let line = stdout
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(ANSWER))?;
    serde_json::from_str(line).ok()
}

fn judged(name: &str, needed: &NeededPython, answer: Result<PythonAnswer, String>) -> Finding {
    let python = needed.python.display();
    let user = match needed.user.as_str() {
        "" => String::new(),
        user => format!(" for {user}"),
    };
    let remedy = format!("try `{python} -c 'import {}'`", needed.modules.join(", "));
    let answer = match answer {
        Ok(answer) => answer,
        Err(reason) => {
            let found = format!("`{python}`{user}: {reason}");
            return Finding::failed(name, found, remedy);
        }
    };
    let version = &answer.python;
    if let Some((module, error)) = answer.failed.iter().next() {
        let error: String = error.chars().take(ERROR_LENGTH).collect();
        let found = format!("`{python}` ({version}){user} does not import {module}: {error}");
        let remedy = match error.starts_with("ModuleNotFoundError") {
            true => format!(
                "install {module} there with `{python} -m pip install`, or name another interpreter"
            ),
            false => remedy,
        };
        return Finding::failed(name, found, remedy);
    }
    let modules = answer.imported.iter().map(|(module, version)| {
        let with_version = format!("{module} {version}");
        with_version.trim_end().to_owned()
    });
    let modules: Vec<String> = modules.collect();
    let modules = modules.join(", ");
    Finding::ok(
        name,
        format!("`{python}` ({version}){user} imports {modules}"),
    )
}

/// Returns a name for an interpreter: that of its venv, or its own.
fn short(python: &Path) -> String {
    let venv = python
        .parent()
        .filter(|folder| folder.ends_with("bin"))
        .and_then(Path::parent)
        .filter(|venv| venv.join("pyvenv.cfg").exists())
        .and_then(Path::file_name);
    let name = venv.or_else(|| python.file_name()).unwrap_or_default();
    name.to_string_lossy().into_owned()
}
