//! Skills of the table-top suite: the phases of the expert as named actions that a planner can
//! choose.
//!
//! A skill starts in one phase, continues through others, and ends with the transition to a further
//! phase, which is either its success or its failure. A skill whose precondition is not met moves
//! nothing and returns the reason.
//!
//! ```text
//! move above the block     Above ▶ (Descend)
//! grasp the block          Descend ▶ Grasp ▶ (Lift)       closed on nothing: (Above)
//! lift the block           Lift ▶ (Carry)                 slipped: (Above)
//! move above the plate     Carry ▶ (Lower)                slipped: (Above)
//! place it on the plate    Lower ▶ Release ▶ Retreat ▶    not on it: (Above)
//! move behind the puck     Above ▶ Descend ▶ (Push)
//! push it to the target    Push ▶                         missed: (Raise)
//! ```

use crate::env::mujoco::rotation::{flat_distance, minus};
use crate::env::{EnvSpec, Observation};
use crate::policy::scripted::view::{HOLDING, SceneState};
use crate::policy::scripted::{
    EpisodeMemory, Phase, TRAVEL, TaskName, Waypoint, norm, steps, task_of,
};
use crate::policy::{Chunk, PolicyError};

/// What is told of an action that succeeded.
pub(crate) const CARRIED_OUT: &str = "It was carried out.";

/// Number of steps between two observations.
pub(crate) const SKILL_CHUNK: usize = 8;

/// Number of steps after which a skill has failed: three times the steps of the slowest one.
const SKILL_STEPS: usize = 96;

/// Number of steps after which a hand has opened or closed.
const FINGER_STEPS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skill {
    MoveToGoal,
    MoveAboveObject,
    Grasp,
    Lift,
    MoveAboveGoal,
    Place,
    MoveBehindObject,
    Push,
    RaiseHand,
    OpenGripper,
    CloseGripper,
}

/// The skills of every task.
const OF_ALL: &[(Skill, &str)] = &[
    (Skill::RaiseHand, "raise the hand"),
    (Skill::OpenGripper, "open the gripper"),
    (Skill::CloseGripper, "close the gripper"),
];

/// Returns the skills of a task, in the order of their indices.
fn skills(task: TaskName) -> impl Iterator<Item = &'static (Skill, &'static str)> {
    let own: &'static [_] = match task {
        TaskName::Reach => &[(Skill::MoveToGoal, "move to the green ball")],
        TaskName::Push => &[
            (Skill::MoveBehindObject, "move behind the puck"),
            (Skill::Push, "push the puck to the green target"),
        ],
        TaskName::PickAndPlace => &[
            (Skill::MoveAboveObject, "move above the block"),
            (Skill::Grasp, "grasp the block"),
            (Skill::Lift, "lift the block"),
            (Skill::MoveAboveGoal, "move the block above the green plate"),
            (Skill::Place, "place the block on the green plate"),
        ],
    };
    own.iter().chain(OF_ALL)
}

/// The next part of an action, such as a skill.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ActionProgress {
    /// Execute these steps, and then look again.
    Steps(Chunk),
    /// The action has ended, or cannot start.
    Ended {
        /// Whether it succeeded.
        success: bool,
        /// What came of it, as a sentence.
        feedback: String,
    },
}

impl ActionProgress {
    /// Returns the end of an action.
    pub(crate) fn ended(success: bool, feedback: &str) -> Self {
        let feedback = feedback.to_owned();
        Self::Ended { success, feedback }
    }
}

/// The skills of one environment.
#[derive(Clone, Debug)]
pub(crate) struct Skills {
    task: TaskName,
    memory: Option<EpisodeMemory>,
    running: Option<RunningSkill>,
}

#[derive(Clone, Copy, Debug)]
struct RunningSkill {
    skill: Skill,
    steps: usize,
    /// Whether the fingers stay closed while the hand is merely raised.
    holds: bool,
}

impl Skills {
    /// Returns the skills of an environment of the suite.
    ///
    /// # Errors
    /// Returns an error for any other environment.
    pub(crate) fn new(env: &EnvSpec) -> Result<Self, PolicyError> {
        Ok(Self {
            task: task_of(env)?,
            memory: None,
            running: None,
        })
    }

    /// Returns the names of the skills, in the order of their indices.
    pub(crate) fn names(&self) -> Vec<String> {
        skills(self.task)
            .map(|(_, name)| (*name).to_owned())
            .collect()
    }

    /// Starts the skill with this index.
    ///
    /// # Errors
    /// Returns an error if the observation is incomplete.
    pub(crate) fn begin(
        &mut self,
        number: usize,
        observation: &Observation,
    ) -> Result<ActionProgress, PolicyError> {
        let view = SceneState::new(observation)?;
        let Some((skill, _)) = skills(self.task).nth(number).copied() else {
            return Ok(ActionProgress::ended(false, "There is no such skill."));
        };
        let task = self.task;
        let memory = self
            .memory
            .get_or_insert_with(|| EpisodeMemory::new(task, &view));
        if let Some(reason) = skill.obstacle(memory, &view) {
            return Ok(ActionProgress::ended(false, reason));
        }
        if let Some(phase) = skill.first_phase() {
            if phase == Phase::Above {
                memory.heading = view.heading();
            }
            memory.phase = phase;
        }
        self.running = Some(RunningSkill {
            skill,
            steps: 0,
            holds: is_held(&view),
        });
        Ok(self.steps(view))
    }

    /// Continues the running skill.
    ///
    /// # Errors
    /// Fails like [`Skills::begin`].
    pub(crate) fn go_on(
        &mut self,
        observation: &Observation,
    ) -> Result<ActionProgress, PolicyError> {
        let view = SceneState::new(observation)?;
        if let (Some(running), Some(memory)) = (&self.running, &mut self.memory)
            && let Some(ended) = running.ended(memory, &view)
        {
            self.running = None;
            return Ok(ended);
        }
        Ok(self.steps(view))
    }

    /// Returns the next steps of the current phase.
    fn steps(&mut self, view: SceneState) -> ActionProgress {
        let (Some(running), Some(memory)) = (&mut self.running, &self.memory) else {
            return ActionProgress::ended(false, "No skill is under way.");
        };
        running.steps += SKILL_CHUNK;
        let raised = Waypoint::new([view.hand[0], view.hand[1], TRAVEL], 0.0);
        let waypoint = |view: &SceneState| match running.skill {
            Skill::RaiseHand if running.holds => raised.closed(),
            Skill::RaiseHand => raised,
            Skill::OpenGripper => Waypoint::new(view.hand, 0.0),
            Skill::CloseGripper => Waypoint::new(view.hand, 0.0).closed(),
            _ => memory.waypoint(view),
        };
        ActionProgress::Steps(steps(SKILL_CHUNK, view, waypoint))
    }
}

impl Skill {
    /// Returns the phase in which the skill starts; `None` for skills without phases.
    fn first_phase(self) -> Option<Phase> {
        match self {
            Self::MoveToGoal => Some(Phase::Reach),
            Self::MoveAboveObject | Self::MoveBehindObject => Some(Phase::Above),
            Self::Grasp => Some(Phase::Descend),
            Self::Lift => Some(Phase::Lift),
            Self::MoveAboveGoal => Some(Phase::Carry),
            Self::Place => Some(Phase::Lower),
            Self::Push => Some(Phase::Push),
            Self::RaiseHand | Self::OpenGripper | Self::CloseGripper => None,
        }
    }

    /// Returns the reason why the skill cannot start, if there is one.
    fn obstacle(self, memory: &EpisodeMemory, view: &SceneState) -> Option<&'static str> {
        Some(match self {
            Self::Grasp if flat_distance(view.hand, view.object) > 0.03 => {
                "The hand is not above the block."
            }
            Self::Lift | Self::MoveAboveGoal | Self::Place if !is_held(view) => {
                "The hand does not hold the block."
            }
            Self::MoveAboveGoal if view.hand[2] < TRAVEL - 0.05 => "The block is not lifted.",
            Self::Place if view.distance_to_goal() > 0.03 => {
                "The block is not above the green plate."
            }
            Self::Push => {
                let behind = EpisodeMemory {
                    phase: Phase::Descend,
                    ..*memory
                }
                .waypoint(view);
                let is_there = norm(minus(behind.position, view.hand)) < 0.03;
                return (!is_there).then_some("The hand is not behind the puck, at its height.");
            }
            _ => return None,
        })
    }
}

impl RunningSkill {
    /// Returns the outcome of the skill if it has ended, and advances the memory to the phase to
    /// which the view leads.
    fn ended(&self, memory: &mut EpisodeMemory, view: &SceneState) -> Option<ActionProgress> {
        let before = memory.phase;
        let next = memory.next(view);
        let waypoint = memory.waypoint(view);
        let near = |distance: f64| norm(minus(waypoint.position, view.hand)) < distance;
        let failed = |reason: &str| Some(ActionProgress::ended(false, reason));
        let done = match (self.skill, before, next) {
            (Skill::MoveToGoal, ..) => near(0.006),
            (Skill::RaiseHand, ..) => view.hand[2] > TRAVEL - 0.015,
            (Skill::OpenGripper | Skill::CloseGripper, ..) => self.steps >= FINGER_STEPS,
            (Skill::MoveAboveObject, _, Phase::Descend)
            | (Skill::Grasp, _, Phase::Lift)
            | (Skill::Lift, _, Phase::Carry)
            | (Skill::MoveAboveGoal, _, Phase::Lower)
            | (Skill::MoveBehindObject, _, Phase::Push) => true,
            (Skill::Push, Phase::Push, Phase::Push) => near(0.006),
            (Skill::Place, Phase::Retreat, Phase::Retreat) => near(0.02),
            (Skill::Grasp, _, Phase::Above) => return failed("The fingers closed on nothing."),
            (Skill::Place, Phase::Retreat, Phase::Above) => {
                return failed("The block does not lie on the green plate.");
            }
            (Skill::Lift | Skill::MoveAboveGoal | Skill::Place, _, Phase::Above) => {
                return failed("The block has slipped.");
            }
            (Skill::Push, _, Phase::Raise) => {
                return failed("The puck has slid away from the hand.");
            }
            _ => false,
        };
        if done {
            return Some(ActionProgress::ended(true, CARRIED_OUT));
        }
        if self.steps >= SKILL_STEPS {
            return failed(&format!("It was not done within {SKILL_STEPS} steps."));
        }
        if self.skill.first_phase().is_some() {
            memory.phase = next;
        }
        None
    }
}

/// Returns whether the hand holds the object between its fingers.
fn is_held(view: &SceneState) -> bool {
    view.finger < HOLDING && norm(minus(view.object, view.hand)) < 0.04
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::mujoco::MujocoEnv;
    use crate::env::mujoco::tests::env;
    use crate::env::tests::Lockstep;
    use crate::env::{EnvIndex, Render};

    const COPY: EnvIndex = EnvIndex(0);

    /// Runs several skills in turn; returns their outcomes, and whether the task is solved.
    fn run(env: &mut Lockstep<MujocoEnv>, seed: u64, plan: &[&str]) -> (Vec<ActionProgress>, bool) {
        let mut skills = Skills::new(env.spec()).unwrap();
        let names = skills.names();
        let mut observation = env.reset(&[(COPY, seed)], Render::No).remove(0).unwrap();
        let mut ends = Vec::new();
        for name in plan {
            let number = names.iter().position(|known| known == name).unwrap();
            let mut motion = skills.begin(number, &observation).unwrap();
            while let ActionProgress::Steps(chunk) = motion {
                for index in 0..chunk.horizon() {
                    let action = chunk.action(index).unwrap().to_vec();
                    let step = env.step(&[(COPY, action)], Render::No).remove(0).unwrap();
                    if step.terminated || step.truncated {
                        return (ends, step.success);
                    }
                    observation = step.observation;
                }
                motion = skills.go_on(&observation).unwrap();
            }
            ends.push(motion);
        }
        (ends, false)
    }

    fn solved(task: &str, plan: &[&str]) -> usize {
        let mut env = env(task, 1);
        (0..20).filter(|&seed| run(&mut env, seed, plan).1).count()
    }

    #[test]
    fn a_good_plan_solves_each_task() {
        let reach = ["move to the green ball", "close the gripper"];
        let push = [
            "move behind the puck",
            "push the puck to the green target",
            "raise the hand",
        ];
        assert_eq!(solved("reach", &reach), 20);
        assert!(solved("push", &push) >= 18);
        let place = [
            "move above the block",
            "grasp the block",
            "lift the block",
            "move the block above the green plate",
            "place the block on the green plate",
            "raise the hand",
        ];
        assert!(solved("pick_and_place", &place) >= 18);
    }

    #[test]
    fn a_skill_whose_condition_does_not_hold_says_so_and_moves_nothing() {
        let failure = |task: &str, plan: &[&str]| match run(&mut env(task, 1), 3, plan).0.pop() {
            Some(ActionProgress::Ended { feedback, .. }) => feedback,
            other => panic!("{other:?}"),
        };
        let early = [
            "move above the block",
            "grasp the block",
            "lift the block",
            "place the block on the green plate",
        ];
        for (task, plan, reason) in [
            (
                "pick_and_place",
                &["lift the block"][..],
                "The hand does not hold the block.",
            ),
            (
                "pick_and_place",
                &["close the gripper", "lift the block"],
                "The hand does not hold the block.",
            ),
            (
                "pick_and_place",
                &["grasp the block"],
                "The hand is not above the block.",
            ),
            (
                "pick_and_place",
                &early,
                "The block is not above the green plate.",
            ),
            (
                "push",
                &["push the puck to the green target"],
                "The hand is not behind the puck, at its height.",
            ),
        ] {
            assert_eq!(failure(task, plan), reason);
        }
    }
}
