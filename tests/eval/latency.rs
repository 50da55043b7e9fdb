//! Tests of jobs with a latency, whose environments go on while the policy infers.

use jobs::episode::{Episode, EpisodeOutcome};
use serde_json::{Value, json};

use crate::eval::command::{Eval, binaries, job};
use crate::eval::resume::kill_all;

/// Returns a job of the scripted expert, whose chunks have 8 actions, with an inference every 4
/// steps.
fn delayed(name: &str, num_envs: u64, latency: Value) -> Value {
    let mut job = job(name, 6, num_envs);
    job["latency"] = latency;
    job
}

fn all(num_envs: u64, latency: &Value) -> Vec<Value> {
    ["reach", "push"]
        .map(|name| delayed(name, num_envs, latency.clone()))
        .to_vec()
}

fn run(jobs: &[Value], ranks: usize, words: &[&str]) -> Vec<Episode> {
    let eval = Eval::new(jobs)
        .nproc(ranks)
        .words(&["--no-dataset"])
        .words(words);
    eval.run().succeeds();
    eval.episodes()
}

fn outcomes(episodes: &[Episode]) -> Vec<EpisodeOutcome> {
    episodes.iter().map(Episode::outcome).collect()
}

#[test]
fn a_latency_of_nothing_gives_the_results_of_a_job_without_one() {
    let none = run(&all(2, &Value::Null), 1, &[]);
    let nothing = run(&all(2, &json!({"steps": 0})), 1, &[]);
    assert_eq!(outcomes(&nothing), outcomes(&none));
    assert!(none.iter().all(|episode| episode.latency.is_none()));
    let late = run(&all(2, &json!({"steps": 4})), 1, &[]);
    assert_ne!(outcomes(&late), outcomes(&none));
}

#[test]
fn results_of_a_fixed_latency_are_the_same_however_they_are_computed() {
    let latency = json!({"steps": 3});
    let alone = outcomes(&run(&all(1, &latency), 1, &["--pipeline-stages", "1"]));
    assert_eq!(alone.len(), 12);
    for (ranks, num_envs, words) in [
        (1, 4, &["--pipeline-stages", "1"][..]),
        (1, 4, &["--pipeline-stages", "2"]),
        (2, 3, &["--shard", "episodes"]),
        (2, 2, &["--assign", "dynamic"]),
    ] {
        let found = outcomes(&run(&all(num_envs, &latency), ranks, words));
        assert_eq!(found, alone, "{ranks} ranks, {num_envs} copies, {words:?}");
    }
    // 150 ms are 3 steps of a built-in task.
    let in_ms = outcomes(&run(&all(2, &json!({"ms": 150})), 1, &[]));
    assert_eq!(in_ms, alone);
}

#[test]
fn a_killed_run_with_a_latency_goes_on_to_the_same_results() {
    let latency = json!({"steps": 4});
    let undisturbed = outcomes(&run(&all(1, &latency), 1, &[]));
    let eval = Eval::new(&all(2, &latency))
        .nproc(1)
        .words(&["--no-dataset"]);
    let running = eval.start();
    eval.wait_for_episodes(3);
    kill_all(running);
    let resumed = eval.jobs(&all(3, &latency)).world_of(2);
    resumed.run().succeeds().stderr_has("resuming in `");
    assert_eq!(outcomes(&resumed.episodes()), undisturbed);
}

#[test]
fn a_job_with_another_latency_is_not_resumed() {
    let eval = Eval::new(&[delayed("reach", 1, json!({"steps": 1}))]).nproc(1);
    eval.run().succeeds();
    let other = eval.jobs(&[delayed("reach", 1, json!({"steps": 2}))]);
    other.run().fails_with(1).stderr_has("latency.steps");
}

#[test]
fn what_was_felt_is_in_journal_and_report() {
    let jobs = [
        delayed("reach", 2, json!({"steps": 2})),
        delayed("push", 2, json!("measured")),
    ];
    let eval = Eval::new(&jobs).nproc(1).words(&["--no-dataset"]);
    eval.run().succeeds();
    for episode in eval.episodes() {
        let felt = episode.latency.unwrap();
        assert_eq!(
            felt.inferences,
            episode.infer_calls - 1,
            "all but the first"
        );
    }
    let report = eval.report();
    let of = |index: usize| report.per_job[index].latency.clone().unwrap();
    let fixed = of(0);
    assert_eq!((fixed.min_steps, fixed.max_steps), (Some(2), Some(2)));
    assert_eq!((fixed.mean_steps, fixed.held_actions), (Some(2.0), 0));
    // An inference takes some time, and so at least a step.
    assert!(of(1).min_steps >= Some(1) && of(1).given.is_none());
    let page = std::fs::read_to_string(eval.folder().page()).unwrap();
    assert!(page.contains("Success by latency of the policy") && page.contains("measured"));
}

#[test]
fn verify_does_not_run_a_measured_latency_again() {
    let jobs = [
        delayed("reach", 1, json!({"steps": 2})),
        delayed("push", 1, json!("measured")),
    ];
    let eval = Eval::new(&jobs).nproc(1).words(&["--no-dataset"]);
    eval.run().succeeds();
    let output = std::process::Command::new(binaries().join("rrun"))
        .args(["verify", "--determinism", "8"])
        .arg(eval.folder().root())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("run again: 6 episodes"), "{text}");
    assert!(
        text.contains("not repeated, because its latency is measured: push"),
        "{text}"
    );
}

#[test]
fn a_latency_that_cannot_be_is_refused_before_anything_starts() {
    let refused = |change: &dyn Fn(&mut Value), reason: &str| {
        let mut job = delayed("reach", 1, json!({"steps": 3}));
        change(&mut job);
        let eval = Eval::new(&[job]).nproc(1);
        eval.run().fails_with(1).stderr_has(reason);
        assert!(!eval.folder().root().exists(), "nothing is written");
    };
    refused(
        &|job| job["latency"] = json!({"step": 3}),
        "job 0 (reach) field latency: unknown field `step`; did you mean `steps`?",
    );
    refused(
        &|job| job["policy_config_dict"] = json!({"action_horizon": 8, "action_chunk_length": 6}),
        "job 0 (reach): latency is 3 steps, expected at most 2: a chunk has 8 actions, of which 6",
    );
    refused(
        &|job| job["policy_type"] = json!("zero_action"),
        "job 0 (reach): latency is given, but policy `zero_action` has one action per chunk",
    );
}

#[test]
fn a_latency_that_only_the_rank_can_judge_fails_its_job_before_the_first_episode() {
    let eval = Eval::new(&[delayed("reach", 1, json!({"ms": 201}))]).nproc(1);
    eval.run()
        .fails_with(1)
        .stderr_has("latency is 5 steps, expected at most 4: a chunk has 8 actions, of which 4");
    assert!(eval.episodes().is_empty());
}
