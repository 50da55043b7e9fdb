//! Fuzz targets for files that the crate `jobs` reads.

use std::mem::discriminant;
use std::path::Path;

use jobs::experiment::Experiment;
use jobs::journal::{Accepted, Contents};
use jobs::layout::RunFolder;
use jobs::plan::{Difference, RunPlan};
use jobs::{file, secrets, trust};
use rig::hostile::Target;
use serde_json::Value;

#[test]
fn hostile_journal() {
    Target::new("journal").run(|input| {
        let contents = Contents::of(input, &Accepted::default()).ok()?;
        assert!(contents.torn <= input.len() as u64);
        let kinds: Vec<_> = contents.lines.iter().map(std::mem::discriminant).collect();
        Some((kinds, contents.damaged.len(), contents.torn == 0))
    });
}

#[test]
fn hostile_experiment() {
    Target::new("experiment").run(|input| {
        let text = std::str::from_utf8(input).ok()?;
        let changes: Vec<_> = ["shared.policy.remote_port=1", "runs.a.num_rebuilds=2"]
            .iter()
            .filter_map(|change| change.parse().ok())
            .collect();
        let variable = |_: &str| Some("${shared.policy}".to_owned());
        let read = |changes: &[_]| {
            let path = Path::new("experiment.yaml");
            Experiment::parse(path, text, changes, &variable).ok()
        };
        let _ = read(&changes);
        let experiment = read(&[])?;
        let jobs = experiment.jobs["jobs"].as_array()?.len();
        Some((
            jobs,
            experiment.unused.len(),
            file::parse(&experiment.jobs).is_ok(),
        ))
    });
}

#[test]
fn hostile_jobs_file() {
    Target::new("jobs_file").run(|input| {
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
                .to_string()
                .split(": ")
                .next()
                .unwrap_or_default()
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
    Target::new("plan").run(|input| match RunPlan::parse(&folder, input) {
        Ok(plan) => {
            let moving = plan.moving.iter().flat_map(|moving| &moving.jobs);
            let mut names = plan.jobs.iter().map(|job| &job.name).chain(moving);
            assert!(names.all(|name| folder.job(name).parent() == Some(folder.root())));
            assert!(Difference::between(&plan, &plan).is_none());
            let uses = trust::uses(&plan.jobs, plan.model_server.as_ref()).len();
            (discriminant(&Ok::<(), ()>(())), plan.jobs.len(), uses)
        }
        Err(err) => (discriminant(&Err::<(), ()>(())), err.to_string().len(), 0),
    });
}
