//! Tests of `rrun fit --ppo`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tools::fit::parsed;
use crate::tools::folder::{Done, rrun_in};

/// Runs `fit` on a training configuration in a file.
fn ppo(text: &str, words: &[&str]) -> (TempDir, Done) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("gpu.yaml"), text).unwrap();
    let done = rrun_in(dir.path(), &[&["fit", "--ppo", "gpu.yaml"], words].concat());
    (dir, done)
}

#[test]
fn both_invalid_rows_of_the_memory_guide_are_flagged() {
    let done = rrun_in(Path::new("."), &["fit", "--ppo-table"]).succeeds();
    let table = done.stdout();
    let row = |sizes: [&str; 3]| {
        let is_it = |line: &&str| {
            sizes
                .iter()
                .all(|size| line.split('|').any(|cell| cell.trim() == *size))
        };
        table
            .lines()
            .find(is_it)
            .unwrap_or_else(|| panic!("no {sizes:?} in\n{table}"))
            .to_owned()
    };
    assert!(
        row(["512", "128", "2"]).contains("INVALID | num_minibatches 4"),
        "{table}"
    );
    assert!(
        row(["1536", "384", "6"]).contains("INVALID | num_minibatches 8"),
        "{table}"
    );
    assert!(
        row(["2048", "512", "8"]).contains("15.0 GB")
            && row(["1024", "256", "4"]).contains("| valid   | valid")
    );
    done.says("the guide recommends 2 rows that are not: 512/128/2, 1536/384/6");
}

#[test]
fn a_training_is_checked_with_what_would_be_valid_and_what_would_fit() {
    let (_dir, done) = ppo(
        "ppo: {num_envs: 512, batch_size: 128, num_minibatches: 2}",
        &["--gpu-memory", "8GB"],
    );
    let done = done
        .fails_with(1)
        .says("batch_size 128 × num_minibatches 2 = 256 is not a multiple of num_envs 512");
    done.says("nearest first: num_minibatches 4, or batch_size 256, or num_envs 256")
        .says("about 6.0 GB fits into 8.0 GB");
    let (_dir, done) = ppo(
        "ppo: {num_envs: 2048, batch_size: 512, num_minibatches: 8}",
        &["--gpu-memory", "12GiB"],
    );
    let done = done
        .fails_with(1)
        .says("about 15.0 GB does not fit into 12.9 GB");
    done.says("largest num_envs that divides and fits: 1024")
        .says("with other minibatches: num_minibatches 9 and num_envs 1536");
    let (_dir, done) = ppo(
        "ppo: {num_envs: 1024, batch_size: 256, num_minibatches: 4}",
        &["--devices", "3"],
    );
    done.fails_with(1)
        .says("num_envs 1024 is not a multiple of the 3 devices");
}

#[test]
fn what_takes_effect_is_kept() {
    let set = [
        "--preset",
        "default",
        "--set",
        "ppo.num_envs=512",
        "--set",
        "network.policy_hidden_layers=[64]",
    ];
    let (dir, done) = ppo(
        "ppo: {num_minibatches: 2}",
        &[&set[..], &["--save", "effective.json", "--json"]].concat(),
    );
    let told = parsed(done.succeeds());
    assert_eq!(
        (&told["valid"], &told["sizes"]["num_envs"], &told["fits"]),
        (&json!(true), &json!(512), &Value::Null)
    );
    let kept: Value =
        serde_json::from_slice(&fs::read(dir.path().join("effective.json")).unwrap()).unwrap();
    assert_eq!(kept["config_file"], "gpu.yaml");
    assert_eq!(
        kept["overrides"],
        json!({"ppo.num_envs": 512, "network.policy_hidden_layers": [64]})
    );
    let ppo = &kept["final_config"]["ppo"];
    assert_eq!(
        (
            &ppo["num_envs"],
            &ppo["batch_size"],
            &ppo["num_minibatches"]
        ),
        (&json!(512), &json!(256), &json!(2))
    );
}

#[test]
fn a_file_that_holds_no_training_is_refused_and_never_called_valid() {
    let (_dir, done) = ppo("env: {eval: {total_num_envs: 4}}", &[]);
    done.fails_with(1).complains(
        "`gpu.yaml` has no section `ppo`, so it is not a PPO training of Brax; such a file starts with",
    );
    let (_dir, done) = ppo(r#"{"jobs": [{"name": "a"}]}"#, &["--preset", "default"]);
    done.fails_with(1).complains("`--jobs` takes a jobs file");
    let (_dir, done) = ppo("num_envs: 512", &[]);
    done.fails_with(1).complains("sizes belong below `ppo:`");
    let (_dir, done) = ppo("", &[]);
    done.fails_with(1).complains("has no section `ppo`");
    let (_dir, done) = ppo(
        "network: {policy_hidden_layers: [64]}",
        &["--preset", "default"],
    );
    done.succeeds().says("| yes ");
}

#[test]
fn a_number_of_environments_goes_before_the_preset_and_the_file() {
    let of = |words: &[&str]| {
        let done = rrun_in(
            Path::new("."),
            &[&["fit", "--preset", "default", "--json"], words].concat(),
        );
        parsed(done)["sizes"]["num_envs"].clone()
    };
    assert_eq!(
        (of(&[]), of(&["--num-envs", "512"])),
        (json!(1024), json!(512))
    );
    assert_eq!(
        of(&["--set", "ppo.num_envs=256", "--num-envs", "65536"]),
        65536
    );
    let (_dir, done) = ppo(
        "ppo: {num_envs: 512, batch_size: 128, num_minibatches: 2}",
        &["--num-envs", "256"],
    );
    done.succeeds().says("| 256 ");
}

#[test]
fn an_option_that_says_nothing_about_a_training_is_refused_beside_one() {
    for words in [
        ["--max-batch", "4"],
        ["--placement", "env: 0, rollout: 1"],
        ["--nproc-per-node", "2"],
    ] {
        let words = [&["fit", "--preset", "default"], &words[..]].concat();
        rrun_in(Path::new("."), &words)
            .fails_with(2)
            .complains("cannot be used with");
    }
    rrun_in(Path::new("."), &["fit", "--ppo-table", "--num-envs", "4"])
        .fails_with(2)
        .complains("cannot be used with");
}

#[test]
fn a_training_that_is_asked_about_wrongly_is_refused() {
    let (_dir, done) = ppo("ppo: {num_envs: 512}", &["--set", "ppo.num_env=4"]);
    done.fails_with(1)
        .complains("--set ppo.num_env: unknown setting; the nearest are `ppo.num_envs`");
    let (_dir, done) = ppo("ppo: {num_envs: many}", &[]);
    done.fails_with(1)
        .complains("ppo.num_envs is \"many\", expected a whole number from 1 to 16777216");
    let (_dir, done) = ppo("ppo: {num_envs: 512}", &["--jobs", "jobs.json"]);
    done.fails_with(2).complains("cannot be used with");
    rrun_in(Path::new("."), &["fit", "--preset", "fast"])
        .fails_with(2)
        .complains("quick, default, production");
    rrun_in(
        Path::new("."),
        &["fit", "--preset", "quick", "--gpu-memory", "8GB"],
    )
    .succeeds()
    .says("about 4.5 GB fits into 8.0 GB");
}
