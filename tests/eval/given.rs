//! What evaluations of these tests are given: simulators and policies of `tests/fixtures`, a gate
//! in front of an episode; and what is looked at from outside.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use rig::process::alive;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::eval::command::until;

pub use rig::root;

/// Returns the Python of the checkout's venv, which `setup.sh test` has installed.
pub fn python() -> PathBuf {
    root().join(".venv/bin/python")
}

/// Returns the path of the demo's checkpoint.
pub fn demo_policy() -> PathBuf {
    root().join("jobs/suites/demo_policy")
}

/// Returns a job with the simulator `Toy` of `tests/fixtures/envs/toy.py` and these arguments.
pub fn toy(args: Value) -> Value {
    toy_of("Toy", args)
}

/// Returns a job with another simulator of that file.
pub fn toy_of(class: &str, args: Value) -> Value {
    let file = rig::fixture("envs/toy.py");
    let own = json!({
        "environment": format!("{}:{class}", file.display()), "python": python(),
        "max_episode_steps": 50, "num_envs": 4,
    });
    json!({
        "name": "toy", "arena_env_args": merged(own, args), "policy_type": "random_action",
        "num_episodes": 12,
    })
}

/// Returns an object with the fields of another one added, or in the place of its own.
pub fn merged(mut object: Value, more: Value) -> Value {
    let Value::Object(more) = more else {
        panic!("{more} is no object")
    };
    object.as_object_mut().unwrap().extend(more);
    object
}

/// Returns the same job under another name, with this number of episodes.
pub fn named(name: &str, episodes: u64, job: Value) -> Value {
    merged(job, json!({"name": name, "num_episodes": episodes}))
}

/// Returns the seed that a simulator gets for an episode of the job `toy` in a run with the default
/// base seed.
pub fn seed(episode: u64) -> u64 {
    seed_of("toy", episode)
}

/// Returns 31 bits of the episode's seed.
fn seed_of(name: &str, episode: u64) -> u64 {
    let jobs = json!({"jobs": [named(name, 1, toy(json!({})))]});
    let job = jobs::file::parse(&jobs).unwrap().remove(0);
    jobs::seed::episode(42, &job, episode) & ((1 << 31) - 1)
}

/// A gate in front of episodes. As long as it is closed, their run is under way for certain,
/// however fast or busy the machine is.
pub struct Gate {
    dir: TempDir,
}

impl Gate {
    /// Makes a closed gate.
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("gate")
    }

    /// Returns the job `gated`, whose only environment stops in front of its last episode.
    pub fn job(&self, episodes: u64) -> Value {
        let job = named("gated", episodes, toy(json!({"num_envs": 1})));
        self.before(episodes - 1..episodes, job)
    }

    /// Puts the gate in front of these episodes of a job with the toy simulator.
    pub fn before(&self, episodes: Range<u64>, mut job: Value) -> Value {
        let name = job["name"].as_str().unwrap();
        let held: Vec<u64> = episodes.map(|episode| seed_of(name, episode)).collect();
        let args = &mut job["arena_env_args"];
        let environment = args["environment"].as_str().unwrap();
        args["environment"] = json!(environment.replace(":Toy", ":Gated"));
        args["env_kwargs"] = json!({"gate": self.path(), "held": held});
        job
    }

    /// Waits until a simulator stands in front of the gate, and returns the PID of its rank.
    pub fn reached(&self) -> i32 {
        let reached = self.path().with_extension("reached");
        until("a simulator in front of the gate", || reached.exists());
        let rank = std::fs::read_to_string(&reached).unwrap();
        std::fs::remove_file(&reached).unwrap();
        rank.parse().unwrap()
    }

    /// Lets every simulator pass from now on.
    pub fn open(&self) {
        std::fs::write(self.path(), "").unwrap();
    }
}

/// Runs `rrun` in this process's folder; returns its exit code and all that it said.
pub fn tool(words: &[&str]) -> (Option<i32>, String) {
    told(Command::new(rig::rrun()).args(words))
}

/// Runs `rrun`, which must succeed, and returns all that it said.
#[track_caller]
pub fn rrun(words: &[&str]) -> String {
    let (code, text) = tool(words);
    assert_eq!(code, Some(0), "{words:?}\n{text}");
    text
}

/// Runs a command; returns its exit code and all that it said.
pub fn told(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output.status.code(), text)
}

/// Returns what a script in Python prints.
#[track_caller]
pub fn printed(script: &str, words: &[&Path]) -> String {
    let (code, text) = told(Command::new(python()).args(["-c", script]).args(words));
    assert_eq!(code, Some(0), "{text}");
    text.trim().to_owned()
}

/// Returns the live processes with this mark in their environment.
pub fn marked(mark: &str) -> Vec<i32> {
    let word = format!("RRUN_MARK={mark}");
    let has_mark = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|text| {
            let text = String::from_utf8_lossy(&text);
            text.split('\0').any(|variable| variable == word)
        })
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| has_mark(pid) && alive(*pid)).collect()
}

/// Copies a file or a folder.
pub fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").args([from, to]).status();
    assert!(copied.unwrap().success());
}
