//! What a job finds in its rank, and what follows from it together with the job's policy.

use std::collections::BTreeMap;
use std::time::Duration;

use jobs::assign::Work;
use jobs::eval_args::EvalArgs;
use jobs::inputs::{self, InputFile};
use jobs::job::{Job, Length};
use jobs::layout::RunFolder;
use jobs::rank_env::RankEnv;
use tch::Device;

use crate::clock::now;
use crate::env::EnvPlacement;
use crate::eval::monitor::meter::Meter;
use crate::eval::monitor::orders::LiveOrders;
use crate::eval::monitor::stop::StopRequest;
use crate::eval::rollout::job::latency::StepLatency;
use crate::eval::rollout::pictures::LivePictures;
use crate::eval::stop::Stop;
use crate::policy::{PolicyFacts, PolicyThread};

/// The context of a job: what the rank provides to it.
pub struct JobContext<'a> {
    /// The parsed command line.
    pub args: &'a EvalArgs,
    /// Rank, world size and the other variables of the launcher.
    pub env: &'a RankEnv,
    /// Device of the policy.
    pub device: Device,
    /// The part of the job that is assigned to this rank.
    pub work: &'a Work,
    /// EnvPlacement where the environments run: GPUs, processes, render device.
    pub place: EnvPlacement,
    /// Thread that owns the policy.
    pub inference: &'a PolicyThread,
    /// Base seed of the run.
    pub seed: u64,
    /// Files that decide the outcomes, as they were when the run was begun.
    pub inputs: &'a BTreeMap<String, InputFile>,
    /// Folder for all files of the run.
    pub folder: &'a RunFolder,
    /// Tells whether a signal has asked the rank to stop.
    pub stop: &'a StopRequest,
    /// Samples the memory of the environments.
    pub meter: &'a Meter,
    /// What a user asks on the page of the run.
    pub orders: &'a LiveOrders,
}

impl JobContext<'_> {
    /// Returns the job.
    pub fn job(&self) -> &Job {
        &self.work.job
    }

    /// Checks that what is about to be read decides the outcomes as it did when the run was begun.
    ///
    /// # Errors
    /// Fails for the first file that was changed.
    pub fn check_inputs(&self) -> Result<(), Stop> {
        let variable = |name: &str| std::env::var(name).ok();
        match inputs::changed(self.job(), self.inputs, self.folder, &variable) {
            Some(change) => Err(Stop::job(format_args!(
                "{change}, was changed since the run was begun; put it back and repeat the command, \
                 or start its jobs over with --accept-changed-jobs"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the pictures of the job's environments, if the run has a page.
    pub fn pictures(&self) -> Option<LivePictures> {
        match self.orders.has_page() {
            true => LivePictures::start(self.folder, self.env.rank),
            false => None,
        }
    }

    /// Returns whether no more episodes of the job are to begin: a sequential test has decided, or a
    /// user has asked for it.
    pub fn begins_no_more(&self) -> bool {
        let now = now();
        if self.orders.stop(now) {
            self.stop.decide();
        }
        self.stop.is_decided() || self.orders.forbid(self.job().index, now)
    }
}

/// A job whose policy is made.
pub struct ActiveJob<'a> {
    /// What the rank provides.
    pub context: &'a JobContext<'a>,
    /// The properties of the policy.
    pub policy: PolicyFacts,
    /// How long an inference takes while the environment goes on.
    pub latency: StepLatency,
}

impl ActiveJob<'_> {
    /// Returns the job.
    pub fn job(&self) -> &Job {
        self.context.job()
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
                 own; use --num-steps",
                self.job().policy_type
            ))),
            (Length::Policy, own) => Ok(Some(own.len() as u64)),
        }
    }

    /// Returns the seed of an episode: the policy's own, or the one that follows from the plan.
    pub fn seed(&self, episode: u64) -> u64 {
        let own = self.policy.seeds.get(episode as usize).copied().flatten();
        own.unwrap_or_else(|| jobs::seed::episode(self.context.seed, self.job(), episode))
    }

    /// Returns the number of pipeline stages: groups of environments that take turns with the
    /// policy. With two stages, simulation and inference overlap. With a planner each environment
    /// is its own stage, so that none waits for another's answer.
    pub fn stages(&self) -> usize {
        if self.policy.is_planner {
            return self.context.place.gpus.len();
        }
        self.job()
            .rollout
            .pipeline_stage_num
            .unwrap_or(self.context.args.pipeline_stages)
    }

    /// Returns the maximum number of rows in one inference. The last bits of a matrix product
    /// depend on its number of rows, and a CPU gains little from large batches. On a CPU each row
    /// is therefore inferred alone by default, so that an episode does not depend on the others in
    /// its batch. A remote policy has no such limit, because its server batches as it likes.
    pub fn max_batch(&self) -> usize {
        let default = if self.context.device == Device::Cpu && !self.policy.is_remote {
            1
        } else {
            usize::MAX
        };
        self.context.args.max_batch.unwrap_or(default)
    }

    /// Returns how often an episode is started again after its environment was lost.
    pub fn env_restarts(&self) -> u32 {
        self.context.args.env_restarts
    }

    /// Returns the time without progress after which a stall is reported.
    pub fn stall_timeout(&self) -> Duration {
        Duration::from_secs(self.context.args.stall_timeout)
    }
}
