//! Tests of third-party simulators with their own job files: slow, and only run where
//! `jobs/suites/simulators/install.sh` installed them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use jobs::episode::{Episode, EpisodeOutcome};
use serde_json::{Value, json};

use crate::eval::command::Eval;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .expect("the crate is in a checkout")
}

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
fn job(suite: &str, venv: &Path, episodes: u64, num_envs: u64) -> Value {
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
    job["policy_type"] = json!("random_action");
    job["policy_config_dict"] = json!({});
    job["num_episodes"] = json!(episodes);
    job
}

/// Returns the part of the episodes that must not depend on where they ran, in order.
fn outcomes(mut episodes: Vec<Episode>) -> Vec<EpisodeOutcome> {
    episodes.sort_by_key(|episode| episode.episode);
    episodes.iter().map(Episode::outcome).collect()
}

/// Runs two episodes in two copies at once, and one after the other in one copy.
fn runs_alike_in_one_and_two_copies(suite: &str, change: impl Fn(&mut Value)) {
    let Some(venv) = installed(suite) else { return };
    let run = |num_envs| {
        let mut job = job(suite, &venv, 2, num_envs);
        change(&mut job);
        let eval = Eval::new(&[job]).nproc(1).with_video();
        eval.run().succeeds();
        eval.episodes()
    };
    let (two, one) = (run(2), run(1));
    assert!(
        two.iter()
            .all(|episode| episode.error.is_none() && episode.length > 1),
        "{two:?}"
    );
    assert!(
        two.iter()
            .all(|episode| episode.video.as_ref().unwrap().frames == episode.length + 1),
        "{two:?}"
    );
    assert_eq!(outcomes(two), outcomes(one));
}

#[test]
#[ignore = "needs the simulator in a venv"]
fn pusht_runs_from_its_job_file() {
    runs_alike_in_one_and_two_copies("pusht", |_| ());
}

#[test]
#[ignore = "needs the simulator in a venv"]
fn pusher_runs_from_its_job_file() {
    runs_alike_in_one_and_two_copies("pusher", |job| {
        job["arena_env_args"]["max_episode_steps"] = json!(20)
    });
}

#[test]
#[ignore = "needs the simulator in a venv"]
fn fetch_runs_from_its_job_file() {
    runs_alike_in_one_and_two_copies("fetch", |job| {
        job["arena_env_args"]["max_episode_steps"] = json!(20)
    });
}

#[test]
#[ignore = "needs the simulator in a venv"]
fn metaworld_runs_from_its_job_file() {
    runs_alike_in_one_and_two_copies("metaworld", |job| {
        job["arena_env_args"]["max_episode_steps"] = json!(20)
    });
}

#[test]
#[ignore = "needs the simulator in a venv"]
fn libero_runs_from_its_job_file() {
    runs_alike_in_one_and_two_copies("libero", |job| {
        job["arena_env_args"]["max_episode_steps"] = json!(5)
    });
}

/// Task 4 has a drawer, which LIBERO itself does not place reproducibly.
#[test]
#[ignore = "needs the simulator in a venv"]
fn an_episode_of_libero_depends_on_its_seed_and_number_alone() {
    let Some(venv) = installed("libero") else {
        return;
    };
    let script = root().join("tests/fixtures/check_libero.py");
    let output = Command::new(venv.join("bin/python"))
        .arg(script)
        .args(["libero_spatial", "4"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
