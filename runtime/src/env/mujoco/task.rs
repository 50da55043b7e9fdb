//! The tasks: scene, initial states and success predicate. A new task is a row in [`TABLE`], and one in
//! `jobs/src/simulators` with its instruction and limits.

use crate::env::mujoco::rotation::{flat_distance, minus, norm};

/// Names of the tasks, which a job's `environment` selects.
pub const TASKS: &[&str] = &["reach", "push", "pick_and_place"];

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

static TABLE: [MujocoTask; 3] = [
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
pub(super) fn find(name: &str) -> Option<&'static MujocoTask> {
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

#[cfg(test)]
mod tests {
    use crate::env::mujoco::task::{EpisodeRng, TABLE, TASKS, TaskState, find};

    #[test]
    fn names_are_those_of_the_table() {
        assert_eq!(TABLE.each_ref().map(|task| task.name), TASKS);
    }

    #[test]
    fn a_layout_comes_from_its_seed_alone() {
        let push = find("push").unwrap();
        assert_eq!(
            (push.sample)(&mut EpisodeRng(5)),
            (push.sample)(&mut EpisodeRng(5))
        );
        assert_ne!(
            (push.sample)(&mut EpisodeRng(5)),
            (push.sample)(&mut EpisodeRng(6))
        );
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
}
