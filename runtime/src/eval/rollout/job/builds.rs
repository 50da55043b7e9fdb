//! The builds of a job's environments: most jobs have one, a job with `rebuild` several.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use jobs::inputs;
use jobs::job::Job;
use rustix::event::{PollFd, PollFlags, poll};

use crate::clock::{now, timespec};
use crate::env::{self, AnswerBatch, EnvError, NewEnv, VectorEnv};
use crate::eval::rank_setup::RankSetup;
use crate::eval::rollout::job::task::Task;
use crate::eval::rollout::schedule::{self, Episodes};
use crate::eval::stop::Stop;
use crate::inbox::Inbox;
use crate::policy::Inferred;

/// An inference that the policy has finished for a group.
pub struct GroupInferred {
    /// Index of the group.
    pub group: usize,
    /// Its chunks.
    pub result: Inferred,
    /// Time since the loop asked, which includes waiting for inferences of other groups.
    pub waited: Duration,
}

/// One build of the environments, with the queue for the answers of the policy.
pub struct EnvBuild {
    /// The environments.
    pub env: Box<dyn VectorEnv>,
    /// Versions of the packages that simulate, by name.
    pub versions: BTreeMap<String, String>,
    /// Messages for the user about the environments of the job.
    pub notes: Vec<String>,
    /// Number of the build within the job.
    pub number: u64,
    /// Where the policy's answers go.
    pub inbox: Arc<Inbox<GroupInferred>>,
}

impl EnvBuild {
    /// Makes the environments of a job, if its inputs are those of the run.
    ///
    /// # Errors
    /// Fails if an input was changed or the simulator cannot be started.
    pub fn make(run: &RankSetup, task: &Task) -> Result<Self, Stop> {
        check_inputs(run, task.job())?;
        let no_bell = |err| EnvError::Setup(format!("cannot make an eventfd: {err}"));
        let job = task.job();
        let seed = jobs::seed::episode(run.plan.seed, job, 0);
        let device = run.device.device;
        let place = run.placement.place(&run.args, &run.env, &task.work, device);
        let NewEnv {
            env,
            versions,
            ignored,
            mut notes,
        } = env::make(job, seed, &place)?;
        if !ignored.is_empty() {
            let (name, ignored) = (&job.environment, ignored.join(", "));
            notes.insert(0, format!("environment `{name}` does not use {ignored}"));
        }
        Ok(Self {
            env,
            versions,
            notes,
            number: 0,
            inbox: Arc::new(Inbox::new().map_err(no_bell)?),
        })
    }

    /// Waits for at most `patience`, and returns what has come: nothing if an environment has
    /// something due.
    pub fn wait(&mut self, patience: Duration) -> (Vec<GroupInferred>, AnswerBatch) {
        let due = self.env.due();
        let due = due.map(|due| due.saturating_duration_since(now()));
        let limit = timespec(due.map_or(patience, |due| due.min(patience)));
        let mut ready = [
            PollFd::from_borrowed_fd(self.env.ready(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.inbox.bell(), PollFlags::IN),
        ];
        // An interrupted wait counts as one without events.
        poll(&mut ready, Some(&limit)).ok();
        (self.inbox.take(), self.env.take())
    }

    /// Returns the groups of environments that take turns with the policy, at most `stages`.
    pub fn groups(&self, stages: usize) -> Vec<Range<usize>> {
        let together = |env| match self.env.steps_together() {
            true => self.env.company(env),
            false => env.0..env.0 + 1,
        };
        schedule::groups(self.env.num_envs(), stages, together)
    }
}

/// Checks that what is about to be read decides the outcomes as it did when the run was begun.
///
/// # Errors
/// Fails for the first file that was changed.
pub fn check_inputs(run: &RankSetup, job: &Job) -> Result<(), Stop> {
    let variable = |name: &str| std::env::var(name).ok();
    match inputs::changed(job, &run.plan.inputs, &run.folder, &variable) {
        Some(change) => Err(Stop::job(format_args!(
            "{change}, was changed since the run was begun; put it back and repeat the command, \
             or start its jobs over with --accept-changed-jobs"
        ))),
        None => Ok(()),
    }
}

/// Returns the builds that have episodes left to run, by number, of a job with this number of
/// episodes or of one in steps. Those of a job that is leased in blocks follow from the leases, one
/// by one.
pub fn known(task: &Task, num_episodes: Option<u64>) -> Vec<(u64, Episodes)> {
    let job = task.job();
    let Some(count) = num_episodes else {
        // Each build takes all steps.
        let of = job.num_rebuilds.max(1) as usize;
        let in_steps = |build| (build as u64, Episodes::Steps { build, of });
        return (0..of).map(in_steps).collect();
    };
    let left = |(number, range)| {
        let own = task.work.episodes(range);
        let left: Vec<u64> = own.filter(|episode| task.is_left(*episode)).collect();
        (!left.is_empty()).then_some((number, Episodes::These(left)))
    };
    (0..).zip(job.rebuilds(count)).filter_map(left).collect()
}
