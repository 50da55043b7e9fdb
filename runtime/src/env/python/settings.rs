//! The settings of a Python environment: what a job says of it, checked.

use std::path::PathBuf;

use jobs::environments::{ARENAS, DECLARED_MEMORY, PythonEnvironment, mapping};
use jobs::job::Job;
use jobs::refusal::Refusal;
use jobs::rules;
use jobs::settings;
use jobs::settings::kinds::PyName;
use serde_json::{Map, Value};

use crate::python::{Variable, find_interpreter, read_variable};

/// The settings of a job's Python environment.
#[derive(Clone, Debug)]
pub struct PythonSettings {
    /// The job, whose environment is `gym:<id>`, `pkg.mod:factory`, `pkg.mod.factory` or
    /// `file.py:factory`.
    pub job: Job,
    /// What it says in its `arena_env_args`, as it is written there.
    pub given: PythonEnvironment,
    /// Modules to import first.
    pub imports: Vec<String>,
    /// Path of the Python interpreter.
    pub python: PathBuf,
    /// The mapping of observations and actions; validated, but not yet against the environment.
    pub mapping: Map<String, Value>,
    /// Environment variables of the process; a null value removes one.
    pub variables: Vec<Variable>,
    /// Names of fields without effect.
    pub ignored: Vec<String>,
}

impl PythonSettings {
    /// Reads the fields of a job.
    ///
    /// # Errors
    /// Returns a [`Refusal`] for the first field that is wrong or unknown.
    pub fn new(job: &Job) -> Result<Self, Refusal> {
        rules::check_arguments(job)?;
        let is_arenas = |name: &String| ARENAS.contains(&name.as_str());
        let ignored = job.env_args.keys().filter(|name| is_arenas(name));
        let ignored = ignored.cloned().collect();
        let mut own = job.env_args.clone();
        // The planner uses the declared memory.
        own.retain(|name, _| !is_arenas(name) && name != DECLARED_MEMORY);
        let given: PythonEnvironment = settings::read("arena_env_args", &own)?;
        if let Some(PyName::InFile { file, .. }) = PyName::of(&job.environment)
            && !file.is_file()
        {
            let wanted = "and there is no such file; it is looked for from the working directory";
            return Err(refuse(
                "environment",
                &job.environment.as_str().into(),
                wanted,
            ));
        }
        let mapping = given.mapping.clone().map(mapping::read);
        let imports = [&given.import, &given.entry_point].into_iter().flatten();
        let variables = given.env.iter().flatten().map(|(name, value)| {
            read_variable(name, value)
                .map_err(|reason| refuse(&format!("env.{name}"), value, reason))
        });
        let python = given.python.as_ref();
        let python = python.map_or("python3".to_owned(), |path| path.display().to_string());
        Ok(Self {
            job: job.clone(),
            imports: imports.flat_map(|names| names.0.clone()).collect(),
            python: find_interpreter(&python)
                .map_err(|reason| refuse("python", &python.as_str().into(), reason))?,
            mapping: mapping.transpose()?.unwrap_or_default(),
            variables: variables.collect::<Result<_, _>>()?,
            ignored,
            given,
        })
    }

    /// Returns whether the mapping uses `render()`.
    pub fn renders(&self) -> bool {
        let cameras = self.mapping.get("video").and_then(Value::as_object);
        let mut cameras = cameras.into_iter().flat_map(Map::values);
        cameras.any(|camera| camera.get("render") == Some(&true.into()))
    }
}

/// Refuses the value of a field; `wanted` says what is accepted, as a clause.
pub fn refuse(field: &str, found: &Value, wanted: &str) -> Refusal {
    Refusal::found(format_args!("arena_env_args.{field}"), found, wanted)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn settings(args: Value) -> Result<PythonSettings, Refusal> {
        let entry = json!({"jobs": [{"name": "a", "arena_env_args": args, "policy_type": "zero_action", "num_episodes": 1}]});
        PythonSettings::new(&jobs::file::parse(&entry).unwrap()[0])
    }

    fn refusal(args: Value) -> String {
        settings(args).unwrap_err().to_string()
    }

    #[test]
    fn every_field_is_read() {
        let found = settings(json!({
            "environment": "pkg.mod:make", "num_envs": 4, "env_kwargs": {"a": [1]}, "import": "pkg", "entry_point": ["b", "c"],
            "envs_per_process": 2, "control_hz": 10, "max_episode_steps": 5, "success": "reward>=0.5",
            "mapping": {"video": {"view": {"render": true}}}, "env": {"A": 1, "B": null}, "display": ":3",
            "recycle_after": 9, "pass_episode": true, "env_spacing": 2.0, "env_memory_gb": 4.0,
        }))
        .unwrap();
        assert_eq!(found.imports, ["pkg", "b", "c"]);
        let given = &found.given;
        assert_eq!(given.envs_per_process, 2);
        assert_eq!(
            (given.control_hz, given.max_episode_steps),
            (Some(10), Some(5))
        );
        let variables = [("A", Some("1")), ("B", None)];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.map(str::to_owned)));
        assert_eq!(found.variables, variables);
        assert_eq!(given.display.as_deref(), Some(":3"));
        assert_eq!((given.recycle_after, given.pass_episode), (Some(9), true));
        assert!(found.renders());
        assert_eq!(found.ignored, ["env_spacing"]);
    }

    #[test]
    fn defaults_are_one_copy_a_process_and_python3() {
        let found = settings(json!({"environment": "gym:Pusher-v5", "mapping": null})).unwrap();
        assert_eq!(found.python, Path::new("python3"));
        assert!(!found.renders());
        let given = found.given;
        assert_eq!((given.envs_per_process, given.display), (1, None));
        assert_eq!(given.success, None);
    }

    #[test]
    fn a_folder_is_that_of_a_venv_however_it_is_written() {
        // The working directory of a test is that of its crate.
        let folder = tempfile::tempdir_in(".").unwrap();
        let (name, bin) = (
            folder.path().file_name().unwrap().to_str().unwrap(),
            folder.path().join("bin"),
        );
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink("/bin/sh", bin.join("python")).unwrap();
        for python in [
            name.to_owned(),
            format!("./{name}"),
            folder.path().display().to_string(),
        ] {
            let found = settings(json!({"environment": "gym:a", "python": python}))
                .unwrap()
                .python;
            assert_eq!(found, Path::new(&python).join("bin/python"));
        }
    }

    #[test]
    fn what_is_wrong_is_refused_by_its_place() {
        rig::cases::check("src/env/python/refusals.txt", |given| {
            let mut args = json!({"environment": "gym:a"});
            let more: Map<String, Value> = serde_json::from_str(given).unwrap();
            args.as_object_mut().unwrap().extend(more);
            refusal(args)
        });
    }

    #[test]
    fn names_have_one_of_three_forms() {
        for name in ["gym:Pusher-v5", "gym:pkg:Env-v0", "a.b", "a.b:c", "a:b.c"] {
            assert!(settings(json!({"environment": name})).is_ok(), "{name}");
        }
    }
}
