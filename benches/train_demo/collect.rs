//! `collect`: records samples in which the scripted expert plans, while noisy actions are executed.
//!
//! The expert cannot correct another policy, because it has an internal phase: in states that its
//! own phases do not lead to, its plans contradict those that it makes otherwise.

use std::path::PathBuf;
use std::sync::Arc;

use runtime::env::mujoco::{self, MujocoConfig, MujocoEnv};
use runtime::env::{EnvIndex, Lockstep, Observation, Render};
use runtime::policy::{Policy, PolicyRow, Scripted, Window};
use serde_json::json;

use crate::noise::Disturbance;
use crate::sample::{HORIZON, Writer};
use crate::{Outcome, VLM};

/// Number of copies of the environment that step together.
const COPIES: usize = 16;

/// Number of success steps that is never reached, so that an episode continues after its success.
const NEVER: u32 = 1000;

#[derive(clap::Args)]
pub struct Plan {
    /// Task: `reach`, `push` or `pick_and_place`.
    task: String,
    /// Folder to write to.
    #[arg(long, default_value = "outputs/train_demo")]
    out: PathBuf,
    /// Number of episodes.
    #[arg(long, default_value_t = 1000)]
    episodes: u64,
    /// Seed of the first episode; the others count up from it.
    #[arg(long, default_value_t = 1_000_000)]
    seed: u64,
    /// Control steps per episode.
    #[arg(long, default_value_t = 36)]
    steps: u32,
    /// Control steps from one sample to the next.
    #[arg(long, default_value_t = 3)]
    stride: u32,
    /// Standard deviation of the noise on each translation, of 1.
    #[arg(long, default_value_t = 0.2)]
    noise: f32,
    /// Probability that a step starts a kick: some steps in a random direction.
    #[arg(long, default_value_t = 0.06)]
    kicks: f32,
    /// Folder with `preprocessor_config.json`.
    #[arg(long, default_value = VLM)]
    vlm: PathBuf,
}

/// Runs the episodes, [`COPIES`] at a time, and writes the samples.
pub fn run(plan: &Plan) -> Outcome<()> {
    let args = json!({"success_hold_steps": NEVER, "max_episode_steps": NEVER});
    let config = MujocoConfig::new(&plan.task, COPIES);
    let args = args.as_object().ok_or("arguments are a map")?;
    let mut env = Lockstep::new(mujoco::make(config, args)?);
    let mut expert = Scripted::new(env.spec(), HORIZON)?;
    let mut writer = Writer::create(&plan.out.join(&plan.task), &plan.vlm)?;
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
) -> Outcome<()> {
    let resets: Vec<_> = seeds
        .iter()
        .enumerate()
        .map(|(at, &seed)| (EnvIndex(at), seed))
        .collect();
    let mut live = Vec::new();
    for (&(index, seed), seen) in resets.iter().zip(env.reset(&resets, Render::Yes)) {
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
                episode: live.seed,
                seed: live.seed,
                inference: u64::from(step),
                window: Window::new(Arc::clone(&live.seen)),
                continues: None,
                noise: None,
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
