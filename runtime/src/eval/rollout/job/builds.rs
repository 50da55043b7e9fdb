//! The builds of a job's environments: most jobs have one, a job with `rebuild` several.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::env::{self, AnswerBatch, Answers, EnvIndex, EnvSpec, NewEnv, VectorEnv};
use crate::eval::lease::Leases;
use crate::eval::rollout::job::context::JobContext;
use crate::eval::rollout::job::earlier::Earlier;
use crate::eval::rollout::schedule;
use crate::eval::rollout::schedule::source::{EpisodeSource, StepBuild};
use crate::eval::stop::Stop;
use crate::policy::Inferred;

/// An event that the episode loop waits for.
pub enum LoopEvent {
    /// Environments have answered commands.
    Envs(AnswerBatch),
    /// The policy has finished an inference for a group.
    Inference {
        /// Index of the group.
        group: usize,
        /// Its chunks.
        result: Inferred,
        /// Time since the loop asked, which includes waiting for inferences of other groups.
        waited: Duration,
    },
}

/// One build of the environments, with the channel for their answers and those of the policy.
pub struct EnvBuild {
    made: NewEnv,
    /// Number of the build within the job.
    pub number: u64,
    /// Where the policy's answers go.
    pub events: Sender<LoopEvent>,
    /// Answers that have arrived.
    pub inbox: Receiver<LoopEvent>,
}

impl EnvBuild {
    /// Makes the environments of a job, if its inputs are those of the run.
    ///
    /// # Errors
    /// Fails if an input was changed or the simulator cannot be started.
    pub fn make(context: &JobContext) -> Result<Self, Stop> {
        context.check_inputs()?;
        let (events, inbox) = channel();
        let outbox = events.clone();
        let answers = Answers::in_batches(move |batch| {
            // The receiver is gone after the loop was stopped.
            outbox.send(LoopEvent::Envs(batch)).ok();
        });
        let seed = jobs::seed::episode(context.seed, context.job(), 0);
        Ok(Self {
            made: env::make(context.job(), seed, &context.place, answers)?,
            number: 0,
            events,
            inbox,
        })
    }

    /// Returns the environments.
    pub fn env(&mut self) -> &mut dyn VectorEnv {
        self.made.env.as_mut()
    }

    /// Returns the specification of the environments.
    pub fn spec(&self) -> &EnvSpec {
        self.made.env.spec()
    }

    /// Returns the number of environments.
    pub fn num_envs(&self) -> usize {
        self.made.env.num_envs()
    }

    /// Returns the environments that share a process with this one, itself included.
    pub fn company(&self, env: EnvIndex) -> Range<usize> {
        self.made.env.company(env)
    }

    /// Returns whether the environments of a process only step together.
    pub fn steps_together(&self) -> bool {
        self.made.env.steps_together()
    }

    /// Returns the groups of environments that take turns with the policy, at most `stages`.
    pub fn groups(&self, stages: usize) -> Vec<Range<usize>> {
        let together = |env| match self.steps_together() {
            true => self.company(env),
            false => env.0..env.0 + 1,
        };
        schedule::groups(self.num_envs(), stages, together)
    }

    /// Returns the versions of the packages that simulate, by name.
    pub fn versions(&self) -> &BTreeMap<String, String> {
        &self.made.versions
    }

    /// Returns messages for the user about the environments of the job.
    pub fn notes(&self, context: &JobContext) -> Vec<String> {
        let ignored = &self.made.ignored;
        let without_effect = (!ignored.is_empty()).then(|| {
            format!(
                "environment `{}` does not use {}",
                context.job().environment,
                ignored.join(", ")
            )
        });
        without_effect
            .into_iter()
            .chain(self.made.notes.iter().cloned())
            .collect()
    }
}

/// A build that has episodes left to run.
pub struct Build<'l> {
    /// Number of the build within the job.
    pub number: u64,
    /// Its episodes.
    pub source: EpisodeSource<'l>,
}

/// The builds of the environments that have episodes left to run.
pub enum BuildQueue<'l> {
    /// Builds that are known in advance.
    Fixed(std::vec::IntoIter<Build<'l>>),
    /// Builds that follow from the leases.
    Leased(&'l Leases),
}

impl<'l> BuildQueue<'l> {
    /// Returns the builds of a job with `episodes` episodes, or of a job in steps. `leases` are
    /// those under which the job runs.
    pub fn new(
        context: &JobContext,
        episodes: Option<u64>,
        earlier: &Earlier,
        leases: Option<&'l Leases>,
    ) -> Self {
        if let Some(leases) = leases.filter(|leases| leases.is_in_blocks()) {
            return Self::Leased(leases);
        }
        let Some(count) = episodes else {
            return Self::Fixed(in_steps(context.job().num_rebuilds).into_iter());
        };
        let mut builds = Vec::new();
        for (number, range) in (0..).zip(context.job().rebuilds(count)) {
            let own = context.work.episodes(range);
            let left: Vec<u64> = own.filter(|episode| earlier.is_left(*episode)).collect();
            if !left.is_empty() {
                builds.push(Build {
                    number,
                    source: EpisodeSource::These(left),
                });
            }
        }
        Self::Fixed(builds.into_iter())
    }
}

/// Returns the builds of a job in steps, each with all steps.
fn in_steps<'l>(num_rebuilds: u64) -> Vec<Build<'l>> {
    let of = num_rebuilds.max(1) as usize;
    let build = |number| Build {
        number: number as u64,
        source: EpisodeSource::Steps(StepBuild { number, of }),
    };
    (0..of).map(build).collect()
}

impl<'l> Iterator for BuildQueue<'l> {
    type Item = Build<'l>;

    fn next(&mut self) -> Option<Build<'l>> {
        match self {
            Self::Fixed(builds) => builds.next(),
            Self::Leased(leases) => Some(Build {
                number: leases.next_build()?,
                source: EpisodeSource::Leased(leases),
            }),
        }
    }
}
