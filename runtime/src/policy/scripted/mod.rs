//! The scripted expert of the table-top suite: one small state machine per task, based on the
//! privileged state.
//!
//! ```text
//! reach           Reach
//! push            Above ▶ Descend ▶ Push ─ missed ▶ Raise ▶ Above
//! pick_and_place  Above ▶ Descend ▶ Grasp ▶ Lift ▶ Carry ▶ Lower ▶ Release ▶ Retreat
//!                   ▲ missed ──────────────────────────────────────────────────┘
//! ```
//!
//! All actions of a chunk belong to one phase, the one to which the observed state leads, because
//! the policy does not know how many actions of a chunk are executed. Within a chunk the state is
//! predicted: the hand moves as commanded, and the object it holds follows.

use std::f64::consts::PI;

use crate::env::EnvSpec;
use crate::env::mujoco::arm::{METRES_PER_ACTION, RADIANS_PER_ACTION};
use crate::env::mujoco::rotation::{difference, from_vector, minus, multiply, norm, shorten};
use crate::policy::{
    Chunk, PerEpisode, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer, RowError,
};
use jobs::policies::PolicyType;
use jobs::wiring::Sides;
use view::{ACTION_DIM, HOLDING, SceneState, nearest_to_zero};

pub(crate) mod skill;
mod view;

/// Fraction of the remaining distance that one step covers.
const GAIN: f64 = 0.6;

/// Maximum rotation in radians per step.
const TURN: f64 = 0.25;

/// Height above the table or the object at which the hand travels, in metres.
const TRAVEL: f64 = 0.11;

/// Height of the hand while it pushes, in metres; the finger tips are then 8 mm above the table.
const PUSH_HEIGHT: f64 = 0.02;

/// Distance from the hand to the centre of a puck that both open fingers touch, in metres.
const CRADLE: f64 = 0.032;

/// Distance from the hand to the centre of a puck before the push, in metres, with a gap of 20 mm.
const RUN_UP: f64 = 0.076;

/// Quaternion of a hand that points down with its fingers along the y axis.
const DOWN: [f64; 4] = [0.0, 0.0, 1.0, 0.0];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskName {
    Reach,
    Push,
    PickAndPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Reach,
    Above,
    Descend,
    Push,
    Raise,
    Grasp,
    Lift,
    Carry,
    Lower,
    Release,
    Retreat,
}

/// The state of an episode that is kept between chunks.
#[derive(Clone, Copy, Debug)]
struct EpisodeMemory {
    task: TaskName,
    phase: Phase,
    /// Unit vector along which a puck is pushed, chosen while the hand is above it.
    heading: [f64; 2],
    /// Height of the object's centre at the start, when the object rests on the table.
    rest: f64,
}

/// The current target of the hand.
#[derive(Clone, Copy, Debug)]
struct Waypoint {
    position: [f64; 3],
    /// Rotation about the vertical axis, from fingers along the y axis.
    yaw: f64,
    closed: bool,
    /// Speed in metres per step.
    speed: f64,
}

/// Solves the tasks of [`crate::env::mujoco`] from the privileged state.
pub struct Scripted {
    task: TaskName,
    horizon: usize,
    episodes: PerEpisode<EpisodeMemory>,
}

impl Scripted {
    /// How many steps of a plan are executed unless the job says otherwise.
    pub(in crate::policy) const CHUNK_LENGTH: usize = 4;

    /// Creates an expert that plans `horizon` steps at a time.
    ///
    /// # Errors
    /// Returns an error for an environment that is not a task of the suite or lacks state.
    pub fn new(env: &EnvSpec, horizon: usize) -> Result<Self, PolicyError> {
        Ok(Self {
            task: task_of(env)?,
            horizon,
            episodes: PerEpisode::default(),
        })
    }

    fn chunk(&mut self, row: &PolicyRow) -> Result<Chunk, RowError> {
        let view = SceneState::new(row.now())?;
        let task = self.task;
        let memory = self.episodes.of(row, || EpisodeMemory::new(task, &view));
        memory.advance(&view);
        Ok(steps(self.horizon, view, |view| memory.waypoint(view)))
    }
}

/// Returns the actions of so many steps, each on the way to the waypoint in the predicted view.
fn steps(count: usize, mut view: SceneState, waypoint: impl Fn(&SceneState) -> Waypoint) -> Chunk {
    let mut values = Vec::with_capacity(count * ACTION_DIM);
    for _ in 0..count {
        let action = waypoint(&view).action(&view);
        values.extend(action.map(|value| value as f32));
        view = view.after(&action);
    }
    Chunk::new(ACTION_DIM, values)
}

/// Returns the task of an environment that provides the state vectors that the expert reads.
fn task_of(env: &EnvSpec) -> Result<TaskName, PolicyError> {
    let sides = Sides::new(PolicyType::Scripted, env);
    let of_object = ["object_position", "object_quaternion"];
    let (task, keys) = match env.name.as_str() {
        "reach" => (TaskName::Reach, &[][..]),
        "push" => (TaskName::Push, &of_object[..]),
        "pick_and_place" => (TaskName::PickAndPlace, &of_object[..]),
        _ => {
            let lacks = sides.lacks("one of the tasks reach, push, pick_and_place");
            return Err(lacks.into());
        }
    };
    sides.require_states(&[
        "eef_position",
        "eef_quaternion",
        "gripper_position",
        "goal_position",
    ])?;
    sides.require_states(keys)?;
    Ok(task)
}

impl Policy for Scripted {
    fn facts(&self) -> PolicyFacts {
        PolicyFacts {
            horizon: self.horizon,
            ..PolicyFacts::default()
        }
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        Ok(rows.iter().map(|row| self.chunk(row).into()).collect())
    }
}

impl EpisodeMemory {
    fn new(task: TaskName, view: &SceneState) -> Self {
        let phase = if task == TaskName::Reach {
            Phase::Reach
        } else {
            Phase::Above
        };
        Self {
            task,
            phase,
            heading: view.heading(),
            rest: view.object[2],
        }
    }

    /// Advances to the phase to which the view leads.
    fn advance(&mut self, view: &SceneState) {
        let next = self.next(view);
        if next == Phase::Above && self.phase != Phase::Above {
            self.heading = view.heading();
        }
        self.phase = next;
    }

    fn next(&self, view: &SceneState) -> Phase {
        let waypoint = self.waypoint(view);
        let near = |distance: f64| norm(minus(waypoint.position, view.hand)) < distance;
        let turned = norm(difference(view.quaternion, down(waypoint.yaw))) < 0.08;
        let slipped = norm(minus(view.object, view.hand)) > 0.04;
        match (self.task, self.phase) {
            (_, Phase::Above) if near(0.015) && turned => Phase::Descend,
            (TaskName::Push, Phase::Descend) if near(0.01) => Phase::Push,
            (TaskName::Push, Phase::Push) if near(0.006) && view.distance_to_goal() > 0.018 => {
                Phase::Raise
            }
            (_, Phase::Raise) if view.hand[2] > TRAVEL - 0.03 => Phase::Above,
            (TaskName::PickAndPlace, Phase::Descend) if near(0.006) => Phase::Grasp,
            (_, Phase::Grasp) if view.finger < HOLDING && !slipped => Phase::Lift,
            (_, Phase::Grasp) if view.finger < 0.01 => Phase::Above,
            (_, Phase::Lift | Phase::Carry | Phase::Lower) if slipped => Phase::Above,
            (_, Phase::Lift) if view.hand[2] > TRAVEL - 0.02 => Phase::Carry,
            (_, Phase::Carry) if view.distance_to_goal() < 0.008 => Phase::Lower,
            (_, Phase::Lower) if view.object[2] < self.placed_height(view) + 0.004 => {
                Phase::Release
            }
            (_, Phase::Release) if view.finger > 0.032 => Phase::Retreat,
            (_, Phase::Retreat) if near(0.02) && view.distance_to_goal() > 0.03 => Phase::Above,
            (_, phase) => phase,
        }
    }

    /// Returns the height of the object's centre on the plate; the plate's top is as far above its
    /// centre as its centre is above the table.
    fn placed_height(&self, view: &SceneState) -> f64 {
        2.0 * view.goal[2] + self.rest
    }

    fn waypoint(&self, view: &SceneState) -> Waypoint {
        let [object, goal, hand] = [view.object, view.goal, view.hand];
        // While carrying, the object rather than the hand is moved above the goal.
        let [x, y] = [0, 1].map(|axis| hand[axis] + goal[axis] - object[axis]);
        let over_goal = |z: f64| [x, y, z];
        let grasp = |z: f64| Waypoint::new([object[0], object[1], z], view.grasp_yaw());
        let push = |z: f64, center: [f64; 3], distance: f64| {
            let [x, y] = self.heading;
            let position = [center[0] - distance * x, center[1] - distance * y, z];
            Waypoint::new(position, nearest_to_zero(y.atan2(x), PI))
        };
        let pushes = self.task == TaskName::Push;
        match self.phase {
            Phase::Reach => Waypoint::new(goal, 0.0),
            Phase::Above if pushes => push(TRAVEL, object, RUN_UP),
            Phase::Descend if pushes => push(PUSH_HEIGHT, object, RUN_UP),
            Phase::Push => push(PUSH_HEIGHT, goal, CRADLE).speed(0.012),
            Phase::Raise => push(TRAVEL, goal, CRADLE).at([hand[0], hand[1], TRAVEL]),
            Phase::Above => grasp(TRAVEL),
            Phase::Descend => grasp(object[2]).speed(0.018),
            Phase::Grasp => grasp(object[2]).at(hand).closed(),
            Phase::Lift => grasp(TRAVEL).at([hand[0], hand[1], TRAVEL]).closed(),
            Phase::Carry => grasp(TRAVEL).at(over_goal(TRAVEL)).closed(),
            Phase::Lower => {
                let z = hand[2] + self.placed_height(view) - object[2];
                grasp(z).at(over_goal(z)).closed().speed(0.015)
            }
            Phase::Release => grasp(TRAVEL).at(hand),
            Phase::Retreat => grasp(TRAVEL).at([hand[0], hand[1], TRAVEL + 0.03]),
        }
    }
}

impl Waypoint {
    fn new(position: [f64; 3], yaw: f64) -> Self {
        Self {
            position,
            yaw,
            closed: false,
            speed: 0.022,
        }
    }

    fn at(self, position: [f64; 3]) -> Self {
        Self { position, ..self }
    }

    fn closed(self) -> Self {
        Self {
            closed: true,
            ..self
        }
    }

    fn speed(self, speed: f64) -> Self {
        Self { speed, ..self }
    }

    fn action(&self, view: &SceneState) -> [f64; ACTION_DIM] {
        let way = minus(self.position, view.hand).map(|x| x * GAIN);
        let [x, y, z] = shorten(way, self.speed).map(|x| x / METRES_PER_ACTION);
        let turn = difference(view.quaternion, down(self.yaw)).map(|x| x * GAIN);
        let [a, b, c] = shorten(turn, TURN).map(|x| x / RADIANS_PER_ACTION);
        [x, y, z, a, b, c, if self.closed { 1.0 } else { -1.0 }]
    }
}

fn down(yaw: f64) -> [f64; 4] {
    multiply(from_vector([0.0, 0.0, yaw]), DOWN)
}

#[cfg(test)]
mod tests {
    use crate::env::mujoco::MujocoEnv;
    use crate::env::mujoco::tests::env;
    use crate::env::tests::Lockstep;
    use crate::env::{EnvIndex, Render, Step};
    use crate::policy::scripted::Scripted;
    use crate::policy::tests::{chunks, row};
    use crate::policy::{Policy, PolicyRow};
    use jobs::environments::Simulator;

    const COPY: EnvIndex = EnvIndex(0);

    /// Returns the last step of an episode in which the first `taken` actions of each chunk are
    /// executed.
    fn run(env: &mut Lockstep<MujocoEnv>, policy: &mut Scripted, seed: u64, taken: usize) -> Step {
        let mut observation = env.reset(&[(COPY, seed)], Render::No).remove(0).unwrap();
        for inference in 0.. {
            let row = PolicyRow {
                inference,
                ..row(COPY.0, observation.clone())
            };
            let chunk = chunks(policy.act(&[row])).remove(0);
            for index in 0..taken {
                let action = chunk.action(index).unwrap().to_vec();
                let step = env.step(&[(COPY, action)], Render::No).remove(0).unwrap();
                if step.terminated || step.truncated {
                    return step;
                }
                observation = step.observation;
            }
        }
        unreachable!("an episode has a last step")
    }

    fn successes(task: &str, taken: usize) -> usize {
        let mut env = env(task, 1);
        let mut policy = Scripted::new(env.spec(), 8).unwrap();
        (0..20)
            .filter(|&seed| run(&mut env, &mut policy, seed, taken).success)
            .count()
    }

    #[test]
    fn the_expert_solves_every_task_and_with_whole_chunks_too() {
        for (task, taken) in [
            ("reach", 4),
            ("push", 4),
            ("pick_and_place", 4),
            ("pick_and_place", 8),
        ] {
            assert_eq!(successes(task, taken), 20, "{task}");
        }
    }

    #[test]
    fn an_episode_does_not_depend_on_the_one_before() {
        let mut env = env("push", 1);
        let mut policy = Scripted::new(env.spec(), 8).unwrap();
        let first = run(&mut env, &mut policy, 3, 4);
        run(&mut env, &mut policy, 4, 4);
        assert_eq!(run(&mut env, &mut policy, 3, 4), first);
    }

    #[test]
    fn the_expert_knows_every_task_of_which_the_table_says_so() {
        let known = |task: &str| {
            let mut spec = crate::policy::tests::env_spec();
            spec.name = task.to_owned();
            crate::policy::scripted::task_of(&spec).is_ok()
        };
        for row in Simulator::TableTop.row().environments {
            assert_eq!(known(row.name), row.has_expert, "{}", row.name);
        }
    }

    #[test]
    fn another_environment_or_one_without_a_state_is_refused_by_name() {
        let spec = env("push", 1).spec().clone();
        let (mut other, mut blind) = (spec.clone(), spec);
        other.name = "pusht".to_owned();
        blind.state.retain(|(name, _)| name != "object_position");
        for (spec, reason) in [
            (other, "policy `scripted` needs one of the tasks"),
            (blind, "needs state object_position;"),
        ] {
            let refusal = Scripted::new(&spec, 8).err().unwrap().to_string();
            assert!(refusal.contains(reason), "{refusal}");
        }
    }
}
