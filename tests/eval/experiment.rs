//! Tests of `--experiment`: an Experiment of Isaac Lab-Arena.

use serde_json::Value;

use crate::eval::command::Eval;

const EXPERIMENT: &str = "
shared:
  environment: {type: reach}
  environment_builder: {num_envs: 2, device: 'cuda:0'}
  policy: {type: scripted, policy_device: 'cuda:0'}
  rollout_limit: {num_episodes: 4}
runs:
  second_by_name:
    num_rebuilds: 2
  first_by_name:
    environment: {type: push}
    environment_builder: {language_instruction: Push it., seed: 3}
    rollout_limit: {num_episodes: 2}
";

#[test]
fn an_experiment_runs_as_its_jobs_and_is_resumed_by_the_same_command() {
    let eval = Eval::of_experiment(EXPERIMENT).nproc(2).words(&[
        "shared.rollout_limit.num_episodes=3",
        "runs.first_by_name.num_rebuilds=1",
    ]);
    let ended = eval.run().succeeds();
    let note = "environment_builder.device has no effect";
    assert!(ended.stderr.contains(note), "{}", ended.stderr);
    let report = eval.report();
    let runs: Vec<_> = report
        .per_job
        .iter()
        .map(|job| (&*job.name, job.rates.episodes))
        .collect();
    assert_eq!(runs, [("second_by_name", 3), ("first_by_name", 2)]);
    assert_eq!(report.per_job[1].instruction.as_deref(), Some("Push it."));
    assert!(report.complete());

    let again = eval.run().succeeds();
    assert!(again.stderr.contains("nothing is left to run") || eval.journaled() == 5);
    let changed = eval.words(&["shared.rollout_limit.num_episodes=2"]).run();
    assert!(!changed.status.success(), "other jobs have another folder");
}

#[test]
fn each_rebuild_takes_all_steps() {
    let text = EXPERIMENT.replace("num_episodes: 4", "num_steps: 150");
    let eval =
        Eval::of_experiment(&text).words(&["runs.first_by_name.rollout_limit.num_steps=null"]);
    eval.run().succeeds();
    let root = eval.folder().root().to_owned();
    let steps = |rebuild: u64| -> u64 {
        let path = format!("second_by_name/episode_results_rebuild{rebuild}.jsonl");
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        let line = |line| serde_json::from_str::<Value>(line).unwrap();
        let episodes: Vec<_> = text.lines().map(line).collect();
        episodes
            .iter()
            .filter_map(|line| line["episode_length"].as_u64())
            .sum()
    };
    let (first, second) = (steps(0), steps(1));
    assert!(
        first > 150 && second > 150,
        "{first} and {second} steps of two environments"
    );
    assert!(first <= 300 && second <= 300, "{first} and {second}");
}

#[test]
fn the_results_are_also_in_the_layout_of_arena() {
    let eval = Eval::of_experiment(EXPERIMENT);
    eval.run().succeeds();
    let root = eval.folder().root().to_owned();
    let lines = |path: &str| {
        std::fs::read_to_string(root.join(path))
            .unwrap()
            .lines()
            .count()
    };
    assert_eq!(lines("second_by_name/episode_results_rebuild0.jsonl"), 2);
    assert_eq!(lines("second_by_name/episode_results_rebuild1.jsonl"), 2);
    assert_eq!(lines("first_by_name/episode_results_rebuild0.jsonl"), 2);
    let text = std::fs::read(root.join("arena_experiment_result.json")).unwrap();
    let result: Value = serde_json::from_slice(&text).unwrap();
    let run = &result["runs"]["second_by_name"];
    assert_eq!(
        (run["status"].as_str(), run["policy_variant"].as_str()),
        (Some("completed"), Some("scripted"))
    );
    assert_eq!(run["rebuilds"].as_array().unwrap().len(), 2);
}

#[test]
fn what_is_wrong_is_refused_before_anything_starts() {
    let refusal = |text: &str, words: &[&str]| {
        let eval = Eval::of_experiment(text).words(words);
        let ended = eval.run();
        assert!(!ended.status.success() && !eval.folder().root().exists());
        ended.stderr
    };
    let misspelt = refusal(&EXPERIMENT.replace("num_rebuilds", "num_rebuild"), &[]);
    assert!(
        misspelt.contains("did you mean `num_rebuilds`?"),
        "{misspelt}"
    );
    let unknown = refusal(EXPERIMENT, &["runs.third.num_rebuilds=2"]);
    assert!(unknown.contains("there is no run `third`"), "{unknown}");
    let theirs = refusal(EXPERIMENT, &["shared.environment.type=tasks/pear.yaml"]);
    assert!(
        theirs.contains("runs.second_by_name.environment.type: `tasks/pear.yaml` is not included"),
        "{theirs}"
    );
    let rlinf = refusal("env: {eval: {}}", &[]);
    assert!(rlinf.contains("for RLinf's YAML, use --config"), "{rlinf}");
    let json = Eval::new(&[crate::eval::command::job("reach", 1, 1)])
        .words(&["shared.a=1"])
        .run();
    assert!(
        json.stderr
            .contains("changes an Experiment, and none is given"),
        "{}",
        json.stderr
    );
}
