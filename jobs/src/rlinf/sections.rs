//! The sections of a configuration, and the fields of a job that they mean.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::file::UNUSED_VIDEO;
use crate::job::VideoSettings;
use crate::model_server;
use crate::refusal::Refusal;
use crate::rlinf::Config;
use crate::settings::{self, Settings, names};
use crate::similar::most_similar;
use crate::tree::references;

/// Similarity above which a setting is taken for a misspelled one; the nearest name of RLinf has
/// 0.88.
const LIKE: f64 = 0.93;

/// The names of a section that are not read: RLinf's own, or misspelt.
type Rest = Map<String, Value>;

/// A configuration. Settings that a job has, too, have any value here: the job checks them.
#[derive(Deserialize, JsonSchema)]
struct Top {
    cluster: Option<Cluster>,
    env: Option<Env>,
    rollout: Option<Rollout>,
    runner: Option<Runner>,
    algorithm: Option<Algorithm>,
    jobs: Option<Value>,
    model_server: Option<Value>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Deserialize, JsonSchema)]
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

#[derive(Deserialize, JsonSchema)]
struct Env {
    eval: Option<Eval>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Eval {
    #[serde(flatten)]
    same: OfJob,
    #[schemars(range(min = 1))]
    max_episode_steps: Option<u64>,
    environment: Option<String>,
    env_type: Option<String>,
    env_args: Option<Map<String, Value>>,
    enable_cameras: Option<bool>,
    video_cfg: Option<Map<String, Value>>,
    #[serde(flatten)]
    rest: Rest,
}

/// Settings of `env.eval` with the same name in a job.
#[derive(Deserialize, Serialize, JsonSchema)]
struct OfJob {
    total_num_envs: Option<Value>,
    auto_reset: Option<Value>,
    ignore_terminations: Option<Value>,
    max_steps_per_rollout_epoch: Option<Value>,
    rollout_epoch: Option<Value>,
    seed: Option<Value>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Rollout {
    pipeline_stage_num: Option<Value>,
    policy_type: Option<Value>,
    policy_config_dict: Option<Map<String, Value>>,
    policy_args: Option<Map<String, Value>>,
    model: Option<Model>,
    enable_offload: Option<bool>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Deserialize, JsonSchema)]
struct Model {
    model_path: Option<Value>,
    #[schemars(range(min = 1))]
    num_action_chunks: Option<u64>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Deserialize, JsonSchema)]
struct Runner {
    logger: Option<Logger>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Deserialize, JsonSchema)]
struct Logger {
    log_path: Option<String>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Deserialize, JsonSchema)]
struct Algorithm {
    #[schemars(range(min = 1))]
    eval_rollout_epoch: Option<u64>,
    #[serde(flatten)]
    rest: Rest,
}

/// Returns the setting that is read whose dotted name is most similar to this one, if any is
/// similar enough.
pub(super) fn nearest(name: &str) -> Option<String> {
    fn below<T: Settings>(section: &str) -> Vec<String> {
        names::<T>()
            .iter()
            .map(|key| format!("{section}.{key}"))
            .collect()
    }
    let known = [
        below::<Eval>("env.eval"),
        below::<Rollout>("rollout"),
        below::<Cluster>("cluster"),
        below::<Model>("rollout.model"),
        below::<Logger>("runner.logger"),
        below::<Algorithm>("algorithm"),
    ]
    .concat();
    most_similar(name, known.iter().map(String::as_str), LIKE).map(str::to_owned)
}

/// Reads all sections of a merged tree.
pub(super) fn read(tree: &Value) -> Result<Config, Refusal> {
    let Value::Object(tree) = tree else {
        return Err(Refusal::found("top level", tree, "expected an object"));
    };
    let top: Top = settings::read("", tree)?;
    let server = top.model_server.unwrap_or_default();
    let mut config = Config {
        model_server: model_server::read(&server)?,
        jobs: top.jobs,
        ..Config::default()
    };
    if let Some(cluster) = top.cluster {
        if cluster.node_groups.is_some() {
            let reason = "node groups are not supported; GPUs are numbered over all nodes";
            return Err(Refusal::at("cluster field node_groups", reason));
        }
        config.num_nodes = cluster.num_nodes;
    }
    if let Some(env) = top.env {
        env.eval.map_or(Ok(()), |eval| config.add_eval(eval))?;
        config.leave_out::<Env>("env", &env.rest)?;
    }
    top.rollout
        .map_or(Ok(()), |rollout| config.add_rollout(rollout))?;
    if let Some(runner) = top.runner {
        if let Some(Logger { log_path, rest }) = runner.logger {
            if let Some(path) = &log_path {
                check_reference("runner.logger", "log_path", path)?;
            }
            config.log_path = log_path.map(Into::into);
            config.leave_out::<Logger>("runner.logger", &rest)?;
        }
        config.leave_out::<Runner>("runner", &runner.rest)?;
    }
    if let Some(algorithm) = top.algorithm {
        if let Some(epochs) = algorithm.eval_rollout_epoch {
            config.over.entry("rollout_epoch").or_insert(epochs.into());
        }
        config.leave_out::<Algorithm>("algorithm", &algorithm.rest)?;
    }
    config.leave_out::<Top>("", &top.rest)?;
    Ok(config)
}

impl Config {
    fn add_eval(&mut self, eval: Eval) -> Result<(), Refusal> {
        let place = "env.eval";
        if let Value::Object(same) = json!(eval.same) {
            for (name, value) in same.into_iter().filter(|(_, value)| !value.is_null()) {
                check_references(place, &name, &value)?;
                self.over.insert(name, value);
            }
        }
        if let Some(video) = eval.video_cfg {
            self.add_video(video)?;
        }
        let mut env = eval.env_args.unwrap_or_default();
        let environment = match (eval.environment, eval.env_type) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                let reason = format!(
                    "`{ours}` is given together with env_type `{theirs}`; they mean the same thing"
                );
                return Err(Refusal::at("env.eval field environment", reason));
            }
            (ours, theirs) => ours.or(theirs),
        };
        if let Some(environment) = environment {
            check_reference(place, "environment", &environment)?;
            env.insert("environment".to_owned(), environment.into());
        }
        if let Some(cameras) = eval.enable_cameras {
            env.insert("enable_cameras".to_owned(), cameras.into());
        }
        if let Some(steps) = eval.max_episode_steps {
            let limit = json!({"max_episode_steps": steps});
            self.over.insert("arena_env_args".to_owned(), limit);
        }
        if !env.is_empty() {
            self.under.insert("arena_env_args".to_owned(), env.into());
        }
        self.leave_out::<Eval>(place, &eval.rest)
    }

    fn add_video(&mut self, video: Map<String, Value>) -> Result<(), Refusal> {
        let place = "env.eval.video_cfg";
        let known = names::<VideoSettings>();
        for (name, value) in &video {
            if UNUSED_VIDEO.contains(&name.as_str()) {
                self.unused.push(format!("{place}.{name}"));
            } else if known.contains(&name.as_str()) {
                check_references(place, name, value)?;
            } else {
                return Err(Refusal::unknown(place, "field", name, &known));
            }
        }
        self.over.insert("video_cfg".to_owned(), video.into());
        Ok(())
    }

    fn add_rollout(&mut self, rollout: Rollout) -> Result<(), Refusal> {
        let place = "rollout";
        if let Some(stages) = rollout.pipeline_stage_num {
            check_references(place, "pipeline_stage_num", &stages)?;
            self.over.insert("pipeline_stage_num".to_owned(), stages);
        }
        if let Some(policy) = rollout.policy_type {
            check_references(place, "policy_type", &policy)?;
            self.under.insert("policy_type".to_owned(), policy);
        }
        if rollout.enable_offload == Some(true) {
            self.unused.push("rollout.enable_offload".to_owned());
        }
        let mut policy = match (rollout.policy_config_dict, rollout.policy_args) {
            (Some(_), Some(_)) => {
                let reason = "it is the old name of `policy_config_dict`, which is also given";
                return Err(Refusal::at("rollout field policy_args", reason));
            }
            (new, old) => new.or(old).unwrap_or_default(),
        };
        if let Some(model) = rollout.model {
            if let Some(path) = model.model_path {
                check_references("rollout.model", "model_path", &path)?;
                policy.insert("model_path".to_owned(), path);
            }
            if let Some(chunk) = model.num_action_chunks {
                policy.entry("action_chunk_length").or_insert(chunk.into());
            }
            self.leave_out::<Model>("rollout.model", &model.rest)?;
        }
        if !policy.is_empty() {
            let settings = policy.into();
            self.under.insert("policy_config_dict".to_owned(), settings);
        }
        self.leave_out::<Rollout>(place, &rollout.rest)
    }

    /// Adds names that are not read to those without effect, and refuses one that resembles a name
    /// that is.
    fn leave_out<T: Settings>(&mut self, section: &str, rest: &Rest) -> Result<(), Refusal> {
        for name in rest.keys() {
            if most_similar(name, names::<T>(), LIKE).is_some() {
                let place = if section.is_empty() {
                    "top level"
                } else {
                    section
                };
                return Err(Refusal::unknown(place, "field", name, &names::<T>()));
            }
            let dotted = [section, name].join(".");
            self.unused.push(dotted.trim_start_matches('.').to_owned());
        }
        Ok(())
    }
}

/// Refuses a text with a reference that leads nowhere.
fn check_references(section: &str, name: &str, value: &Value) -> Result<(), Refusal> {
    value
        .as_str()
        .map_or(Ok(()), |text| check_reference(section, name, text))
}

fn check_reference(section: &str, name: &str, text: &str) -> Result<(), Refusal> {
    match references::unresolved(text) {
        Some(reference) => Err(Refusal::at(
            format_args!("{section} field {name}"),
            format_args!("`{reference}` cannot be resolved"),
        )),
        None => Ok(()),
    }
}
