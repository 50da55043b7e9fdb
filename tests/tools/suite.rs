//! Tests of `rrun suite`.

use serde_json::Value;

use crate::tools::folder::{rrun, rrun_with};
use crate::tools::policies::plan;

/// Returns the jobs file that a command prints.
fn jobs(words: &[&str]) -> Value {
    let text = rrun(&[&["suite"], words].concat()).succeeds().stdout();
    serde_json::from_str(&text).expect("a jobs file is JSON")
}

#[test]
fn a_printed_file_is_planned_with_the_protocol_and_what_replaces_it() {
    let file = jobs(&[
        "gym_pusht",
        "--policy",
        "random_action",
        "--episodes",
        "10",
        "--num-envs",
        "3",
    ]);
    assert_eq!(file["jobs"].as_array().unwrap().len(), 1);
    let job = &file["jobs"][0];
    assert_eq!(job["suite"]["name"], "gym_pusht");
    assert_eq!(
        job["suite"]["overrides"],
        serde_json::json!(["num_episodes"])
    );
    assert_eq!(job["arena_env_args"]["max_episode_steps"], 300);
    plan(&file.to_string());
}

#[test]
fn settings_of_the_policy_are_merged_and_checked() {
    let words = [
        "--policy",
        "pi0_remote",
        "--policy-args",
        r#"{"remote_port": 1}"#,
    ];
    let file = jobs(&[&["libero_10"], &words[..], &["--set", "remote_port=8000"]].concat());
    assert_eq!(file["jobs"].as_array().unwrap().len(), 10);
    let config = &file["jobs"][9]["policy_config_dict"];
    assert_eq!(config["remote_port"], 8000);

    rrun(&["suite", "libero_10", "--policy", "gr00t"])
        .fails_with(1)
        .complains("policy `gr00t`: ")
        .complains("model_path");
    rrun(&[
        "suite",
        "libero_10",
        "--policy",
        "random_action",
        "--set",
        "seeed=1",
    ])
    .fails_with(1)
    .complains("seeed");
    rrun(&[
        "suite",
        "libero_10",
        "--policy",
        "random_action",
        "--policy-args",
        "[1]",
    ])
    .fails_with(1)
    .complains("--policy-args: ");
}

#[test]
fn what_does_not_exist_is_refused_with_the_nearest() {
    rrun(&["suite", "libero_100"])
        .fails_with(1)
        .complains("there is no suite `libero_100` (did you mean `libero_10`?)");
    rrun(&["suite", "gym_pusht", "--policy", "radnom_action"])
        .fails_with(1)
        .complains("did you mean `random_action`?");
    rrun(&[
        "suite",
        "metaworld_mt10",
        "--policy",
        "zero_action",
        "--tasks",
        "10",
    ])
    .fails_with(1)
    .complains("`metaworld_mt10` has no task 10: expected 0 to 9");
    rrun(&["suite", "--policy", "zero_action"])
        .fails_with(1)
        .complains("without a suite");
    rrun(&["suite", "gym_pusht", "--episodes", "5"])
        .fails_with(2)
        .complains("--policy");
}

#[test]
fn a_suite_says_whether_its_simulator_is_installed() {
    let venvs = tempfile::tempdir().unwrap();
    let variables = [("RRUN_SIMULATORS", venvs.path().to_str().unwrap())];
    rrun_with(&variables, &["suite", "gym_aloha"])
        .succeeds()
        .says("aloha, not in ")
        .says("400 steps at most, seed 1000");
    std::fs::create_dir(venvs.path().join("aloha")).unwrap();
    std::fs::write(venvs.path().join("aloha/rrun-pins.txt"), "").unwrap();
    rrun_with(&variables, &["suite", "gym_aloha"])
        .succeeds()
        .says("simulator  aloha, in ");
    let words = ["suite", "gym_aloha", "--policy", "random_action"];
    rrun_with(&variables, &words)
        .succeeds()
        .says(&format!("\"python\": \"{}/aloha\"", venvs.path().display()));
}

#[test]
fn an_output_is_written_and_named_suites_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.json");
    let out = path.to_str().unwrap();
    let words = [
        "suite",
        "metaworld_mt50",
        "--policy",
        "zero_action",
        "--tasks",
        "0-4",
    ];
    rrun(&[&words[..], &["--output", out]].concat())
        .succeeds()
        .complains("metaworld_mt50: 5 jobs of 50 episodes each, protocol 1 (metaworld)")
        .complains("not those of the protocol: tasks");
    let text = std::fs::read_to_string(&path).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(file["jobs"].as_array().unwrap().len(), 5);

    let listed = rrun(&["suite"]).succeeds().stdout();
    let everything = rrun(&["list"]).succeeds().stdout();
    for name in ["libero_90", "metaworld_ml45_test", "gymnasium_fetch"] {
        assert!(listed.contains(name) && everything.contains(name), "{name}");
    }
}
