//! Trains the demo policy: a small GR00T N1.7 that sees its target through the cameras.
//!
//! ```text
//! collect ─► outputs/train_demo/{task}   pictures, state and the expert's plan of visited states
//! train ───► outputs/train_demo/model    what `rrun eval` takes as a `gr00t` policy
//!            outputs/train_demo/run      curve, what training goes on from
//! ```
//!
//! `docs/demo_policy.md` contains the commands that made the committed checkpoint.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;

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

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Files of the backbone that do not depend on its size.
const VLM: &str = "tests/fixtures/gr00t/case_a_single/vlm";

#[derive(Parser)]
enum Command {
    /// Run the scripted expert under noise, and write what it saw and planned.
    Collect(collect::Plan),
    /// Train the network on the collected samples.
    Train(train::Plan),
}

fn main() -> ExitCode {
    runtime::env::mujoco::draw_without_threads();
    // `cargo bench` adds `--bench`.
    let words = std::env::args().filter(|word| word != "--bench");
    let done = match Command::parse_from(words) {
        Command::Collect(plan) => collect::run(&plan),
        Command::Train(plan) => train::run(&plan),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("train_demo: {error}");
            ExitCode::FAILURE
        }
    }
}
