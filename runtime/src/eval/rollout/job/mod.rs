//! Runs one job in one rank, from building the environments to its last episode.
//!
//! ```text
//! environments ─► policy ─► line `job_start` ─► recording ─► the loop, once a build ─► files closed
//! ```

pub mod builds;
pub mod context;
pub mod latency;
mod settings;
pub mod task;

use std::collections::BTreeMap;
use std::time::SystemTime;

use jobs::job::Length;
use jobs::journal::{JobStart, Line};
use jobs::serve_args::PolicyChoice;
use jobs::suspects::Treatment;
use jobs::time::rfc3339;
use serde_json::Value;

use crate::env::EnvSpec;
use crate::eval::ledger::Ledger;
use crate::eval::monitor::Event;
use crate::eval::rollout::episode_loop::EpisodeLoop;
use crate::eval::rollout::job::builds::{Build, EnvBuild};
use crate::eval::rollout::job::context::ActiveJob;
use crate::eval::rollout::job::latency::StepLatency;
use crate::eval::rollout::job::task::Task;
use crate::eval::rollout::recording::Recording;
use crate::eval::rollout::schedule::feed::Episodes;
use crate::eval::setup::rank_setup::RankSetup;
use crate::eval::stop::Stop;
use crate::policy::{PolicyFacts, PolicyThread};
use crate::record::Amount;

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
    let mut envs = EnvBuild::make(run, task)?;
    for note in &envs.notes {
        out.say_about(&job.name, note);
    }
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
    let num_episodes = active.num_episodes()?;
    let settings = settings::effective(active, &envs.versions);
    let others = task.other_versions(&settings);
    if !others.is_empty() {
        return Err(Stop::job(format_args!(
            "packages have other versions than when the run was begun ({}); install those again, or \
             choose another --output",
            others.join(", ")
        )));
    }
    out.write(&start_line(active, num_episodes, settings))?;
    let own: Vec<u64> = task.work.episodes(0..num_episodes.unwrap_or(0)).collect();
    let left = own.iter().filter(|episode| task.is_left(**episode)).count();
    let amount = amount(task, envs.env.spec(), out, left as u64);
    let recording = Recording::start(run, task, envs.env.spec(), amount, out)?;
    if recording.every_frame || active.policy.needs_video {
        for note in envs.env.open_renderers()? {
            out.monitor.say_for_all("renderer", &note);
        }
    }
    if !task.is_leased {
        out.monitor.on(Event::Planned(own.len() as u64));
    }
    let mut known = match out.leases_in_blocks() {
        Some(_) => Vec::new(),
        None => builds::known(task, num_episodes),
    }
    .into_iter();
    let mut episodes = EpisodeLoop::new(active, envs, recording, out);
    let mut result = Ok(());
    let mut is_first = true;
    while let Some(build) = known.next().or_else(|| next_leased(episodes.out)) {
        if episodes.is_decided() {
            break;
        }
        if !std::mem::take(&mut is_first) {
            episodes.envs = EnvBuild::make(run, task)?;
        }
        episodes.envs.number = build.number;
        result = run_build(&mut episodes, build.episodes);
        if result.is_err() {
            break;
        }
    }
    let settled = episodes.finish();
    result.and(settled)
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

fn start_line(
    active: &ActiveJob,
    num_episodes: Option<u64>,
    settings: BTreeMap<String, Value>,
) -> Line {
    let ActiveJob { run, task, .. } = active;
    Line::JobStart(JobStart {
        job: active.job().name.clone(),
        job_index: active.job().index,
        rank: run.env.rank,
        episodes: num_episodes,
        share: task.work.share,
        attempt: task.attempt,
        settings,
        started: rfc3339(SystemTime::now()),
    })
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

/// Returns the next build of a job that is leased in blocks.
fn next_leased(out: &mut Ledger) -> Option<Build> {
    Some(Build {
        number: out.leases_in_blocks()?.next_build()?,
        episodes: Episodes::Leased,
    })
}

/// Runs the episodes of one build. Those that may have killed a rank run after the others, one at a
/// time.
fn run_build(episodes: &mut EpisodeLoop, of_build: Episodes) -> Result<(), Stop> {
    let (job, suspects) = (episodes.job().index, &episodes.active.task.suspects);
    let apart = suspects.of(job);
    let suspected = match of_build {
        Episodes::These(left) => {
            let (suspected, usual) = left
                .into_iter()
                .partition(|episode| apart.contains(episode));
            episodes.run(&Episodes::These(usual))?;
            suspected
        }
        Episodes::Steps { .. } => {
            episodes.run(&of_build)?;
            Vec::new()
        }
        Episodes::Leased => {
            episodes.run(&Episodes::Leased)?;
            let leases = episodes.out.leases.as_mut();
            let leases = leases.expect("the job has been leased");
            leases.check()?;
            leases.apart()
        }
    };
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
