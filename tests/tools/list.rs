//! Tests of `rrun list`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::tools::folder::{Done, rrun};
use crate::tools::policies::{plan, root};

/// A copy of `rrun` in a tree like that of the source, whose suites it finds wherever cargo builds.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target/release");
        std::fs::create_dir_all(&target).unwrap();
        symlink(root().join("jobs"), dir.path().join("jobs")).unwrap();
        // Copied by another process: a child of another test might inherit the descriptor of a file
        // that this process writes, and then the file could not be executed.
        let mut copy = Command::new("cp");
        copy.arg(rig::rrun()).arg(&target);
        assert!(copy.status().unwrap().success());
        Self(dir)
    }

    fn program(&self) -> PathBuf {
        self.0.path().join("target/release/rrun")
    }

    /// Runs it in a folder.
    fn run(&self, folder: &Path, words: &[&str]) -> Done {
        let mut command = Command::new(self.program());
        let output = command.args(words).current_dir(folder).output();
        Done {
            output: output.expect("rrun is there"),
        }
    }
}

/// Returns what `rrun list --json` prints, in the root of the repository.
fn everything() -> Value {
    let listed = Tree::new().run(&root(), &["list", "--json"]);
    let text = listed.succeeds().stdout();
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["schema"], "rrun/list/1");
    found
}

#[test]
fn the_example_of_every_thing_can_be_pasted_and_planned() {
    let found = everything();
    let mut count = 0;
    for section in ["environments", "policies", "suites"] {
        let things = found[section].as_array().unwrap();
        assert!(things.len() >= 5, "{section}: {}", things.len());
        for thing in things {
            let example = thing["example"].as_str().unwrap();
            let file: Value = serde_json::from_str(example).unwrap();
            assert_eq!(file["jobs"].as_array().unwrap().len(), 1, "{example}");
            plan(example);
            count += 1;
        }
    }
    assert!(count >= 20, "{count}");
}

#[test]
fn a_suite_is_described_with_its_installer_and_a_job() {
    Tree::new()
        .run(&root(), &["list", "pusht"])
        .succeeds()
        .says("pusht: 1 job: gym:gym_pusht/PushT-v0 with random_action; needs .simulators/pusht")
        .says("| success ")
        .says("All of it: rrun eval --jobs jobs/suites/pusht.json")
        .says("\"mapping\": \"jobs/suites/simulators/pusht.yaml\"");
}

#[test]
fn elsewhere_the_paths_of_a_suite_are_absolute() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::new();
    let listed = tree.run(dir.path(), &["list", "pusht"]).succeeds();
    let mapping = tree.0.path().join("jobs/suites/simulators/pusht.yaml");
    listed
        .says("`.simulators/pusht` is missing: RRUN_SIMULATORS=.simulators ")
        .says(&format!("\"mapping\": \"{}\"", mapping.display()));
}

#[test]
fn an_environment_is_described_with_its_arguments_and_defaults() {
    rrun(&["list", "pick_and_place"])
        .succeeds()
        .says("pick_and_place: pick up the block and place it on the green plate")
        .says("| object             | one of cube, cylinder ")
        .says("\"environment\": \"pick_and_place\"");
    rrun(&["list", "gym:CartPole-v1"])
        .succeeds()
        .says("| envs_per_process ")
        .says("\"environment\": \"gym:CartPole-v1\"");
}

#[test]
fn one_thing_is_one_entry_of_the_json() {
    let text = rrun(&["list", "reach", "--json"]).succeeds().stdout();
    let found: Value = serde_json::from_str(&text).unwrap();
    let environment = &found["environments"][0];
    assert_eq!(found["policies"], Value::Array(Vec::new()));
    let steps = environment["arguments"].as_array().unwrap().iter();
    let steps = steps.clone().find(|one| one["name"] == "max_episode_steps");
    assert_eq!(steps.unwrap()["default"], "100");
}

#[test]
fn a_misspelt_name_is_refused_with_the_nearest() {
    rrun(&["list", "pick_and_plaec"])
        .fails_with(1)
        .complains("(did you mean `pick_and_place`?)");
}
