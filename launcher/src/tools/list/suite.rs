//! The suites: jobs files and configurations that come with `rrun`.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use jobs::count::{counted, listed};
use jobs::file::JobFile;
use jobs::installed;
use jobs::job::{Job, Length};
use jobs::refusal::Refusal;
use jobs::rlinf::Config;
use jobs::table::Table;
use serde_json::{Map, Value, json};

use crate::tools::list::environment::{ListedEnvironment, arguments};

/// The folder of the suites in the source.
pub(in crate::tools) const IN_SOURCE: &str = "jobs/suites";

/// Most names that a line about a suite has.
const NAMED: usize = 4;

/// A suite that was read.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) name: String,
    /// Its file, as a command line names it.
    pub(super) path: PathBuf,
    pub(super) jobs: Vec<Job>,
    /// The jobs as in the file, with the paths of this machine.
    document: Value,
}

/// Something that a suite uses and that has to be installed or made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    /// The path, as a job names it.
    pub(super) path: String,
    /// Whether it is there, seen from the working directory.
    pub(super) is_there: bool,
    /// The command that makes it, if there is one.
    pub(super) command: Option<String>,
}

/// Returns the files of the suites in a folder, sorted by name.
pub(super) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if matches!(ending, Some("json" | "yaml")) && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Returns the name of a suite.
pub(super) fn name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// Returns what a suite contains, in one line.
pub(super) fn about(path: &Path) -> String {
    match Suite::read(path) {
        Ok(suite) => suite.about(),
        Err(err) => format!("cannot be read: {err}"),
    }
}

impl Suite {
    /// Reads the file of a suite.
    pub(super) fn read(path: &Path) -> Result<Self, Refusal> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let is_source = is_same_folder(folder, Path::new(IN_SOURCE));
        let shown = match path.file_name() {
            Some(file) if is_source => Path::new(IN_SOURCE).join(file),
            _ => path.to_owned(),
        };
        let mut document = document(path)?;
        let jobs = JobFile::new(path, String::new(), &document)?.jobs;
        if !is_source {
            installed::find_all_in(folder, &mut document);
        }
        Ok(Self {
            name: name(path),
            path: shown,
            jobs,
            document,
        })
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// Returns what it contains, in one line.
    pub(super) fn about(&self) -> String {
        let environments = distinct(self.jobs.iter().map(|job| job.environment.as_str()));
        let policies = distinct(self.jobs.iter().map(|job| job.policy_type.as_str()));
        let mut text = format!(
            "{}: {} with {}",
            counted(self.jobs.len(), "job"),
            listed(&environments, NAMED),
            listed(&policies, NAMED)
        );
        let needed = self.requirements();
        let paths: Vec<&str> = needed.iter().map(|needed| needed.path.as_str()).collect();
        if !paths.is_empty() {
            let _ = write!(text, "; needs {}", listed(&paths, NAMED));
        }
        text
    }

    /// Returns what the suite needs, each path once: interpreters, and models that are not part of
    /// it.
    pub(super) fn requirements(&self) -> Vec<Requirement> {
        let texts = |map: &Map<String, Value>| -> Vec<String> {
            let found = ["python", "model_path"].map(|name| map.get(name).and_then(Value::as_str));
            found.into_iter().flatten().map(str::to_owned).collect()
        };
        let mut paths: Vec<String> = Vec::new();
        for job in &self.jobs {
            for path in [texts(&job.env_args), texts(&job.policy_config)].concat() {
                if !path.starts_with(IN_SOURCE) && !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
        let found = paths.into_iter().map(|path| Requirement {
            is_there: Path::new(&path).exists(),
            command: command(&path, self.folder()),
            path,
        });
        found.collect()
    }

    /// Returns a jobs file with the first job.
    pub(super) fn example(&self) -> String {
        let job = self.document["jobs"].get(0).cloned().unwrap_or_default();
        // A jobs file may have a model server, which its jobs need.
        let mut example = json!({"jobs": [job]});
        if let Some(server) = self.document.get("model_server") {
            example["model_server"] = server.clone();
        }
        format!("{example:#}")
    }

    /// Returns the command that runs all of it.
    pub(super) fn command(&self) -> String {
        let option = match self.path.extension().and_then(|ending| ending.to_str()) {
            Some("json") => "--jobs",
            _ => "--config",
        };
        format!("rrun eval {option} {}", self.path.display())
    }

    pub(super) fn description(&self) -> String {
        let mut text = format!("{}: {}\n\n", self.name, self.about());
        let rows: Vec<[String; 5]> = self.jobs.iter().map(row).collect();
        let head = ["Job", "Environment", "Copies", "Policy", "Length"];
        text.push_str(&Table::new(head, rows).grid());

        for needed in self.requirements().iter().filter(|needed| !needed.is_there) {
            let _ = match &needed.command {
                Some(command) => writeln!(text, "\n`{}` is missing: {command}", needed.path),
                None => writeln!(text, "\n`{}` is missing", needed.path),
            };
        }
        if let Some(job) = self.jobs.first()
            && let Some(environment) = ListedEnvironment::of(&job.environment)
        {
            let table = arguments(&environment.arguments(), Some(&given(job)));
            let _ = write!(
                text,
                "\nArguments of `{}`, of those that `rrun list {}` lists:\n\n{table}",
                job.name,
                environment.name()
            );
        }
        let _ = write!(
            text,
            "\nAll of it: {}\n\nA jobs file:\n\n{}",
            self.command(),
            self.example()
        );
        text
    }
}

/// Returns the jobs of a suite in the form of a jobs file.
fn document(path: &Path) -> Result<Value, Refusal> {
    let is_json = path.extension().is_some_and(|ending| ending == "json");
    if is_json {
        JobFile::read(path)?;
        let text = std::fs::read(path);
        let parsed = text.and_then(|text| Ok(serde_json::from_slice(&text)?));
        return parsed.map_err(|err| Refusal::at(format_args!("`{}`", path.display()), err));
    }
    let variable = |name: &str| std::env::var(name).ok();
    let config = Config::read(&[path.to_owned()], &[], &variable)?;
    config
        .jobs(None)
        .ok_or_else(|| Refusal::new(format_args!("`{}` has no jobs", path.display())))
}

/// Returns whether two paths lead to one folder that exists.
pub(in crate::tools) fn is_same_folder(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Returns the command that installs what a path of a suite in `folder` leads to.
pub(in crate::tools) fn command(path: &str, folder: &Path) -> Option<String> {
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

/// Returns the row of a job.
fn row(job: &Job) -> [String; 5] {
    let length = match job.length {
        Length::Episodes(count) => counted(count, "episode"),
        Length::Steps(count) => counted(count, "step"),
        Length::Policy => "that of its policy".to_owned(),
    };
    [
        job.name.clone(),
        job.environment.clone(),
        job.num_envs.to_string(),
        job.policy_type.clone(),
        length,
    ]
}

/// Returns the arguments of a job's environment, those of every environment included.
fn given(job: &Job) -> Map<String, Value> {
    let mut given = job.env_args.clone();
    given.insert("environment".to_owned(), job.environment.clone().into());
    given.insert("num_envs".to_owned(), job.num_envs.into());
    if let Some(cameras) = job.enable_cameras {
        given.insert("enable_cameras".to_owned(), cameras.into());
    }
    given
}

/// Returns the different names, in order.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(name: &str) -> Suite {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/suites"));
        Suite::read(&folder.join(name)).unwrap()
    }

    #[test]
    fn a_suite_says_what_it_needs() {
        let pusht = suite("pusht.json");
        let needed = pusht.requirements();
        assert_eq!(needed.len(), 1, "{needed:?}");
        assert_eq!(needed[0].path, ".simulators/pusht");
        let command = needed[0].command.as_deref().unwrap();
        assert!(
            command.starts_with("RRUN_SIMULATORS=.simulators /")
                && command.ends_with("/simulators/install.sh pusht"),
            "{command}"
        );
        assert_eq!(
            pusht.about(),
            "1 job: gym:gym_pusht/PushT-v0 with random_action; needs .simulators/pusht"
        );
    }

    #[test]
    fn installers_are_named_as_far_as_they_are_there() {
        let source = Path::new(IN_SOURCE);
        let of = |path: &str, folder: &Path| command(path, folder);
        assert_eq!(
            of(".simulators/libero", source).as_deref(),
            Some("jobs/suites/simulators/install.sh libero")
        );
        assert_eq!(
            of(".policies/checkpoints/act", source).as_deref(),
            Some("jobs/suites/policies/install.sh")
        );
        assert_eq!(of("outputs/policy", source), None);
        let package = tempfile::tempdir().unwrap();
        assert_eq!(of(".simulators/libero", package.path()), None);
    }

    #[test]
    fn files_of_another_folder_are_named_with_their_paths() {
        let example = suite("pusht.json").example();
        let mapping = "/../jobs/suites/simulators/pusht.yaml";
        assert!(example.contains(mapping), "{example}");
        assert!(!example.contains("\"jobs/suites"), "{example}");
    }

    #[test]
    fn a_configuration_is_a_suite_with_jobs() {
        let behavior = suite("behavior.yaml");
        assert_eq!(behavior.about(), "1 job: push with scripted");
        assert!(behavior.command().starts_with("rrun eval --config "));
        assert!(behavior.example().contains("\"total_num_envs\": 4"));
    }
}
