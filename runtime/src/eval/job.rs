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
use crate::eval::lease::{LeaseError, Leases};
use crate::eval::meter::Meter;
use crate::eval::policy_thread::{Held, PolicyThread};
use crate::eval::recording::Recording;
use crate::eval::rollout::{Event, Rollout, Source, Totals};
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
    /// Looks at memory.
    pub meter: &'a Meter,
}

impl Site<'_> {
    /// Groups of environments that take turns with the policy: two, so that simulation and inference overlap. With a
    /// planner each environment is one, as none waits for what another is thinking.
    pub fn stages(&self, job: &Job, held: &Held) -> usize {
        if held.is_planner {
            return self.place.gpus.len();
        }
        job.rollout.pipeline_stage_num.unwrap_or(self.args.pipeline_stages)
    }

    /// Rows of one inference at most. A matrix product's last bits depend on its number of rows, and a CPU gains little
    /// by many: there each row is inferred alone, unless the user says otherwise, so that an episode is the same in any
    /// company. What another process does with them is its own business.
    pub fn max_batch(&self, held: &Held) -> usize {
        let default = if self.device == Device::Cpu && !held.is_remote { 1 } else { usize::MAX };
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

    /// The same from several ranks and jobs, of which the user needs one.
    fn say_for_all(&mut self, topic: &'static str, text: &str);
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
    /// Leases cannot be had or kept.
    #[error(transparent)]
    Leases(#[from] LeaseError),
    /// The job was a single lease, and another rank has it now.
    #[error("another rank has taken it over, as this one was still for too long")]
    TakenOver,
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
    /// The leases under which it runs, if it does.
    pub leases: Option<Leases>,
}

impl Desk<'_> {
    /// Appends a line, synced.
    pub fn write(&mut self, line: &Line) -> Result<(), JobError> {
        self.journal.append(line).map_err(|err| JobError::Journal { path: self.journal.path().to_owned(), err })
    }

    /// Whether an episode may be written down, and not another rank has taken over its lease.
    pub fn may_write(&mut self, episode: &Episode) -> Result<bool, JobError> {
        let Some(leases) = &self.leases else { return Ok(true) };
        let may = leases.may_write(episode.job_index, episode.episode)?;
        if !may {
            let (job, episode) = (&episode.job, episode.episode);
            self.audience.say(&format!(
                "{job} episode {episode} is left to the rank that has taken it over, as this one was still for too long"
            ));
            // One lease is all of such a job: there is nothing to go on with.
            if !leases.is_in_blocks() {
                return Err(JobError::TakenOver);
            }
        }
        Ok(may)
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
    let held = site.policy.make(job, world.made.env.spec(), &site.folder.planner(&job.name), |said| {
        said.iter().for_each(|text| desk.audience.say(&format!("{}: {text}", job.name)));
        !site.stop.asked()
    });
    if held.is_err() && site.stop.asked() {
        return Err(JobError::Stopped);
    }
    let held = held?;
    held.notes.iter().for_each(|note| desk.audience.say(&format!("{}: {note}", job.name)));
    let rows = world.made.env.num_envs().div_ceil(site.stages(job, &held).max(1));
    site.policy.warm_up(rows, site.max_batch(&held));
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
    let sure = desk.leases.as_ref().filter(|leases| leases.is_in_blocks()).map_or(left, Leases::held);
    let amount = amount(site, job, world.made.env.spec(), (left, sure));
    let mut recording = Recording::start(site, job, world.made.env.spec(), (earlier, amount), desk)?;
    if recording.every_frame || held.spec.needs_video {
        let notes = world.made.env.open_renderers()?;
        notes.iter().for_each(|note| desk.audience.say_for_all("renderer", note));
    }
    counts.beat.of = if desk.leases.is_some() { 0 } else { own.len() as u64 };
    let mut builds = Builds::new(site, episodes, earlier, desk);
    let mut result = Ok(());
    let mut is_used = false;
    while let Some((rebuild, source)) = builds.next() {
        if std::mem::replace(&mut is_used, true) {
            world = World::make(site, job)?;
        }
        let mut rollout = Rollout {
            site,
            job,
            rebuild,
            env: world.made.env.as_mut(),
            policy: site.policy,
            held: &held,
            events: (&world.events, &world.inbox),
            recording: &mut recording,
            totals: counts.totals,
            beat: counts.beat,
            alone: false,
        };
        result = run_apart(&mut rollout, source, earlier.suspects, desk);
        if result.is_err() {
            break;
        }
    }
    // The processes are at their largest, and end with the world.
    site.meter.look();
    if counts.totals.out_of_bounds > 0 {
        desk.audience.say(&format!(
            "{}: {} actions, of which {} were out of bounds (docs/own_simulator.md, `clip_actions`)",
            job.name, counts.totals.env_steps, counts.totals.out_of_bounds
        ));
    }
    let settled = recording.finish(desk, counts);
    result.and(settled)
}

/// The builds of the environments that have something to do.
enum Builds {
    /// Known beforehand.
    Fixed(std::vec::IntoIter<(u64, Source)>),
    /// As leases come.
    Leased(Leases),
}

impl Builds {
    fn new(site: &Site, episodes: Option<u64>, earlier: &Earlier, desk: &Desk) -> Self {
        if let Some(leases) = desk.leases.clone().filter(Leases::is_in_blocks) {
            return Self::Leased(leases);
        }
        let Some(count) = episodes else { return Self::Fixed(vec![(0, Source::Steps)].into_iter()) };
        let left = |range| -> Vec<u64> {
            let own = site.work.episodes(range);
            own.filter(|episode| earlier.done.binary_search(episode).is_err()).collect()
        };
        let builds = (0..).zip(site.work.job.rebuilds(count)).map(|(build, range)| (build, left(range)));
        let builds = builds.filter(|(_, left)| !left.is_empty()).map(|(build, left)| (build, Source::These(left)));
        Self::Fixed(builds.collect::<Vec<_>>().into_iter())
    }

    fn next(&mut self) -> Option<(u64, Source)> {
        match self {
            Self::Fixed(builds) => builds.next(),
            Self::Leased(leases) => Some((leases.next_build()?, Source::Leased(leases.clone()))),
        }
    }
}

/// Runs episodes, those that may have killed a rank after the others and one by one.
fn run_apart(rollout: &mut Rollout, source: Source, suspects: &Suspects, desk: &mut Desk) -> Result<(), JobError> {
    let apart = suspects.of(rollout.job.index);
    let (usual, mut suspected) = match source {
        Source::These(left) => {
            let (suspected, usual) = left.into_iter().partition(|episode| apart.contains(episode));
            (Source::These(usual), suspected)
        }
        other => (other, Vec::new()),
    };
    let leases = if let Source::Leased(leases) = &usual { Some(leases.clone()) } else { None };
    rollout.run(usual, desk)?;
    if let Some(leases) = leases {
        leases.check()?;
        suspected = leases.apart();
    }
    rollout.alone = true;
    for episode in suspected {
        // One that has ended is under way until its line is written.
        rollout.recording.catch_up(desk, rollout.beat)?;
        match suspects.standing(rollout.job.index, episode) {
            Standing::GivenUp(deaths) => rollout.give_up(episode, deaths, desk)?,
            Standing::Alone | Standing::Usual => rollout.run(Source::These(vec![episode]), desk)?,
        }
    }
    Ok(())
}

/// What will be recorded at most.
fn amount(site: &Site, job: &Job, spec: &env::EnvSpec, (episodes, sure): (u64, u64)) -> Amount {
    if let Length::Steps(steps) = job.length {
        let copies = site.place.gpus.len() as u64;
        let steps = steps.saturating_mul(copies);
        return Amount { steps, sure_steps: steps, episodes: copies };
    }
    Amount { steps: episodes.saturating_mul(u64::from(spec.max_episode_steps)), sure_steps: sure, episodes }
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
        Ok(Self { made: env::make(job, jobs::seed::episode(site.seed, job, 0), &site.place, answers)?, events, inbox })
    }
}
