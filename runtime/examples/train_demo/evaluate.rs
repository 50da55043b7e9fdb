//! `evaluate`: the trained network acts, and successes are counted.

use std::error::Error;
use std::path::PathBuf;

use runtime::env::mujoco::{self, MujocoConfig, MujocoEnv};
use runtime::env::{EnvIndex, Render, VectorEnv};
use serde_json::Map;

use crate::actor::Actor;

/// Copies that step together.
const COPIES: usize = 8;

/// What to evaluate.
pub struct Plan {
    /// Model directory.
    pub model: PathBuf,
    /// Name of the task.
    pub task: String,
    /// Episodes.
    pub episodes: u64,
    /// Seed of the first; the others count up.
    pub seed: u64,
    /// Actions taken of a chunk.
    pub taken: usize,
}

/// Prints a line an episode, and the count.
pub fn run(plan: &Plan) -> Result<(), Box<dyn Error>> {
    let _no_grad = tch::no_grad_guard();
    tch::manual_seed(plan.seed.cast_signed());
    let config = MujocoConfig { num_envs: COPIES, ..MujocoConfig::new(&plan.task) };
    let mut env = mujoco::make(config, &Map::new())?;
    let actor = Actor::open(&plan.model, &env.spec().language)?;
    let seeds: Vec<u64> = (plan.seed..plan.seed + plan.episodes).collect();
    let mut successes = 0;
    for seeds in seeds.chunks(COPIES) {
        successes += episodes(&actor, seeds, plan.taken, &mut env)?;
    }
    println!("{}: {successes} of {} episodes succeeded", plan.task, plan.episodes);
    Ok(())
}

/// Runs one episode a seed, all at the same time, and counts the successes.
fn episodes(actor: &Actor, seeds: &[u64], taken: usize, env: &mut MujocoEnv) -> Result<usize, Box<dyn Error>> {
    let resets: Vec<_> = seeds.iter().enumerate().map(|(at, &seed)| (EnvIndex(at), seed)).collect();
    let mut live = Vec::new();
    for ((index, _), seen) in resets.iter().zip(env.reset(&resets, Render::Yes)) {
        live.push((*index, seen?));
    }
    let (mut successes, mut steps) = (0, 0);
    while !live.is_empty() {
        let chunks = actor.act(&live.iter().map(|(_, seen)| seen).collect::<Vec<_>>())?;
        let mut chunks: Vec<_> = live.iter().map(|(index, _)| *index).zip(chunks).collect();
        for at in 0..taken {
            let actions: Vec<_> = chunks.iter().map(|(index, chunk)| (*index, chunk[at].clone())).collect();
            let render = if at + 1 == taken { Render::Yes } else { Render::No };
            live.clear();
            steps += 1;
            for ((index, _), step) in actions.iter().zip(env.step(&actions, render)) {
                let step = step?;
                if step.terminated || step.truncated {
                    let how = if step.success { "success" } else { "failure" };
                    println!("seed {}: {how} after {steps} steps", seeds[index.0]);
                    successes += usize::from(step.success);
                    chunks.retain(|(other, _)| other != index);
                } else {
                    live.push((*index, step.observation));
                }
            }
        }
    }
    Ok(successes)
}
