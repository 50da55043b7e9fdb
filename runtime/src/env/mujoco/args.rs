//! Parses the `arena_env_args` of a job, and checks them before anything is built.

use jobs::environments::COMMON;
use serde_json::{Map, Value};

use crate::env::EnvError;
use crate::env::mujoco::MujocoConfig;
use crate::env::mujoco::task::{MujocoTask, TASKS, TaskObject, find};

/// Control frequency in steps per second.
pub(super) const CONTROL_HZ: u32 = 20;

/// Accepted height and width of an image: MuJoCo has one off-screen buffer of this size in each
/// thread.
const CAMERA_EDGE: std::ops::RangeInclusive<u64> = 16..=2048;

/// Default number of steps for which success must hold: a quarter of a second.
const SUCCESS_HOLD_STEPS: u64 = 5;

/// Light intensity in Arena's examples; 500 leaves the scene as designed.
const LIGHT_INTENSITY: f64 = 500.0;

/// Whether images have shadows and anti-aliasing. On a CPU that takes eight times as long: 58 ms
/// instead of 7 ms for two images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quality {
    Fast,
    High,
}

/// A job's environment, with all defaults filled in.
pub(super) struct MujocoSettings {
    pub(super) task: &'static MujocoTask,
    pub(super) object: Option<&'static TaskObject>,
    pub(super) language: String,
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
    /// Reads the arguments. A value in `config` wins over the same one in `args`, but `args` is
    /// checked anyway.
    pub(super) fn new(config: &MujocoConfig, args: &Map<String, Value>) -> Result<Self, EnvError> {
        let task = find(&config.task).ok_or_else(|| EnvError::Unknown {
            name: config.task.clone(),
            known: TASKS.join(", "),
        })?;
        Self::read(config, task, &mut MujocoArgs::new(args))
    }

    fn read(
        config: &MujocoConfig,
        task: &'static MujocoTask,
        args: &mut MujocoArgs,
    ) -> Result<Self, EnvError> {
        let camera_height = args
            .integer("camera_height", CAMERA_EDGE)?
            .unwrap_or(config.camera_height.into());
        let camera_width = args
            .integer("camera_width", CAMERA_EDGE)?
            .unwrap_or(config.camera_width.into());
        let steps = args.episode_steps()?;
        let max_episode_steps = config
            .max_episode_steps
            .or(steps)
            .unwrap_or(task.max_episode_steps);
        let hold = args
            .integer("success_hold_steps", 1..=1000)?
            .unwrap_or(SUCCESS_HOLD_STEPS);
        let threshold = args
            .number("success_threshold", 0.001..=1.0)?
            .unwrap_or(task.success_threshold);
        let light = args
            .number("light_intensity", 0.0..=10_000.0)?
            .unwrap_or(LIGHT_INTENSITY);
        let described = args.text("task_description")?;
        let language = config
            .language
            .clone()
            .or(described)
            .unwrap_or_else(|| task.language.to_owned());
        Ok(Self {
            task,
            object: args.object(task)?,
            language,
            camera_height: edge("camera_height", camera_height)?,
            camera_width: edge("camera_width", camera_width)?,
            max_episode_steps: at_least_one("max_episode_steps", max_episode_steps)?,
            success_hold_steps: hold as u32,
            success_threshold: threshold,
            light_scale: (light / LIGHT_INTENSITY) as f32,
            quality: args.quality()?,
            ignored: args.left_over(),
        })
    }
}

/// The arguments, and the names of those that were read.
struct MujocoArgs<'a> {
    values: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> MujocoArgs<'a> {
    fn new(values: &'a Map<String, Value>) -> Self {
        Self {
            values,
            known: COMMON.to_vec(),
        }
    }

    /// Returns the value of a field; null counts as absent.
    fn get(&mut self, field: &'static str) -> Option<&'a Value> {
        self.known.push(field);
        self.values.get(field).filter(|value| !value.is_null())
    }

    fn integer(
        &mut self,
        field: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, EnvError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let wanted = format!(
            "expected a whole number from {} to {}",
            range.start(),
            range.end()
        );
        value
            .as_u64()
            .filter(|found| range.contains(found))
            .map(Some)
            .ok_or_else(|| refuse(field, value, wanted))
    }

    fn number(
        &mut self,
        field: &'static str,
        range: std::ops::RangeInclusive<f64>,
    ) -> Result<Option<f64>, EnvError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let wanted = format!(
            "expected a number from {} to {}",
            range.start(),
            range.end()
        );
        value
            .as_f64()
            .filter(|found| range.contains(found))
            .map(Some)
            .ok_or_else(|| refuse(field, value, wanted))
    }

    fn text(&mut self, field: &'static str) -> Result<Option<String>, EnvError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let text = value.as_str().map(|text| Some(text.to_owned()));
        text.ok_or_else(|| refuse(field, value, "expected a string".to_owned()))
    }

    /// Returns the episode limit, which is given in steps or in seconds, but not both.
    fn episode_steps(&mut self) -> Result<Option<u32>, EnvError> {
        let steps = self
            .integer("max_episode_steps", 1..=1_000_000)?
            .map(|steps| steps as u32);
        let seconds = self.number("episode_length_s", 1.0 / f64::from(CONTROL_HZ)..=50_000.0)?;
        if let (Some(_), Some(value)) = (steps, self.get("episode_length_s")) {
            let wanted =
                "`max_episode_steps` already limits the episode, only one of the two is accepted";
            return Err(refuse("episode_length_s", value, wanted.to_owned()));
        }
        Ok(steps.or(seconds.map(|seconds| (seconds * f64::from(CONTROL_HZ)).round() as u32)))
    }

    fn object(
        &mut self,
        task: &'static MujocoTask,
    ) -> Result<Option<&'static TaskObject>, EnvError> {
        let Some(value) = self.get("object") else {
            return Ok(task.objects.first());
        };
        let found = task
            .objects
            .iter()
            .find(|object| value.as_str() == Some(object.name));
        let names: Vec<_> = task.objects.iter().map(|object| object.name).collect();
        let wanted = match names.as_slice() {
            [] => format!("task `{}` has no object", task.name),
            names => format!("expected one of {}", names.join(", ")),
        };
        found
            .map(Some)
            .ok_or_else(|| refuse("object", value, wanted))
    }

    fn quality(&mut self) -> Result<Quality, EnvError> {
        let Some(value) = self.get("render_quality") else {
            return Ok(Quality::Fast);
        };
        match value.as_str() {
            Some("fast") => Ok(Quality::Fast),
            Some("high") => Ok(Quality::High),
            _ => Err(refuse(
                "render_quality",
                value,
                "expected one of fast, high".to_owned(),
            )),
        }
    }

    fn left_over(&self) -> Vec<String> {
        self.values
            .keys()
            .filter(|key| !self.known.contains(&key.as_str()))
            .cloned()
            .collect()
    }
}

fn edge(field: &'static str, found: u64) -> Result<u32, EnvError> {
    let wanted = || {
        format!(
            "expected a whole number from {} to {}",
            CAMERA_EDGE.start(),
            CAMERA_EDGE.end()
        )
    };
    if CAMERA_EDGE.contains(&found) {
        Ok(found as u32)
    } else {
        Err(refuse(field, &found.into(), wanted()))
    }
}

fn at_least_one(field: &'static str, found: u32) -> Result<u32, EnvError> {
    if found > 0 {
        Ok(found)
    } else {
        Err(refuse(
            field,
            &found.into(),
            "expected at least 1".to_owned(),
        ))
    }
}

fn refuse(field: &str, found: &Value, wanted: String) -> EnvError {
    EnvError::Argument {
        field: field.to_owned(),
        found: found.to_string(),
        wanted,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jobs::policies::ValueKind;
    use jobs::simulators::Simulator;
    use serde_json::json;

    use super::*;

    fn settings(task: &str, args: Value) -> Result<MujocoSettings, EnvError> {
        MujocoSettings::new(&MujocoConfig::new(task), args.as_object().unwrap())
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
    fn config_wins_over_arguments() {
        let config = MujocoConfig {
            max_episode_steps: Some(7),
            ..MujocoConfig::new("reach")
        };
        let args = json!({"max_episode_steps": 50});
        let found = MujocoSettings::new(&config, args.as_object().unwrap()).unwrap();
        assert_eq!(found.max_episode_steps, 7);
    }

    #[test]
    fn unknown_arguments_are_told_and_null_is_absent() {
        let args = json!({"hdr": "hall", "embodiment": "droid", "object": null});
        let found = settings("reach", args).ok().unwrap();
        assert_eq!(found.ignored, ["hdr", "embodiment"]);
    }

    #[test]
    fn every_field_that_the_launcher_knows_is_read_and_no_other() {
        let config = MujocoConfig::new("reach");
        let values = serde_json::Map::new();
        let mut args = MujocoArgs::new(&values);
        MujocoSettings::read(&config, find("reach").unwrap(), &mut args).unwrap();
        let fields = Simulator::TableTop.row().fields();
        let known: BTreeSet<&str> = fields.iter().chain(COMMON).copied().collect();
        assert_eq!(args.known.into_iter().collect::<BTreeSet<_>>(), known);
    }

    #[test]
    fn the_values_that_the_launcher_lists_are_accepted_and_all_others_refused() {
        let row = Simulator::TableTop.row();
        for environment in row.environments {
            for argument in row.arguments_of(environment) {
                let name = argument.name;
                let with = |value: Value| settings(environment.name, json!({name: value}));
                let (mut taken, mut others) = (vec![argument.kind.example()], vec![]);
                match argument.kind {
                    ValueKind::Whole(least, most) => {
                        taken.push(json!(most));
                        others.push(json!(least - 1));
                    }
                    ValueKind::Number(least, most) => {
                        taken.push(json!(least));
                        others.push(json!(most * 1.01));
                    }
                    _ => {}
                }
                assert!(taken.into_iter().all(|value| with(value).is_ok()), "{name}");
                assert!(
                    others.into_iter().all(|value| with(value).is_err()),
                    "{name}"
                );
                let refused = with(json!([])).err().unwrap().to_string();
                assert!(refused.ends_with(&*argument.kind.wanted()), "{refused}");
            }
        }
    }

    #[test]
    fn the_defaults_that_the_launcher_lists_are_those_of_the_tasks() {
        let row = Simulator::TableTop.row();
        for environment in row.environments {
            let found = settings(environment.name, json!({})).ok().unwrap();
            let default = |name: &str| {
                let argument = row.arguments_of(environment).find(|one| one.name == name);
                argument.map_or("", |argument| argument.default)
            };
            assert_eq!(environment.about, found.language);
            let numbers = [
                ("max_episode_steps", f64::from(found.max_episode_steps)),
                ("success_threshold", found.success_threshold),
                ("success_hold_steps", f64::from(found.success_hold_steps)),
                ("camera_height", f64::from(found.camera_height)),
                ("camera_width", f64::from(found.camera_width)),
                (
                    "light_intensity",
                    LIGHT_INTENSITY * f64::from(found.light_scale),
                ),
            ];
            for (name, number) in numbers {
                assert_eq!(default(name).parse(), Ok(number), "{name}");
            }
            let object = found.object.map_or("", |object| object.name);
            assert_eq!(default("object"), object);
            let is_fast = found.quality == Quality::Fast;
            assert_eq!(default("render_quality") == "fast", is_fast);
        }
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        for (task, args, reason) in [
            (
                "reach",
                json!({"camera_height": 4}),
                "`arena_env_args.camera_height` is 4, expected a whole number from 16 to 2048",
            ),
            (
                "reach",
                json!({"success_threshold": "near"}),
                "`arena_env_args.success_threshold` is \"near\", expected a number from 0.001 to 1",
            ),
            (
                "reach",
                json!({"object": "cube"}),
                "`arena_env_args.object` is \"cube\", task `reach` has no object",
            ),
            (
                "reach",
                json!({"max_episode_steps": 9, "episode_length_s": 1}),
                "only one",
            ),
            (
                "stack",
                json!({}),
                "unknown environment `stack`: expected one of reach, push, pick_and_place",
            ),
        ] {
            let refusal = settings(task, args).err().unwrap().to_string();
            assert!(refusal.contains(reason), "{refusal}");
        }
    }
}
