//! Runs one job in one rank, from building the environments to the last journal line.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime};

use jobs::assign::Work;
use jobs::episode::Episode;
use jobs::eval_args::EvalArgs;
use jobs::job::{Job, Length};
use jobs::journal::{JobStart, Journal, Line};
use jobs::layout::RunFolder;
use jobs::rank_env::RankEnv;
use jobs::suspects::{Standing, Suspects};
use jobs::time::rfc3339;
use tch::Device;

use crate::env::{self, Answers, EnvError, Place};
use crate::eval::lease::{LeaseError, Leases};
use crate::eval::monitor::heartbeat::Heartbeat;
use crate::eval::monitor::meter::Meter;
use crate::eval::monitor::stop::Stop;
use crate::eval::rollout::episode_loop::{Event, Rollout, Source, Totals};
use crate::eval::rollout::inference::{Held, PolicyThread};
use crate::eval::rollout::recording::Recording;
use crate::eval::rollout::settings;
use crate::policy::PolicyError;
use crate::record::{Amount, RecordError};

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
    /// Place where the environments run: GPUs, processes, render device.
    pub place: Place,
    /// Thread that owns the policy.
    pub policy: &'a PolicyThread,
    /// Base seed of the run.
    pub seed: u64,
    /// Folder for all files of the run.
    pub folder: &'a RunFolder,
    /// Tells whether a signal has asked the rank to stop.
    pub stop: &'a Stop,
    /// Samples the memory of the environments.
    pub meter: &'a Meter,
}

impl JobContext<'_> {
    /// Returns the number of pipeline stages: groups of environments that take turns with the
    /// policy. With two stages, simulation and inference overlap. With a planner each environment
    /// is its own stage, so that none waits for another's answer.
    pub fn stages(&self, job: &Job, held: &Held) -> usize {
        if held.is_planner {
            return self.place.gpus.len();
        }
        job.rollout
            .pipeline_stage_num
            .unwrap_or(self.args.pipeline_stages)
    }

    /// Returns the maximum number of rows in one inference. The last bits of a matrix product
    /// depend on its number of rows, and a CPU gains little from large batches. On a CPU each row
    /// is therefore inferred alone by default, so that an episode does not depend on the others in
    /// its batch. A remote policy has no such limit, because its server batches as it likes.
    pub fn max_batch(&self, held: &Held) -> usize {
        let default = if self.device == Device::Cpu && !held.is_remote {
            1
        } else {
            usize::MAX
        };
        self.args.max_batch.unwrap_or(default)
    }

    /// Returns how often an episode is started again after its environment was lost.
    pub fn env_restarts(&self) -> u32 {
        self.args.env_restarts
    }

    /// Returns the time without progress after which a stall is reported.
    pub fn stall_timeout(&self) -> Duration {
        Duration::from_secs(self.args.stall_timeout)
    }
}

/// Observer of a running job.
pub trait JobObserver {
    /// Reports progress; `ended` is an episode that is now in the journal.
    fn on(&mut self, beat: &Heartbeat, ended: Option<&Episode>);

    /// Tells the user something once.
    fn say(&mut self, text: &str);

    /// Tells the user something that several ranks and jobs may report; the user sees one message
    /// for each topic.
    fn say_for_all(&mut self, topic: &'static str, text: &str);
}

/// The reason why a job did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The simulator failed.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The policy failed.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Writing the dataset or a video failed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The recorder lost an episode.
    #[error("episode {episode} is not recorded: {reason}")]
    Unrecorded {
        /// Episode number within the job.
        episode: u64,
        /// The recorder's reason.
        reason: String,
    },
    /// Writing to the journal failed.
    #[error("cannot write `{}`: {err}", path.display())]
    Journal {
        /// Path of the journal.
        path: std::path::PathBuf,
        /// The I/O error.
        #[source]
        err: std::io::Error,
    },
    /// Neither the job nor the policy says when it ends.
    #[error(
        "neither num_episodes nor num_steps is given, and policy `{policy}` has no length of its own; --num-steps is one way"
    )]
    NoLength {
        /// Policy type of the job.
        policy: String,
    },
    /// The store of the leases failed.
    #[error(transparent)]
    Leases(#[from] LeaseError),
    /// The job was a single lease, and another rank has taken it over.
    #[error("another rank has taken it over, as this one was still for too long")]
    TakenOver,
    /// A signal asked the rank to stop.
    #[error("stopped by a signal")]
    Stopped,
}

/// Destination of finished episodes: the journal and the observer, with the leases that protect
/// them.
pub struct EpisodeSink<'a> {
    /// The rank's journal.
    pub journal: &'a mut Journal,
    /// Observer of the job.
    pub observer: &'a mut dyn JobObserver,
    /// The leases under which the job runs; `None` if it is not leased.
    pub leases: Option<Leases>,
}

impl EpisodeSink<'_> {
    /// Appends a line to the journal and syncs the file.
    pub fn write(&mut self, line: &Line) -> Result<(), JobError> {
        self.journal.append(line).map_err(|err| JobError::Journal {
            path: self.journal.path().to_owned(),
            err,
        })
    }

    /// Returns whether an episode may be written to the journal: false if another rank has taken
    /// over its lease.
    pub fn may_write(&mut self, episode: &Episode) -> Result<bool, JobError> {
        let Some(leases) = &self.leases else {
            return Ok(true);
        };
        let may = leases.may_write(episode.job_index, episode.episode)?;
        if !may {
            let (job, episode) = (&episode.job, episode.episode);
            self.observer.say(&format!(
                "{job} episode {episode} is left to the rank that has taken it over, as this one was still for too long"
            ));
            // Such a job is a single lease, so nothing of it is left to run.
            if !leases.is_in_blocks() {
                return Err(JobError::TakenOver);
            }
        }
        Ok(may)
    }

    /// Appends a line that only has to survive this process: the file is not synced.
    pub fn note(&mut self, line: &Line) -> Result<(), JobError> {
        self.journal.note(line).map_err(|err| JobError::Journal {
            path: self.journal.path().to_owned(),
            err,
        })
    }
}

/// What earlier attempts recorded about a job.
pub struct Earlier<'a> {
    /// Numbers of the finished episodes, ascending.
    pub done: Vec<u64>,
    /// Journal lines about the job.
    pub lines: Vec<&'a Line>,
    /// Episodes that may have killed a rank.
    pub suspects: &'a Suspects,
    /// Number of earlier failures of the job in this rank.
    pub attempt: u32,
}

impl Earlier<'_> {
    /// Returns the first free demonstration number of a dataset: one more than the highest in the
    /// journals, whether the file still exists or not.
    pub fn first_demo(&self, file: &str) -> u64 {
        let demos = self.lines.iter().filter_map(|line| match line {
            Line::Episode(episode) => episode.dataset.as_ref().filter(|demo| demo.file == file),
            _ => None,
        });
        let numbers = demos.filter_map(|demo| demo.demo.strip_prefix("demo_")?.parse::<u64>().ok());
        numbers.max().map_or(0, |last| last + 1)
    }
}

/// Runs the rest of a job and returns its totals with the result.
pub fn run(
    context: &JobContext,
    job: &Job,
    earlier: &Earlier,
    sink: &mut EpisodeSink,
    beat: &mut Heartbeat,
) -> (Totals, Result<(), JobError>) {
    let mut totals = Totals::default();
    let mut counts = Counts {
        totals: &mut totals,
        beat,
    };
    let result = run_into(context, job, earlier, sink, &mut counts);
    (totals, result)
}

/// Counters that are updated while a job runs.
pub struct Counts<'a> {
    /// Totals for the journal.
    pub totals: &'a mut Totals,
    /// Heartbeat for the other ranks.
    pub beat: &'a mut Heartbeat,
}

fn run_into(
    context: &JobContext,
    job: &Job,
    earlier: &Earlier,
    sink: &mut EpisodeSink,
    counts: &mut Counts,
) -> Result<(), JobError> {
    let mut world = World::make(context, job)?;
    if !world.made.ignored.is_empty() {
        sink.observer.say(&format!(
            "{}: environment `{}` makes no use of {}",
            job.name,
            job.environment,
            world.made.ignored.join(", ")
        ));
    }
    world
        .made
        .notes
        .iter()
        .for_each(|note| sink.observer.say(&format!("{}: {note}", job.name)));
    let held = context.policy.make(
        job,
        world.made.env.spec(),
        &context.folder.planner(&job.name),
        |said| {
            said.iter()
                .for_each(|text| sink.observer.say(&format!("{}: {text}", job.name)));
            !context.stop.asked()
        },
    );
    if held.is_err() && context.stop.asked() {
        return Err(JobError::Stopped);
    }
    let held = held?;
    held.notes
        .iter()
        .for_each(|note| sink.observer.say(&format!("{}: {note}", job.name)));
    let rows = world
        .made
        .env
        .num_envs()
        .div_ceil(context.stages(job, &held).max(1));
    context.policy.warm_up(rows, context.max_batch(&held));
    let episodes = match (job.length, held.spec.num_episodes) {
        (Length::Episodes(count), _) | (Length::Policy, Some(count)) => Some(count),
        (Length::Steps(_), _) => None,
        (Length::Policy, None) => {
            return Err(JobError::NoLength {
                policy: job.policy_type.clone(),
            });
        }
    };
    sink.write(&Line::JobStart(JobStart {
        job_index: job.index,
        rank: context.env.rank,
        episodes,
        share: context.work.share,
        attempt: earlier.attempt,
        settings: settings::effective(context, job, &held),
        started: rfc3339(SystemTime::now()),
    }))?;
    let done = |episode: &u64| earlier.done.binary_search(episode).is_ok();
    let own: Vec<u64> = context.work.episodes(0..episodes.unwrap_or(0)).collect();
    let left = own.iter().filter(|episode| !done(episode)).count() as u64;
    let sure = sink
        .leases
        .as_ref()
        .filter(|leases| leases.is_in_blocks())
        .map_or(left, Leases::held);
    let amount = amount(context, job, world.made.env.spec(), (left, sure));
    let mut recording =
        Recording::start(context, job, world.made.env.spec(), (earlier, amount), sink)?;
    if recording.every_frame || held.spec.needs_video {
        let notes = world.made.env.open_renderers()?;
        notes
            .iter()
            .for_each(|note| sink.observer.say_for_all("renderer", note));
    }
    counts.beat.of = if sink.leases.is_some() {
        0
    } else {
        own.len() as u64
    };
    let mut builds = Builds::new(context, episodes, earlier, sink);
    let mut result = Ok(());
    let mut is_used = false;
    while let Some((rebuild, source)) = builds.next() {
        if std::mem::replace(&mut is_used, true) {
            world = World::make(context, job)?;
        }
        let mut rollout = Rollout {
            context,
            job,
            rebuild,
            env: world.made.env.as_mut(),
            policy: context.policy,
            held: &held,
            events: (&world.events, &world.inbox),
            recording: &mut recording,
            totals: counts.totals,
            beat: counts.beat,
            alone: false,
        };
        result = run_apart(&mut rollout, source, earlier.suspects, sink);
        if result.is_err() {
            break;
        }
    }
    // Sample the memory now: the processes are at their largest, and they end with the world.
    context.meter.look();
    if counts.totals.out_of_bounds > 0 {
        sink.observer.say(&format!(
            "{}: {} actions, of which {} were out of bounds (docs/own_simulator.md, `clip_actions`)",
            job.name, counts.totals.env_steps, counts.totals.out_of_bounds
        ));
    }
    let settled = recording.finish(sink, counts);
    result.and(settled)
}

/// The builds of the environments that have episodes left to run.
enum Builds {
    /// Builds that are known in advance.
    Fixed(std::vec::IntoIter<(u64, Source)>),
    /// Builds that follow from the leases.
    Leased(Leases),
}

impl Builds {
    fn new(
        context: &JobContext,
        episodes: Option<u64>,
        earlier: &Earlier,
        sink: &EpisodeSink,
    ) -> Self {
        if let Some(leases) = sink.leases.clone().filter(Leases::is_in_blocks) {
            return Self::Leased(leases);
        }
        let Some(count) = episodes else {
            return Self::Fixed(vec![(0, Source::Steps)].into_iter());
        };
        let left = |range| -> Vec<u64> {
            let own = context.work.episodes(range);
            own.filter(|episode| earlier.done.binary_search(episode).is_err())
                .collect()
        };
        let builds = (0..)
            .zip(context.work.job.rebuilds(count))
            .map(|(build, range)| (build, left(range)));
        let builds = builds
            .filter(|(_, left)| !left.is_empty())
            .map(|(build, left)| (build, Source::These(left)));
        Self::Fixed(builds.collect::<Vec<_>>().into_iter())
    }

    fn next(&mut self) -> Option<(u64, Source)> {
        match self {
            Self::Fixed(builds) => builds.next(),
            Self::Leased(leases) => Some((leases.next_build()?, Source::Leased(leases.clone()))),
        }
    }
}

/// Runs the episodes. Those that may have killed a rank run after the others, one at a time.
fn run_apart(
    rollout: &mut Rollout,
    source: Source,
    suspects: &Suspects,
    sink: &mut EpisodeSink,
) -> Result<(), JobError> {
    let apart = suspects.of(rollout.job.index);
    let (usual, mut suspected) = match source {
        Source::These(left) => {
            let (suspected, usual) = left
                .into_iter()
                .partition(|episode| apart.contains(episode));
            (Source::These(usual), suspected)
        }
        other => (other, Vec::new()),
    };
    let leases = if let Source::Leased(leases) = &usual {
        Some(leases.clone())
    } else {
        None
    };
    rollout.run(usual, sink)?;
    if let Some(leases) = leases {
        leases.check()?;
        suspected = leases.apart();
    }
    rollout.alone = true;
    for episode in suspected {
        // Write finished episodes first: an episode without its journal line counts as under way.
        rollout.recording.catch_up(sink, rollout.beat)?;
        match suspects.standing(rollout.job.index, episode) {
            Standing::GivenUp(deaths) => rollout.give_up(episode, deaths, sink)?,
            Standing::Alone | Standing::Usual => rollout.run(Source::These(vec![episode]), sink)?,
        }
    }
    Ok(())
}

/// Returns an upper bound for what will be recorded.
fn amount(
    context: &JobContext,
    job: &Job,
    spec: &env::EnvSpec,
    (episodes, sure): (u64, u64),
) -> Amount {
    if let Length::Steps(steps) = job.length {
        let copies = context.place.gpus.len() as u64;
        let steps = steps.saturating_mul(copies);
        return Amount {
            steps,
            sure_steps: steps,
            episodes: copies,
        };
    }
    Amount {
        steps: episodes.saturating_mul(u64::from(spec.max_episode_steps)),
        sure_steps: sure,
        episodes,
    }
}

/// One build of the environments, with the channel for their answers.
struct World {
    made: env::Made,
    events: Sender<Event>,
    inbox: Receiver<Event>,
}

impl World {
    fn make(context: &JobContext, job: &Job) -> Result<Self, EnvError> {
        let (events, inbox) = channel();
        let outbox = events.clone();
        // The receiver is gone after the loop was stopped.
        let answers = Answers::new(move |env, answer| drop(outbox.send(Event::Env(env, answer))));
        Ok(Self {
            made: env::make(
                job,
                jobs::seed::episode(context.seed, job, 0),
                &context.place,
                answers,
            )?,
            events,
            inbox,
        })
    }
}
