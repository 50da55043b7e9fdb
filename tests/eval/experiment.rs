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
fn an_experiment_runs_as_its_jobs_with_results_in_the_layout_of_arena_and_is_resumed() {
    let eval = Eval::of_experiment(EXPERIMENT).nproc(2).words(&[
        "shared.rollout_limit.num_episodes=3",
        "runs.first_by_name.num_rebuilds=1",
    ]);
    eval.run()
        .succeeds()
        .stderr_has("environment_builder.device has no effect");
    let report = eval.report();
    let runs: Vec<_> = report
        .per_job
        .iter()
        .map(|job| (&*job.name, job.rates.episodes))
        .collect();
    assert_eq!(runs, [("second_by_name", 3), ("first_by_name", 2)]);
    assert_eq!(report.per_job[1].instruction.as_deref(), Some("Push it."));
    assert!(report.complete());

    for (file, count) in [
        ("second_by_name/episode_results_rebuild0.jsonl", 2),
        ("second_by_name/episode_results_rebuild1.jsonl", 1),
        ("first_by_name/episode_results_rebuild0.jsonl", 2),
    ] {
        let text = std::fs::read_to_string(eval.folder().root().join(file)).unwrap();
        assert_eq!(text.lines().count(), count, "{file}");
    }
    let text = std::fs::read(eval.folder().root().join("arena_experiment_result.json")).unwrap();
    let result: Value = serde_json::from_slice(&text).unwrap();
    let run = &result["runs"]["second_by_name"];
    assert_eq!(
        (run["status"].as_str(), run["policy_variant"].as_str()),
        (Some("completed"), Some("scripted"))
    );
    assert_eq!(run["rebuilds"].as_array().unwrap().len(), 2);

    eval.run().succeeds().stdout_has("nothing was run");
    assert_eq!(eval.journaled(), 5);
    let changed = eval.words(&["shared.rollout_limit.num_episodes=2"]).run();
    assert_ne!(changed.code, 0, "other jobs have another folder");
}
