//! The sections of a configuration, and the fields of a job that they mean.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::file::{UNUSED_VIDEO, given};
use crate::job::VideoSettings;
use crate::model_server;
use crate::refusal::{Refusal, most_similar};
use crate::rlinf::Config;
use crate::settings::{self, names};
use crate::tree;

/// Similarity above which a setting is taken for a misspelled one; the nearest name of RLinf has
/// 0.88.
const LIKE: f64 = 0.93;

/// A configuration. Settings that a job has, too, have any value here: the job checks them.
#[derive(Deserialize, JsonSchema)]
struct Top {
    #[serde(default)]
    cluster: Cluster,
    #[serde(default)]
    env: Env,
    #[serde(default)]
    rollout: Rollout,
    #[serde(default)]
    runner: Runner,
    #[serde(default)]
    algorithm: Algorithm,
    jobs: Option<Value>,
    model_server: Option<Value>,
}

#[derive(Default, Deserialize, JsonSchema)]
pub(super) struct Cluster {
    #[schemars(range(min = 1))]
    num_nodes: Option<usize>,
    #[expect(
        dead_code,
        reason = "it is taken out of each file before they are merged"
    )]
    component_placement: Option<Value>,
    node_groups: Option<Value>,
}

#[derive(Default, Deserialize, JsonSchema)]
struct Env {
    #[serde(default)]
    eval: Eval,
}

#[derive(Default, Deserialize, JsonSchema)]
pub(super) struct Eval {
    #[serde(flatten)]
    of_jobs: OfJobs,
    rollout_epoch: Option<Value>,
    #[schemars(range(min = 1))]
    max_episode_steps: Option<u64>,
    environment: Option<String>,
    env_type: Option<String>,
    env_args: Option<Map<String, Value>>,
    enable_cameras: Option<bool>,
}

/// Settings that replace the fields of the same names in every job.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct OfJobs {
    total_num_envs: Option<Value>,
    auto_reset: Option<Value>,
    ignore_terminations: Option<Value>,
    max_steps_per_rollout_epoch: Option<Value>,
    seed: Option<Value>,
    video_cfg: Option<Map<String, Value>>,
}

#[derive(Default, Deserialize, JsonSchema)]
pub(super) struct Rollout {
    pipeline_stage_num: Option<Value>,
    policy_type: Option<Value>,
    policy_config_dict: Option<Map<String, Value>>,
    policy_args: Option<Map<String, Value>>,
    #[serde(default)]
    model: Model,
    enable_offload: Option<bool>,
}

#[derive(Default, Deserialize, JsonSchema)]
struct Model {
    model_path: Option<Value>,
    #[schemars(range(min = 1))]
    num_action_chunks: Option<u64>,
}

#[derive(Default, Deserialize, JsonSchema)]
struct Runner {
    #[serde(default)]
    logger: Logger,
}

#[derive(Default, Deserialize, JsonSchema)]
struct Logger {
    log_path: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
struct Algorithm {
    #[schemars(range(min = 1))]
    eval_rollout_epoch: Option<u64>,
}

/// Returns the dotted names of the settings that are read.
fn known() -> Vec<String> {
    let sections = [
        ("env.eval", names::<Eval>()),
        ("env.eval.video_cfg", names::<VideoSettings>()),
        ("rollout", names::<Rollout>()),
        ("cluster", names::<Cluster>()),
        ("rollout.model", names::<Model>()),
        ("runner.logger", names::<Logger>()),
        ("algorithm", names::<Algorithm>()),
    ];
    let sections = sections.iter();
    let below = sections.flat_map(|(section, names)| names.iter().map(move |name| (section, name)));
    below
        .map(|(section, name)| format!("{section}.{name}"))
        .collect()
}

/// Returns the setting that is read whose dotted name is most similar to this one, if any is
/// similar enough.
pub(super) fn nearest(name: &str) -> Option<String> {
    let known = known();
    most_similar(name, known.iter().map(String::as_str), LIKE).map(str::to_owned)
}

/// Reads all sections of a merged tree.
pub(super) fn read(tree: &Value) -> Result<Config, Refusal> {
    let (top, mut unused): (Top, _) =
        settings::read_among("", tree::object("top level", tree)?, LIKE)?;
    refuse_unresolved(tree)?;
    if top.cluster.node_groups.is_some() {
        let reason = "node groups are not supported; GPUs are numbered over all nodes";
        return Err(Refusal::at("cluster field node_groups", reason));
    }
    if top.rollout.enable_offload == Some(true) {
        unused.push("rollout.enable_offload".to_owned());
    }
    note_video(top.env.eval.of_jobs.video_cfg.as_ref(), &mut unused)?;
    Ok(Config {
        model_server: model_server::read(&top.model_server.unwrap_or_default())?,
        jobs: top.jobs,
        num_nodes: top.cluster.num_nodes,
        log_path: top.runner.logger.log_path.map(Into::into),
        under: given(json!({
            "arena_env_args": environment(&top.env.eval)?,
            "policy_type": top.rollout.policy_type,
            "policy_config_dict": policy(&top.rollout)?,
        })),
        over: over(top.env.eval, top.rollout, &top.algorithm),
        unused,
        ..Config::default()
    })
}

/// Returns the fields of a job that are replaced.
fn over(eval: Eval, rollout: Rollout, algorithm: &Algorithm) -> Map<String, Value> {
    let limit = |steps| json!({"max_episode_steps": steps});
    let epochs = algorithm.eval_rollout_epoch.map(Value::from);
    let mut over = given(json!(eval.of_jobs));
    over.extend(given(json!({
        "rollout_epoch": eval.rollout_epoch.or(epochs),
        "arena_env_args": eval.max_episode_steps.map(limit),
        "pipeline_stage_num": rollout.pipeline_stage_num,
    })));
    over
}

/// Returns the environment with its arguments, if any is given.
fn environment(eval: &Eval) -> Result<Option<Value>, Refusal> {
    if let (Some(ours), Some(theirs)) = (&eval.environment, &eval.env_type)
        && ours != theirs
    {
        let reason = format!(
            "`{ours}` is given together with env_type `{theirs}`; they mean the same thing"
        );
        return Err(Refusal::at("env.eval field environment", reason));
    }
    let name = eval.environment.as_ref().or(eval.env_type.as_ref());
    let mut args = eval.env_args.clone().unwrap_or_default();
    args.extend(given(json!({
        "environment": name,
        "enable_cameras": eval.enable_cameras,
    })));
    Ok((!args.is_empty()).then(|| args.into()))
}

/// Returns the settings of the policy, if any is given.
fn policy(rollout: &Rollout) -> Result<Option<Value>, Refusal> {
    let (new, old) = (&rollout.policy_config_dict, &rollout.policy_args);
    if new.is_some() && old.is_some() {
        let reason = "it is the old name of `policy_config_dict`, which is also given";
        return Err(Refusal::at("rollout field policy_args", reason));
    }
    let mut policy = new.as_ref().or(old.as_ref()).cloned().unwrap_or_default();
    policy.extend(given(json!({"model_path": rollout.model.model_path})));
    if let Some(chunk) = rollout.model.num_action_chunks {
        policy.entry("action_chunk_length").or_insert(chunk.into());
    }
    Ok((!policy.is_empty()).then(|| policy.into()))
}

/// Notes the settings of videos without effect. All others must be known.
fn note_video(video: Option<&Map<String, Value>>, unused: &mut Vec<String>) -> Result<(), Refusal> {
    let (place, known) = ("env.eval.video_cfg", names::<VideoSettings>());
    for name in video.into_iter().flat_map(Map::keys) {
        if UNUSED_VIDEO.contains(&name.as_str()) {
            unused.push(format!("{place}.{name}"));
        } else if !known.contains(&name.as_str()) {
            return Err(Refusal::unknown(place, "field", name, &known));
        }
    }
    Ok(())
}

/// Refuses a setting that is read and has a reference that leads nowhere.
fn refuse_unresolved(tree: &Value) -> Result<(), Refusal> {
    for name in known() {
        let mut parts = name.split('.');
        let value = parts.try_fold(tree, |tree, part| tree.get(part));
        let text = value.and_then(Value::as_str);
        if let Some(reference) = text.and_then(tree::unresolved) {
            let reason = format!("`{reference}` cannot be resolved");
            return Err(Refusal::at(name, reason));
        }
    }
    Ok(())
}
