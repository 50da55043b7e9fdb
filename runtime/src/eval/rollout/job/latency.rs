//! The latency of a job, in steps of its environment. Pure: no I/O.

use std::time::Duration;

use jobs::job::Job;
use jobs::latency::{self, Delay, Hold};
use jobs::policies::PolicyType;
use jobs::refusal::Refusal;

use crate::env::EnvSpec;
use crate::policy::PolicyFacts;

/// The latency of a job, in steps of its environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepLatency {
    delay: StepDelay,
    /// What the environment does without an action.
    pub hold: Hold,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepDelay {
    Fixed(u64),
    /// The time that an inference took, at this number of steps per second.
    Measured {
        control_hz: u32,
    },
}

impl Default for StepDelay {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

impl StepLatency {
    /// Returns the latency of a job with this environment and policy.
    ///
    /// # Errors
    /// Refuses it if environment or policy do not allow it.
    pub fn new(job: &Job, env: &EnvSpec, policy: &PolicyFacts) -> Result<Self, Refusal> {
        let Some(wanted) = job.latency.filter(|latency| !latency.is_none()) else {
            return Ok(Self::default());
        };
        if let Some(policy) = PolicyType::of(&job.policy_type) {
            latency::check_policy(policy)?;
        }
        if env.is_control_hz_assumed && !matches!(wanted.delay, Delay::Steps(_)) {
            return Err(Refusal::new(
                "latency is given as a time, but the environment does not say how long a step is; \
                 arena_env_args.control_hz does, the number of steps per second",
            ));
        }
        let control_hz = env.control_hz;
        let delay = match wanted.delay.steps(control_hz) {
            Some(steps) => {
                let horizon = policy.horizon as u64;
                latency::check(steps, policy.chunk_length as u64, horizon)?;
                StepDelay::Fixed(steps)
            }
            None => StepDelay::Measured { control_hz },
        };
        let hold = wanted.hold;
        Ok(Self { delay, hold })
    }

    /// Returns whether the environment goes on during an inference.
    pub fn is_felt(&self) -> bool {
        self.delay != StepDelay::Fixed(0)
    }

    /// Returns the number of steps, if it is the same for all inferences.
    pub fn fixed(&self) -> Option<u64> {
        match self.delay {
            StepDelay::Fixed(steps) => Some(steps),
            StepDelay::Measured { .. } => None,
        }
    }

    /// Returns the number of steps of an inference that took this long.
    pub fn steps(&self, took: Duration) -> u64 {
        match self.delay {
            StepDelay::Fixed(steps) => steps,
            StepDelay::Measured { control_hz } => {
                latency::steps_of(took.as_secs_f64() * 1e3, control_hz)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::policy::tests::env_spec;

    fn policy() -> PolicyFacts {
        PolicyFacts {
            horizon: 8,
            chunk_length: 4,
            ..PolicyFacts::default()
        }
    }

    fn new(latency: Value, env: &EnvSpec) -> Result<StepLatency, Refusal> {
        let jobs = crate::eval::tests::jobs([json!({"latency": latency})]);
        StepLatency::new(&jobs[0], env, &policy())
    }

    #[test]
    fn a_time_becomes_steps_of_the_environment() {
        let env = env_spec();
        let fixed = |latency| new(latency, &env).unwrap().fixed();
        assert_eq!(fixed(Value::Null), Some(0));
        assert_eq!(fixed(json!({"steps": 4})), Some(4));
        assert_eq!(fixed(json!({"ms": 101})), Some(3));
        assert!(
            new(json!({"ms": 201}), &env).is_err(),
            "the chunk is too short for 5 steps"
        );
        let measured = new(json!("measured"), &env).unwrap();
        assert_eq!(measured.fixed(), None);
        assert_eq!(measured.steps(Duration::from_millis(350)), 7);
    }

    #[test]
    fn a_time_needs_a_control_frequency_that_somebody_has_given() {
        let env = EnvSpec {
            is_control_hz_assumed: true,
            ..env_spec()
        };
        for time in [json!({"ms": 50}), json!("measured")] {
            let told = new(time, &env).unwrap_err().to_string();
            assert!(told.contains("arena_env_args.control_hz"), "{told}");
        }
        assert!(new(json!({"steps": 1}), &env).is_ok());
    }
}
