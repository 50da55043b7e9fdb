//! Writes a [`Job`] as the entry of a jobs file, from which [`crate::file::parse`] makes the same
//! job again.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::job::{Job, Length, Rollout, Sharing, Status, VideoSettings};
use crate::latency::{Delay, Hold, InferenceLatency};
use crate::model_server::{self, ModelServer};

/// Returns a jobs file with these jobs. Selected episodes (`--only`) are no field of a jobs file, and
/// epochs are written as the episodes or steps that they amount to.
pub fn jobs_file(jobs: &[Job], server: Option<&ModelServer>) -> Value {
    let jobs: Vec<Value> = jobs.iter().map(|job| entry(job).into()).collect();
    match server {
        Some(server) => json!({model_server::FIELD: server.entry(), "jobs": jobs}),
        None => json!({"jobs": jobs}),
    }
}

/// Returns the entry of a job. Fields with their default values are left out.
pub fn entry(job: &Job) -> Map<String, Value> {
    let Job {
        index: _,
        name,
        environment,
        num_envs,
        sharing,
        enable_cameras,
        env_args,
        policy_type,
        policy_config,
        length,
        rollout,
        latency,
        video,
        num_rebuilds,
        only: _,
        language_instruction,
        suite,
        variations,
        variant,
        seed,
        status,
    } = job;
    let mut environment = Map::from_iter([("environment".to_owned(), environment.clone().into())]);
    if sharing.is_none() {
        environment.insert("num_envs".to_owned(), (*num_envs).into());
    }
    put(&mut environment, "enable_cameras", *enable_cameras);
    environment.extend(env_args.clone());

    let mut entry = Map::new();
    put(&mut entry, "name", Some(name.as_str()));
    put(&mut entry, "arena_env_args", Some(environment));
    put(&mut entry, "policy_type", Some(policy_type.as_str()));
    let config = (!policy_config.is_empty()).then(|| policy_config.clone());
    put(&mut entry, "policy_config_dict", config);
    match length {
        Length::Episodes(count) => put(&mut entry, "num_episodes", Some(*count)),
        Length::Steps(count) => put(&mut entry, "num_steps", Some(*count)),
        Length::Policy => {}
    }
    let rebuilds = Some(*num_rebuilds).filter(|rebuilds| *rebuilds > 1);
    put(&mut entry, "num_rebuilds", rebuilds);
    put_sharing(&mut entry, *sharing);
    put_rollout(&mut entry, rollout);
    put(
        &mut entry,
        "language_instruction",
        language_instruction.clone(),
    );
    let variations = (!variations.is_empty()).then(|| variations.clone());
    put(&mut entry, "variations", variations);
    put_written(&mut entry, "variant", variant.as_ref());
    put_written(&mut entry, "suite", suite.as_ref());
    put(&mut entry, "latency", latency.map(written_latency));
    put(&mut entry, "seed", *seed);
    let status = Some(*status).filter(|status| *status != Status::Pending);
    put(&mut entry, "status", status.map(Status::as_str));
    let video = (*video != VideoSettings::default()).then(|| video_cfg(video));
    put(&mut entry, "video_cfg", video);
    entry
}

/// Puts a value that is written in a plan as in a jobs file.
fn put_written(entry: &mut Map<String, Value>, field: &str, value: Option<&impl Serialize>) {
    put(
        entry,
        field,
        value.and_then(|value| serde_json::to_value(value).ok()),
    );
}

fn written_latency(latency: InferenceLatency) -> Value {
    let InferenceLatency { delay, hold } = latency;
    let mut written = match delay {
        Delay::Steps(steps) => json!({"steps": steps}),
        Delay::Ms(ms) => json!({"ms": ms}),
        Delay::Measured => json!({"measured": true}),
    };
    if hold != Hold::default() {
        written["hold"] = json!(hold);
    }
    written
}

fn put_sharing(entry: &mut Map<String, Value>, sharing: Option<Sharing>) {
    let total = sharing.map(|sharing| sharing.total_num_envs);
    put(entry, "total_num_envs", total);
}

fn put_rollout(entry: &mut Map<String, Value>, rollout: &Rollout) {
    let Rollout {
        auto_reset,
        ignore_terminations,
        max_steps_per_rollout_epoch,
        pipeline_stage_num,
    } = rollout;
    put(entry, "auto_reset", auto_reset.then_some(true));
    put(
        entry,
        "ignore_terminations",
        ignore_terminations.then_some(true),
    );
    put(
        entry,
        "max_steps_per_rollout_epoch",
        *max_steps_per_rollout_epoch,
    );
    put(entry, "pipeline_stage_num", *pipeline_stage_num);
}

fn video_cfg(video: &VideoSettings) -> Map<String, Value> {
    let VideoSettings {
        save,
        base_dir,
        use_high_res_cameras,
        cameras,
        fps,
        per_episode,
        grid,
    } = video;
    let mut entry = Map::new();
    put(&mut entry, "save_video", *save);
    let dir = base_dir
        .as_ref()
        .map(|dir| dir.to_string_lossy().into_owned());
    put(&mut entry, "video_base_dir", dir);
    put(&mut entry, "use_high_res_cameras", *use_high_res_cameras);
    put(&mut entry, "cameras", cameras.clone());
    put(&mut entry, "fps", *fps);
    put(&mut entry, "per_episode", per_episode.then_some(true));
    put(&mut entry, "grid", grid.then_some(true));
    entry
}

fn put(entry: &mut Map<String, Value>, field: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        entry.insert(field.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::JobFile;
    use crate::plan::fingerprint;

    fn read(file: &Value) -> JobFile {
        JobFile::new("jobs.json".as_ref(), String::new(), file).unwrap()
    }

    fn is_the_same_again(file: &Value) {
        let first = read(file);
        let again = read(&jobs_file(&first.jobs, first.model_server.as_ref()));
        assert_eq!(first, again);
    }

    #[test]
    fn a_job_that_is_written_and_read_is_the_same() {
        is_the_same_again(&json!({"jobs": [
            {"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted", "num_episodes": 3},
            {"name": "b", "policy_type": "gr00t", "num_steps": 50, "seed": 7, "status": "completed",
             "arena_env_args": {"environment": "gym:X-v0", "num_envs": 3, "enable_cameras": true, "env": {"A": "b"}},
             "policy_config_dict": {"model_path": "x", "action_chunk_length": 8},
             "language_instruction": "go", "variations": {"light": {"x": 1}}, "pipeline_stage_num": 2,
             "video_cfg": {"save_video": true, "video_base_dir": "v", "cameras": ["front"], "fps": 20,
                           "per_episode": true, "grid": true, "use_high_res_cameras": false}},
            {"name": "c", "arena_env_args": {"environment": "push"}, "policy_type": "scripted", "total_num_envs": 8,
             "group_size": 2, "num_episodes": 16, "num_rebuilds": 2, "auto_reset": true, "ignore_terminations": true,
             "max_steps_per_rollout_epoch": 40},
            {"name": "e", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted", "num_episodes": 3,
             "latency": {"ms": 62.5, "hold": "zero"}, "suite": {"name": "s", "protocol": "1", "overrides": ["seed"]},
             "variations": {"grid": {"light_intensity": [100, 900], "object": ["cube", "cylinder"]}}},
            {"name": "f", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted", "num_episodes": 3,
             "latency": "measured", "variations": [{"name": "dark", "group": "light", "light_intensity": 50}]},
            {"name": "d", "arena_env_args": {"environment": "push"}, "policy_type": "replay_action",
             "policy_config_dict": {"replay_file_path": "x.hdf5"}},
        ]}));
    }

    #[test]
    fn a_model_server_that_is_written_and_read_is_the_same() {
        let jobs = json!([{"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted"}]);
        let server =
            |server: Value| is_the_same_again(&json!({"model_server": server, "jobs": jobs}));
        server(json!({"command": "vllm serve x", "health_port": 8000}));
        server(
            json!({"command": ["vllm", "serve"], "health_url": "http://[::1]:81/health?x=1", "devices": [0, 2],
                   "env": {"A": "b"}, "cwd": "/srv", "start_timeout": 5, "max_restarts": 1, "stop_timeout": 9}),
        );
    }

    #[test]
    fn epochs_are_written_as_their_episodes_with_the_same_results() {
        let first = read(&json!({"jobs": [
            {"name": "a", "arena_env_args": {"environment": "reach", "num_envs": 4}, "policy_type": "scripted",
             "rollout_epoch": 3, "max_steps_per_rollout_epoch": 40},
        ]}));
        let again = read(&jobs_file(&first.jobs, None));
        assert_eq!(again.jobs[0].length, Length::Episodes(12));
        let found = fingerprint(&first.jobs[0], 1);
        assert_eq!(found, fingerprint(&again.jobs[0], 1));
    }
}
