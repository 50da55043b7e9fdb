//! The latency of a job, in steps of its environment. Pure: no I/O.

use std::time::Duration;

use jobs::job::Job;
use jobs::latency::{self, Delay, Hold};
use jobs::policies::PolicyType;
use jobs::refusal::Refusal;

use crate::env::EnvSpec;
use crate::policy::PolicyFacts;

/// The latency of a job, in steps of its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLatency {
    /// The number of steps, if it is the same for all inferences: otherwise it follows from the
    /// time that each takes.
    pub fixed: Option<u64>,
    /// Number of steps per second.
    control_hz: u32,
    /// What the environment does without an action.
    pub hold: Hold,
}

impl StepLatency {
    /// Returns the latency of a job with this environment and policy.
    ///
    /// # Errors
    /// Refuses it if environment or policy do not allow it.
    pub fn new(job: &Job, env: &EnvSpec, policy: &PolicyFacts) -> Result<Self, Refusal> {
        let control_hz = env.control_hz;
        let Some(wanted) = job.latency.filter(|latency| !latency.is_none()) else {
            return Ok(Self {
                fixed: Some(0),
                control_hz,
                hold: Hold::default(),
            });
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
        let fixed = wanted.delay.steps(control_hz);
        if let Some(steps) = fixed {
            let horizon = policy.horizon as u64;
            latency::check(steps, policy.chunk_length as u64, horizon)?;
        }
        Ok(Self {
            fixed,
            control_hz,
            hold: wanted.hold,
        })
    }

    /// Returns the number of steps of an inference that took this long.
    pub fn steps(&self, took: Duration) -> u64 {
        let measured = || latency::steps_of(took.as_secs_f64() * 1e3, self.control_hz);
        self.fixed.unwrap_or_else(measured)
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
        let fixed = |latency| new(latency, &env).unwrap().fixed;
        assert_eq!(fixed(Value::Null), Some(0));
        assert_eq!(fixed(json!({"steps": 4})), Some(4));
        assert_eq!(fixed(json!({"ms": 101})), Some(3));
        assert!(
            new(json!({"ms": 201}), &env).is_err(),
            "the chunk is too short for 5 steps"
        );
        let measured = new(json!("measured"), &env).unwrap();
        assert_eq!(measured.fixed, None);
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
