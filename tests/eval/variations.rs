//! Tests of jobs with variants: pairs of control and variant, resumed and merged runs.

use std::collections::BTreeMap;

use report::{Report, VariationReport, VariationScope};
use serde_json::{Value, json};

use crate::eval::command::{Eval, job};
use crate::eval::tools::rrun;

/// Returns a job whose variant `dark` changes nothing for the expert, and whose variants `short`
/// and `hasty` leave it too little time.
fn varied(episodes: u64) -> Value {
    let mut entry = job("reach", episodes, 2);
    entry["variations"] = json!([
        {"name": "dark", "light_intensity": 100},
        {"name": "short", "group": "time", "max_episode_steps": 2},
        {"name": "hasty", "group": "time", "max_episode_steps": 3},
    ]);
    entry
}

fn entry<'a>(report: &'a Report, by: VariationScope, name: &str) -> &'a VariationReport {
    let mut entries = report.variations.iter();
    entries
        .find(|entry| entry.by == by && entry.name == name)
        .unwrap()
}

/// Checks that every variant has all its pairs.
#[track_caller]
fn assert_pairs(report: &Report, episodes: u64) {
    assert!(report.complete());
    for (name, solved) in [("dark", episodes), ("short", 0), ("hasty", 0)] {
        let found = entry(report, VariationScope::Variant, name);
        assert_eq!(
            (found.pairs, found.both, found.only_control),
            (episodes, solved, episodes - solved),
            "{name}"
        );
    }
    let time = entry(report, VariationScope::Group, "time");
    assert_eq!(
        (time.control_episodes, time.pairs, time.difference),
        (episodes, 2 * episodes, Some(-1.0))
    );
}

#[test]
fn each_variant_runs_the_episodes_of_its_control_on_any_rank() {
    let eval = Eval::new(&[varied(6)]).nproc(2).words(&["--no-dataset"]);
    let ended = eval.run().succeeds();
    assert_pairs(&eval.report(), 6);
    for text in [
        "| time            | all 2 variants | 12    | 100.0 % | 0.0 %   | -100.0     |",
        "| light_intensity | dark           | 6     | 100.0 % | 100.0 % | +0.0       |",
    ] {
        assert!(ended.stdout.contains(text), "{}", ended.stdout);
    }
    let mut seeds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for episode in eval.episodes() {
        seeds.entry(episode.job).or_default().push(episode.seed);
    }
    let jobs: Vec<_> = seeds.keys().map(String::as_str).collect();
    assert_eq!(jobs, ["reach", "reach_dark", "reach_hasty", "reach_short"]);
    assert!(seeds.values().all(|of_job| *of_job == seeds["reach"]));

    let text = std::fs::read_to_string(eval.folder().variations()).unwrap();
    let pairs: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(pairs.len(), 18);
    let of_lines: Vec<_> = pairs[..6]
        .iter()
        .map(|pair| pair["seed"].as_u64().unwrap())
        .collect();
    assert_eq!(of_lines, seeds["reach"], "the seeds that the ranks had");
    assert!(
        pairs[6..]
            .iter()
            .all(|pair| pair["variant_length"] == 2 || pair["variant_length"] == 3)
    );
}

#[test]
fn a_killed_run_is_resumed_with_its_variants() {
    let eval = Eval::new(&[varied(12)])
        .nproc(2)
        .words(&["--no-dataset", "--assign", "dynamic"]);
    let running = eval.start();
    eval.wait_for_episodes(5);
    running.signal("KILL");
    drop(running.wait());
    let resumed = eval.resumed().world_of(1);
    resumed.run().succeeds();
    assert_pairs(&resumed.report(), 12);
}

#[test]
fn control_and_variants_of_different_runs_are_paired_when_merged() {
    let whole = Eval::new(&[varied(4)]).nproc(1).words(&["--no-dataset"]);
    let root = whole.folder().root().to_owned();
    let part = |eval: Eval, name: &str, only: &str| {
        let output = root.with_file_name(name);
        let eval = eval.output(&output).words(&["--only", only]);
        eval.run().succeeds();
        output.to_string_lossy().into_owned()
    };
    let new = || Eval::new(&[varied(4)]).nproc(1).words(&["--no-dataset"]);
    let control = part(new(), "control", "reach;reach_dark");
    let variants = part(new(), "variants", "reach_short;reach_hasty");
    let merged = root.with_file_name("merged");
    let output = merged.to_string_lossy().into_owned();
    let told = rrun(&["merge", &control, &variants, "--output", &output]);
    assert!(told.contains("| all 2 variants | 8 "), "{told}");
    let report = std::fs::read(merged.join("report.json")).unwrap();
    assert_pairs(&serde_json::from_slice(&report).unwrap(), 4);
    assert!(merged.join("variations.jsonl").is_file());
    let told = rrun(&["report", &output]);
    assert!(told.contains("| short "), "{told}");
    let told = rrun(&["compare", &output, &variants]);
    assert!(told.contains("| all  | 8 "), "{told}");
}

#[test]
fn a_plan_and_a_quick_run_have_the_variants() {
    let jobs_of = |words: &[&str]| Eval::new(&[varied(6)]).nproc(2).launcher_words(words);
    let ended = jobs_of(&["--dry-run"]).run().succeeds();
    assert!(
        ended.stdout.contains("| reach_short | reach ") && ended.stdout.contains("| reach_dark "),
        "{}",
        ended.stdout
    );
    let ended = jobs_of(&[]).words(&["--quick"]).run().succeeds();
    assert!(
        ended.stdout.contains("| dark           | 1     |"),
        "{}",
        ended.stdout
    );
}

#[test]
fn a_misspelt_argument_of_a_variant_is_refused_before_anything_starts() {
    let mut entry = varied(4);
    entry["variations"][0] = json!({"name": "dark", "ligth_intensity": 100});
    let ended = Eval::new(&[entry]).nproc(2).run();
    assert!(
        ended.stderr.contains(
            "job 1 (reach_dark): unknown field `variations.ligth_intensity`; did you mean \
             `light_intensity`?"
        ),
        "{}",
        ended.stderr
    );
    assert!(!ended.status.success());
}
