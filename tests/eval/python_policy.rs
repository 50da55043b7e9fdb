//! Tests of jobs with a policy in Python: `tests/fixtures/policies/toy.py`, which misbehaves on
//! request.

use std::sync::OnceLock;

use rig::process::send;
use serde_json::{Value, json};

use crate::eval::command::{Eval, Signal, until};
use crate::eval::given::{marked, root, tool};

/// Returns the settings of a policy of the toy file.
fn toy(factory: &str, kwargs: Value) -> Value {
    let file = root().join("tests/fixtures/policies/toy.py");
    json!({
        "policy": format!("{}:{factory}", file.display()),
        "python": root().join(".venv"), "policy_kwargs": kwargs,
    })
}

/// Returns a job with the task `reach`.
fn reach(config: Value, num_envs: u64) -> Value {
    json!({
        "name": "reach", "arena_env_args": {"environment": "reach", "num_envs": num_envs},
        "policy_type": "python", "policy_config_dict": config, "num_episodes": 10,
    })
}

fn eval(config: Value, num_envs: u64, ranks: usize) -> Eval {
    Eval::new(&[reach(config, num_envs)]).nproc(ranks).words(&[
        "--export-mode=none",
        "--shard",
        "episodes",
    ])
}

/// Returns what `rrun verify --rerun` says, and whether it succeeded.
fn verify(eval: &Eval) -> (String, bool) {
    let folder = eval.folder().root().to_string_lossy().into_owned();
    let words = [
        "verify",
        "--rerun",
        "4",
        "--trust-plan",
        &folder,
        "--",
        "eval",
        "--num-envs",
        "3",
    ];
    let (code, text) = tool(&words);
    (text, code == Some(0))
}

/// Returns the run of one environment on one rank.
fn alone() -> &'static Eval {
    static ALONE: OnceLock<Eval> = OnceLock::new();
    ALONE.get_or_init(|| eval(toy("Reaching", json!({})), 1, 1).finished())
}

#[test]
fn a_policy_solves_a_task_with_the_same_results_wherever_it_runs() {
    let together = eval(toy("Reaching", json!({})), 3, 2).finished();
    assert_eq!(together.outcomes(), alone().outcomes());
    let successes = together.report().overall.successes;
    assert!(successes >= 9, "{successes}");
    let (told, is_same) = verify(&together);
    assert!(is_same, "{told}");
    let files = together.policy_files();
    assert!(
        files.path.ends_with("toy.py") && files.bytes > 1000,
        "{files:?}"
    );
}

/// Returns the jobs of the suite, whose policies run in the project's interpreter.
fn suite() -> Vec<Value> {
    let text = std::fs::read_to_string(root().join("jobs/suites/python_policy.json")).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    let jobs = file["jobs"].as_array_mut().unwrap();
    for job in jobs.iter_mut() {
        let config = &mut job["policy_config_dict"];
        let policy = root().join(config["policy"].as_str().unwrap());
        config["policy"] = json!(policy);
        config["python"] = json!(root().join(".venv"));
        job["arena_env_args"]["enable_cameras"] = json!(false);
    }
    jobs.clone()
}

#[test]
fn the_suite_shows_what_a_memory_of_the_episode_is_worth() {
    let eval = Eval::new(&suite())
        .nproc(2)
        .words(&["--export-mode=none"])
        .finished();
    let report = eval.report();
    let solved = |name: &str| {
        let job = report.per_job.iter().find(|job| job.name == name);
        job.unwrap().rates.successes
    };
    assert_eq!(solved("exact"), 20);
    let (noisy, averaged) = (solved("noisy"), solved("averaged"));
    assert!(noisy + 8 < averaged, "{noisy} and {averaged} of 20");
}

#[test]
fn noise_that_does_not_follow_from_the_episode_is_found() {
    let careless = eval(toy("Careless", json!({})), 3, 2).finished();
    let (told, is_same) = verify(&careless);
    assert!(
        !is_same && told.contains("had a different result"),
        "{told}"
    );
}

#[test]
fn a_worker_that_dies_costs_the_episodes_of_its_call_which_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let once = folder.path().join("once");
    let eval = eval(toy("Reaching", json!({"fault": "die", "once": once})), 1, 2);
    eval.run().fails_with(1);
    let episodes = eval.episodes().into_iter();
    let broken: Vec<_> = episodes
        .filter_map(|episode| Some((episode.episode, episode.error?)))
        .collect();
    assert!(
        broken.len() == 1 && broken[0].0 == 5 && broken[0].1.contains("toy.py:Reaching`: "),
        "{broken:?}"
    );
    assert_eq!(eval.finished().outcomes(), alone().outcomes());
}

#[test]
fn an_exception_in_each_call_costs_each_episode_and_ends_a_job_that_counts_steps() {
    let eval = eval(toy("Refusing", json!({})), 2, 1);
    eval.run()
        .fails_with(1)
        .stderr_has("`act` raised ValueError: the gripper is not there");
    assert_eq!(eval.report().overall.errors, 10);
    let mut job = reach(toy("Refusing", json!({})), 2);
    job.as_object_mut().unwrap().remove("num_episodes");
    job["num_steps"] = json!(20);
    let eval = Eval::new(&[job]).nproc(1).words(&["--export-mode=none"]);
    eval.run()
        .fails_with(1)
        // Which of the two environments is answered first depends on timing.
        .stderr_has("this job counts steps, and episode ")
        .stderr_has(" has taken none");
}

#[test]
fn a_killed_rank_takes_its_worker_along() {
    let mark = format!("rrun-policy-{}", std::process::id());
    let mut config = toy("Sleeping", json!({}));
    config["env"] = json!({"RRUN_MARK": mark});
    let eval = eval(config, 1, 2).launcher_words(&["--max-restarts", "0"]);
    let running = eval.start();
    until("two workers", || marked(&mark).len() == 2);
    send(running.ranks()[0], Signal::KILL);
    until("its end", || marked(&mark).len() < 2);
    running.signal(Signal::KILL);
    until("their end", || marked(&mark).is_empty());
}
