//! One run of an Experiment, as a job.

use serde_json::{Map, Value};

use crate::experiment::environment::{
    EnvironmentArgs, builder_args, environment_args, refuse_recorded,
};
use crate::experiment::runs::{refusal, similar_to};
use crate::fields::{FieldError, FileFields};

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

/// Files with the variations of episodes that are to be repeated, of a run.
const RECORDED: &str = "recorded_variation_samples_paths";

/// The names of settings without effect, each once.
pub(super) type Unused<'a> = &'a mut Vec<String>;

/// Converts a run, and adds the names of its settings without effect.
pub(super) fn job(name: &str, run: &Value, unused: Unused) -> Result<Value, FieldError> {
    let place = format!("runs.{name}");
    let mut fields = FileFields::new(&place, run)?;
    fields.know(FIELDS);
    let mut job = Map::new();
    job.insert("name".to_owned(), name.into());
    let environment = fields.require("environment")?;
    let builder = fields.object("environment_builder")?.unwrap_or_default();
    refuse_recorded(&format!("{place}.{RECORDED}"), fields.take(RECORDED))?;
    let policy = fields.require("policy")?;
    let environment = environment_args(&place, environment)?;
    let variations = variations(&mut fields, &environment, unused)?;
    builder_args(&place, builder, &mut job, environment, unused)?;
    policy_of(&place, policy, &mut job)?;
    for section in ["rollout_limit", "rollout"] {
        if let Some(limit) = fields.take(section).filter(|limit| !limit.is_null()) {
            length(&format!("{place}.{section}"), limit, &mut job)?;
        }
    }
    if let Some(rebuilds) = fields.take("num_rebuilds").filter(|value| !value.is_null()) {
        job.insert("num_rebuilds".to_owned(), number(rebuilds));
    }
    if !variations.is_empty() {
        job.insert("variations".to_owned(), variations.into());
    }
    sort_out(&fields, "", FIELDS, unused)?;
    Ok(Value::Object(job))
}

/// Returns the variations that the environment may have.
fn variations(
    fields: &mut FileFields,
    environment: &EnvironmentArgs,
    unused: Unused,
) -> Result<Map<String, Value>, FieldError> {
    let mut variations = fields.object("variations")?.unwrap_or_default();
    environment.drop_foreign(&mut variations, unused);
    Ok(variations)
}

/// Returns a number that is written as a text, which Hydra converts in the fields of a run that are
/// numbers; any other value is returned as it is.
pub(super) fn number(value: &Value) -> Value {
    let number = value
        .as_str()
        .and_then(|text| text.trim().parse::<u64>().ok());
    number.map_or_else(|| value.clone(), Value::from)
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

pub(super) fn note(unused: Unused, name: String) {
    if !unused.contains(&name) {
        unused.push(name);
    }
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
    let mut numbers = limit.clone();
    for field in LENGTHS {
        if let Some(length) = numbers.get_mut(field) {
            *length = number(length);
        }
    }
    let mut fields = FileFields::new(place, &numbers)?;
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
