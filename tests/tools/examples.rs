//! Tests of the examples that `rrun list` prints, and of those in the
//! documentation: they can be pasted. What is printed is in `cases/list.txt`.

use rig::run::Given;
use serde_json::{Value, json};

/// Returns everything of a kind that `rrun list` has, in the root of the repository.
#[track_caller]
fn listed(kind: &str) -> Vec<Value> {
    let list = Given::rrun().words("list --json").inside(rig::root());
    let found: Value = serde_json::from_str(&list.succeeds().stdout).unwrap();
    assert_eq!(found["schema"], "rrun/list/1");
    let entries = found["entries"].as_array().unwrap().iter();
    let of_kind = entries.filter(|entry| entry["kind"] == kind);
    of_kind.cloned().collect()
}

/// Plans a jobs file, in the root of the repository. Files that an example names need not be there.
#[track_caller]
fn assert_is_planned(jobs: &Value) {
    let rrun = Given::rrun().file("jobs.json", jobs.to_string());
    let file = rrun.path("jobs.json").display().to_string();
    let rrun = rrun.words(["--dry-run=json", "eval", "--jobs", &file]);
    let planned = rrun.inside(rig::root()).run();
    let plan = serde_json::from_str::<Value>(&planned.stdout);
    assert!(plan.is_ok(), "{jobs}:\n{}", planned.said());
}

#[track_caller]
fn example(thing: &Value) -> Value {
    let file: Value = serde_json::from_str(thing["example"].as_str().unwrap()).unwrap();
    assert_eq!(file["jobs"].as_array().unwrap().len(), 1, "{file}");
    file
}

#[test]
fn the_example_of_every_thing_can_be_pasted_and_planned() {
    for kind in ["environment", "policy", "example", "suite"] {
        let things = listed(kind);
        assert!(things.len() >= 5, "{kind}: {}", things.len());
        things
            .iter()
            .for_each(|thing| assert_is_planned(&example(thing)));
    }
}

/// Returns the blocks of JSON of a page as jobs files.
fn examples(page: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(rig::root().join(page)).unwrap();
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
fn the_page_of_every_policy_type_has_examples_that_can_be_planned() {
    let policies = listed("policy");
    assert!(policies.len() >= 10, "{}", policies.len());
    for policy in policies {
        let kind = &policy["name"];
        assert_eq!(example(&policy)["jobs"][0]["policy_type"], *kind);
        let page = policy["documentation"].as_str().unwrap();
        let is_about = |file: &Value| {
            let mut jobs = file["jobs"].as_array().unwrap().iter();
            jobs.any(|job| job["policy_type"] == *kind)
        };
        let of_page: Vec<Value> = examples(page).into_iter().filter(is_about).collect();
        assert!(!of_page.is_empty(), "{page} lacks {kind}");
        of_page.iter().for_each(assert_is_planned);
    }
}
