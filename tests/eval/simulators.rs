//! Tests of third-party simulators with their own job files: slow, and only run where
//! `jobs/suites/simulators/install.sh` installed them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::eval::command::Eval;
use crate::eval::given::{merged, root, told};

/// Returns the venv of a simulator; prints a message if it is not installed.
fn installed(name: &str) -> Option<PathBuf> {
    let venvs = std::env::var_os("RRUN_SIMULATORS")
        .map_or_else(|| root().join(".simulators"), PathBuf::from);
    let venv = venvs.join(name);
    if venv.join("rrun-pins.txt").is_file() {
        return Some(venv);
    }
    // Not `eprintln!`, whose output only failed tests show.
    let word = format!(
        "skipped: {name} is not installed; jobs/suites/simulators/install.sh {name} does it\n"
    );
    std::io::stderr().write_all(word.as_bytes()).unwrap();
    None
}

/// Returns the first job of a committed suite with random actions, its paths made absolute.
fn job(suite: &str, venv: &Path, num_envs: u64) -> Value {
    let text = std::fs::read_to_string(root().join(format!("jobs/suites/{suite}.json"))).unwrap();
    let mut job = serde_json::from_str::<Value>(&text).unwrap()["jobs"][0].take();
    let args = &mut job["arena_env_args"];
    for field in ["environment", "mapping"] {
        let path = args[field].as_str().unwrap();
        if path.starts_with("jobs/") {
            args[field] = json!(root().join(path));
        }
    }
    args["python"] = json!(venv);
    args["num_envs"] = json!(num_envs);
    let random =
        json!({"policy_type": "random_action", "policy_config_dict": {}, "num_episodes": 2});
    merged(job, random)
}

/// Runs two episodes in two copies at once, and one after the other in one copy.
fn runs_alike_in_one_and_two_copies(suite: &str, steps: u64) {
    let Some(venv) = installed(suite) else { return };
    let run = |num_envs| {
        let mut job = job(suite, &venv, num_envs);
        job["arena_env_args"]["max_episode_steps"] = json!(steps);
        Eval::new(&[job]).nproc(1).with_video().finished()
    };
    let (two, one) = (run(2), run(1));
    for episode in two.episodes() {
        assert!(episode.error.is_none() && episode.length > 1, "{episode:?}");
        assert_eq!(episode.video.unwrap().frames, episode.length + 1);
    }
    assert_eq!(two.outcomes(), one.outcomes());
}

#[test]
#[ignore = "needs the simulator in a venv"]
fn pusht_runs_from_its_job_file() {
    runs_alike_in_one_and_two_copies("pusht", 300);
}

#[test]
#[ignore = "needs the simulator in a venv"]
fn pusher_runs_from_its_job_file() {
    runs_alike_in_one_and_two_copies("pusher", 20);
}

#[test]
#[ignore = "needs the simulator in a venv"]
fn fetch_runs_from_its_job_file() {
    runs_alike_in_one_and_two_copies("fetch", 20);
}

#[test]
#[ignore = "needs the simulator in a venv"]
fn metaworld_runs_from_its_job_file() {
    runs_alike_in_one_and_two_copies("metaworld", 20);
}

#[test]
#[ignore = "needs the simulator in a venv"]
fn libero_runs_from_its_job_file() {
    runs_alike_in_one_and_two_copies("libero", 5);
}

/// Task 4 has a drawer, which LIBERO itself does not place reproducibly.
#[test]
#[ignore = "needs the simulator in a venv"]
fn an_episode_of_libero_depends_on_its_seed_and_number_alone() {
    let Some(venv) = installed("libero") else {
        return;
    };
    let mut check = Command::new(venv.join("bin/python"));
    check
        .arg(rig::fixture("check_libero.py"))
        .args(["libero_spatial", "4"]);
    let (code, text) = told(&mut check);
    assert_eq!(code, Some(0), "{text}");
}
