//! Executes a planner's actions, as skills of the table-top suite or as steps of an environment
//! with named actions.

use crate::env::{EnvSpec, Observation};
use crate::policy::argument;
use crate::policy::scripted::skill::{Motion, SKILL_CHUNK, Skills};
use crate::policy::{Chunk, PolicyError};
use jobs::policies::PolicyType;
use jobs::wiring::Sides;

/// Executes one action at a time.
#[derive(Clone, Debug)]
pub(super) enum Hands {
    /// Each action is a skill: a controller that takes several steps.
    Skills(Skills),
    /// Each action is one step of the environment.
    Steps {
        /// Value of the first action in the environment.
        start: i64,
        /// Number of actions in the environment.
        count: usize,
        /// Names of the actions, from the job or initially from the environment.
        names: Vec<String>,
        /// Whether the job has given the names, so that those of the environment are ignored.
        is_given: bool,
    },
}

/// The outcome of an action.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ActionOutcome {
    /// Whether the action succeeded.
    pub(super) success: bool,
    /// The environment's feedback, as text.
    pub(super) feedback: String,
}

/// The next part of an action.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ActionProgress {
    /// Execute these steps.
    Steps(Chunk),
    /// The action has ended.
    Ended(ActionOutcome),
}

impl Hands {
    /// Creates the executor for an environment; `given` are the names from a job.
    ///
    /// # Errors
    /// Returns an error for an environment whose actions have no names, and for names that do not
    /// fit it.
    pub(super) fn new(env: &EnvSpec, given: Option<&[String]>) -> Result<Self, PolicyError> {
        let Some(discrete) = &env.discrete else {
            if given.is_some() {
                let wanted = format!(
                    "but environment `{}` has no Discrete action space",
                    env.name
                );
                return Err(argument("actions", "a list", &wanted));
            }
            return Skills::new(env).map(Self::Skills).map_err(|_| {
                let sides = Sides {
                    policy: PolicyType::OpenaiAgent.name(),
                    face: env,
                };
                let wanted = "an environment of the suite or one with a Discrete action space";
                let found = format!("an action of {} numbers", env.action.names.len());
                sides.mismatch(wanted, found).into()
            });
        };
        let names = given.map_or(discrete.names.clone(), <[String]>::to_vec);
        if names.is_empty() {
            let wanted = format!(
                "expected a list of names: environment `{}` has {} actions and neither \
                 `language_skill_set` nor `action_names`",
                env.name, discrete.count
            );
            return Err(argument("actions", "missing", &wanted));
        }
        if names.len() > discrete.count {
            let wanted = format!(
                "but environment `{}` has {} actions",
                env.name, discrete.count
            );
            return Err(argument(
                "actions",
                &format!("a list of {}", names.len()),
                &wanted,
            ));
        }
        Ok(Self::Steps {
            start: discrete.start,
            count: discrete.count,
            names,
            is_given: given.is_some(),
        })
    }

    /// Returns the maximum number of steps in a chunk.
    pub(super) fn horizon(&self) -> usize {
        match self {
            Self::Skills(_) => SKILL_CHUNK,
            Self::Steps { .. } => 1,
        }
    }

    /// Returns the names of the actions in an episode that begins with this observation.
    pub(super) fn names(&self, first: &Observation) -> Vec<String> {
        match self {
            Self::Skills(skills) => skills.names(),
            Self::Steps {
                names,
                is_given: true,
                ..
            } => names.clone(),
            Self::Steps { names, count, .. } => {
                let said = first
                    .feedback
                    .as_ref()
                    .and_then(|feedback| feedback.action_names.clone());
                let mut names = said.unwrap_or_else(|| names.clone());
                names.truncate(*count);
                names
            }
        }
    }

    /// Starts an action.
    pub(super) fn begin(
        &mut self,
        action: usize,
        observation: &Observation,
    ) -> Result<ActionProgress, PolicyError> {
        match self {
            Self::Skills(skills) => skills.begin(action, observation).map(doing),
            // Action values are far below 2^24, so floats represent them exactly.
            Self::Steps { start, .. } => Ok(ActionProgress::Steps(Chunk::new(
                1,
                vec![(*start + action as i64) as f32],
            ))),
        }
    }

    /// Continues the action, or returns its outcome.
    pub(super) fn go_on(
        &mut self,
        observation: &Observation,
    ) -> Result<ActionProgress, PolicyError> {
        match self {
            Self::Skills(skills) => skills.go_on(observation).map(doing),
            Self::Steps { .. } => Ok(ActionProgress::Ended(said(observation))),
        }
    }

    /// Returns the outcome of an action during which the episode ended.
    pub(super) fn cut(&mut self, observation: &Observation, solved: bool) -> ActionOutcome {
        match self {
            Self::Skills(_) if solved => ActionOutcome {
                success: true,
                feedback: "The task is solved.".to_owned(),
            },
            Self::Skills(skills) => match skills.go_on(observation).map(doing) {
                Ok(ActionProgress::Ended(outcome)) => outcome,
                _ => ActionOutcome {
                    success: false,
                    feedback: "The episode ended before it was done.".to_owned(),
                },
            },
            Self::Steps { .. } => said(observation),
        }
    }
}

fn doing(motion: Motion) -> ActionProgress {
    match motion {
        Motion::Steps(chunk) => ActionProgress::Steps(chunk),
        Motion::Done => ActionProgress::Ended(ActionOutcome {
            success: true,
            feedback: "It was carried out.".to_owned(),
        }),
        Motion::Failed(reason) => ActionProgress::Ended(ActionOutcome {
            success: false,
            feedback: format!("{reason}."),
        }),
    }
}

/// Returns the outcome of a step as reported by the environment; without a report, the step counts
/// as successful.
fn said(observation: &Observation) -> ActionOutcome {
    let feedback = observation.feedback.as_deref();
    let success = feedback
        .and_then(|feedback| feedback.last_action_success)
        .unwrap_or(true);
    let words = feedback.and_then(|feedback| feedback.env_feedback.clone());
    let own = if success {
        "It was carried out."
    } else {
        "The environment refused it."
    };
    ActionOutcome {
        success,
        feedback: words.unwrap_or_else(|| own.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::env::{Discrete, Feedback};
    use crate::policy::tests::env_spec;

    fn world(names: &[&str]) -> EnvSpec {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let mut env = env_spec();
        env.name = "gym:x".to_owned();
        env.discrete = Some(Discrete {
            start: 2,
            count: 3,
            names,
        });
        env
    }

    fn refusal(env: &EnvSpec, given: Option<&[&str]>) -> String {
        let given: Option<Vec<_>> =
            given.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        Hands::new(env, given.as_deref()).unwrap_err().to_string()
    }

    #[test]
    fn an_action_is_the_environments_number() {
        let mut hands = Hands::new(&world(&["a", "b"]), None).unwrap();
        assert_eq!(
            hands.begin(1, &Observation::empty()).unwrap(),
            ActionProgress::Steps(Chunk::new(1, vec![3.0]))
        );
        assert_eq!(hands.horizon(), 1);
    }

    #[test]
    fn an_episodes_own_names_hold_unless_the_job_gives_some() {
        let mut first = Observation::empty();
        let names = Some(["x", "y", "z"].map(str::to_owned).to_vec());
        first.feedback = Some(Arc::new(Feedback {
            action_names: names,
            ..Feedback::default()
        }));
        let hands = |given| Hands::new(&world(&["a", "b"]), given).unwrap();
        assert_eq!(hands(None).names(&first), ["x", "y", "z"]);
        let given = ["left".to_owned()];
        assert_eq!(hands(Some(&given)).names(&first), ["left"]);
    }

    #[test]
    fn what_the_environment_says_is_the_outcome() {
        let mut hands = Hands::new(&world(&["a"]), None).unwrap();
        let mut seen = Observation::empty();
        let done = ActionOutcome {
            success: true,
            feedback: "It was carried out.".to_owned(),
        };
        assert_eq!(hands.go_on(&seen).unwrap(), ActionProgress::Ended(done));
        let said = Feedback {
            last_action_success: Some(false),
            env_feedback: Some("A wall.".to_owned()),
            ..Feedback::default()
        };
        seen.feedback = Some(Arc::new(said));
        assert_eq!(
            hands.cut(&seen, false),
            ActionOutcome {
                success: false,
                feedback: "A wall.".to_owned()
            }
        );
    }

    #[test]
    fn actions_without_names_and_names_without_actions_are_refused() {
        let mut arm = env_spec();
        arm.name = "gym:arm".to_owned();
        let four = Some(&["a", "b", "c", "d"][..]);
        for (env, given, reason) in [
            (
                world(&[]),
                None,
                "`policy_config_dict.actions` is missing, expected a list of names",
            ),
            (
                world(&[]),
                four,
                "a list of 4, but environment `gym:x` has 3",
            ),
            (env_spec(), Some(&["a"][..]), "has no Discrete action space"),
            (
                arm,
                None,
                "environment `gym:arm` has an action of 7 numbers",
            ),
        ] {
            let text = refusal(&env, given);
            assert!(text.contains(reason), "{text}");
        }
    }
}
