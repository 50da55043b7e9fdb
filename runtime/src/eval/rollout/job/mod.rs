//! Runs one job in one rank, from building the environments to its last episode.
//!
//! ```text
//! environments ─► policy ─► line `job_start` ─► recording ─► loop, once a build ─► files closed
//! ```
//! Most jobs have one build of their environments, a job with `rebuild` several.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jobs::inputs;
use jobs::job::{Job, Length};
use jobs::journal::{JobStart, Line};
use jobs::progress::Treatment;
use jobs::serve_args::PolicyChoice;
use jobs::time::rfc3339;
use rustix::event::{PollFd, PollFlags, poll};

use crate::clock::{now, timespec};
use crate::env::{self, AnswerBatch, EnvSpec, NewEnv, VectorEnv};
use crate::eval::Stop;
use crate::eval::ledger::Ledger;
use crate::eval::monitor::Event;
use crate::eval::rank_setup::RankSetup;
use crate::eval::rollout::episode_loop::EpisodeLoop;
use crate::eval::rollout::job::context::{ActiveJob, StepLatency};
use crate::eval::rollout::job::task::Task;
use crate::eval::rollout::recording::Recording;
use crate::eval::rollout::schedule::{self, Episodes};
use crate::inbox::Inbox;
use crate::policy::{Inferred, PolicyFacts, PolicyThread};
use crate::record::Amount;

pub mod context;
pub mod task;

/// Runs the rest of a job, and counts in the totals of `out` what it did.
///
/// # Errors
/// Returns why the job did not run to its end.
pub fn run(
    run: &RankSetup,
    task: &Task,
    inference: &PolicyThread,
    out: &mut Ledger,
) -> Result<(), Stop> {
    let job = task.job();
    let made = make_envs(run, task)?;
    for note in &made.notes {
        out.say_about(&job.name, note);
    }
    let mut envs = EnvBuild::new(made.env)?;
    let policy = make_policy(run, task, inference, envs.env.spec(), out)?;
    let latency = StepLatency::new(job, envs.env.spec(), &policy).map_err(Stop::job)?;
    let active = &ActiveJob {
        run,
        task,
        inference,
        policy,
        latency,
    };
    let groups = envs.groups(active.stages());
    let rows = groups.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    inference.warm_up(rows, active.max_batch());
    let num_episodes = note_start(active, &made.versions, out)?;
    let own: Vec<u64> = task.work.episodes(0..num_episodes.unwrap_or(0)).collect();
    let left = own.iter().filter(|episode| task.is_left(**episode)).count();
    let amount = amount(task, envs.env.spec(), out, left as u64);
    let recording = Recording::start(run, task, envs.env.spec(), amount, out)?;
    if recording.every_frame || active.policy.needs_video {
        for note in envs.env.open_renderers().map_err(Stop::job)? {
            out.monitor.say_for_all("renderer", &note);
        }
    }
    if !task.is_leased {
        out.monitor.on(Event::Planned(own.len() as u64));
    }
    let known = match out.leases_in_blocks() {
        Some(_) => Vec::new(),
        None => builds_of(task, num_episodes),
    };
    let mut episodes = EpisodeLoop::new(active, envs, recording, out);
    let result = run_builds(&mut episodes, known);
    let settled = episodes.finish();
    result.and(settled)
}

/// Writes the line `job_start`, unless packages that simulate have changed since the job was
/// started first. Returns the number of episodes; `None` if the job ends after a number of steps.
fn note_start(
    active: &ActiveJob,
    versions: &BTreeMap<String, String>,
    out: &mut Ledger,
) -> Result<Option<u64>, Stop> {
    let ActiveJob { run, task, .. } = active;
    let job = task.job();
    let num_episodes = active.num_episodes()?;
    let settings = active.settings(versions);
    let others = task.other_versions(&settings);
    if !others.is_empty() {
        return Err(Stop::job(format_args!(
            "packages have other versions than when the run was begun ({}); install those again, \
             or choose another --output",
            others.join(", ")
        )));
    }
    out.write(&Line::JobStart(JobStart {
        job: job.name.clone(),
        job_index: job.index,
        rank: run.env.rank,
        episodes: num_episodes,
        share: task.work.share,
        attempt: task.attempt,
        settings,
        started: rfc3339(SystemTime::now()),
    }))?;
    Ok(num_episodes)
}

/// Runs the episodes of the builds that are known, or those of leases, in one build after the
/// other.
fn run_builds(episodes: &mut EpisodeLoop, known: Vec<(u64, Episodes)>) -> Result<(), Stop> {
    let ActiveJob { run, task, .. } = episodes.active;
    let (mut known, mut is_first) = (known.into_iter(), true);
    let next_leased = |out: &mut Ledger| {
        let number = out.leases_in_blocks()?.next_build()?;
        Some((number, Episodes::Leased))
    };
    while let Some((number, of_build)) = known.next().or_else(|| next_leased(episodes.out)) {
        if episodes.is_decided() {
            break;
        }
        if !std::mem::take(&mut is_first) {
            episodes.envs = EnvBuild::new(make_envs(run, task)?.env)?;
        }
        episodes.envs.number = number;
        run_build(episodes, of_build)?;
    }
    Ok(())
}

/// Makes the policy in its thread, and passes its messages on meanwhile.
fn make_policy(
    run: &RankSetup,
    task: &Task,
    inference: &PolicyThread,
    spec: &EnvSpec,
    out: &Ledger,
) -> Result<PolicyFacts, Stop> {
    let (job, stop) = (task.job(), &out.monitor.stop);
    let folder = run.folder.planner(&job.name);
    let choice = PolicyChoice {
        policy_type: job.policy_type.clone(),
        config: job.policy_config.clone(),
    };
    let made = inference.make(choice, Some(spec), Some(&folder), |texts| {
        for text in texts {
            out.say_about(&job.name, &text);
        }
        !stop.asked()
    });
    if made.is_err() && stop.asked() {
        return Err(Stop::Asked);
    }
    let policy = made?;
    for note in &policy.notes {
        out.say_about(&job.name, note);
    }
    Ok(policy)
}

/// Returns an upper bound for what will be recorded, with `left` episodes still to run.
fn amount(task: &Task, spec: &EnvSpec, out: &mut Ledger, left: u64) -> Amount {
    if let Length::Steps(steps) = task.job().length {
        let copies = task.work.seats.len() as u64;
        let copies = copies.saturating_mul(task.job().num_rebuilds);
        let steps = steps.saturating_mul(copies);
        return Amount {
            steps,
            sure_steps: steps,
            episodes: copies,
        };
    }
    let in_blocks = out.leases_in_blocks();
    Amount {
        steps: left.saturating_mul(u64::from(spec.max_episode_steps)),
        // Each episode has at least one step.
        sure_steps: in_blocks.map_or(left, |leases| leases.held()),
        episodes: left,
    }
}

/// Runs the episodes of one build. Those that may have killed a rank run after the others, one at a
/// time.
fn run_build(episodes: &mut EpisodeLoop, mut of_build: Episodes) -> Result<(), Stop> {
    let (job, suspects) = (episodes.job().index, &episodes.active.task.suspects);
    let mut suspected = Vec::new();
    if let Episodes::These(left) = &mut of_build {
        let apart = suspects.of(job);
        suspected = left
            .extract_if(.., |episode| apart.contains(episode))
            .collect();
    }
    episodes.run(&of_build)?;
    if let (Episodes::Leased, Some(leases)) = (of_build, &mut episodes.out.leases) {
        leases.check()?;
        suspected = leases.apart();
    }
    episodes.alone = true;
    for episode in suspected {
        if episodes.is_decided() {
            break;
        }
        // Write finished episodes first: an episode without its journal line counts as under way.
        episodes.recording.catch_up(episodes.out)?;
        match suspects.standing(job, episode) {
            Treatment::GivenUp(deaths) => episodes.give_up(episode, deaths)?,
            Treatment::Alone | Treatment::Usual => {
                episodes.run(&Episodes::These(vec![episode]))?;
            }
        }
    }
    episodes.alone = false;
    Ok(())
}

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
    /// Number of the build within the job.
    pub number: u64,
    /// Where the policy's answers go.
    pub inbox: Arc<Inbox<GroupInferred>>,
}

impl EnvBuild {
    /// Takes environments that were made, for the first build.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub fn new(env: Box<dyn VectorEnv>) -> Result<Self, Stop> {
        let no_bell = |err| Stop::job(format_args!("cannot make an eventfd: {err}"));
        let inbox = Inbox::new().map_err(no_bell)?;
        Ok(Self {
            env,
            number: 0,
            inbox: Arc::new(inbox),
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

/// Makes the environments of a job, if its inputs are those of the run.
///
/// # Errors
/// Fails if an input was changed or the simulator cannot be started.
fn make_envs(run: &RankSetup, task: &Task) -> Result<NewEnv, Stop> {
    let job = task.job();
    check_inputs(run, job)?;
    let seed = jobs::seed::episode(run.plan.seed, job, 0);
    let made = env::make(job, seed, &run.env_placement(&task.work));
    let mut made = made.map_err(Stop::job)?;
    if !made.ignored.is_empty() {
        let (name, ignored) = (&job.environment, made.ignored.join(", "));
        let note = format!("environment `{name}` does not use {ignored}");
        made.notes.insert(0, note);
    }
    Ok(made)
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
fn builds_of(task: &Task, num_episodes: Option<u64>) -> Vec<(u64, Episodes)> {
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
