//! Feedback of an environment beside its observation: EmbodiedBench's `info`, and named discrete
//! actions.

use serde::Deserialize;

/// Feedback of an environment about the last action, and about the available actions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Feedback {
    /// `info["last_action_success"]`: whether the last action had its intended effect.
    pub last_action_success: Option<bool>,
    /// `info["env_feedback"]`: the same as text.
    pub env_feedback: Option<String>,
    /// `info["task_progress"]`, from 0 to 1.
    pub task_progress: Option<f64>,
    /// Names of the actions in this episode, by action number; sent with the first observation.
    pub action_names: Option<Vec<String>>,
}

impl Feedback {
    /// Returns whether there is no feedback.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// gymnasium's `Discrete`: one of `count` actions, numbered from `start`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Discrete {
    /// Number of the first action.
    pub start: i64,
    /// Number of actions.
    pub count: usize,
    /// Names of the actions, if the environment has them (`language_skill_set` or `action_names`).
    /// An episode may have different names.
    #[serde(default)]
    pub names: Vec<String>,
}
