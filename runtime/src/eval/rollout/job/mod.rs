//! Runs one job in one rank, from building the environments to its last episode.
//!
//! ```text
//! environments ─► policy ─► line `job_start` ─► recording ─► the loop, once a build ─► files closed
//! ```

pub mod builds;
pub mod context;
pub mod earlier;
pub mod latency;
mod settings;

use std::collections::BTreeMap;
use std::time::SystemTime;

use jobs::job::Length;
use jobs::journal::{JobStart, Line};
use jobs::serve_args::PolicyChoice;
use jobs::suspects::{Suspects, Treatment};
use jobs::time::rfc3339;
use serde_json::Value;

use crate::env::EnvSpec;
use crate::eval::rollout::episode_loop::EpisodeLoop;
use crate::eval::rollout::job::builds::{BuildQueue, EnvBuild};
use crate::eval::rollout::job::context::{ActiveJob, JobContext};
use crate::eval::rollout::job::earlier::Earlier;
use crate::eval::rollout::job::latency::StepLatency;
use crate::eval::rollout::recording::Recording;
use crate::eval::rollout::recording::episode_log::EpisodeLog;
use crate::eval::rollout::schedule::source::EpisodeSource;
use crate::eval::rollout::totals::Totals;
use crate::eval::stop::Stop;
use crate::policy::PolicyFacts;
use crate::record::Amount;

/// Runs the rest of a job, and counts in `totals` what it did.
///
/// # Errors
/// Returns a [`Stop`] if the job did not run to its end.
pub fn run(
    context: &JobContext,
    earlier: &Earlier,
    log: &mut EpisodeLog,
    totals: &mut Totals,
) -> Result<(), Stop> {
    let job = context.job();
    let mut envs = EnvBuild::make(context)?;
    for note in envs.notes(context) {
        log.say_about(&job.name, &note);
    }
    let policy = make_policy(context, envs.spec(), log)?;
    let latency = StepLatency::new(job, envs.spec(), &policy).map_err(Stop::job)?;
    let active = &ActiveJob {
        context,
        policy,
        latency,
    };
    let groups = envs.groups(active.stages());
    let rows = groups.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    context.inference.warm_up(rows, active.max_batch());
    let num_episodes = active.num_episodes()?;
    let settings = settings::effective(active, envs.versions());
    let others = earlier.other_versions(&settings);
    if !others.is_empty() {
        return Err(Stop::job(format_args!(
            "packages have other versions than when the run was begun ({}); install those again, or \
             choose another --output",
            others.join(", ")
        )));
    }
    log.write(&start_line(active, num_episodes, earlier, settings))?;
    let own: Vec<u64> = context
        .work
        .episodes(0..num_episodes.unwrap_or(0))
        .collect();
    let amount = amount(context, envs.spec(), log, count_left(&own, earlier));
    let leases = log.leases;
    let recording = Recording::start(context, envs.spec(), earlier, amount, log)?;
    if recording.every_frame || active.policy.needs_video {
        for note in envs.env().open_renderers()? {
            recording.log.observer.say_for_all("renderer", &note);
        }
    }
    recording.log.beat.of = match leases {
        Some(_) => 0,
        None => own.len() as u64,
    };
    let builds = BuildQueue::new(context, num_episodes, earlier, leases);
    let mut episodes = EpisodeLoop::new(active, envs, recording, totals);
    let mut result = Ok(());
    for (index, build) in builds.enumerate() {
        if context.begins_no_more() {
            break;
        }
        if index > 0 {
            episodes.envs = EnvBuild::make(context)?;
        }
        episodes.envs.number = build.number;
        result = run_build(&mut episodes, build.source, earlier.suspects);
        if result.is_err() {
            break;
        }
    }
    let settled = episodes.finish();
    result.and(settled)
}

/// Makes the policy in its thread, and passes its messages on meanwhile.
fn make_policy(
    context: &JobContext,
    spec: &EnvSpec,
    log: &mut EpisodeLog,
) -> Result<PolicyFacts, Stop> {
    let job = context.job();
    let folder = context.folder.planner(&job.name);
    let choice = PolicyChoice {
        policy_type: job.policy_type.clone(),
        config: job.policy_config.clone(),
    };
    let made = context
        .inference
        .make(choice, Some(spec), Some(&folder), |texts| {
            for text in texts {
                log.say_about(&job.name, &text);
            }
            !context.stop.asked()
        });
    if made.is_err() && context.stop.asked() {
        return Err(Stop::Asked);
    }
    let policy = made?;
    for note in &policy.notes {
        log.say_about(&job.name, note);
    }
    Ok(policy)
}

fn start_line(
    active: &ActiveJob,
    num_episodes: Option<u64>,
    earlier: &Earlier,
    settings: BTreeMap<String, Value>,
) -> Line {
    let context = active.context;
    Line::JobStart(JobStart {
        job: active.job().name.clone(),
        job_index: active.job().index,
        rank: context.env.rank,
        episodes: num_episodes,
        share: context.work.share,
        attempt: earlier.attempt,
        settings,
        started: rfc3339(SystemTime::now()),
    })
}

fn count_left(own: &[u64], earlier: &Earlier) -> u64 {
    own.iter()
        .filter(|episode| earlier.is_left(**episode))
        .count() as u64
}

/// Returns an upper bound for what will be recorded, with `left` episodes still to run.
fn amount(context: &JobContext, spec: &EnvSpec, log: &EpisodeLog, left: u64) -> Amount {
    if let Length::Steps(steps) = context.job().length {
        let copies = context.place.gpus.len() as u64;
        let copies = copies.saturating_mul(context.job().num_rebuilds);
        let steps = steps.saturating_mul(copies);
        return Amount {
            steps,
            sure_steps: steps,
            episodes: copies,
        };
    }
    let in_blocks = log.leases.filter(|leases| leases.is_in_blocks());
    Amount {
        steps: left.saturating_mul(u64::from(spec.max_episode_steps)),
        // Each episode has at least one step.
        sure_steps: in_blocks.map_or(left, |leases| leases.held()),
        episodes: left,
    }
}

/// Runs the episodes of one build. Those that may have killed a rank run after the others, one at a
/// time.
fn run_build<'l>(
    episodes: &mut EpisodeLoop<'_, 'l>,
    source: EpisodeSource<'l>,
    suspects: &Suspects,
) -> Result<(), Stop> {
    let job = episodes.job().index;
    let apart = suspects.of(job);
    let suspected = match source {
        EpisodeSource::These(left) => {
            let (suspected, usual) = left
                .into_iter()
                .partition(|episode| apart.contains(episode));
            episodes.run(&EpisodeSource::These(usual))?;
            suspected
        }
        EpisodeSource::Steps(build) => {
            episodes.run(&EpisodeSource::Steps(build))?;
            Vec::new()
        }
        EpisodeSource::Leased(leases) => {
            episodes.run(&EpisodeSource::Leased(leases))?;
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
        episodes.recording.catch_up()?;
        match suspects.standing(job, episode) {
            Treatment::GivenUp(deaths) => episodes.give_up(episode, deaths)?,
            Treatment::Alone | Treatment::Usual => {
                episodes.run(&EpisodeSource::These(vec![episode]))?;
            }
        }
    }
    episodes.alone = false;
    Ok(())
}
