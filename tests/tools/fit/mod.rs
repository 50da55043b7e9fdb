//! Tests of `rrun fit`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tools::folder::{Done, rrun_in};

mod ppo;

/// Returns a job whose environments declare their memory.
fn declared(name: &str, gib: f64, num_envs: u64) -> Value {
    json!({"name": name, "arena_env_args": {"environment": "reach", "num_envs": num_envs, "env_memory_gb": gib},
           "policy_type": "scripted", "num_episodes": 40})
}

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures")
        .join(path)
}

/// Creates a folder with a jobs file.
fn folder(jobs: &[Value]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("jobs.json"),
        json!({"jobs": jobs}).to_string(),
    )
    .unwrap();
    dir
}

fn fit(jobs: &[Value], words: &[&str]) -> Done {
    let dir = folder(jobs);
    rrun_in(
        dir.path(),
        &[&["fit", "--jobs", "jobs.json"], words].concat(),
    )
}

fn parsed(done: Done) -> Value {
    serde_json::from_str(&done.stdout()).expect("it is JSON")
}

#[test]
fn a_python_policy_takes_what_its_job_declares() {
    let job = |config: Value| {
        json!({"name": "a", "arena_env_args": {"environment": "reach", "num_envs": 4, "env_memory_gb": 0.1},
               "policy_type": "python", "policy_config_dict": config, "num_episodes": 4})
    };
    let declared = job(json!({"policy": "mine.py:make", "policy_memory_gb": 9.5}));
    let card = ["--gpu-memory", "12GiB"];
    fit(std::slice::from_ref(&declared), &card)
        .succeeds()
        .says("| 0   | 9.5 GiB | ");
    fit(&[declared], &["--gpu-memory", "8GiB"])
        .fails_with(1)
        .says("| 0   | 9.5 GiB | ");
    fit(&[job(json!({"policy": "mine.py:make"}))], &card)
        .says("the GPU memory of the policy of job `a` is unknown: set policy_memory_gb");
}

#[test]
fn an_evaluation_is_planned_for_a_card_that_is_not_there() {
    let table = "\
+-----+---------+-------------+--------+---------+--------------+----------+----------+------+
| GPU | Weights | Activations | Graphs | Context | Environments | Sum      | Free     | Fits |
+-----+---------+-------------+--------+---------+--------------+----------+----------+------+
| 0   | 0       | 0           | 0      | 512 MiB | 8.0 GiB      | 8.5 GiB  | 12.0 GiB | yes  |
+-----+---------+-------------+--------+---------+--------------+----------+----------+------+

+-----+------+----------+------------------+-------+---------------+
| Job | Envs | Proposed | Because          | Batch | Largest Batch |
+-----+------+----------+------------------+-------+---------------+
| a   | 4    | 5        | more do not fit  | -     | -             |
+-----+------+----------+------------------+-------+---------------+
";
    let done = fit(&[declared("a", 2.0, 4)], &["--gpu-memory", "12GiB"]).succeeds();
    let squeezed = |text: &str| {
        text.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace('-', "")
    };
    let (said, wanted) = (squeezed(&done.stdout()), squeezed(table));
    assert!(said.starts_with(&wanted), "{}", done.stdout());
    done.says("weights are counted; activations, graphs and contexts are estimates");
}

#[test]
fn what_does_not_fit_is_an_error_with_what_would() {
    let done = fit(
        &[declared("a", 2.0, 8)],
        &["--gpu-memory", "12GiB", "--json"],
    )
    .fails_with(1);
    let told = parsed(done);
    assert_eq!(
        (&told["schema"], &told["fits"]),
        (&json!("rrun/fit/1"), &json!(false))
    );
    assert_eq!(
        (
            &told["gpus"][0]["fits"],
            &told["gpus"][0]["environments"]["bytes"]
        ),
        (&json!("never"), &json!(16_u64 << 30))
    );
    assert_eq!(
        (
            &told["jobs"][0]["proposed_num_envs"],
            &told["jobs"][0]["why"]
        ),
        (&json!(5), &json!("memory"))
    );
    fit(
        &[declared("a", 2.0, 8)],
        &["--gpu-memory", "12GiB", "--num-envs", "5"],
    )
    .succeeds()
    .says("| yes ");
}

#[test]
fn a_checkpoint_is_counted_and_ranks_that_share_a_gpu_each_have_it() {
    let job = json!({"name": "a", "arena_env_args": {"environment": "reach", "num_envs": 8, "env_memory_gb": 0.1},
        "policy_type": "gr00t", "num_episodes": 40,
        "policy_config_dict": {"model_path": fixture("gr00t/case_d_bf16_sharded_policy")}});
    let of = |words: &[&str]| {
        parsed(
            fit(
                std::slice::from_ref(&job),
                &[&["--gpu-memory", "24GB", "--json"], words].concat(),
            )
            .succeeds(),
        )
    };
    let alone = of(&["--nproc-per-node", "1"]);
    let four = of(&[
        "--nproc-per-node",
        "4",
        "--workers-per-gpu",
        "4",
        "--shard",
        "episodes",
    ]);
    let weights = |told: &Value| told["gpus"][0]["weights"]["certain"].as_u64().unwrap();
    assert!(
        weights(&alone) > 1_000_000 && weights(&four) == 4 * weights(&alone),
        "{alone}\n{four}"
    );
    assert_eq!(four["gpus"].as_array().unwrap().len(), 1);
    assert_eq!(
        alone["jobs"][0]["batch"]["rows"], 4,
        "two groups of four take turns"
    );
    assert!(alone["jobs"][0]["batch"]["largest"].as_u64() > Some(100));
}

#[test]
fn a_placement_names_the_gpus_that_are_planned_for() {
    let mut job = declared("a", 2.0, 1);
    job["arena_env_args"]
        .as_object_mut()
        .unwrap()
        .remove("num_envs");
    job["total_num_envs"] = json!(4);
    let words = [
        "--placement",
        "env: 0-1, rollout: 2-3",
        "--gpu-memory",
        "12GiB",
        "--json",
    ];
    let told = parsed(fit(std::slice::from_ref(&job), &words).succeeds());
    let of_gpu = |gpu: &Value| {
        (
            gpu["environments"]["bytes"].as_u64().unwrap() >> 30,
            gpu["context"]["bytes"].as_u64() > Some(0),
        )
    };
    let gpus: Vec<_> = told["gpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(of_gpu)
        .collect();
    assert_eq!(gpus, [(4, false), (4, false), (0, true), (0, true)]);
    assert_eq!(
        told["jobs"][0]["proposed_num_envs"], 10,
        "five on each of two GPUs divide 40 episodes"
    );
    let uneven = [
        "--placement",
        "env: 0-2, rollout: 0-2",
        "--gpu-memory",
        "12GiB",
    ];
    fit(&[job], &uneven).fails_with(1).complains(
        "total_num_envs is 4, which cannot be divided evenly among 3 environment workers",
    );
}

#[test]
fn gpus_of_their_own_are_proposed_where_policies_and_environments_do_not_share_one() {
    let of = |words: &[&str]| {
        fit(
            &[declared("a", 2.9, 4)],
            &[&["--gpu-memory", "12GiB"], words].concat(),
        )
    };
    // 11.6 GiB of environments and the context of the policy exceed 12 GiB together, but not
    // separately.
    of(&[])
        .fails_with(1)
        .says("--placement 'env: 0, rollout: 1' (1 rank) would fit: policies and environments on");
    of(&["--placement", "env: 0, rollout: 1"])
        .succeeds()
        .says("| tight ");
    assert!(
        !of(&["--gpus", "1"])
            .fails_with(1)
            .stdout()
            .contains("--placement"),
        "there is no other GPU"
    );
    let four = of(&[
        "--nproc-per-node",
        "2",
        "--gpus",
        "4",
        "--shard",
        "episodes",
    ])
    .fails_with(1);
    four.says("--placement 'env: 0-1, rollout: 2-3' (2 ranks) would fit");
    let alone = fit(&[declared("a", 4.0, 4)], &["--gpu-memory", "12GiB"]).fails_with(1);
    assert!(
        !alone.stdout().contains("--placement"),
        "environments alone are too much"
    );
}

#[test]
fn what_is_unknown_is_said_and_is_no_error() {
    let plain = json!({"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "gr00t",
                       "policy_config_dict": {"model_path": "/nowhere"}, "num_episodes": 4});
    let done = fit(&[plain], &["--gpu-memory", "12GiB"]).succeeds();
    let done = done.says(
        "the GPU memory of environment `reach` is unknown: measure it with `rrun fit --probe`",
    );
    let done = done
        .says("the checkpoint of job `a` cannot be read")
        .says("512 MiB + ?");
    done.says("the memory of an environment is unknown");
}

#[test]
fn measurements_are_used_and_the_machine_is_looked_at() {
    let dir = folder(&[
        json!({"name": "a", "arena_env_args": {"environment": "reach", "num_envs": 4}, "policy_type": "scripted",
                              "num_episodes": 40}),
    ]);
    let entry = json!({"environment": "reach", "env_args": {}, "enable_cameras": null, "num_envs": [1, 4],
        "host": {"base": 1_u64 << 28, "slope": 1_u64 << 20}, "gpu": {"base": 3_u64 << 29, "slope": 1_u64 << 30}});
    let file = json!({"schema": "rrun/memory/1", "environments": [entry]}).to_string();
    fs::write(dir.path().join("memory.json"), file).unwrap();
    let words = [
        "fit",
        "--jobs",
        "jobs.json",
        "--measured",
        "memory.json",
        "--gpu-memory",
        "12GiB",
    ];
    let done = rrun_in(dir.path(), &words).succeeds();
    // Four environments of 1 GiB, and a base of 1.5 GiB, of which 0.5 GiB are the context.
    done.says("5.0 GiB")
        .says("5.5 GiB")
        .says("this machine: about 260 MiB of ");
    let done = rrun_in(
        dir.path(),
        &["fit", "--jobs", "jobs.json", "--measured", "jobs.json"],
    )
    .fails_with(1);
    done.complains("`jobs.json` has no measurements of `rrun fit --probe`");
}

#[test]
fn words_of_an_option_are_joined_by_either_sign() {
    fit(
        &[declared("a", 2.0, 8)],
        &["--gpu_memory=12GiB", "--num_envs", "5"],
    )
    .succeeds()
    .says("| yes ");
}

#[test]
fn a_bare_number_that_is_no_number_of_bytes_is_refused_with_its_unit() {
    let done = fit(&[declared("a", 2.0, 4)], &["--gpu-memory", "16"]).fails_with(2);
    done.complains("`16` is 16 bytes; write `16GiB` for 16 GiB");
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    let jobs = [declared("a", 2.0, 4)];
    fit(&jobs, &["--gpu-memory", "12 parsecs"])
        .fails_with(2)
        .complains("or a number of bytes, for example 12GiB");
    fit(&jobs, &["--probe-envs", "1,2"])
        .fails_with(2)
        .complains("--probe");
    fit(&jobs, &["--num-envs", "4097"]).fails_with(1).complains(
        "rrun: error: invalid value '4097' for '--num-envs <N>': 4097 is not in 1..=4096\n",
    );
    fit(&jobs, &["--gpus", "4"])
        .fails_with(2)
        .complains("--gpu-memory");
    fit(&jobs, &["--set", "env.eval.total_num_env=4"])
        .fails_with(1)
        .complains("did you mean `total_num_envs`?");
    rrun_in(Path::new("."), &["fit"])
        .fails_with(2)
        .complains("--jobs <FILE>");
    rrun_in(Path::new("."), &["fit", "jobs.json"])
        .fails_with(2)
        .complains("write `--jobs jobs.json`");
    rrun_in(Path::new("."), &["fit", "--jobs", "none.json"])
        .fails_with(1)
        .complains("cannot read jobs file `none.json`");
}

#[test]
fn a_setting_of_the_command_line_changes_what_is_planned() {
    let dir = tempfile::tempdir().unwrap();
    let yaml = "env: {eval: {environment: reach, total_num_envs: 2, env_args: {env_memory_gb: 1.0}}}\nrollout: {policy_type: scripted}\n";
    fs::write(dir.path().join("reach.yaml"), yaml).unwrap();
    let words = [
        "fit",
        "--config",
        "reach.yaml",
        "--set",
        "env.eval.total_num_envs=6",
        "--gpu-memory",
        "12GiB",
        "--json",
    ];
    let told = parsed(rrun_in(dir.path(), &words).succeeds());
    assert_eq!(
        (&told["jobs"][0]["num_envs"], &told["jobs"][0]["job"]),
        (&json!(6), &json!("reach"))
    );
    assert_eq!(told["gpus"][0]["environments"]["bytes"], 6_u64 << 30);
}
