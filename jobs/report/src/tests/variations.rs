//! Tests what a report says about variants.

use std::fs;

use serde_json::Value;

use super::*;
use crate::tests::simulated::pairs;
use crate::{VariationReport, VariationScope, curve, page, tables};

/// Returns a plan of two jobs with three variants each: `dark` and `bright` of the group `light`,
/// and `small`.
fn varied() -> RunPlan {
    let entry = |name: &str| {
        let mut entry = job(name, 4);
        entry["variations"] = json!([
            {"name": "dark", "group": "light", "light_intensity": 100},
            {"name": "bright", "group": "light", "light_intensity": 900},
            {"name": "small", "camera_width": 64, "camera_height": 64},
        ]);
        entry
    };
    plan([entry("a"), entry("b")])
}

/// Returns the episodes of a job by its position; `x` broke, `1` is solved.
fn episodes(plan: &RunPlan, position: usize, outcomes: &str) -> Vec<Line> {
    let one = |(number, outcome): (usize, char)| {
        let found = samples::episode(position, &plan.jobs[position].name, number as u64);
        line(Episode {
            success: Some(outcome == '1'),
            error: (outcome == 'x').then(|| "boom".to_owned()),
            length: 10 + position as u64,
            return_: position as f64,
            ..found
        })
    };
    outcomes.chars().enumerate().map(one).collect()
}

/// Outcomes of both jobs: the control, then its variants.
const OUTCOMES: [&str; 8] = [
    "1110", "0010", "1100", "111x", //
    "1111", "0001", "1111", "11",
];

fn lines(plan: &RunPlan) -> Vec<Line> {
    let of_job = |(position, outcomes)| episodes(plan, position, outcomes);
    OUTCOMES.into_iter().enumerate().flat_map(of_job).collect()
}

fn report() -> Report {
    let plan = varied();
    Report::new(&plan, &lines(&plan), Context::default())
}

fn entry<'a>(report: &'a Report, by: VariationScope, name: &str) -> &'a VariationReport {
    let mut entries = report.variations.iter();
    entries
        .find(|entry| entry.by == by && entry.name == name)
        .unwrap()
}

fn counts(entry: &VariationReport) -> [u64; 6] {
    [
        entry.control_episodes,
        entry.pairs,
        entry.both,
        entry.only_control,
        entry.only_variant,
        entry.neither,
    ]
}

#[test]
fn the_first_rate_that_somebody_sees_is_that_of_the_controls() {
    let report = report();
    let text = tables::conclusion(&report);
    let first = "30 of 32 episodes, without variations 87.5 % solved (95 %: 52.9 to 97.8), 7 of 8";
    assert!(text.starts_with(first), "{text}");
    let page = page::render(&report, &page::Zone::utc());
    let largest = page.split("<p class=\"big\">").nth(1).unwrap();
    let rate = jobs::format::percent(0.875);
    let wanted = format!("<b>{rate}</b> solved</p>");
    assert!(largest.starts_with(&wanted), "{largest}");
    let mut point = curve::Point::default();
    point.set_results(&report);
    assert_eq!(point.overall.unwrap().success_rate, Some(0.875));
    assert_eq!(report.mean_task_success_rate, Some(0.875));
    assert_eq!(report.per_policy[0].rates.success_rate, Some(0.875));
}

#[test]
fn a_variant_is_compared_with_its_control_episode_by_episode() {
    let report = report();
    let dark = entry(&report, VariationScope::Job, "a_dark");
    assert_eq!(dark.control.as_deref(), Some("a"));
    assert_eq!(dark.variant.as_deref(), Some("dark"));
    assert_eq!(counts(dark), [4, 4, 1, 2, 0, 1]);
    let pairs = pairs([1, 2, 0, 1]);
    assert_eq!(dark.difference, pairs.difference());
    let [found, wanted] = [dark.interval95, pairs.interval95()].map(Option::unwrap);
    assert!((found[0] - wanted[0]).abs() < 1e-9 && (found[1] - wanted[1]).abs() < 1e-9);
    assert_eq!(dark.p, Some(pairs.mcnemar().unwrap().p));
    assert_eq!(dark.length_difference, Some(1.0));
    assert_eq!(dark.return_difference, Some(1.0));
    assert_eq!(report.per_job[1].variant_of.as_deref(), Some("a"));
}

#[test]
fn an_episode_that_broke_or_is_missing_is_no_pair() {
    let report = report();
    let small = |name| counts(entry(&report, VariationScope::Job, name));
    assert_eq!(small("a_small"), [3, 3, 3, 0, 0, 0]);
    assert_eq!(small("b_small"), [2, 2, 2, 0, 0, 0]);
    let all = entry(&report, VariationScope::Variant, "small");
    assert_eq!((all.jobs, all.pairs, all.p), (2, 5, None));
}

#[test]
fn variants_of_one_name_are_pooled_over_jobs_and_groups_count_an_episode_once() {
    let report = report();
    let dark = entry(&report, VariationScope::Variant, "dark");
    assert_eq!((dark.control.as_deref(), dark.jobs), (None, 2));
    assert_eq!(counts(dark), [8, 8, 2, 5, 0, 1]);
    let light = entry(&report, VariationScope::Group, "light");
    assert_eq!((light.jobs, light.variants), (2, 2));
    assert_eq!(light.groups, ["light"]);
    assert_eq!(counts(light), [8, 16, 8, 6, 0, 2]);
    assert_eq!(light.control_rate, Some(7.0 / 8.0));
    assert_eq!(light.variant_rate, Some(0.5));
    let naive = pairs([8, 6, 0, 2]);
    let width = |[low, high]: [f64; 2]| high - low;
    let is_wider = width(light.interval95.unwrap()) > width(naive.interval95().unwrap());
    assert!(
        is_wider,
        "16 pairs of 8 control episodes tell less than 16 independent ones"
    );
    let names: Vec<_> = report.variations.iter().map(|entry| &*entry.name).collect();
    assert_eq!(
        names,
        [
            "a_dark", "a_bright", "a_small", "b_dark", "b_bright", "b_small", "dark", "bright",
            "small", "light"
        ]
    );
}

#[test]
fn results_of_different_policies_are_never_pooled() {
    let mut plan = varied();
    for job in &mut plan.jobs[4..] {
        job.policy_type = "random_action".to_owned();
    }
    let report = Report::new(&plan, &lines(&plan), Context::default());
    let is_dark =
        |entry: &&VariationReport| entry.by == VariationScope::Variant && entry.name == "dark";
    let dark = report.variations.iter().filter(is_dark);
    let dark: Vec<_> = dark
        .map(|entry| (entry.policy_type.as_str(), entry.pairs))
        .collect();
    assert_eq!(dark, [("scripted", 4), ("random_action", 4)]);
    let text = tables::variations(&report);
    assert!(text.starts_with("scripted\n+"), "{text}");
    assert!(text.contains("\nrandom_action\n+"), "{text}");
}

#[test]
fn the_table_has_variants_then_groups() {
    // p of 5 discordant pairs on one side, by McNemar's test: 2 / 2^5.
    insta::assert_snapshot!(tables::variations(&report()));
    let empty = Report::new(&varied(), &[], Context::default());
    assert_eq!(tables::variations(&empty), "");
}

#[test]
fn the_pairs_are_exported_as_lines() {
    let plan = varied();
    let run = written(&plan, &lines(&plan));
    let text = fs::read_to_string(run.folder.variations()).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let rows: Vec<Value> = rows.collect();
    assert_eq!(rows.len(), 4 * 5 + 2);
    assert_eq!(
        rows[0],
        json!({"job": "a", "variant": "dark", "groups": ["light"], "policy_type": "scripted",
               "episode": 0, "seed": jobs::seed::episode(42, &plan.jobs[0], 0),
               "control_success": true, "control_return": 0.0, "control_length": 10,
               "variant_success": false, "variant_return": 1.0, "variant_length": 11})
    );
    let lost = rows
        .iter()
        .find(|row| row["variant_success"].is_null())
        .unwrap();
    assert_eq!(&lost["variant"], &json!("small"));
    assert_eq!(&lost["episode"], &json!(3));
    assert_eq!(lost["variant_return"], Value::Null);
}

#[test]
fn a_variant_without_its_control_has_no_entry() {
    let mut plan = varied();
    plan.jobs.remove(0);
    for (place, job) in plan.jobs.iter_mut().enumerate() {
        job.index = JobIndex(place);
    }
    let report = Report::new(&plan, &lines(&varied()), Context::default());
    let is_of_a = |entry: &VariationReport| entry.control.as_deref() == Some("a");
    assert!(!report.variations.iter().any(is_of_a));
    assert_eq!(report.per_job[0].variant_of.as_deref(), Some("a"));
}

#[test]
fn the_page_shows_variants_beside_their_control_and_tasks_without_them() {
    let page = crate::page::render(&report(), &crate::page::Zone::utc());
    assert!(page.contains(r##"<a href="#variations-part">Variations</a>"##));
    let section = page
        .split(r#"<section id="variations-part""#)
        .nth(1)
        .unwrap();
    let section = section.split("</section>").next().unwrap();
    for text in [
        "light",
        "dark",
        "all 2 variants",
        "−62.5",
        "By job",
        "variations.jsonl",
    ] {
        assert!(section.contains(text), "{text} is not in {section}");
    }
    let matrix = page.split(r#"<section id="success-part""#).nth(1).unwrap();
    let told = "<small>7 of 8</small>";
    assert!(matrix.contains(told), "the controls alone");
    let plain = Report::new(&two_jobs(), &everything(), Context::default());
    let page = crate::page::render(&plain, &crate::page::Zone::utc());
    assert!(!page.contains("#variations"));
}
