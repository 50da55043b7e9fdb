//! What an environment says beside its observation: EmbodiedBench's `info`, and actions that have names.

use serde::Deserialize;

/// What an environment says of the last action, and of those to come.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Feedback {
    /// `info["last_action_success"]`: whether the last action did what it should.
    pub last_action_success: Option<bool>,
    /// `info["env_feedback"]`: the same in words.
    pub env_feedback: Option<String>,
    /// `info["task_progress"]`, from 0 to 1.
    pub task_progress: Option<f64>,
    /// Names of the actions of this episode, by their numbers; with an episode's first observation.
    pub action_names: Option<Vec<String>>,
}

impl Feedback {
    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// gymnasium's `Discrete`: one of `count` actions, of which the first has the number `start`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Discrete {
    /// Number of the first action.
    pub start: i64,
    /// How many there are.
    pub count: usize,
    /// Their names, if the environment has them (`language_skill_set` or `action_names`); an episode may have others.
    #[serde(default)]
    pub names: Vec<String>,
}
