//! The examples: jobs files and configurations that come with `rrun`.

use std::io;
use std::path::Path;

use jobs::count::{counted, listed};
use jobs::file::JobFile;
use jobs::files::{self, MAX_DOCUMENT_BYTES};
use jobs::installed;
use jobs::job::{Job, Length};
use jobs::refusal::Refusal;
use jobs::rlinf::Config;
use serde_json::{Value, json};

use crate::installed::{IN_SOURCE, install_command};
use crate::tools::list::{CatalogueEntry, EntryJob, EntrySetting, Kind, Requirement, named};

/// Most names that a line about an example has.
const NAMED: usize = 4;

/// Returns the examples in a folder, sorted by name.
pub(super) fn all(folder: &Path) -> io::Result<Vec<CatalogueEntry>> {
    let mut paths = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if matches!(ending, Some("json" | "yaml")) && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths.iter().map(|path| example(path)).collect())
}

/// Returns the example in a file, whose line in the list says if it cannot be read.
fn example(path: &Path) -> CatalogueEntry {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    match read(path) {
        Ok(entry) => entry,
        Err(err) => CatalogueEntry::new(Kind::Example, name, format!("cannot be read: {err}")),
    }
}

fn read(path: &Path) -> Result<CatalogueEntry, Refusal> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut document = document(path)?;
    let jobs = JobFile::new(path, String::new(), &document)?.jobs;
    if folder != Path::new(IN_SOURCE) {
        installed::find_all_in(folder, &mut document);
    }
    let requirements = requirements(&jobs, folder);
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut entry = CatalogueEntry::new(Kind::Example, name, about(&jobs, &requirements));
    entry.documentation = "docs/evaluate.md".to_owned();
    entry.jobs = jobs.iter().map(entry_job).collect();
    entry.requirements = requirements;
    if let Some(job) = jobs.first()
        && let Some(environment) = named::environment(&job.environment)
    {
        let (name, of) = (&job.name, &environment.name);
        entry.title_of_settings =
            format!("Arguments of `{name}`, of those that `rrun list {of}` lists");
        entry.settings = here(job, environment.settings);
    }
    let option = match path.extension().is_some_and(|ending| ending == "json") {
        true => "--jobs",
        false => "--config",
    };
    entry.command = Some(format!("rrun eval {option} {}", path.display()));
    let mut first = json!({"jobs": [document["jobs"][0]]});
    // A jobs file may have a model server, which its jobs need.
    if let Some(server) = document.get("model_server") {
        first["model_server"] = server.clone();
    }
    entry.example = format!("{first:#}");
    Ok(entry)
}

/// Returns the jobs of an example in the form of a jobs file.
fn document(path: &Path) -> Result<Value, Refusal> {
    if path.extension().is_some_and(|ending| ending == "json") {
        JobFile::read(path)?;
        let read = files::read_json(path, MAX_DOCUMENT_BYTES);
        return read.map_err(|err| Refusal::in_file(path, err));
    }
    let variable = |name: &str| std::env::var(name).ok();
    let config = Config::read(&[path.to_owned()], &[], &variable)?;
    config
        .jobs(None)
        .ok_or_else(|| Refusal::new(format_args!("`{}` has no jobs", path.display())))
}

/// Returns what jobs are, in one line.
fn about(jobs: &[Job], requirements: &[Requirement]) -> String {
    let environments = distinct(jobs.iter().map(|job| job.environment.as_str()));
    let policies = distinct(jobs.iter().map(|job| job.policy_type.as_str()));
    let needed: Vec<&str> = requirements.iter().map(|one| one.path.as_str()).collect();
    let needs = match needed.is_empty() {
        true => String::new(),
        false => format!("; needs {}", listed(&needed, NAMED)),
    };
    format!(
        "{}: {} with {}{needs}",
        counted(jobs.len(), "job"),
        listed(&environments, NAMED),
        listed(&policies, NAMED)
    )
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

fn entry_job(job: &Job) -> EntryJob {
    let length = match job.length {
        Length::Episodes(count) => counted(count, "episode"),
        Length::Steps(count) => counted(count, "step"),
        Length::Policy => "as long as its policy".to_owned(),
    };
    EntryJob {
        name: job.name.clone(),
        task: job.environment.clone(),
        runs: format!("{length}, {} at once, {}", job.num_envs, job.policy_type),
    }
}

/// Returns the arguments that a job has of those of its environment.
fn here(job: &Job, arguments: Vec<EntrySetting>) -> Vec<EntrySetting> {
    let mut given = job.env_args.clone();
    given.insert("environment".to_owned(), job.environment.clone().into());
    given.insert("num_envs".to_owned(), job.num_envs.into());
    if let Some(cameras) = job.enable_cameras {
        given.insert("enable_cameras".to_owned(), cameras.into());
    }
    let with_value = |mut argument: EntrySetting| {
        argument.here = given.get(&argument.name).cloned();
        argument.here.is_some().then_some(argument)
    };
    arguments.into_iter().filter_map(with_value).collect()
}

/// Returns what jobs need, each path once: interpreters, and models that do not come with the examples
/// in `folder`.
fn requirements(jobs: &[Job], folder: &Path) -> Vec<Requirement> {
    let maps = jobs
        .iter()
        .flat_map(|job| [&job.env_args, &job.policy_config]);
    let values = maps.flat_map(|map| ["python", "model_path"].map(|name| map.get(name)));
    let paths = values.filter_map(|value| value?.as_str());
    let own = paths.filter(|path| !path.starts_with(IN_SOURCE));
    let own = distinct(own).into_iter();
    own.map(|path| requirement(path, folder)).collect()
}

/// Returns what a path needs; `folder` has the examples and the installers.
pub(super) fn requirement(path: &str, folder: &Path) -> Requirement {
    Requirement {
        path: path.to_owned(),
        is_there: is_there(path),
        command: install_command(path, folder),
    }
}

/// Returns whether something is there. A venv of a simulator is there when its installer has finished.
pub(super) fn is_there(path: &str) -> bool {
    match path.starts_with(".simulators/") {
        true => is_installed(path),
        false => Path::new(path).exists(),
    }
}

/// Returns whether a folder is a venv that `install.sh` finished.
pub(super) fn is_installed(venv: &str) -> bool {
    Path::new(venv).join("rrun-pins.txt").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> CatalogueEntry {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/suites"));
        read(&folder.join(name)).unwrap()
    }

    #[test]
    fn an_example_says_what_it_needs() {
        let pusht = of("pusht.json");
        let needed = &pusht.requirements;
        assert_eq!(needed.len(), 1, "{needed:?}");
        assert_eq!(needed[0].path, ".simulators/pusht");
        let command = needed[0].command.as_deref().unwrap();
        assert!(
            command.starts_with("RRUN_SIMULATORS=.simulators /")
                && command.ends_with("/simulators/install.sh pusht"),
            "{command}"
        );
        assert_eq!(
            pusht.about,
            "1 job: gym:gym_pusht/PushT-v0 with random_action; needs .simulators/pusht"
        );
    }

    #[test]
    fn a_venv_is_there_when_its_installer_has_finished() {
        let dir = tempfile::tempdir().unwrap();
        let venv = dir.path().to_str().unwrap();
        assert!(!is_installed(venv) && is_there(venv));
        std::fs::write(dir.path().join("rrun-pins.txt"), "").unwrap();
        assert!(is_installed(venv));
    }

    #[test]
    fn files_of_another_folder_are_named_with_their_paths() {
        let example = of("pusht.json").example;
        let mapping = "/../jobs/suites/simulators/pusht.yaml";
        assert!(example.contains(mapping), "{example}");
        assert!(!example.contains("\"jobs/suites"), "{example}");
    }

    #[test]
    fn a_configuration_is_an_example_with_jobs() {
        let behavior = of("behavior.yaml");
        assert_eq!(behavior.about, "1 job: push with scripted");
        assert!(behavior.command.unwrap().starts_with("rrun eval --config "));
        assert!(behavior.example.contains("\"total_num_envs\": 4"));
    }

    #[test]
    fn a_file_that_cannot_be_read_says_so_in_its_line() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("odd.json"), "{}").unwrap();
        let found = all(dir.path()).unwrap();
        assert_eq!(found[0].name, "odd");
        assert!(found[0].about.starts_with("cannot be read: "));
    }
}
