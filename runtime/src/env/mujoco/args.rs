//! Parses the `arena_env_args` of a job, and checks them before anything is built.

use std::sync::Arc;

use jobs::environments::EveryEnvironment;
use jobs::refusal::Refusal;
use jobs::settings::{self, names};
use jobs::simulators::{Quality, Simulator, TableTop};
use serde_json::{Map, Value};

use crate::env::mujoco::task::{MujocoTask, TASKS, TaskObject, find};

/// Control frequency in steps per second.
pub(super) const CONTROL_HZ: u32 = 20;

/// Default height and width of a camera image.
const CAMERA_SIDE: u32 = 224;

/// Light intensity that leaves the scene as designed.
const LIGHT_INTENSITY: f64 = 500.0;

/// A job's environment, with all defaults filled in.
pub(super) struct MujocoSettings {
    pub(super) task: &'static MujocoTask,
    pub(super) object: Option<&'static TaskObject>,
    pub(super) language: Arc<str>,
    pub(super) camera_height: u32,
    pub(super) camera_width: u32,
    pub(super) max_episode_steps: u32,
    pub(super) success_hold_steps: u32,
    /// Largest distance that counts as success, in metres.
    pub(super) success_threshold: f64,
    /// Factor on the scene's lights; 1 leaves them as they are.
    pub(super) light_scale: f32,
    pub(super) quality: Quality,
    /// Names of arguments that have no meaning here.
    pub(super) ignored: Vec<String>,
}

impl MujocoSettings {
    /// Reads the arguments; `language` is a task instruction in place of the task's own.
    pub(super) fn new(
        task: &str,
        language: Option<String>,
        args: &Map<String, Value>,
    ) -> Result<Self, Refusal> {
        let unknown = || Refusal::unknown("", "environment", task, TASKS);
        let task = find(task).ok_or_else(unknown)?;
        let mut rows = Simulator::TableTop.row().environments.iter();
        let row = rows.find(|row| row.name == task.name).ok_or_else(unknown)?;
        let (known, common) = (names::<TableTop>(), names::<EveryEnvironment>());
        let (mut own, mut ignored) = (Map::new(), Vec::new());
        for (name, value) in args {
            if known.contains(&name.as_str()) {
                own.insert(name.clone(), value.clone());
            } else if !common.contains(&name.as_str()) {
                ignored.push(name.clone());
            }
        }
        let given: TableTop = settings::read("arena_env_args", &own)?;
        let in_steps = |seconds: f64| (seconds * f64::from(CONTROL_HZ)).round() as u32;
        let steps = given.max_episode_steps;
        let steps = steps.or(given.episode_length_s.map(in_steps));
        let language = language.or(given.task_description);
        let named = given.object.as_deref();
        let is_meant = |object: &&TaskObject| named.is_none_or(|name| object.name == name);
        Ok(Self {
            task,
            object: task.objects.iter().find(is_meant),
            language: language.map_or_else(|| Arc::from(row.about), Arc::from),
            camera_height: given.camera_height.unwrap_or(CAMERA_SIDE),
            camera_width: given.camera_width.unwrap_or(CAMERA_SIDE),
            max_episode_steps: steps.unwrap_or(row.max_episode_steps),
            success_hold_steps: given.success_hold_steps,
            success_threshold: given.success_threshold.unwrap_or(row.success_threshold),
            light_scale: (given.light_intensity / LIGHT_INTENSITY) as f32,
            quality: given.render_quality,
            ignored,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(task: &str, args: Value) -> Result<MujocoSettings, Refusal> {
        MujocoSettings::new(task, None, args.as_object().unwrap())
    }

    #[test]
    fn defaults_are_those_of_the_task() {
        let found = settings("push", json!({})).ok().unwrap();
        assert_eq!((found.camera_height, found.max_episode_steps), (224, 200));
        assert_eq!(found.success_hold_steps, 5);
        assert_eq!(
            (found.object.unwrap().name, found.quality),
            ("puck", Quality::Fast)
        );
    }

    #[test]
    fn arguments_are_applied() {
        let args = json!({"camera_width": 320, "episode_length_s": 3.0, "object": "cylinder", "task_description": "go"});
        let found = settings("pick_and_place", args).ok().unwrap();
        assert_eq!((found.camera_width, found.max_episode_steps), (320, 60));
        assert_eq!(
            (found.object.unwrap().name, &*found.language),
            ("cylinder", "go")
        );
    }

    #[test]
    fn the_instruction_of_the_job_wins_over_that_of_the_arguments() {
        let args = json!({"task_description": "go"});
        let args = args.as_object().unwrap();
        let found = MujocoSettings::new("reach", Some("stop".to_owned()), args).unwrap();
        assert_eq!(&*found.language, "stop");
    }

    #[test]
    fn unknown_arguments_are_told_and_null_is_absent() {
        let args = json!({"hdr": "hall", "embodiment": "droid", "object": null});
        let found = settings("reach", args).ok().unwrap();
        assert_eq!(found.ignored, ["hdr", "embodiment"]);
    }

    #[test]
    fn light_of_the_default_leaves_the_scene_as_designed() {
        let found = settings("reach", json!({})).ok().unwrap();
        assert_eq!((found.light_scale, found.max_episode_steps), (1.0, 100));
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        for (task, args, reason) in [
            (
                "reach",
                json!({"camera_height": 4}),
                "arena_env_args.camera_height: found 4, expected a whole number from 16 to 2048",
            ),
            (
                "reach",
                json!({"success_threshold": "near"}),
                "arena_env_args.success_threshold: found \"near\", expected a number from 0.001 to 1",
            ),
            (
                "stack",
                json!({}),
                "unknown environment `stack`; expected one of reach, push, pick_and_place",
            ),
        ] {
            let refusal = settings(task, args).err().unwrap().to_string();
            assert!(refusal.contains(reason), "{refusal}");
        }
    }
}
