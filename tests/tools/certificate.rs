//! Tests of `rrun verify --rerun` on certificates that a liar has written. All others are in
//! `cases/certificate.txt`.

use std::fs;
use std::path::Path;

use report::certificate::canonical;
use rig::script::Scene;
use serde_json::{Value, json};

use crate::tools::again;

/// Changes a certificate and computes its hash again.
fn forge(path: &Path, change: impl Fn(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    value["sha256"] = canonical::sha256(&value["contents"]).unwrap().into();
    fs::write(path, value.to_string()).unwrap();
}

/// Returns a run with a forged certificate, `again/certificate.json`.
fn forged(change: impl Fn(&mut Value)) -> Scene {
    let scene = Scene::new();
    again::install(scene.path(), "again", Some);
    scene.said("rrun certify again --rerun 0");
    forge(&scene.path().join("again/certificate.json"), change);
    scene
}

#[track_caller]
fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "no `{part}` in\n{said}");
    }
}

#[test]
fn a_changed_episode_with_a_new_hash_is_found_by_running_it_again() {
    // Episode 2 was not solved.
    let scene = forged(|value| {
        let episode = &mut value["contents"]["jobs"][0]["episodes"][2];
        episode["success"] = json!(true);
        episode["end"] = json!("success");
        for rates in ["/contents/jobs/0/rates", "/contents/rates"] {
            let rates = value.pointer_mut(rates).unwrap();
            let solved = rates["successes"].as_u64().unwrap() + 1;
            let all = rates["episodes"].as_u64().unwrap();
            rates["successes"] = json!(solved);
            rates["success_rate"] = json!(solved as f64 / all as f64);
            rates["wilson95"] = json!(report::stats::Solved::new(solved, all).wilson95());
        }
    });
    let holds = scene.said("rrun verify again/certificate.json");
    assert_says(&holds, &["certificate.json` holds"]);
    let all = scene.said("rrun verify again/certificate.json --rerun 8");
    let found = [
        "| a   | 2       | different |",
        "| a   | 3       | the same  |",
        "wrong: a: episode 2 had a different result: success true, then false; end Success, then \
         TimeLimit",
        "would have found it with a probability of 100.0 %",
        "exit code 1",
    ];
    assert_says(&all, &found);
    // The one that this seed chooses is not the changed one.
    let one = scene.said("rrun verify again/certificate.json --rerun 1 --rerun-seed y");
    let found = [
        "run again: 1 episode, chosen by `y`, by 1 rank with 2 environments",
        "with a probability of 12.5 %",
    ];
    assert_says(&one, &found);
    assert!(!one.contains("exit code"), "{one}");
}

#[test]
fn a_policy_is_run_again_only_if_its_files_are_the_same_and_wanted() {
    let scene = forged(|value| {
        let contents = &mut value["contents"];
        contents["policies"] = json!([{"type": "torchscript", "path": "/old.pt", "bytes": 7,
                                       "sha256": jobs::sha256::of("weights")}]);
        let entry = &mut contents["jobs"][0]["entry"];
        entry["policy_type"] = json!("torchscript");
        entry["policy_config_dict"] = json!({"model_path": "/old.pt"});
    });
    fs::write(scene.path().join("same.pt"), "weights").unwrap();
    fs::write(scene.path().join("other.pt"), "others").unwrap();
    let is_told = |words: &str, told: &str| {
        let said = scene.said(&format!(
            "rrun verify again/certificate.json --rerun 1 {words}"
        ));
        assert_says(&said, &[told, "exit code 2"]);
    };
    is_told("", "old.pt` is not on this machine; use --path to say");
    let other = "other.pt` is not the one that was evaluated: its SHA-256 is ";
    is_told("--path other.pt", other);
    for given in ["same.pt", "/old.pt=same.pt"] {
        let words = format!("--path {given} --rerun-seed 3");
        is_told(
            &words,
            "names programs or servers that you have not started a run with here",
        );
        is_told(&words, "use --trust-plan to run what it names");
    }
}
