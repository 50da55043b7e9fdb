//! Converts the sections of a configuration to fields of a job.

use serde_json::{Map, Value, json};

use crate::fields::{FieldError, FileFields};
use crate::rlinf::Config;
use crate::similar::most_similar;
use crate::tree::references;

/// Top-level sections that are read.
const TOP: &[&str] = &[
    "cluster",
    "env",
    "rollout",
    "runner",
    "algorithm",
    "jobs",
    "model_server",
];

/// Names of `env.eval` that are read.
pub(super) const EVAL: &[&str] = &[
    "total_num_envs",
    "auto_reset",
    "ignore_terminations",
    "max_episode_steps",
    "max_steps_per_rollout_epoch",
    "rollout_epoch",
    "environment",
    "env_type",
    "env_args",
    "enable_cameras",
    "seed",
    "video_cfg",
];

/// Names of `rollout` that are read.
pub(super) const ROLLOUT: &[&str] = &[
    "pipeline_stage_num",
    "policy_type",
    "policy_config_dict",
    "policy_args",
    "model",
    "enable_offload",
];

/// Names of `cluster` that are read.
pub(super) const CLUSTER: &[&str] = &["component_placement", "num_nodes"];

/// Settings of other sections that are read.
const ELSEWHERE: &[&str] = &[
    "algorithm.eval_rollout_epoch",
    "rollout.model.model_path",
    "rollout.model.num_action_chunks",
    "runner.logger.log_path",
];

/// Similarity above which a setting is taken for a misspelled one; the nearest name of RLinf has
/// 0.88.
const LIKE: f64 = 0.93;

/// Reads all sections of a merged tree.
pub(super) fn read(tree: &Value) -> Result<Config, FieldError> {
    let mut config = Config::default();
    let mut top = FileFields::new("top level", tree)?;
    if let Some(cluster) = section(&mut top, "cluster", "cluster")? {
        self::cluster(cluster, &mut config)?;
    }
    if let Some(mut env) = section(&mut top, "env", "env")? {
        if let Some(eval) = section(&mut env, "eval", "env.eval")? {
            self::eval(eval, &mut config)?;
        }
        unused(&env, "env", &mut config);
    }
    if let Some(rollout) = section(&mut top, "rollout", "rollout")? {
        self::rollout(rollout, &mut config)?;
    }
    if let Some(runner) = section(&mut top, "runner", "runner")? {
        self::runner(runner, &mut config)?;
    }
    if let Some(mut algorithm) = section(&mut top, "algorithm", "algorithm")? {
        let epochs = algorithm.positive("eval_rollout_epoch")?;
        if let Some(epochs) = epochs.filter(|_| !config.over.contains_key("rollout_epoch")) {
            config
                .over
                .insert("rollout_epoch".to_owned(), epochs.into());
        }
        unused(&algorithm, "algorithm", &mut config);
    }
    config.jobs = top.take("jobs").filter(|jobs| !jobs.is_null()).cloned();
    config.model_server = crate::model_server::take(&mut top)?;
    sort_out(&top, "", TOP, &mut config.unused)?;
    Ok(config)
}

/// Takes a mapping out of another; returns `None` if it is missing or `null`.
fn section<'a>(
    fields: &mut FileFields<'a>,
    name: &str,
    place: &str,
) -> Result<Option<FileFields<'a>>, FieldError> {
    match fields.take(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => FileFields::new(place, value).map(Some),
    }
}

fn cluster(mut cluster: FileFields, config: &mut Config) -> Result<(), FieldError> {
    config.num_nodes = cluster.positive("num_nodes")?.map(|nodes| nodes as usize);
    if cluster.has("node_groups") {
        return Err(cluster.refuse(
            "node_groups",
            "node groups are not supported; GPUs are numbered over all nodes",
        ));
    }
    cluster.take("node_groups");
    cluster.finish(CLUSTER)
}

/// Settings of `env.eval` with the same name in a job, which checks them.
const SAME: &[&str] = &[
    "total_num_envs",
    "auto_reset",
    "ignore_terminations",
    "max_steps_per_rollout_epoch",
    "rollout_epoch",
    "seed",
];

fn eval(mut eval: FileFields, config: &mut Config) -> Result<(), FieldError> {
    for name in SAME {
        copy(&mut eval, name, &mut config.over)?;
    }
    if let Some(video) = eval.object("video_cfg")? {
        let place = "env.eval.video_cfg";
        let value = Value::Object(video.clone());
        let mut fields = FileFields::new(place, &value)?;
        crate::file::video::KNOWN.iter().try_for_each(|name| {
            let value = fields.take(name);
            check_references(&fields, name, value)
        })?;
        for key in fields.left() {
            if !crate::file::video::UNUSED.contains(&key) {
                return Err(fields.unknown(key, crate::file::video::KNOWN));
            }
            config.unused.push(format!("{place}.{key}"));
        }
        config.over.insert("video_cfg".to_owned(), value.clone());
    }
    let mut env = eval.object("env_args")?.unwrap_or_default();
    let environment = match (
        eval.optional_string("environment")?,
        eval.optional_string("env_type")?,
    ) {
        (Some(ours), Some(theirs)) if ours != theirs => {
            let reason = format!(
                "`{ours}` is given together with env_type `{theirs}`; they mean the same \
                    thing"
            );
            return Err(eval.refuse("environment", &reason));
        }
        (ours, theirs) => ours.or(theirs),
    };
    if let Some(environment) = environment {
        check_references(&eval, "environment", Some(&environment.clone().into()))?;
        env.insert("environment".to_owned(), environment.into());
    }
    if let Some(cameras) = eval.bool("enable_cameras")? {
        env.insert("enable_cameras".to_owned(), cameras.into());
    }
    if let Some(steps) = eval.positive("max_episode_steps")? {
        config.over.insert(
            "arena_env_args".to_owned(),
            json!({"max_episode_steps": steps}),
        );
    }
    if !env.is_empty() {
        config.under.insert("arena_env_args".to_owned(), env.into());
    }
    sort_out(&eval, "env.eval.", EVAL, &mut config.unused)
}

fn rollout(mut rollout: FileFields, config: &mut Config) -> Result<(), FieldError> {
    copy(&mut rollout, "pipeline_stage_num", &mut config.over)?;
    copy(&mut rollout, "policy_type", &mut config.under)?;
    if rollout.bool("enable_offload")? == Some(true) {
        config.unused.push("rollout.enable_offload".to_owned());
    }
    let mut policy = match (
        rollout.object("policy_config_dict")?,
        rollout.object("policy_args")?,
    ) {
        (Some(_), Some(_)) => {
            return Err(rollout.refuse(
                "policy_args",
                "it is the old name of `policy_config_dict`, which is also given",
            ));
        }
        (new, old) => new.or(old).unwrap_or_default(),
    };
    if let Some(mut model) = section(&mut rollout, "model", "rollout.model")? {
        copy(&mut model, "model_path", &mut policy)?;
        if let Some(chunk) = model.positive("num_action_chunks")? {
            policy.entry("action_chunk_length").or_insert(chunk.into());
        }
        unused(&model, "rollout.model", config);
    }
    if !policy.is_empty() {
        config
            .under
            .insert("policy_config_dict".to_owned(), policy.into());
    }
    sort_out(&rollout, "rollout.", ROLLOUT, &mut config.unused)
}

fn runner(mut runner: FileFields, config: &mut Config) -> Result<(), FieldError> {
    if let Some(mut logger) = section(&mut runner, "logger", "runner.logger")? {
        let log_path = logger.optional_string("log_path")?;
        check_references(
            &logger,
            "log_path",
            log_path.clone().map(Value::String).as_ref(),
        )?;
        config.log_path = log_path.map(Into::into);
        unused(&logger, "runner.logger", config);
    }
    unused(&runner, "runner", config);
    Ok(())
}

/// Copies a setting that has the same name in a job; `null` counts as not set.
fn copy(
    fields: &mut FileFields,
    name: &str,
    to: &mut Map<String, Value>,
) -> Result<(), FieldError> {
    if let Some(value) = fields.take(name).filter(|value| !value.is_null()) {
        check_references(fields, name, Some(value))?;
        to.insert(name.to_owned(), value.clone());
    }
    Ok(())
}

fn check_references(
    fields: &FileFields,
    name: &str,
    value: Option<&Value>,
) -> Result<(), FieldError> {
    match value
        .and_then(Value::as_str)
        .and_then(references::unresolved)
    {
        Some(reference) => Err(fields.refuse(name, &format!("`{reference}` cannot be resolved"))),
        None => Ok(()),
    }
}

fn unused(fields: &FileFields, place: &str, config: &mut Config) {
    config
        .unused
        .extend(fields.left().map(|key| format!("{place}.{key}")));
}

/// Adds names that are not read to `unused`, and refuses one that resembles a known one.
fn sort_out(
    fields: &FileFields,
    section: &str,
    known: &[&str],
    unused: &mut Vec<String>,
) -> Result<(), FieldError> {
    for key in fields.left() {
        if most_similar(key, known.iter().copied(), LIKE).is_some() {
            return Err(fields.unknown(key, known));
        }
        unused.push(format!("{section}{key}"));
    }
    Ok(())
}

/// Returns the setting that is read whose dotted name is most similar to this one, if any is
/// similar enough.
pub(super) fn nearest(name: &str) -> Option<String> {
    let sections = [
        ("env.eval", EVAL),
        ("rollout", ROLLOUT),
        ("cluster", CLUSTER),
    ];
    let below = |(section, keys): (&str, &[&str])| {
        let dotted = keys.iter().map(|key| format!("{section}.{key}"));
        dotted.collect::<Vec<_>>()
    };
    let mut known: Vec<_> = sections.into_iter().flat_map(below).collect();
    known.extend(ELSEWHERE.iter().map(|key| (*key).to_owned()));
    most_similar(name, known.iter().map(String::as_str), LIKE).map(str::to_owned)
}
