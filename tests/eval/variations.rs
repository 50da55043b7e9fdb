//! Tests of jobs with variants: pairs of control and variant, merged runs.

use std::collections::BTreeMap;

use report::{Report, VariationReport, VariationScope};
use serde_json::{Value, json};

use crate::eval::command::{Eval, job};
use crate::eval::given::{merged, rrun};

/// Returns a run of a job whose variant `dark` changes nothing for the expert, and whose variants
/// `short` and `hasty` leave it too little time.
fn varied(episodes: u64, ranks: usize) -> Eval {
    let variations = json!({"variations": [
        {"name": "dark", "light_intensity": 100},
        {"name": "short", "group": "time", "max_episode_steps": 2},
        {"name": "hasty", "group": "time", "max_episode_steps": 3},
    ]});
    let jobs = [merged(job("reach", episodes, 2), variations)];
    Eval::new(&jobs).nproc(ranks).words(&["--export-mode=none"])
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
    let eval = varied(6, 2);
    eval.run()
        .succeeds()
        .stdout_has("| time            | all 2 variants | 12    | 100.0 % | 0.0 %   | -100.0     |")
        .stdout_has(
            "| light_intensity | dark           | 6     | 100.0 % | 100.0 % | +0.0       |",
        );
    assert_pairs(&eval.report(), 6);
    let mut seeds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for episode in eval.episodes() {
        seeds.entry(episode.job).or_default().push(episode.seed);
    }
    let jobs: Vec<_> = seeds.keys().map(String::as_str).collect();
    assert_eq!(jobs, ["reach", "reach_dark", "reach_hasty", "reach_short"]);
    assert!(seeds.values().all(|of_job| *of_job == seeds["reach"]));

    let text = std::fs::read_to_string(eval.folder().variations()).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    let pairs: Vec<Value> = lines.collect::<Result<_, _>>().unwrap();
    assert_eq!(pairs.len(), 18);
    let of_lines = pairs[..6].iter().map(|pair| pair["seed"].as_u64().unwrap());
    assert!(
        of_lines.eq(seeds["reach"].iter().copied()),
        "the seeds that the ranks had"
    );
    assert!(
        pairs[6..]
            .iter()
            .all(|pair| pair["variant_length"] == 2 || pair["variant_length"] == 3)
    );
}

#[test]
fn control_and_variants_of_different_runs_are_paired_when_merged() {
    let folder = tempfile::tempdir().unwrap();
    let part = |name: &str, only: &str| {
        let output = folder.path().join(name);
        varied(4, 1)
            .output(&output)
            .words(&["--only", only])
            .finished();
        output.to_string_lossy().into_owned()
    };
    let control = part("control", "reach;reach_dark");
    let variants = part("variants", "reach_short;reach_hasty");
    let merged = folder.path().join("merged");
    let output = merged.to_string_lossy().into_owned();
    let told = rrun(&["report", &control, &variants, "--output", &output]);
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
fn a_plan_has_the_variants() {
    varied(6, 2)
        .launcher_words(&["--dry-run"])
        .run()
        .succeeds()
        .stdout_has("| reach_short | reach ")
        .stdout_has("| reach_dark ");
}

#[test]
fn a_variation_changes_the_environment_and_one_without_meaning_is_said() {
    let variations = json!({"variations": {"max_episode_steps": 3, "hdr": "hall"}});
    let eval = Eval::new(&[merged(job("reach", 2, 1), variations)]).words(&["--export-mode=none"]);
    eval.run()
        .succeeds()
        .stderr_has("does not use variations.hdr");
    assert!(eval.episodes().iter().all(|episode| episode.length == 3));
}
