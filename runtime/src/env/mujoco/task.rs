//! The tasks: scene, initial states and success predicate; and what a job says about them in its
//! `arena_env_args`, which is checked before anything is built. A new task is a row in [`TABLE`],
//! and one in `jobs/src/environments` with its instruction and limits.

use std::sync::Arc;

use jobs::environments::{EveryEnvironment, Quality, Simulator, TableTop};
use jobs::refusal::Refusal;
use jobs::settings::{self, names};
use serde_json::{Map, Value};

use crate::env::mujoco::rotation::{flat_distance, minus, norm};

/// An object to manipulate: name, MJCF, and the height of its centre above its support in metres.
pub(super) struct TaskObject {
    pub(super) name: &'static str,
    pub(super) mjcf: &'static str,
    pub(super) rest_height: f64,
}

/// One task.
pub(super) struct MujocoTask {
    pub(super) name: &'static str,
    pub(super) mjcf: &'static str,
    /// Objects of the task, the default first; empty for a task without an object.
    pub(super) objects: &'static [TaskObject],
    /// Draws a random initial state.
    pub(super) sample: fn(&mut EpisodeRng) -> InitialState,
    /// Returns the distance of a state from success, in metres.
    pub(super) distance: fn(&TaskState) -> f64,
}

/// Initial positions of the goal and, if the task has one, the object: in metres, and in radians
/// about the vertical axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct InitialState {
    pub(super) goal: [f64; 3],
    pub(super) object: [f64; 2],
    pub(super) object_yaw: f64,
}

/// The inputs of a success predicate, in metres.
pub(super) struct TaskState {
    pub(super) hand: [f64; 3],
    pub(super) goal: [f64; 3],
    pub(super) object: [f64; 3],
    /// Height of the object's centre above its support when it rests.
    pub(super) rest_height: f64,
}

const CUBE: TaskObject = TaskObject {
    name: "cube",
    mjcf: include_str!("assets/cube.xml"),
    rest_height: 0.02,
};
const CYLINDER: TaskObject = TaskObject {
    name: "cylinder",
    mjcf: include_str!("assets/cylinder.xml"),
    rest_height: 0.025,
};
const PUCK: TaskObject = TaskObject {
    name: "puck",
    mjcf: include_str!("assets/puck.xml"),
    rest_height: 0.015,
};

/// Height of the plate in `pick_and_place.xml`; its centre is half of that above the table.
const PLATE_HEIGHT: f64 = 0.01;

/// Distance in metres from the object's centre beyond which the hand has released it; a closed hand
/// that holds it is nearer.
const RELEASED: f64 = 0.06;

pub(super) static TABLE: [MujocoTask; 3] = [
    MujocoTask {
        name: "reach",
        mjcf: include_str!("assets/reach.xml"),
        objects: &[],
        sample: |rng| InitialState {
            goal: [
                rng.uniform(0.36, 0.56),
                rng.uniform(-0.24, 0.24),
                rng.uniform(0.06, 0.30),
            ],
            object: [0.0; 2],
            object_yaw: 0.0,
        },
        distance: |scene| norm(minus(scene.hand, scene.goal)),
    },
    MujocoTask {
        name: "push",
        mjcf: include_str!("assets/push.xml"),
        objects: &[PUCK],
        sample: |rng| {
            let (object, goal) = apart(rng, 0.12, 0.24);
            InitialState {
                goal: [goal[0], goal[1], 0.001],
                object,
                object_yaw: 0.0,
            }
        },
        distance: |scene| flat_distance(scene.object, scene.goal),
    },
    MujocoTask {
        name: "pick_and_place",
        mjcf: include_str!("assets/pick_and_place.xml"),
        objects: &[CUBE, CYLINDER],
        sample: |rng| {
            let (object, goal) = apart(rng, 0.14, 0.36);
            let quarter = std::f64::consts::FRAC_PI_4;
            InitialState {
                goal: [goal[0], goal[1], PLATE_HEIGHT / 2.0],
                object,
                object_yaw: rng.uniform(-quarter, quarter),
            }
        },
        distance: |scene| {
            let height = scene.object[2] - scene.goal[2] - PLATE_HEIGHT / 2.0 - scene.rest_height;
            let placed = height.abs() < 0.01 && norm(minus(scene.hand, scene.object)) > RELEASED;
            if placed {
                flat_distance(scene.object, scene.goal)
            } else {
                f64::INFINITY
            }
        },
    },
];

/// Returns the task of a name.
fn find(name: &str) -> Option<&'static MujocoTask> {
    TABLE.iter().find(|task| task.name == name)
}

/// Draws two places on the table, `near` to `far` metres apart.
fn apart(rng: &mut EpisodeRng, near: f64, far: f64) -> ([f64; 2], [f64; 2]) {
    loop {
        let object = [rng.uniform(0.40, 0.54), rng.uniform(-0.18, 0.18)];
        let goal = [rng.uniform(0.40, 0.56), rng.uniform(-0.20, 0.20)];
        let distance = flat_distance([object[0], object[1], 0.0], [goal[0], goal[1], 0.0]);
        if (near..far).contains(&distance) {
            return (object, goal);
        }
    }
}

/// The random number generator for initial states, whose only state is the episode's seed:
/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
pub(super) struct EpisodeRng(pub(super) u64);

impl EpisodeRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number that is uniform in `low..high`, from the upper 53 bits.
    pub(super) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        low + (high - low) * unit
    }
}

/// Control frequency in steps per second.
pub(super) const CONTROL_HZ: u32 = 20;

/// Default height and width of a camera image.
const CAMERA_SIDE: u32 = 224;

/// Light intensity that leaves the scene as designed.
const LIGHT_INTENSITY: f64 = 500.0;

/// A job's environment, with all defaults filled in.
pub struct MujocoSettings {
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
    /// Names of arguments that have no meaning here, in the file's order.
    pub ignored: Vec<String>,
}

impl MujocoSettings {
    /// Reads the arguments; `language` is a task instruction in place of the task's own.
    ///
    /// # Errors
    /// Returns a [`Refusal`] for the task or an argument.
    pub fn new(
        task: &str,
        language: Option<String>,
        args: &Map<String, Value>,
    ) -> Result<Self, Refusal> {
        let rows = Simulator::TableTop.row();
        let row = rows.environments.iter().find(|row| row.name == task);
        let (row, task) = row.zip(find(task)).ok_or_else(|| {
            let names: Vec<_> = rows.names().collect();
            Refusal::unknown("", "environment", task, &names)
        })?;
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
    use super::*;
    use serde_json::json;

    #[test]
    fn the_launcher_knows_the_tasks_that_are_here() {
        let names: Vec<&str> = Simulator::TableTop.row().names().collect();
        assert_eq!(TABLE.each_ref().map(|task| task.name)[..], names);
    }

    #[test]
    fn a_block_still_in_the_hand_is_not_placed() {
        let task = find("pick_and_place").unwrap();
        let mut scene = TaskState {
            hand: [0.5, 0.0, 0.03],
            goal: [0.5, 0.0, 0.005],
            object: [0.5, 0.0, 0.03],
            rest_height: 0.02,
        };
        assert_eq!((task.distance)(&scene), f64::INFINITY);
        scene.hand[2] = 0.12;
        assert_eq!((task.distance)(&scene), 0.0);
    }

    #[test]
    fn first_numbers_of_seed_zero_are_those_of_the_reference_code() {
        let mut rng = EpisodeRng(0);
        assert_eq!(
            [rng.next(), rng.next()],
            [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]
        );
    }

    #[test]
    fn uniform_stays_in_its_range() {
        let mut rng = EpisodeRng(7);
        assert!((0..1000).all(|_| (-0.5..0.25).contains(&rng.uniform(-0.5, 0.25))));
    }

    fn settings(task: &str, args: Value) -> Result<MujocoSettings, Refusal> {
        MujocoSettings::new(task, None, args.as_object().unwrap())
    }

    #[test]
    fn defaults_are_those_of_the_task() {
        let found = settings("push", json!({})).ok().unwrap();
        assert_eq!((found.camera_height, found.max_episode_steps), (224, 200));
        assert_eq!((found.success_hold_steps, found.light_scale), (5, 1.0));
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
    fn wrong_values_are_refused_by_name() {
        rig::cases::check("src/env/mujoco/refusals.txt", |given| {
            let (task, args) = given.split_once(' ').unwrap();
            let refused = settings(task, serde_json::from_str(args).unwrap()).err();
            refused.unwrap().to_string()
        });
    }
}
