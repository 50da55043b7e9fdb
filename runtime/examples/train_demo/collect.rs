//! `collect`: records samples in which the scripted expert plans, while noisy actions are executed.
//!
//! The expert cannot correct another policy, because it has an internal phase: in states that its
//! own phases do not lead to, its plans contradict those that it makes otherwise.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runtime::env::mujoco::{self, MujocoConfig, MujocoEnv};
use runtime::env::{EnvIndex, Lockstep, Observation, Render};
use runtime::policy::{EpisodeReset, Policy, PolicyRow, RowNoise, Scripted};
use serde_json::json;

use crate::noise::Disturbance;
use crate::sample::{HORIZON, Writer};

/// Number of copies of the environment that step together.
const COPIES: usize = 16;

/// Number of success steps that is never reached, so that an episode continues after its success.
const NEVER: u32 = 1000;

/// The parameters of a collection.
pub struct Plan {
    /// Name of the task.
    pub task: String,
    /// Number of episodes.
    pub episodes: u64,
    /// Seed of the first episode.
    pub seed: u64,
    /// Control steps of each episode.
    pub steps: u32,
    /// Control steps between two samples.
    pub stride: u32,
    /// Standard deviation of the action noise.
    pub noise: f32,
    /// Probability of a kick in each step.
    pub kicks: f32,
    /// Folder with `preprocessor_config.json`.
    pub vlm: PathBuf,
}

/// Runs the episodes, [`COPIES`] at a time, and writes the samples to `out`.
pub fn run(plan: &Plan, out: &Path) -> Result<(), Box<dyn Error>> {
    let args = json!({"success_hold_steps": NEVER, "max_episode_steps": NEVER});
    let config = MujocoConfig {
        num_envs: COPIES,
        ..MujocoConfig::new(&plan.task)
    };
    let args = args.as_object().ok_or("arguments are a map")?;
    let mut env = Lockstep::new(|answers| mujoco::make(config, args, answers))?;
    let mut expert = Scripted::new(env.spec(), HORIZON)?;
    let mut writer = Writer::create(&out.join(&plan.task), &plan.vlm)?;
    let seeds: Vec<u64> = (plan.seed..plan.seed + plan.episodes).collect();
    for (done, seeds) in seeds.chunks(COPIES).enumerate() {
        episodes(plan, seeds, &mut env, &mut expert, &mut writer)?;
        println!(
            "{} of {} episodes",
            done * COPIES + seeds.len(),
            plan.episodes
        );
    }
    Ok(())
}

struct Live {
    env: EnvIndex,
    seed: u64,
    seen: Arc<Observation>,
    disturbance: Disturbance,
}

fn episodes(
    plan: &Plan,
    seeds: &[u64],
    env: &mut Lockstep<MujocoEnv>,
    expert: &mut Scripted,
    writer: &mut Writer,
) -> Result<(), Box<dyn Error>> {
    let resets: Vec<_> = seeds
        .iter()
        .enumerate()
        .map(|(at, &seed)| (EnvIndex(at), seed))
        .collect();
    let mut live = Vec::new();
    for (&(index, seed), seen) in resets.iter().zip(env.reset(&resets, Render::Yes)) {
        expert.reset(&[EpisodeReset {
            env: index,
            episode: seed,
            seed,
        }]);
        live.push(Live {
            env: index,
            seed,
            seen: Arc::new(seen?),
            disturbance: Disturbance::new(seed, plan.noise, plan.kicks),
        });
    }
    for step in 0..plan.steps {
        let rows: Vec<_> = live
            .iter()
            .map(|live| PolicyRow {
                env: live.env,
                observation: Arc::clone(&live.seen),
                continues: None,
                noise: RowNoise {
                    episode_seed: live.seed,
                    inference: u64::from(step),
                },
            })
            .collect();
        let plans = expert.act(&rows)?;
        let mut actions = Vec::new();
        for (live, answer) in live.iter_mut().zip(&plans) {
            let chunk = answer.chunk().ok_or("the expert has no plan")?;
            if step.is_multiple_of(plan.stride) {
                writer.add((live.seed, step), &live.seen, chunk)?;
            }
            let mut action = chunk.action(0).ok_or("a plan has a step")?.to_vec();
            live.disturbance.apply(&mut action);
            actions.push((live.env, action));
        }
        let render = if (step + 1).is_multiple_of(plan.stride) {
            Render::Yes
        } else {
            Render::No
        };
        // An episode that cannot continue (an object fell) ends here.
        let steps = env.step(&actions, render);
        let next = live.into_iter().zip(steps).filter_map(|(live, step)| {
            let step = step.ok().filter(|step| !step.terminated)?;
            Some(Live {
                seen: Arc::new(step.observation),
                ..live
            })
        });
        live = next.collect();
    }
    Ok(())
}
