//! `environment` and `environment_builder` of a run, as the environment of a job.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::environments::{EveryEnvironment, PythonEnvironment, Simulator, is_python_environment};
use crate::experiment::{Unused, note, number, similar_to};
use crate::refusal::{MISSPELT, Refusal, most_similar};
use crate::settings::kinds::PY_NAME;
use crate::settings::names;

/// Fields of `environment_builder` that a job has elsewhere, or has no use for.
const BUILDER: &[&str] = &[
    "num_envs",
    "seed",
    "language_instruction",
    "record_trajectories",
    "device",
];

/// Fields of `environment_builder` that only the simulator reads: those of Arena's
/// `ArenaEnvBuilderCfg`.
const OF_SIMULATOR: &[&str] = &[
    "env_spacing",
    "solve_relations",
    "placement_seed",
    "resolve_on_reset",
    "random_yaw_init",
    "disable_fabric",
    "mimic",
    "presets",
    "placement_layouts_path",
    "placement_clearance_m",
    "validate_reachability",
    "reachability_validator_kwargs",
    "camera_height",
    "camera_width",
    "num_rerenders_on_reset",
    "episode_length_s",
    "episode_conditions_path",
    "recorded_build_manifest_path",
    "recorder_dataset_export_dir_path",
    "recorder_dataset_filename",
];

/// A file with the variations of episodes that are to be repeated.
const RECORDED_FILE: &str = "recorded_variation_samples_path";

/// The field of an environment that says whether it has cameras.
const CAMERAS: &str = "enable_cameras";

/// The field of a Python environment that says how many copies one process has.
const PER_PROCESS: &str = "envs_per_process";

/// The environment of a run, as it is written.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Environment {
    r#type: String,
    /// The Python factory that makes the environments of an Experiment; an addition to Arena's
    /// fields. It gets `type` and the other fields as arguments.
    #[schemars(extend("wanted" = PY_NAME))]
    factory: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Environment {
    /// Returns the arguments of the job's environment.
    pub(super) fn args(self, place: &str) -> Result<EnvironmentArgs, Refusal> {
        let Self {
            r#type: of_type,
            factory,
            mut rest,
        } = self;
        if let Some(factory) = &factory
            && !is_python_environment(factory)
        {
            let (field, found) = (format!("{place}.factory"), factory.as_str().into());
            return Err(Refusal::found(
                field,
                &found,
                format_args!("expected {PY_NAME}"),
            ));
        }
        let has_factory = factory.is_some();
        let name = factory.unwrap_or_else(|| of_type.clone());
        let mut environment = EnvironmentArgs {
            is_python: is_python_environment(&name),
            has_factory,
            args: Map::from_iter([("environment".to_owned(), name.into())]),
        };
        rest.retain(|field, value| field != CAMERAS || !value.is_null());
        if let Some(own) = rest.shift_remove("env_kwargs") {
            environment.args.insert("env_kwargs".to_owned(), own);
        }
        if has_factory {
            environment.add("type", of_type.into());
            // Arena has no cameras unless a run asks for them.
            environment.add(CAMERAS, false.into());
        }
        for (field, value) in rest {
            if has_factory && field == CAMERAS {
                environment.add_argument(CAMERAS, value.clone());
            }
            environment.add(&field, value);
        }
        Ok(environment)
    }
}

/// The arguments of a job's environment.
pub(super) struct EnvironmentArgs {
    args: Map<String, Value>,
    /// Whether a Python factory makes it from the fields of Arena.
    has_factory: bool,
    is_python: bool,
}

impl EnvironmentArgs {
    /// Adds a field of Arena: an argument of the factory if there is one.
    fn add(&mut self, field: &str, value: Value) {
        if !self.is_python
            || names::<EveryEnvironment>().contains(&field)
            || names::<PythonEnvironment>().contains(&field)
        {
            self.args.insert(field.to_owned(), value);
        } else {
            self.add_argument(field, value);
        }
    }

    /// Adds an argument of the factory.
    fn add_argument(&mut self, field: &str, value: Value) {
        let kwargs = self
            .args
            .entry("env_kwargs")
            .or_insert_with(|| Map::new().into());
        if let Value::Object(kwargs) = kwargs {
            kwargs.insert(field.to_owned(), value);
        }
    }

    /// Removes the variations that an environment of ours does not have, so that no result claims
    /// them, and adds their names to those without effect. A name that resembles one of its own
    /// arguments stays, and is refused with the job.
    pub(super) fn drop_foreign(&self, variations: &mut Map<String, Value>, unused: Unused) {
        let name = self.args.get("environment").and_then(Value::as_str);
        let Some(simulator) = name.and_then(Simulator::of) else {
            return;
        };
        let own = simulator.row().fields();
        variations.retain(|name, _| {
            let is_own = most_similar(name, own.iter().copied(), MISSPELT).is_some();
            if !is_own {
                note(unused, format!("variations.{name}"));
            }
            is_own
        });
    }

    /// Distributes the fields of `environment_builder`: some are the job's, the others arguments of
    /// the environment, as in Arena's old jobs files.
    pub(super) fn build(
        mut self,
        place: &str,
        builder: Map<String, Value>,
        job: &mut Map<String, Value>,
        unused: Unused,
    ) -> Result<(), Refusal> {
        let place = format!("{place}.environment_builder");
        refuse_recorded(
            &format!("{place}.{RECORDED_FILE}"),
            builder.get(RECORDED_FILE),
        )?;
        let known = [BUILDER, OF_SIMULATOR].concat();
        for (field, value) in builder.into_iter().filter(|(_, value)| !value.is_null()) {
            let is_read = !self.is_python || self.has_factory;
            match field.as_str() {
                "num_envs" => {
                    let value = number(&value);
                    // A process of Isaac Sim has all environments of a rank.
                    if self.has_factory && !self.args.contains_key(PER_PROCESS) {
                        self.add(PER_PROCESS, value.clone());
                    }
                    self.add(&field, value);
                }
                "seed" => drop(job.insert(field, number(&value))),
                "language_instruction" => drop(job.insert(field, value)),
                // Datasets have whole trajectories, unless there is an option against it.
                "record_trajectories" if value == true => {}
                other if OF_SIMULATOR.contains(&other) && is_read => self.add(&field, value),
                other if !known.contains(&other) && similar_to(other, &known) => {
                    return Err(Refusal::unknown(place, "field", other, &known));
                }
                _ => note(unused, format!("environment_builder.{field}")),
            }
        }
        job.insert("arena_env_args".to_owned(), self.args.into());
        Ok(())
    }
}

/// Refuses files with recorded samples. In Arena, their rows say how many episodes there are, and
/// what each of them varies, so that no other length of the run would be right.
pub(super) fn refuse_recorded(place: &str, files: Option<&Value>) -> Result<(), Refusal> {
    let is_empty = |files: &Value| files.is_null() || files.as_array().is_some_and(Vec::is_empty);
    match files {
        Some(files) if !is_empty(files) => {
            let reason = "recorded samples of variations cannot be repeated here: only Arena reads \
                          these files, whose rows say how many episodes there are; remove it to \
                          run with new samples";
            Err(Refusal::at(place, reason))
        }
        _ => Ok(()),
    }
}
