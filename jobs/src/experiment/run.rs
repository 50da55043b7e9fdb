//! One run of an Experiment, as a job.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::experiment::environment::{Environment, refuse_recorded};
use crate::refusal::{LIKE_NAME, Refusal};
use crate::settings;

/// A run. Numbers may be written as texts, and the job checks them.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Run {
    /// `type`, and what it needs
    environment: Environment,
    environment_builder: Option<Map<String, Value>>,
    /// `type`, and its settings
    policy: Policy,
    rollout_limit: Option<Map<String, Value>>,
    rollout: Option<Map<String, Value>>,
    num_rebuilds: Option<Value>,
    variations: Option<Map<String, Value>>,
    labels: Option<Value>,
    /// Files with the variations of episodes that are to be repeated.
    recorded_variation_samples_paths: Option<Value>,
}

#[derive(Deserialize, JsonSchema)]
struct Policy {
    r#type: String,
    #[serde(flatten)]
    settings: Map<String, Value>,
}

/// How long a run is.
#[derive(Deserialize, JsonSchema)]
struct Limit {
    #[schemars(range(min = 1))]
    num_episodes: Option<u64>,
    #[schemars(range(min = 1))]
    num_steps: Option<u64>,
}

/// The names of settings without effect, each once.
pub(super) type Unused<'a> = &'a mut Vec<String>;

/// Converts a run, and adds the names of its settings without effect.
pub(super) fn job(name: &str, run: &Map<String, Value>, unused: Unused) -> Result<Value, Refusal> {
    let place = format!("runs.{name}");
    let (run, foreign): (Run, _) = settings::read_among(&place, run, LIKE_NAME)?;
    let recorded = run.recorded_variation_samples_paths.as_ref();
    refuse_recorded(
        &format!("{place}.recorded_variation_samples_paths"),
        recorded,
    )?;
    let mut job = Map::new();
    job.insert("name".to_owned(), name.into());
    let environment = run.environment.args(&format!("{place}.environment"))?;
    let mut variations = run.variations.unwrap_or_default();
    environment.drop_foreign(&mut variations, unused);
    let builder = run.environment_builder.unwrap_or_default();
    environment.build(&place, builder, &mut job, unused)?;
    job.insert("policy_type".to_owned(), run.policy.r#type.into());
    job.insert("policy_config_dict".to_owned(), run.policy.settings.into());
    for (section, limit) in [
        ("rollout_limit", run.rollout_limit),
        ("rollout", run.rollout),
    ] {
        if let Some(limit) = limit {
            length(&format!("{place}.{section}"), limit, &mut job)?;
        }
    }
    if let Some(rebuilds) = run.num_rebuilds {
        job.insert("num_rebuilds".to_owned(), number(&rebuilds));
    }
    if !variations.is_empty() {
        job.insert("variations".to_owned(), variations.into());
    }
    if run.labels.is_some() {
        note(unused, "labels".to_owned());
    }
    foreign.into_iter().for_each(|name| note(unused, name));
    Ok(Value::Object(job))
}

/// Returns a number that is written as a text, which Hydra converts in the fields of a run that are
/// numbers; any other value is returned as it is.
pub(super) fn number(value: &Value) -> Value {
    let number = value
        .as_str()
        .and_then(|text| text.trim().parse::<u64>().ok());
    number.map_or_else(|| value.clone(), Value::from)
}

pub(super) fn note(unused: Unused, name: String) {
    if !unused.contains(&name) {
        unused.push(name);
    }
}

fn length(
    place: &str,
    mut limit: Map<String, Value>,
    job: &mut Map<String, Value>,
) -> Result<(), Refusal> {
    limit.values_mut().for_each(|value| *value = number(value));
    let limit: Limit = settings::read(place, &limit)?;
    if limit.num_episodes.is_some() && limit.num_steps.is_some() {
        let reason = "num_episodes and num_steps are both given; only one of them can end a run";
        return Err(Refusal::at(place, reason));
    }
    for (field, length) in [
        ("num_episodes", limit.num_episodes),
        ("num_steps", limit.num_steps),
    ] {
        if let Some(length) = length {
            job.insert(field.to_owned(), length.into());
        }
    }
    Ok(())
}
