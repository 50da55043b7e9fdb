//! The entry of a job in a jobs file and in a plan.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::file::check_name;
use crate::file::variations::MAX_GROUP_BYTES;
use crate::job::{
    Job, JobIndex, Length, MAX_ENVS, MAX_TOTAL_ENVS, Rollout, Status, Suite, Variant, VideoSettings,
};
use crate::latency::{self, WrittenLatency};
use crate::model_server::{self, ModelServer};
use crate::numbers::Numbers;
use crate::placement::check_steps;
use crate::printable::printable_line;

/// Maximum length of a name of a suite in bytes.
const MAX_NAME: usize = 100;

/// Maximum number of fields that replace those of a suite; a job has fewer.
const MAX_OVERRIDES: usize = 64;

/// The fields of a job as they are written.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Entry {
    name: String,
    arena_env_args: EnvArgs,
    policy_type: String,
    policy_config_dict: Option<Map<String, Value>>,
    /// The name of `policy_config_dict` in older files.
    policy_args: Option<Map<String, Value>>,
    #[schemars(range(min = 1, max = MAX_EPISODES))]
    num_episodes: Option<u64>,
    #[schemars(range(min = 1))]
    num_steps: Option<u64>,
    #[schemars(range(min = 1, max = MAX_EPISODES))]
    num_rebuilds: Option<u64>,
    #[schemars(range(min = 1, max = MAX_TOTAL_ENVS))]
    total_num_envs: Option<usize>,
    /// Of RLinf: environments with the same task that stay together. Here, each has its own.
    #[schemars(range(min = 1), extend("unused" = true))]
    #[expect(dead_code, reason = "it has no effect here")]
    group_size: Option<u64>,
    #[serde(flatten)]
    rollout: Rollout,
    #[schemars(range(min = 1, max = MAX_EPISODES))]
    rollout_epoch: Option<u64>,
    language_instruction: Option<String>,
    /// Overrides of the job, or the variants of which it is the control.
    pub(super) variations: Option<Value>,
    variant: Option<Variant>,
    suite: Option<Suite>,
    latency: Option<WrittenLatency>,
    seed: Option<u64>,
    status: Option<Status>,
    video_cfg: Option<VideoSettings>,
    /// The selected episodes, which only a plan has.
    #[schemars(with = "Option<String>", extend("unused" = true))]
    only: Option<Numbers>,
}

/// The environment with its arguments.
#[derive(Deserialize, JsonSchema)]
struct EnvArgs {
    environment: String,
    #[schemars(range(min = 1, max = MAX_ENVS))]
    num_envs: Option<usize>,
    enable_cameras: Option<bool>,
    /// Those of the environment alone.
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// A field, and why it is refused.
pub(crate) type Wrong = (&'static str, String);

impl Entry {
    /// Returns the job at a position, without its variations.
    pub(super) fn job(self, index: usize) -> Result<Job, Wrong> {
        check_name(&self.name).map_err(|err| ("name", err.to_string()))?;
        if let (Some(total), Some(own)) = (self.total_num_envs, self.arena_env_args.num_envs) {
            let reason = format!(
                "{total} is given together with num_envs {own}; the first counts over all ranks, \
                 the second in one"
            );
            return Err(("total_num_envs", reason));
        }
        if self.policy_config_dict.is_some() && self.policy_args.is_some() {
            let reason = "it is the old name of `policy_config_dict`, which is also given; keep \
                          one of them";
            return Err(("policy_args", reason.to_owned()));
        }
        let own = self.arena_env_args.num_envs.or(self.total_num_envs);
        let num_envs = own.unwrap_or(1);
        let length = length(&self, num_envs)?;
        let policy_config = self
            .policy_config_dict
            .or(self.policy_args)
            .unwrap_or_default();
        check_chunks(self.rollout.max_steps_per_rollout_epoch, &policy_config)?;
        if let Some(suite) = &self.suite {
            check_suite(suite)?;
        }
        if let Some(variant) = &self.variant {
            check_variant(variant)?;
        }
        let video = self.video_cfg.unwrap_or_default();
        let dir = video.base_dir.as_ref().map(|dir| dir.to_string_lossy());
        if dir.is_some_and(|dir| dir.contains('\0')) {
            return Err(("video_cfg.video_base_dir", "it is not a path".to_owned()));
        }
        Ok(Job {
            index: JobIndex(index),
            name: self.name,
            environment: self.arena_env_args.environment,
            num_envs,
            total_num_envs: self.total_num_envs,
            enable_cameras: self.arena_env_args.enable_cameras,
            env_args: self.arena_env_args.others,
            policy_type: self.policy_type,
            policy_config,
            length,
            rollout: self.rollout,
            latency: self.latency.map(WrittenLatency::read).transpose()?,
            video,
            num_rebuilds: self.num_rebuilds.unwrap_or(1),
            only: self.only,
            language_instruction: self.language_instruction,
            suite: self.suite,
            variations: Map::new(),
            variant: self.variant,
            seed: self.seed,
            status: self.status.unwrap_or_default(),
        })
    }
}

/// Checks that the names of a suite can be shown in tables, and that there are few of them.
fn check_suite(suite: &Suite) -> Result<(), Wrong> {
    let names = [&suite.name, &suite.protocol].into_iter();
    for name in names.chain(&suite.overrides) {
        if name.is_empty() || name.len() > MAX_NAME || printable_line(name) != *name {
            let name = name.escape_debug();
            let reason = format!("found `{name}`, expected 1 to {MAX_NAME} printable bytes");
            return Err(("suite", reason));
        }
    }
    let count = suite.overrides.len();
    if count > MAX_OVERRIDES {
        let reason = format!("found {count} overrides, expected at most {MAX_OVERRIDES}");
        return Err(("suite", reason));
    }
    Ok(())
}

/// Checks the names by which a job says that it is a variant of another one.
fn check_variant(variant: &Variant) -> Result<(), Wrong> {
    check_name(&variant.of).map_err(|err| ("variant.of", err.to_string()))?;
    // It is the end of the name of a job.
    let name = check_name(&format!("_{}", variant.name));
    name.map_err(|err| ("variant.name", err.to_string()))?;
    let is_long = |group: &String| group.len() > MAX_GROUP_BYTES;
    match variant.groups.iter().any(is_long) {
        true => Err((
            "variant.groups",
            format!("expected names of up to {MAX_GROUP_BYTES} bytes"),
        )),
        false => Ok(()),
    }
}

/// Returns the entry of a job. Fields with their default values are left out, and epochs are written
/// as the episodes or steps that they amount to. Selected episodes (`--only`) are no field of a jobs
/// file.
pub fn entry(job: &Job) -> Map<String, Value> {
    let num_steps = match job.length {
        Length::Steps(count) => Some(count),
        Length::Episodes(_) | Length::Policy => None,
    };
    let mut env_args = given(json!({
        "environment": job.environment,
        "num_envs": job.total_num_envs.is_none().then_some(job.num_envs),
        "enable_cameras": job.enable_cameras,
    }));
    env_args.extend(job.env_args.clone());
    let filled = |map: &Map<String, Value>| (!map.is_empty()).then(|| map.clone());
    let video = Some(&job.video).filter(|video| **video != VideoSettings::default());
    let mut entry = given(json!({
        "name": job.name,
        "arena_env_args": env_args,
        "policy_type": job.policy_type,
        "policy_config_dict": filled(&job.policy_config),
        "num_episodes": job.episodes(),
        "num_steps": num_steps,
        "num_rebuilds": Some(job.num_rebuilds).filter(|rebuilds| *rebuilds > 1),
        "total_num_envs": job.total_num_envs,
        "language_instruction": job.language_instruction,
        "variations": filled(&job.variations),
        "variant": job.variant,
        "suite": job.suite,
        "latency": job.latency.map(latency::written),
        "seed": job.seed,
        "status": Some(job.status).filter(|status| *status != Status::Pending),
        "video_cfg": video,
    }));
    entry.extend(given(json!(job.rollout)));
    entry
}

/// Returns the fields that have a value.
pub(crate) fn given(fields: Value) -> Map<String, Value> {
    match fields {
        Value::Object(fields) => fields.into_iter().filter(|(_, it)| !it.is_null()).collect(),
        _ => Map::new(),
    }
}

/// Returns a jobs file with these jobs.
pub fn jobs_file(jobs: &[Job], server: Option<&ModelServer>) -> Value {
    let jobs: Vec<Value> = jobs.iter().map(|job| entry(job).into()).collect();
    match server {
        Some(server) => json!({model_server::FIELD: server, "jobs": jobs}),
        None => json!({"jobs": jobs}),
    }
}

impl Serialize for Job {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut entry = entry(self);
        if let Some(only) = &self.only {
            entry.insert("only".to_owned(), only.to_string().into());
        }
        entry.serialize(to)
    }
}

/// Maximum number of episodes of a job: the report names each missing one.
pub const MAX_EPISODES: u64 = 1_000_000;

/// Returns the length of a job: `num_episodes` or `num_steps`, otherwise computed from the epochs
/// of `num_envs` environments.
fn length(entry: &Entry, num_envs: usize) -> Result<Length, Wrong> {
    let lengths = [
        ("num_episodes", entry.num_episodes),
        ("num_steps", entry.num_steps),
        ("rollout_epoch", entry.rollout_epoch),
    ];
    let given = lengths.into_iter();
    let mut given = given.filter_map(|(field, length)| Some((field, length?)));
    let length = match (given.next(), given.next()) {
        (Some((first, of_first)), Some((field, length))) => {
            let reason = format!(
                "{length} is given together with {first} {of_first}; only one of them can end the job"
            );
            return Err((field, reason));
        }
        (Some(("num_episodes", episodes)), None) => Length::Episodes(episodes),
        (Some(("num_steps", steps)), None) => Length::Steps(steps),
        _ => of_epochs(entry, num_envs)?,
    };
    let num_rebuilds = entry.num_rebuilds.unwrap_or(1);
    match length {
        Length::Episodes(episodes) if episodes < num_rebuilds => {
            let reason = format!(
                "{episodes} is less than num_rebuilds {num_rebuilds}; each rebuild needs an episode"
            );
            Err(("num_episodes", reason))
        }
        length => Ok(length),
    }
}

/// Computes the length from epochs as in rlinf/runners/embodied_eval_runner.py. Without
/// `auto_reset`, each environment counts one episode per epoch. With it, every episode counts that
/// ends within the steps of all epochs, and only the first epoch begins with a reset.
fn of_epochs(entry: &Entry, num_envs: usize) -> Result<Length, Wrong> {
    let given = entry.rollout_epoch;
    let epochs = given.unwrap_or(1);
    let steps = entry.rollout.max_steps_per_rollout_epoch;
    match (entry.rollout.auto_reset, steps) {
        (true, Some(steps)) => Ok(Length::Steps(steps.saturating_mul(epochs))),
        (true, None) => {
            let reason = "environments never end: max_steps_per_rollout_epoch, num_steps or \
                          num_episodes is required";
            Err(("auto_reset", reason.to_owned()))
        }
        (false, _) if given.is_some() || entry.total_num_envs.is_some() || steps.is_some() => {
            let episodes = epochs.saturating_mul(num_envs as u64);
            if episodes > MAX_EPISODES {
                let reason = format!(
                    "{epochs} epochs of {num_envs} environments are more than {MAX_EPISODES} episodes"
                );
                return Err(("rollout_epoch", reason));
            }
            Ok(Length::Episodes(episodes))
        }
        (false, _) => Ok(Length::Policy),
    }
}

/// Checks that an epoch ends with an action chunk.
fn check_chunks(steps: Option<u64>, policy: &Map<String, Value>) -> Result<(), Wrong> {
    let chunk = policy.get("action_chunk_length").and_then(Value::as_u64);
    let (Some(chunk), Some(steps)) = (chunk, steps) else {
        return Ok(());
    };
    check_steps(steps as usize, usize::try_from(chunk).unwrap_or(0))
        .map_err(|err| ("max_steps_per_rollout_epoch", err.to_string()))
}
