//! Fuzz targets for journals and plans of which the crate `report` makes a report.

use std::path::Path;

use jobs::file;
use jobs::journal::Line;
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use report::certificate::{self, Certificate, canonical, sample};
use report::{Context, Journals, Merged, Report, page, verify};
use rig::hostile::{self, Target};
use serde_json::{Value, json};

/// Returns a plan of three jobs: one with episodes, one that is shared, and one whose policy
/// determines its length.
fn plan() -> RunPlan {
    let entry = |name: &str| json!({"name": name, "arena_env_args": {"environment": "reach"}, "policy_type": "scripted"});
    let (mut counted, mut shared, replayed) = (entry("a"), entry("b"), entry("c"));
    counted["num_episodes"] = json!(3);
    shared["total_num_envs"] = json!(4);
    shared["num_steps"] = json!(100);
    let jobs =
        file::parse(&json!({"jobs": [counted, shared, replayed]})).expect("the jobs are right");
    RunPlan {
        jobs,
        ..RunPlan::default()
    }
}

#[test]
fn hostile_report_of_a_plan() {
    let folder = RunFolder::new(Path::new("run"));
    Target::new("report_of_a_plan").corpus("plan").run(|input| {
        let plan = RunPlan::parse(&folder, input).ok()?;
        let merged = Merged::new(plan, Journals::default()).unwrap();
        let report = Report::of(&merged, Context::default()).unwrap();
        Some((merged.plan.jobs.len(), report.missing_count.min(9)))
    });
}

#[test]
fn hostile_report() {
    let plan = plan();
    Target::new("report").run(|input| {
        let journals = Journals::default().and_delivered([(0, input.to_vec())]);
        let merged = Merged::new(plan.clone(), journals).unwrap();
        let report = Report::of(&merged, Context::default()).unwrap();
        let wrong = verify::run(&merged).wrong.len();
        let wrong_of = |job| verify::job(&merged, job).unwrap().findings.wrong.len();
        let audits = plan.jobs.iter().map(wrong_of).sum::<usize>();
        let counts = [
            report.missing_count,
            report.failures_count,
            report.duplicates_count,
            report.env_losses_count,
        ];
        (wrong, audits, counts, report.per_rank.len(), report.partial)
    });
}

/// Lines that are damaged already would say nothing about what comes after the parser. Other lines
/// of the seeds are damaged on purpose.
#[test]
fn ends_of_jobs_in_the_seeds_are_read() {
    for input in ["report", "page"].into_iter().flat_map(hostile::inputs) {
        for line in input.split(|byte| *byte == b'\n') {
            let value = serde_json::from_slice::<Value>(line).unwrap_or_default();
            if value["type"] == "job_end" {
                serde_json::from_value::<Line>(value).unwrap();
            }
        }
    }
}

#[test]
fn hostile_page() {
    let plan = plan();
    Target::new("page").one_in(20).run(|input| {
        let journals = Journals::default().and_delivered([(0, input.to_vec())]);
        let merged = Merged::new(plan.clone(), journals).unwrap();
        let report = Report::of(&merged, Context::default()).unwrap();
        let page = page::render(&report, &page::Zone::utc());
        // The page's own script is the only one, and names cannot add elements to the page.
        assert_eq!(page.matches("<script").count(), 1);
        assert!(!page.contains("<img") && !page.contains("href=\"javascript:"));
        page.len() / 64
    });
}

/// Returns the input with the hash of its contents, which no mutation finds by itself.
fn with_its_hash(input: &[u8]) -> Option<Vec<u8>> {
    let mut value = canonical::parse(input).ok()?;
    let sha256 = canonical::sha256(value.get("contents")?).ok()?;
    value
        .as_object_mut()?
        .insert("sha256".to_owned(), sha256.into());
    serde_json::to_vec(&value).ok()
}

#[test]
fn hostile_certificate() {
    Target::new("certificate")
        .longest(8192)
        .one_in(4)
        .run(|input| {
            let told = Certificate::parse(input).map_err(|err| err.to_string().len().min(99));
            let hashed = with_its_hash(input).and_then(|text| Certificate::parse(&text).ok());
            let Some(read) = hashed else {
                return (told.err(), 0, 0);
            };
            let wrong = read.check().len();
            let chosen = sample::choose(&read.contents, 3, &read.sha256);
            let plan = certificate::plan(&read).ok();
            let again = plan.and_then(|plan| sample::plan(&plan, &chosen));
            (
                told.err(),
                wrong.min(9),
                again.map_or(0, |plan| plan.jobs.len()),
            )
        });
}
