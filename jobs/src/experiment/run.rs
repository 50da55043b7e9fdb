//! One run of an Experiment, as a job.

use serde_json::{Map, Value};

use crate::experiment::runs::{refusal, similar_to};
use crate::fields::{FieldError, FileFields};
use crate::known::fields::{COMMON, PYTHON};
use crate::known::is_python_environment;

/// Fields of a run.
pub(super) const FIELDS: &[&str] = &[
    "environment",
    "environment_builder",
    "policy",
    "rollout_limit",
    "rollout",
    "num_rebuilds",
    "variations",
    "labels",
    RECORDED,
];

/// Files with the variations of episodes that are to be repeated, which only the simulator reads.
const RECORDED: &str = "recorded_variation_samples_paths";

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
    "recorded_variation_samples_path",
    RECORDED,
];

/// The Python factory that makes the environments of an Experiment; an addition to Arena's fields.
/// It gets `type` and the other fields as arguments.
const FACTORY: &str = "factory";

/// The names of settings without effect, each once.
type Unused<'a> = &'a mut Vec<String>;

/// Converts a run, and adds the names of its settings without effect.
pub(super) fn job(name: &str, run: &Value, unused: Unused) -> Result<Value, FieldError> {
    let place = format!("runs.{name}");
    let mut fields = FileFields::new(&place, run)?;
    fields.know(FIELDS);
    let mut job = Map::new();
    job.insert("name".to_owned(), name.into());
    let environment = fields.require("environment")?;
    let mut builder = fields.object("environment_builder")?.unwrap_or_default();
    builder.extend(
        fields
            .take(RECORDED)
            .map(|paths| (RECORDED.to_owned(), paths.clone())),
    );
    let policy = fields.require("policy")?;
    let environment = environment_args(&place, environment)?;
    builder_args(&place, builder, &mut job, environment, unused)?;
    policy_of(&place, policy, &mut job)?;
    for section in ["rollout_limit", "rollout"] {
        if let Some(limit) = fields.take(section).filter(|limit| !limit.is_null()) {
            length(&format!("{place}.{section}"), limit, &mut job)?;
        }
    }
    for field in ["num_rebuilds", "variations"] {
        if let Some(value) = fields.take(field).filter(|value| !value.is_null()) {
            job.insert(field.to_owned(), value.clone());
        }
    }
    sort_out(&fields, "", FIELDS, unused)?;
    Ok(Value::Object(job))
}

/// Adds fields that are not read to those without effect, unless they resemble one that is.
fn sort_out(
    fields: &FileFields,
    section: &str,
    known: &[&str],
    unused: Unused,
) -> Result<(), FieldError> {
    for key in fields.left() {
        if !known.contains(&key) && similar_to(key, known) {
            return Err(fields.unknown(key, known));
        }
        note(unused, format!("{section}{key}"));
    }
    Ok(())
}

fn note(unused: Unused, name: String) {
    if !unused.contains(&name) {
        unused.push(name);
    }
}

/// The arguments of a job's environment.
struct EnvironmentArgs {
    args: Map<String, Value>,
    /// Whether a Python factory makes it from the fields of Arena.
    has_factory: bool,
    is_python: bool,
}

impl EnvironmentArgs {
    /// Adds a field of Arena: an argument of the factory if there is one.
    fn add(&mut self, field: &str, value: Value) {
        if !self.is_python || COMMON.contains(&field) || PYTHON.contains(&field) {
            self.args.insert(field.to_owned(), value);
            return;
        }
        let kwargs = self
            .args
            .entry("env_kwargs")
            .or_insert_with(|| Map::new().into());
        if let Value::Object(kwargs) = kwargs {
            kwargs.insert(field.to_owned(), value);
        }
    }
}

fn environment_args(place: &str, section: &Value) -> Result<EnvironmentArgs, FieldError> {
    let mut fields = FileFields::new(&format!("{place}.environment"), section)?;
    fields.know(&["type"]);
    let of_type = fields.string("type")?;
    let factory = fields.optional_string(FACTORY)?;
    if factory
        .as_deref()
        .is_some_and(|factory| !is_python_environment(factory))
    {
        let wanted = "expected `file.py:factory` or `package.module:factory`";
        return Err(fields.wrong(FACTORY, section.get(FACTORY), wanted));
    }
    let name = factory.clone().unwrap_or_else(|| of_type.clone());
    let mut environment = EnvironmentArgs {
        is_python: is_python_environment(&name),
        has_factory: factory.is_some(),
        args: Map::from_iter([("environment".to_owned(), name.into())]),
    };
    let rest = fields.rest();
    if let Some(own) = rest.get("env_kwargs") {
        environment
            .args
            .insert("env_kwargs".to_owned(), own.clone());
    }
    if environment.has_factory {
        environment.add("type", of_type.into());
    }
    for (field, value) in rest.into_iter().filter(|(field, _)| field != "env_kwargs") {
        environment.add(&field, value);
    }
    Ok(environment)
}

/// Distributes the fields of `environment_builder`: some are the job's, the others arguments of the
/// environment, as in Arena's old jobs files.
fn builder_args(
    place: &str,
    builder: Map<String, Value>,
    job: &mut Map<String, Value>,
    mut environment: EnvironmentArgs,
    unused: Unused,
) -> Result<(), FieldError> {
    let known = [BUILDER, OF_SIMULATOR].concat();
    for (field, value) in builder.into_iter().filter(|(_, value)| !value.is_null()) {
        let is_read = !environment.is_python || environment.has_factory;
        match field.as_str() {
            "num_envs" => environment.add(&field, value),
            "seed" | "language_instruction" => drop(job.insert(field, value)),
            // Datasets have whole trajectories, unless there is an option against it.
            "record_trajectories" if value == true => {}
            other if OF_SIMULATOR.contains(&other) && is_read => environment.add(&field, value),
            other if !known.contains(&other) && similar_to(other, &known) => {
                let section = Value::Object(Map::from_iter([(field.clone(), value)]));
                let place = format!("{place}.environment_builder");
                return Err(FileFields::new(&place, &section)?.unknown(&field, &known));
            }
            _ => note(unused, format!("environment_builder.{field}")),
        }
    }
    job.insert("arena_env_args".to_owned(), environment.args.into());
    Ok(())
}

fn policy_of(place: &str, section: &Value, job: &mut Map<String, Value>) -> Result<(), FieldError> {
    let mut fields = FileFields::new(&format!("{place}.policy"), section)?;
    fields.know(&["type"]);
    job.insert("policy_type".to_owned(), fields.string("type")?.into());
    job.insert("policy_config_dict".to_owned(), fields.rest().into());
    Ok(())
}

fn length(place: &str, limit: &Value, job: &mut Map<String, Value>) -> Result<(), FieldError> {
    const LENGTHS: &[&str] = &["num_episodes", "num_steps"];
    let mut fields = FileFields::new(place, limit)?;
    let given = |field: &&&str| limit.get(**field).is_some_and(|value| !value.is_null());
    if LENGTHS.iter().filter(given).count() > 1 {
        let reason = "num_episodes and num_steps are both given; only one of them can end a run";
        return Err(refusal(place, reason.to_owned()));
    }
    for field in LENGTHS {
        if let Some(number) = fields.positive(field)? {
            job.insert((*field).to_owned(), number.into());
        }
    }
    fields.finish(LENGTHS)
}
