//! A job whose environments and policy are made, and what follows from both together: its settings,
//! and its latency in steps of the environment. Pure: no I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use jobs::job::{Job, Length};
use jobs::latency::{self, Delay, Hold};
use jobs::policies::PolicyType;
use jobs::refusal::Refusal;
use serde_json::{Value, json};
use tch::Device;

use crate::device::gpu;
use crate::env::EnvSpec;
use crate::eval::Stop;
use crate::eval::rank_setup::RankSetup;
use crate::eval::rollout::job::task::Task;
use crate::policy::{PolicyFacts, PolicyThread};

/// A job whose policy is made.
pub struct ActiveJob<'a> {
    /// What never changes in this rank.
    pub run: &'a RankSetup,
    /// The attempt at the job.
    pub task: &'a Task,
    /// Thread that owns the policy.
    pub inference: &'a PolicyThread,
    /// The properties of the policy.
    pub policy: PolicyFacts,
    /// How long an inference takes while the environment goes on.
    pub latency: StepLatency,
}

impl<'a> ActiveJob<'a> {
    /// Returns the job.
    pub fn job(&self) -> &'a Job {
        self.task.job()
    }

    /// Returns the number of episodes; `None` if the job ends after a number of steps.
    ///
    /// # Errors
    /// Fails if neither job nor policy has a length.
    pub fn num_episodes(&self) -> Result<Option<u64>, Stop> {
        match (self.job().length, &self.policy.seeds[..]) {
            (Length::Episodes(count), _) => Ok(Some(count)),
            (Length::Steps(_), _) => Ok(None),
            (Length::Policy, []) => Err(Stop::job(format_args!(
                "neither num_episodes nor num_steps is given, and policy `{}` has no length of its \
                 own; add one of them, or use --num-steps",
                self.job().policy_type
            ))),
            (Length::Policy, own) => Ok(Some(own.len() as u64)),
        }
    }

    /// Returns the seed of an episode: the policy's own, or the one that follows from the plan.
    pub fn seed(&self, episode: u64) -> u64 {
        let own = self.policy.seeds.get(episode as usize).copied().flatten();
        own.unwrap_or_else(|| jobs::seed::episode(self.run.plan.seed, self.job(), episode))
    }

    /// Returns the number of pipeline stages: groups of environments that take turns with the
    /// policy. With two stages, simulation and inference overlap. With a planner each environment
    /// is its own stage, so that none waits for another's answer.
    pub fn stages(&self) -> usize {
        if self.policy.is_planner {
            return self.task.work.seats.len();
        }
        let own = self.job().rollout.pipeline_stage_num;
        own.unwrap_or(self.run.args.pipeline_stages)
    }

    /// Returns the maximum number of rows in one inference. The last bits of a matrix product
    /// depend on its number of rows, and a CPU gains little from large batches. On a CPU each row
    /// is therefore inferred alone by default, so that an episode does not depend on the others in
    /// its batch. A remote policy has no such limit, because its server batches as it likes.
    pub fn max_batch(&self) -> usize {
        let default = if self.run.device.device == Device::Cpu && !self.policy.is_remote {
            1
        } else {
            usize::MAX
        };
        self.run.args.max_batch.unwrap_or(default)
    }

    /// Returns the settings in effect when the job starts in the rank, from all sources, by name;
    /// `null` means no limit or no value of its own. `versions` are those of the packages that
    /// simulate.
    pub fn settings(&self, versions: &BTreeMap<String, String>) -> BTreeMap<String, Value> {
        let (job, run, policy) = (self.job(), self.run, &self.policy);
        let max_batch = match self.max_batch() {
            usize::MAX => Value::Null,
            rows => json!(rows),
        };
        let own = [
            ("chunk_length", json!(policy.chunk_length)),
            ("action_horizon", json!(policy.horizon)),
            ("device", json!(gpu::name(run.device.device))),
            ("max_batch", max_batch),
            ("pipeline_stages", json!(self.stages())),
            ("num_envs", json!(job.num_envs)),
            ("base_seed", json!(run.plan.seed)),
            ("seed", json!(job.seed)),
            ("env_restarts", json!(run.args.env_restarts)),
        ];
        let latency = match self.latency.fixed {
            Some(0) => None,
            Some(steps) => Some(json!(steps)),
            None => Some(json!("measured")),
        };
        let latency = latency.map(|latency| ("latency_steps".to_owned(), latency));
        // The rank's own settings win over facts of the policy with the same name.
        let facts = policy.reported.iter().cloned();
        let facts = facts.map(|(name, value)| (name.to_owned(), value));
        let simulator =
            (!versions.is_empty()).then(|| ("env_versions".to_owned(), json!(versions)));
        facts
            .chain(simulator)
            .chain(own.map(|(name, value)| (name.to_owned(), value)))
            .chain(latency)
            .collect()
    }
}

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
    use super::*;
    use serde_json::{Value, json};

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
