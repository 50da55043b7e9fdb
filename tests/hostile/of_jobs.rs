//! Fuzz targets for files that the crate `jobs` reads.

use std::mem::discriminant;
use std::path::Path;

use hostile::Target;
use jobs::layout::RunFolder;
use jobs::plan::{Difference, RunPlan, are_moves_of_ours};
use jobs::report::{Context, Journals, Merged, Report};
use jobs::{file, journal, page, secrets, trust, verify};
use serde_json::{Value, json};

/// Tokens of jobs files and plans.
const OF_JOBS: &[&[u8]] = &[
    b"\"jobs\":",
    b"\"name\":",
    b"\"arena_env_args\":",
    b"\"num_episodes\":",
    b"\"num_rebuilds\":",
    b"\"total_num_envs\":",
    b"\"rollout_epoch\":",
    b"\"length\":{\"episodes\":",
    b"\"only\":\"0-9\"",
    b"18446744073709551615",
    b"-1",
    b"null",
    b"{}",
    b"[]",
    b"../",
    b"\\u0000",
];

#[test]
fn hostile_journal() {
    let words: &[&[u8]] = &[
        b"\"type\":\"episode\"",
        b"\"job_index\":",
        b"\"rank\":",
        b"\"episode\":",
        b"\n",
        b"{}",
    ];
    Target::new("journal").dictionary(words).run(|input| {
        let contents = journal::parse(input);
        let kinds: Vec<_> = contents.lines.iter().map(std::mem::discriminant).collect();
        (kinds, contents.damaged.len(), contents.torn == 0)
    });
}

#[test]
fn hostile_jobs_file() {
    Target::new("jobs_file").dictionary(OF_JOBS).run(|input| {
        let value: Value = serde_json::from_slice(input).ok()?;
        let jobs = file::parse(&value);
        if let Ok(jobs) = &jobs {
            assert!(
                jobs.iter()
                    .all(|job| !job.name.contains('/') && job.name != "..")
            );
            return Some((
                jobs.len(),
                secrets::check(jobs, None).is_ok(),
                trust::uses(jobs, None).len(),
                String::new(),
            ));
        }
        // The field of the error, without the value that was found there.
        Some((
            0,
            false,
            0,
            jobs.unwrap_err()
                .place
                .split(" field ")
                .last()
                .unwrap_or_default()
                .to_owned(),
        ))
    });
}

#[test]
fn hostile_plan() {
    let folder = RunFolder::new(Path::new("run"));
    Target::new("plan")
        .dictionary(OF_JOBS)
        .run(|input| match RunPlan::parse(&folder, input) {
            Ok(plan) => {
                assert!(
                    plan.jobs
                        .iter()
                        .all(|job| folder.job(&job.name).parent() == Some(folder.root()))
                );
                let report = Report::new(&plan, &[], Context::default());
                assert!(Difference::between(&plan, &plan).is_none());
                let uses = trust::uses(&plan.jobs, plan.model_server.as_ref()).len();
                (
                    discriminant(&Ok::<(), ()>(())),
                    plan.jobs.len(),
                    uses,
                    report.missing_count.min(9) as usize,
                )
            }
            Err(err) => (
                discriminant(&Err::<(), ()>(())),
                err.to_string().len(),
                0,
                0,
            ),
        });
}

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
fn hostile_report() {
    let plan = plan();
    let words: &[&[u8]] = &[
        b"\"share\":{\"first\":0,\"count\":2,\"total\":4}",
        b"\"type\":\"job_end\"",
        b"18446744073709551615",
        b"9223372036854775807",
        b"1e308",
        b"-1e308",
        b"\n",
        b"2026-11-21T10:00:00.000Z",
        b"9999-99-99T99:99:99.999Z",
    ];
    Target::new("report").dictionary(words).run(|input| {
        let journals = Journals::default().and_delivered(0, input.to_vec());
        let merged = Merged::new(&plan, &journals).unwrap();
        let report = Report::of(&merged, Context::default()).unwrap();
        let wrong = verify::run(&merged).wrong.len();
        let audits = plan
            .jobs
            .iter()
            .map(|job| {
                verify::job(&merged, &plan, job)
                    .unwrap()
                    .findings
                    .wrong
                    .len()
            })
            .sum::<usize>();
        let counts = [
            report.missing_count,
            report.failures_count,
            report.duplicates_count,
            report.env_losses_count,
        ];
        (wrong, audits, counts, report.per_rank.len(), report.partial)
    });
}

#[test]
fn hostile_page() {
    let plan = plan();
    let words: &[&[u8]] = &[
        b"<script>",
        b"\"><img src=x onerror=",
        b"javascript:",
        b"1e308",
        b"9999-12-31T23:59:59.999Z",
    ];
    Target::new("page")
        .dictionary(words)
        .one_in(20)
        .run(|input| {
            let journals = Journals::default().and_delivered(0, input.to_vec());
            let merged = Merged::new(&plan, &journals).unwrap();
            let report = Report::of(&merged, Context::default()).unwrap();
            let page = page::render(&report, &page::Zone::utc());
            // The page's own script is the only one, and names cannot add elements to the page.
            assert_eq!(page.matches("<script").count(), 1);
            assert!(!page.contains("<img") && !page.contains("href=\"javascript:"));
            page.len() / 64
        });
}

#[test]
fn hostile_moves() {
    let words: &[&[u8]] = &[
        b"../",
        b"/etc/",
        b"superseded/1/",
        b".next/",
        b"plan.json",
        b"journal",
        b"true",
        b"false",
    ];
    Target::new("moves").dictionary(words).run(|input| {
        let are_ours = are_moves_of_ours(input, Path::new("superseded/1"));
        assert!(!are_ours || !String::from_utf8_lossy(input).contains("../"));
        (are_ours, input.len())
    });
}
