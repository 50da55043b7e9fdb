//! The time that a policy takes for an inference, while the environment goes on (`latency` of a
//! job). Pure: no I/O.
//!
//! The schedule is that of "Real-Time Execution of Action Chunking Flow Policies" (Black et al.
//! 2025): an inference begins every `s` steps (`action_chunk_length`), its chunk of `horizon`
//! actions arrives `d` steps later, and its first `d` actions are then in the past.
//! [`check`] has the conditions of the paper, `d ≤ s` and `d ≤ horizon − s`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::file::Wrong;
use crate::policies::PolicyType;
use crate::refusal::Refusal;

/// Most steps of a latency: no chunk has more actions.
pub const MAX_STEPS: u64 = 4096;

/// Longest latency in milliseconds: ten minutes.
pub const MAX_MS: f64 = 600_000.0;

/// How long an inference takes while the environment goes on, and what it does without an action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InferenceLatency {
    /// How long an inference takes.
    pub delay: Delay,
    /// What the environment does when the chunk has no action left.
    pub hold: Hold,
}

/// How long an inference takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// This number of steps.
    Steps(u64),
    /// This number of milliseconds.
    Ms(f64),
    /// As long as the inference really took.
    Measured,
}

/// What an environment does while it waits for actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// It repeats the last action. A client of LeRobot sends nothing
    /// (`lerobot/async_inference/robot_client.py`), so the robot keeps its last target.
    #[default]
    Last,
    /// Every value is 0, for actions that are differences or velocities (the simulation of the
    /// paper, `eval_flow.py`, pads chunks with zeros).
    Zero,
}

impl InferenceLatency {
    /// Returns whether the environment waits for each inference, as without a latency.
    pub fn is_none(&self) -> bool {
        match self.delay {
            Delay::Steps(steps) => steps == 0,
            Delay::Ms(ms) => ms == 0.0,
            Delay::Measured => false,
        }
    }

    /// Returns whether the same job has the same results again.
    pub fn is_repeatable(&self) -> bool {
        self.delay != Delay::Measured
    }
}

impl Delay {
    /// Returns the number of steps, at `control_hz` steps per second; `None` if it is measured.
    pub fn steps(self, control_hz: u32) -> Option<u64> {
        match self {
            Self::Steps(steps) => Some(steps),
            Self::Ms(ms) => Some(steps_of(ms, control_hz)),
            Self::Measured => None,
        }
    }
}

/// Returns the number of steps that begin within `ms` milliseconds, at `control_hz` steps per
/// second: an action that is late for one step is in time for the next.
pub fn steps_of(ms: f64, control_hz: u32) -> u64 {
    (ms * f64::from(control_hz) / 1000.0).ceil() as u64
}

/// Checks a latency of `steps` against the number of steps between two inferences and the number
/// of actions of a chunk.
///
/// # Errors
/// Refuses it if the chunks are too short, or inferences would overlap.
pub fn check(steps: u64, chunk_length: u64, horizon: u64) -> Result<(), Refusal> {
    let left = horizon.saturating_sub(chunk_length);
    if steps > left {
        let most = left.min(chunk_length);
        return Err(Refusal::new(format_args!(
            "latency is {steps} steps, expected at most {most}: a chunk has {horizon} actions, of \
             which {chunk_length} are executed before the next inference (action_chunk_length), so \
             {left} are left for the time that it takes"
        )));
    }
    if steps > chunk_length {
        return Err(Refusal::new(format_args!(
            "latency is {steps} steps, expected at most {chunk_length}: an inference begins every \
             {chunk_length} steps (action_chunk_length), before the previous one would have ended"
        )));
    }
    Ok(())
}

/// Checks that a policy answers with chunks, of which the environment can take the rest.
///
/// # Errors
/// Refuses a policy that does not.
pub fn check_policy(policy: PolicyType) -> Result<(), Refusal> {
    let Some(reason) = policy.row().without_rest else {
        return Ok(());
    };
    let policy = policy.name();
    Err(Refusal::new(format_args!(
        "latency is given, but policy `{policy}` {reason}"
    )))
}

/// `"measured"`, or an object with one of `steps`, `ms` and `measured`, and perhaps `hold`.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum WrittenLatency {
    Word(Word),
    Fields(Fields),
}

#[derive(Deserialize, JsonSchema)]
#[schemars(extend("wanted" = "\"measured\""))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    Measured,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Fields {
    #[schemars(range(min = 0, max = MAX_STEPS))]
    steps: Option<u64>,
    #[schemars(range(min = 0, max = MAX_MS))]
    ms: Option<f64>,
    #[schemars(extend("const" = true, "wanted" = "true, or no latency"))]
    measured: Option<bool>,
    #[serde(default)]
    hold: Hold,
}

impl WrittenLatency {
    pub(crate) fn read(self) -> Result<InferenceLatency, Wrong> {
        let Self::Fields(fields) = self else {
            let (delay, hold) = (Delay::Measured, Hold::default());
            return Ok(InferenceLatency { delay, hold });
        };
        let wrong = |reason: &str| Err(("latency.steps", reason.to_owned()));
        let delay = match (fields.steps, fields.ms, fields.measured) {
            (Some(steps), None, None) => Delay::Steps(steps),
            (None, Some(ms), None) => Delay::Ms(ms),
            (None, None, Some(_)) => Delay::Measured,
            (None, None, None) => return wrong("it is missing, and ms and measured too"),
            _ => return wrong("only one of steps, ms and measured can be given"),
        };
        let hold = fields.hold;
        Ok(InferenceLatency { delay, hold })
    }
}

/// Returns a latency as it is written.
pub(crate) fn written(InferenceLatency { delay, hold }: InferenceLatency) -> Value {
    let mut written = match delay {
        Delay::Steps(steps) => json!({ "steps": steps }),
        Delay::Ms(ms) => json!({ "ms": ms }),
        Delay::Measured => json!({"measured": true}),
    };
    if hold != Hold::default() {
        written["hold"] = json!(hold);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rounded_up_to_whole_steps() {
        let at_20_hz: Vec<_> = [0.0, 0.1, 50.0, 50.1, 100.0, 333.0]
            .map(|ms| steps_of(ms, 20))
            .to_vec();
        assert_eq!(at_20_hz, [0, 1, 1, 2, 2, 7]);
        assert_eq!(Delay::Ms(100.0).steps(30), Some(3));
        assert_eq!(Delay::Steps(4).steps(30), Some(4));
        assert_eq!(Delay::Measured.steps(30), None);
    }

    #[test]
    fn no_latency_at_all_is_none() {
        let is_none = |delay| {
            let hold = Hold::Zero;
            InferenceLatency { delay, hold }.is_none()
        };
        assert!(is_none(Delay::Steps(0)) && is_none(Delay::Ms(0.0)));
        assert!(!is_none(Delay::Steps(1)) && !is_none(Delay::Ms(0.1)) && !is_none(Delay::Measured));
    }
}
