//! A run is what it was begun with: files that decide outcomes may not change under it.

use std::path::Path;

use rig::process::send;
use serde_json::{Value, json};

use crate::eval::command::{Eval, Signal};
use crate::eval::given::{named, root, toy};

/// A policy that solves `reach`, and one that does nothing.
const SOLVES: &str = "def speed():\n    return 1.0\n";
const RESTS: &str = "def speed():\n    return 0.0\n";

/// Writes the policy of the suite into a folder, with a module that it imports, and returns a job.
fn with_policy(folder: &Path) -> Value {
    let toys = std::fs::read_to_string(rig::fixture("policies/toy.py")).unwrap();
    let policy = format!(
        "{toys}\nfrom helper import speed\n\n\nclass Mine(Reaching):\n    def act(self, *args):\n        \
         return speed() * super().act(*args)\n"
    );
    std::fs::write(folder.join("policy.py"), policy).unwrap();
    std::fs::write(folder.join("helper.py"), SOLVES).unwrap();
    let config = json!({"policy": folder.join("policy.py:Mine"), "python": root().join(".venv")});
    json!({
        "name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 2},
        "policy_type": "python", "policy_config_dict": config, "num_episodes": 6,
    })
}

#[test]
fn a_policy_that_is_edited_after_the_last_episode_is_another_run() {
    let folder = tempfile::tempdir().unwrap();
    let eval = Eval::new(&[with_policy(folder.path())]);
    let eval = eval.words(&["--export-mode=none"]).finished();
    let before = eval.report().overall.successes;
    assert!(before >= 5, "{before}");
    let told = eval.run().succeeds().stdout;
    let last = told.lines().last().unwrap_or_default();
    assert!(
        last.contains("nothing was run: all 6 episodes were there (20") && last.ends_with(')'),
        "{told}"
    );
    std::fs::write(folder.path().join("helper.py"), RESTS).unwrap();
    let told = eval.run();
    told.fails_with(1)
        .stderr_has("contains a different run:\n  reach: `")
        .stderr_has("helper.py` SHA-256 ")
        .stderr_has("choose another --output, or use --accept-changed-jobs: 0 finished episodes stay; 6 of reach move to `");
    assert_eq!(
        eval.report().overall.successes,
        before,
        "nothing was touched"
    );
    let eval = eval.words(&["--accept-changed-jobs"]).finished();
    let overall = eval.report().overall;
    assert_eq!((overall.episodes, overall.successes), (6, 0));
}

/// Writes a simulator into a folder, with a module that it imports.
fn with_simulator(folder: &Path, episodes: u64) -> Value {
    let toys = std::fs::read_to_string(rig::fixture("envs/toy.py")).unwrap();
    let text = format!(
        "{toys}\nfrom world import PAUSE\n\n\nclass Slow(Toy):\n    def step(self, action):\n        \
         time.sleep(PAUSE)\n        return super().step(action)\n"
    );
    std::fs::write(folder.join("sim.py"), text).unwrap();
    std::fs::write(folder.join("world.py"), "PAUSE = 0.05\n").unwrap();
    let args = json!({"environment": folder.join("sim.py:Slow"), "num_envs": 2});
    named("toy", episodes, toy(args))
}

#[test]
fn a_simulator_that_is_edited_under_a_run_is_not_mixed_with_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let first = with_simulator(folder.path(), 200);
    let second = named("second", 4, first.clone());
    let eval = Eval::new(&[first, second]).words(&["--export-mode=none"]);
    let running = eval.start();
    eval.wait_for_episodes(4);
    let world = folder.path().join("world.py");
    std::fs::write(&world, "PAUSE = 0.0  # now without\n").unwrap();
    // A rank that is started again reads the simulator again.
    send(running.ranks()[0], Signal::KILL);
    running.wait().fails_with(1).stderr_has("world.py`, SHA-256 ").stderr_has(
        "was changed since the run was begun; put it back and repeat the command, or start its jobs \
         over with --accept-changed-jobs",
    );
    let done = eval.journaled();
    eval.run()
        .fails_with(1)
        .stderr_has("2 jobs (toy, second): `");
    assert_eq!(eval.journaled(), done);
    std::fs::write(&world, "PAUSE = 0.05\n").unwrap();
    let resumed = eval.resumed();
    let running = resumed.start();
    resumed.wait_for_episodes(done + 1);
    send(running.pid(), Signal::TERM);
    running.wait().stderr_has("to resume: ");
}
