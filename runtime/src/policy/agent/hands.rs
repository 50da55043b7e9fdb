//! Executes a planner's actions, as skills of the table-top suite or as steps of an environment
//! with named actions.

use crate::env::{Discrete, EnvSpec, Observation};
use crate::policy::argument;
use crate::policy::scripted::skill::{ActionProgress, CARRIED_OUT, SKILL_CHUNK, Skills};
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
        /// The actions, with the names from the job or initially from the environment.
        space: Discrete,
        /// Whether the job has given the names, so that those of the environment are ignored.
        is_given: bool,
    },
}

impl Hands {
    /// Creates the executor for an environment; `given` are the names from a job.
    ///
    /// # Errors
    /// Returns an error for an environment whose actions have no names, and for names that do not
    /// fit it.
    pub(super) fn new(env: &EnvSpec, given: Option<&[String]>) -> Result<Self, PolicyError> {
        let refuse = |found: &str, wanted: &str| Err(argument("actions", found, wanted));
        let name = &env.name;
        let Some(mut space) = env.discrete.clone() else {
            if given.is_some() {
                let wanted = format!("but environment `{name}` has no Discrete action space");
                return refuse("a list", &wanted);
            }
            return Skills::new(env).map(Self::Skills).map_err(|_| {
                let sides = Sides::new(PolicyType::OpenaiAgent, env);
                let wanted = "an environment of the suite or one with a Discrete action space";
                let found = format!("an action of {} numbers", env.action.names.len());
                sides.mismatch(wanted, found).into()
            });
        };
        if let Some(given) = given {
            space.names = given.to_vec();
        }
        let (found, count) = (space.names.len(), space.count);
        if found == 0 {
            let wanted = format!(
                "expected a list of names: environment `{name}` has {count} actions and neither \
                 `language_skill_set` nor `action_names`"
            );
            return refuse("missing", &wanted);
        }
        if found > count {
            let wanted = format!("but environment `{name}` has {count} actions");
            return refuse(&format!("a list of {found}"), &wanted);
        }
        let is_given = given.is_some();
        Ok(Self::Steps { space, is_given })
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
            Self::Steps { space, is_given } => {
                let said = first.feedback.as_ref().filter(|_| !is_given);
                let said = said.and_then(|feedback| feedback.action_names.clone());
                let mut names = said.unwrap_or_else(|| space.names.clone());
                names.truncate(space.count);
                names
            }
        }
    }

    /// Starts an action.
    pub(super) fn begin(
        &mut self,
        action: usize,
        seen: &Observation,
    ) -> Result<ActionProgress, PolicyError> {
        match self {
            Self::Skills(skills) => skills.begin(action, seen),
            Self::Steps { space, .. } => {
                // Action values are far below 2^24, so floats represent them exactly.
                let value = (space.start + action as i64) as f32;
                Ok(ActionProgress::Steps(Chunk::new(1, vec![value])))
            }
        }
    }

    /// Continues the action, or returns its outcome.
    pub(super) fn go_on(&mut self, seen: &Observation) -> Result<ActionProgress, PolicyError> {
        match self {
            Self::Skills(skills) => skills.go_on(seen),
            Self::Steps { .. } => Ok(said(seen)),
        }
    }

    /// Returns the outcome of an action during which the episode ended.
    pub(super) fn cut(&mut self, seen: &Observation, solved: bool) -> ActionProgress {
        match self {
            Self::Skills(_) if solved => ActionProgress::ended(true, "The task is solved."),
            Self::Skills(skills) => match skills.go_on(seen) {
                Ok(ended @ ActionProgress::Ended { .. }) => ended,
                _ => ActionProgress::ended(false, "The episode ended before it was done."),
            },
            Self::Steps { .. } => said(seen),
        }
    }
}

/// Returns the outcome of a step as reported by the environment; without a report, the step counts
/// as successful.
fn said(seen: &Observation) -> ActionProgress {
    let feedback = seen.feedback.as_deref();
    let success = feedback.and_then(|feedback| feedback.last_action_success);
    let success = success.unwrap_or(true);
    let words = feedback.and_then(|feedback| feedback.env_feedback.as_deref());
    let own = if success {
        CARRIED_OUT
    } else {
        "The environment refused it."
    };
    ActionProgress::ended(success, words.unwrap_or(own))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::env::Feedback;
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
            hands.begin(1, &Observation::default()).unwrap(),
            ActionProgress::Steps(Chunk::new(1, vec![3.0]))
        );
        assert_eq!(hands.horizon(), 1);
    }

    #[test]
    fn an_episodes_own_names_hold_unless_the_job_gives_some() {
        let mut first = Observation::default();
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
        let mut seen = Observation::default();
        let done = ActionProgress::ended(true, CARRIED_OUT);
        assert_eq!(hands.go_on(&seen).unwrap(), done);
        let said = Feedback {
            last_action_success: Some(false),
            env_feedback: Some("A wall.".to_owned()),
            ..Feedback::default()
        };
        seen.feedback = Some(Arc::new(said));
        let refused = ActionProgress::ended(false, "A wall.");
        assert_eq!(hands.cut(&seen, false), refused);
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
