//! Tests of `rrun policies`, and of the examples in the documentation.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::tools::folder::{rrun, rrun_in};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

/// Returns what `rrun policies --json` says about all types.
fn policies() -> Vec<Value> {
    let text = rrun(&["policies", "--json"]).succeeds().stdout();
    let mut found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["schema"], "rrun/policies/1");
    serde_json::from_value(found["policies"].take()).unwrap()
}

/// Plans a jobs file, in the root of the repository. Files that an example names need not be there.
#[track_caller]
pub fn plan(jobs: &str) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.json");
    std::fs::write(&file, jobs).unwrap();
    let words = ["--dry-run=json", "eval", "--jobs", file.to_str().unwrap()];
    let planned = rrun_in(&root(), &words);
    serde_json::from_str::<Value>(&planned.stdout()).expect("a plan is JSON");
}

/// Returns the blocks of JSON of a page as jobs files.
fn examples(page: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let blocks = text.split("```json\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap())
        .filter(|block| block.contains("\"policy_type\""))
        .map(|block| {
            serde_json::from_str(block).unwrap_or_else(|err| panic!("{page}: {err}:\n{block}"))
        })
        .filter_map(|block: Value| match block {
            file if file["jobs"].is_array() => Some(file),
            job if job["policy_type"].is_string() => Some(json!({"jobs": [job]})),
            _ => None,
        })
        .collect()
}

#[test]
fn every_type_is_listed_and_described() {
    let list = rrun(&["policies"]).succeeds().stdout();
    let all = policies();
    assert!(all.len() >= 10, "{}", all.len());
    for policy in all {
        let name = policy["policy_type"].as_str().unwrap();
        assert!(list.contains(&format!("{name}: ")), "{name}: {list}");
        let described = rrun(&["policies", name]).succeeds();
        for setting in policy["settings"].as_array().unwrap() {
            let setting = setting["name"].as_str().unwrap();
            let described = described.stdout();
            assert!(described.contains(setting), "{name}: {setting}");
        }
        described.says(policy["documentation"].as_str().unwrap());
    }
}

#[test]
fn the_example_of_every_type_can_be_pasted_and_planned() {
    for policy in policies() {
        let example = policy["example"].as_str().unwrap();
        let file: Value = serde_json::from_str(example).unwrap();
        assert_eq!(file["jobs"][0]["policy_type"], policy["policy_type"]);
        plan(example);
    }
}

#[test]
fn the_page_of_every_type_has_an_example_that_can_be_planned() {
    for policy in policies() {
        let page = policy["documentation"].as_str().unwrap();
        let is_about = |file: &Value| {
            let jobs = file["jobs"].as_array().unwrap();
            jobs.iter()
                .any(|job| job["policy_type"] == policy["policy_type"])
        };
        let examples: Vec<Value> = examples(page).into_iter().filter(is_about).collect();
        assert!(
            !examples.is_empty(),
            "{page} lacks {}",
            policy["policy_type"]
        );
        for example in examples {
            plan(&example.to_string());
        }
    }
}

#[test]
fn a_type_is_described_by_any_of_its_names() {
    rrun(&["policies", "gr00t_closedloop"])
        .succeeds()
        .says("gr00t: runs an unmodified GR00T N1.7 checkpoint")
        .says("also called gr00t_closedloop")
        .says("| embodiment_tag ")
        .says("\"policy_type\": \"gr00t\"")
        .says("Documentation: docs/policy.md");
}

#[test]
fn values_and_defaults_are_told() {
    let python = rrun(&["policies", "python", "--json"]).succeeds().stdout();
    let python: Value = serde_json::from_str(&python).unwrap();
    let settings = python["policies"][0]["settings"].as_array().unwrap();
    let setting = |name: &str| {
        settings
            .iter()
            .find(|setting| setting["name"] == name)
            .unwrap()
    };
    assert_eq!(
        setting("max_restarts"),
        &json!({
            "name": "max_restarts", "type": "number", "values": "a whole number from 0 to 1000",
            "minimum": 0.0, "maximum": 1000.0, "is_required": false, "default": "3",
            "about": "how often a worker that died or hung is started again, for each rank and job",
        })
    );
    assert_eq!(setting("policy")["is_required"], true);
    assert_eq!(setting("policy")["default"], Value::Null);
}

#[test]
fn a_misspelt_type_is_refused_with_the_nearest() {
    rrun(&["policies", "torchscirpt"]).fails_with(1).complains(
        "there is no policy type `torchscirpt` (did you mean `torchscript`?); expected one of ",
    );
    rrun(&["policy"]).fails_with(1).complains("policies");
}
