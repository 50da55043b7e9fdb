//! One job in one rank: from its environments to its last journal line.

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
use crate::eval::beat::Beat;
use crate::eval::policy_thread::PolicyThread;
use crate::eval::recording::Recording;
use crate::eval::rollout::{Event, Rollout, Totals};
use crate::eval::settings;
use crate::eval::stop::Stop;
use crate::policy::PolicyError;
use crate::record::{Amount, RecordError};

/// What a job finds in its rank.
pub struct Site<'a> {
    /// Command line.
    pub args: &'a EvalArgs,
    /// Who the rank is.
    pub env: &'a RankEnv,
    /// What the policy is on.
    pub device: Device,
    /// What of the job is this rank's.
    pub work: &'a Work,
    /// Where its environments are to run.
    pub place: Place,
    /// Where the policy lives.
    pub policy: &'a PolicyThread,
    /// Base seed of the run.
    pub seed: u64,
    /// Where files go.
    pub folder: &'a RunFolder,
    /// Asked for by a signal.
    pub stop: &'a Stop,
}

impl Site<'_> {
    /// Groups of environments that take turns with the policy: two, so that simulation and inference overlap.
    pub fn stages(&self, job: &Job) -> usize {
        job.rollout.pipeline_stage_num.unwrap_or(self.args.pipeline_stages)
    }

    /// Rows of one inference at most. A matrix product's last bits depend on its number of rows, and a CPU gains little
    /// by many: there each row is inferred alone, unless the user says otherwise, so that an episode is the same in any
    /// company.
    pub fn max_batch(&self) -> usize {
        let default = if self.device == Device::Cpu { 1 } else { usize::MAX };
        self.args.max_batch.unwrap_or(default)
    }

    /// How often an episode begins again because its environment was lost.
    pub fn env_restarts(&self) -> u32 {
        self.args.env_restarts
    }

    /// Time after which a standstill is told.
    pub fn stall_timeout(&self) -> Duration {
        Duration::from_secs(self.args.stall_timeout)
    }
}

/// Who looks on while a job runs.
pub trait Audience {
    /// Something moved; `ended` is an episode that is now in the journal.
    fn on(&mut self, beat: &Beat, ended: Option<&Episode>);

    /// Something that the user should know, once.
    fn say(&mut self, text: &str);
}

/// Why a job did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The simulator.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Dataset or video.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The recorder lost an episode.
    #[error("episode {episode} is not recorded: {reason}")]
    Unrecorded {
        /// Number within the job.
        episode: u64,
        /// Why.
        reason: String,
    },
    /// The journal.
    #[error("cannot write `{}`: {err}", path.display())]
    Journal {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        err: std::io::Error,
    },
    /// Neither the job nor the policy says when it ends.
    #[error(
        "neither num_episodes nor num_steps is given, and policy `{policy}` has no length of its own; --num-steps is one way"
    )]
    NoLength {
        /// Policy type.
        policy: String,
    },
    /// A signal asked for it.
    #[error("stopped by a signal")]
    Stopped,
}

/// Journal and audience: where finished episodes go.
pub struct Desk<'a> {
    /// The rank's journal.
    pub journal: &'a mut Journal,
    /// Who looks on.
    pub audience: &'a mut dyn Audience,
}

impl Desk<'_> {
    /// Appends a line, synced.
    pub fn write(&mut self, line: &Line) -> Result<(), JobError> {
        self.journal.append(line).map_err(|err| JobError::Journal { path: self.journal.path().to_owned(), err })
    }

    /// Appends a line that only has to outlive this process.
    pub fn note(&mut self, line: &Line) -> Result<(), JobError> {
        self.journal.note(line).map_err(|err| JobError::Journal { path: self.journal.path().to_owned(), err })
    }
}

/// What earlier attempts left of a job.
pub struct Earlier<'a> {
    /// Numbers of finished episodes, ascending.
    pub done: Vec<u64>,
    /// Lines about the job.
    pub lines: Vec<&'a Line>,
    /// Episodes that may have killed a rank.
    pub suspects: &'a Suspects,
    /// How often the job has failed in this rank before.
    pub attempt: u32,
}

impl Earlier<'_> {
    /// One after the highest demonstration of a dataset that a journal speaks of, whether the file is there or not.
    pub fn first_demo(&self, file: &str) -> u64 {
        let demos = self.lines.iter().filter_map(|line| match line {
            Line::Episode(episode) => episode.dataset.as_ref().filter(|demo| demo.file == file),
            _ => None,
        });
        let numbers = demos.filter_map(|demo| demo.demo.strip_prefix("demo_")?.parse::<u64>().ok());
        numbers.max().map_or(0, |last| last + 1)
    }
}

/// Runs what is left of a job.
pub fn run(
    site: &Site,
    job: &Job,
    earlier: &Earlier,
    desk: &mut Desk,
    beat: &mut Beat,
) -> (Totals, Result<(), JobError>) {
    let mut totals = Totals::default();
    let mut counts = Counts { totals: &mut totals, beat };
    let result = run_into(site, job, earlier, desk, &mut counts);
    (totals, result)
}

/// What is counted while a job runs.
pub struct Counts<'a> {
    /// For the journal.
    pub totals: &'a mut Totals,
    /// For those who look on.
    pub beat: &'a mut Beat,
}

fn run_into(site: &Site, job: &Job, earlier: &Earlier, desk: &mut Desk, counts: &mut Counts) -> Result<(), JobError> {
    let mut world = World::make(site, job)?;
    if !world.made.ignored.is_empty() {
        desk.audience.say(&format!(
            "{}: environment `{}` makes no use of {}",
            job.name,
            job.environment,
            world.made.ignored.join(", ")
        ));
    }
    world.made.notes.iter().for_each(|note| desk.audience.say(&format!("{}: {note}", job.name)));
    let held = site.policy.make(job, world.made.env.spec())?;
    let episodes = match (job.length, held.spec.num_episodes) {
        (Length::Episodes(count), _) | (Length::Policy, Some(count)) => Some(count),
        (Length::Steps(_), _) => None,
        (Length::Policy, None) => return Err(JobError::NoLength { policy: job.policy_type.clone() }),
    };
    desk.write(&Line::JobStart(JobStart {
        job_index: job.index,
        rank: site.env.rank,
        episodes,
        share: site.work.share,
        attempt: earlier.attempt,
        settings: settings::effective(site, job, &held),
        started: rfc3339(SystemTime::now()),
    }))?;
    let done = |episode: &u64| earlier.done.binary_search(episode).is_ok();
    let own: Vec<u64> = site.work.episodes(0..episodes.unwrap_or(0)).collect();
    let left = own.iter().filter(|episode| !done(episode)).count() as u64;
    let amount = amount(site, job, world.made.env.spec(), left);
    let mut recording = Recording::start(site, job, world.made.env.spec(), (earlier, amount), desk)?;
    let ranges = match episodes {
        Some(count) => job.rebuilds(count),
        None => std::iter::once(0..u64::MAX).collect(),
    };
    counts.beat.of = own.len() as u64;
    let mut result = Ok(());
    for (rebuild, range) in ranges.into_iter().enumerate() {
        let left: Vec<u64> = match job.length {
            Length::Steps(_) => Vec::new(),
            _ => site.work.episodes(range).filter(|episode| !done(episode)).collect(),
        };
        if left.is_empty() && episodes.is_some() {
            continue;
        }
        if rebuild > 0 {
            world = World::make(site, job)?;
        }
        let mut rollout = Rollout {
            site,
            job,
            rebuild: rebuild as u64,
            env: world.made.env.as_mut(),
            policy: site.policy,
            held: &held,
            events: (&world.events, &world.inbox),
            recording: &mut recording,
            totals: counts.totals,
            beat: counts.beat,
            alone: false,
        };
        result = run_apart(&mut rollout, left, earlier.suspects, desk);
        if result.is_err() {
            break;
        }
    }
    let settled = recording.finish(desk, counts);
    result.and(settled)
}

/// Runs episodes, those that may have killed a rank after the others and one by one.
fn run_apart(rollout: &mut Rollout, left: Vec<u64>, suspects: &Suspects, desk: &mut Desk) -> Result<(), JobError> {
    let apart = suspects.of(rollout.job.index);
    let (suspected, usual): (Vec<_>, Vec<_>) = left.into_iter().partition(|episode| apart.contains(episode));
    rollout.run(usual, desk)?;
    rollout.alone = true;
    for episode in suspected {
        // One that has ended is under way until its line is written.
        rollout.recording.catch_up(desk, rollout.beat)?;
        match suspects.standing(rollout.job.index, episode) {
            Standing::GivenUp(deaths) => rollout.give_up(episode, deaths, desk)?,
            Standing::Alone | Standing::Usual => rollout.run(vec![episode], desk)?,
        }
    }
    Ok(())
}

/// What will be recorded at most.
fn amount(site: &Site, job: &Job, spec: &env::EnvSpec, episodes: u64) -> Amount {
    if let Length::Steps(steps) = job.length {
        let copies = site.place.gpus.len() as u64;
        let steps = steps.saturating_mul(copies);
        return Amount { steps, sure_steps: steps, episodes: copies };
    }
    Amount { steps: episodes.saturating_mul(u64::from(spec.max_episode_steps)), sure_steps: episodes, episodes }
}

/// One build of the environments, and the channel that they answer through.
struct World {
    made: env::Made,
    events: Sender<Event>,
    inbox: Receiver<Event>,
}

impl World {
    fn make(site: &Site, job: &Job) -> Result<Self, EnvError> {
        let (events, inbox) = channel();
        let outbox = events.clone();
        // A loop that was stopped listens no more.
        let answers = Answers::new(move |env, answer| drop(outbox.send(Event::Env(env, answer))));
        Ok(Self { made: env::make(job, &site.place, answers)?, events, inbox })
    }
}
