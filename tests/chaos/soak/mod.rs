//! A soak test: hours of simulated time on a cluster of several nodes with one run folder, on which
//! nodes, ranks and simulators are lost all the time while browsers watch. At the end, every episode
//! is there exactly once, with the result that it has elsewhere, and memory has not grown.
//!
//! ```text
//! nodes: launchers of one elastic launch ◄── a fault every few seconds, until the calm
//!   ├──► page ◄── browsers: some read, some stall, some hang up, some send garbage
//!   └──► memory of launchers and ranks, by progress of the run
//! ```
//! The simulated time is that of the environments, at 20 steps per second. `RRUN_SOAK_HOURS` are the
//! hours of each rank, `RRUN_SOAK_SEED` is the seed of the faults, and `RRUN_SOAK_LOGS` is a folder
//! for the output of the launchers.

mod browsers;
mod memory;
mod nodes;
mod storm;

use std::time::Duration;

use rig::wait::{now, pause};
use serde_json::{Value, json};

use crate::chaos::checks::nothing_is_left;
use crate::chaos::scenario::toy;
use crate::chaos::setting;
use crate::eval::command::Eval;
use crate::eval::given::rrun;
use browsers::Browsers;
use memory::Memory;
use nodes::Nodes;
use storm::Storm;

/// Number of nodes, each with one rank.
const NODES: u64 = 3;

/// Steps per second of simulated time.
const CONTROL_HZ: f64 = 20.0;

/// Steps of an episode of the in-process simulators.
const STEPS: u64 = 200;

/// Steps of an episode of the simulator in Python.
const PYTHON_STEPS: u64 = 40;

/// From this share of the episodes on, there are no more faults, so that ranks grow old.
const CALM: f64 = 0.8;

/// Time between two looks at the cluster.
const LOOK: Duration = Duration::from_millis(250);

/// Longest real time for an hour of simulated time of each rank, and for what any run takes.
const LIMITS: (Duration, Duration) = (Duration::from_secs(1200), Duration::from_secs(300));

/// The jobs, and the number of their episodes.
struct Work {
    jobs: Vec<Value>,
    episodes: u64,
}

impl Work {
    /// Returns jobs that take each rank this many hours of simulated time.
    fn new(hours: f64) -> Work {
        let steps = (hours * 3600.0 * CONTROL_HZ) as u64 * NODES;
        // Of twenty steps, one is in Python.
        let python = (steps / 20 / PYTHON_STEPS).max(8);
        let each = (steps - steps / 20) / 2 / STEPS;
        let random = |name: &str| {
            json!({
                "name": name, "policy_type": "random_action", "num_episodes": each.max(4),
                "arena_env_args": {
                    "environment": name, "num_envs": 2, "max_episode_steps": STEPS,
                },
            })
        };
        let mut python_job = toy(2, PYTHON_STEPS);
        python_job["num_episodes"] = python.into();
        Work {
            jobs: vec![random("push"), random("pick_and_place"), python_job],
            episodes: 2 * each.max(4) + python,
        }
    }
}

/// Runs the cluster until all is done, prints what happened, and checks the results.
fn soak(hours: f64) {
    let hours = setting("RRUN_SOAK_HOURS", hours);
    let seed = setting("RRUN_SOAK_SEED", 1);
    let mark = format!("rrun-soak-{}", std::process::id());
    let work = Work::new(hours);
    let mut nodes = Nodes::new(&work.jobs, NODES as usize, &mark);
    let browsers = Browsers::start(nodes.page_port());
    let mut storm = Storm::new(seed, hours);
    let mut memory = Memory::default();
    let begun = now();
    let limit = LIMITS.0.mul_f64(hours) + LIMITS.1;
    loop {
        let is_over = nodes.is_complete();
        nodes.keep_up(is_over);
        let progress = nodes.journaled() as f64 / work.episodes as f64;
        memory.sample(&nodes, progress);
        if progress < CALM {
            storm.blow(&mut nodes);
        }
        if is_over && nodes.are_gone() {
            break;
        }
        assert!(
            begun.elapsed() < limit,
            "not done after {limit:?}: {:.1} %\n{storm}\n{}",
            progress * 100.0,
            nodes.last_words()
        );
        pause(LOOK);
    }
    let took = begun.elapsed();
    let browsers = browsers.end();
    println!(
        "{hours} hours of simulated time on each of {NODES} nodes, {} episodes, in {:.0} s\n\n{storm}\n{browsers}\n\n{memory}",
        work.episodes,
        took.as_secs_f64()
    );
    nothing_is_left(&mark).unwrap();
    println!("{}", results(nodes.eval(), &work));
    // In a short run, all processes are young.
    if hours >= 1.0 {
        memory.check();
    }
}

/// Checks the results; returns what was found.
fn results(eval: &Eval, work: &Work) -> String {
    let report = eval.report();
    let (lost, twice) = (report.missing_count, report.duplicates_count);
    let found = eval.episodes().len() as u64;
    assert_eq!((lost, twice, found), (0, 0, work.episodes));
    assert!(report.complete(), "{report:?}");
    let folder = eval.folder().root().to_string_lossy().into_owned();
    rrun(&["verify", &folder, "--rerun", "24", "--trust-plan"]);
    format!(
        "{found} episodes, {lost} lost, {twice} twice; rrun verify found nothing wrong, and 24 episodes \
         came out the same when they were run again"
    )
}

#[test]
fn a_cluster_that_loses_nodes_ranks_and_simulators_loses_no_episode() {
    soak(0.1);
}

#[test]
#[ignore = "eight hours of simulated time: half an hour"]
fn a_cluster_that_loses_nodes_ranks_and_simulators_for_eight_hours_loses_no_episode() {
    soak(8.0);
}
