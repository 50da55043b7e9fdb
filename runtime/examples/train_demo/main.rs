//! Trains the demo policy: a small GR00T N1.7 that sees its target through the cameras.
//!
//! ```text
//! collect ─► outputs/train_demo/{task}   pictures, state and the expert's plan of visited states
//! train ───► outputs/train_demo/model    what `rrun eval` takes as a `gr00t` policy
//!            outputs/train_demo/run      curve, what training goes on from
//! ```
//!
//! `docs/demo_policy.md` contains the commands that made the committed checkpoint.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use runtime::env::Lockstep;
use runtime::env::mujoco::{self, MujocoConfig};

mod auxiliary;
mod batch;
mod checkpoint;
mod collect;
mod curve;
mod network;
mod noise;
mod optimiser;
mod sample;
mod scale;
mod start;
mod train;

/// Files of the backbone that do not depend on its size.
const VLM: &str = "tests/fixtures/gr00t/case_a_single/vlm";

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run the scripted expert under noise, and write what it saw and planned.
    Collect {
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
    },
    /// Train the network on the collected samples.
    Train {
        /// Folder of the samples.
        #[arg(long, default_value = "outputs/train_demo")]
        samples: PathBuf,
        /// Tasks to train on.
        #[arg(long, value_delimiter = ',', default_value = "reach,push")]
        tasks: Vec<String>,
        /// Folder with `config.json` (token ids, vocabulary), tokenizer and chat template.
        #[arg(long, default_value = VLM)]
        vlm: PathBuf,
        /// Model directory to write.
        #[arg(long, default_value = "outputs/train_demo/model")]
        out: PathBuf,
        /// Folder for the curve and the state that training resumes from.
        #[arg(long, default_value = "outputs/train_demo/run")]
        work: PathBuf,
        /// Model directory to start from, instead of random weights.
        #[arg(long)]
        weights: Option<PathBuf>,
        /// Training time in minutes.
        #[arg(long, default_value_t = 60.0)]
        minutes: f64,
        /// Samples of each task per step.
        #[arg(long, default_value_t = 32)]
        batch: usize,
        /// Noise draws for each sample per step.
        #[arg(long, default_value_t = 2)]
        draws: usize,
        /// Peak learning rate.
        #[arg(long, default_value_t = 2e-3)]
        learning_rate: f64,
        /// Seed of everything random.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Number of libtorch threads.
        #[arg(long, default_value_t = 1)]
        threads: i32,
    },
}

/// Interval at which training saves its state.
const SAVE_EVERY: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    runtime::env::mujoco::draw_without_threads();
    let result = match Args::parse().what {
        What::Collect {
            task,
            out,
            episodes,
            seed,
            steps,
            stride,
            noise,
            kicks,
            vlm,
        } => {
            let plan = collect::Plan {
                task,
                episodes,
                seed,
                steps,
                stride,
                noise,
                kicks,
                vlm,
            };
            collect::run(&plan, &out)
        }
        What::Train {
            samples,
            tasks,
            vlm,
            out,
            work,
            weights,
            minutes,
            batch,
            draws,
            learning_rate,
            seed,
            threads,
        } => {
            tch::set_num_threads(threads);
            let time = Duration::from_secs_f64(minutes * 60.0);
            let save_every = SAVE_EVERY;
            words(tasks).and_then(|tasks| {
                let plan = train::Plan {
                    samples,
                    tasks,
                    vlm,
                    out,
                    work,
                    weights,
                    time,
                    batch,
                    draws,
                    learning_rate,
                    seed,
                    save_every,
                };
                train::run(&plan)
            })
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("train_demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the tasks with the instructions of their environments.
fn words(tasks: Vec<String>) -> Result<Vec<(String, String)>, Box<dyn std::error::Error>> {
    let words = |task: String| {
        let config = MujocoConfig::new(&task);
        let env = Lockstep::new(|answers| mujoco::make(config, &serde_json::Map::new(), answers))?;
        Ok((task, env.spec().language.clone()))
    };
    tasks.into_iter().map(words).collect()
}
