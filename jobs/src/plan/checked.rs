//! Validates a plan from a folder that another user may have written. `plan.json` must obey the
//! rules of a jobs file before a name becomes a path or a number the bound of a loop.

use std::collections::HashSet;

use crate::eval_args;
use crate::fields::FieldError;
use crate::file::rollout::{MAX_EPISODES, MAX_TOTAL_ENVS};
use crate::file::variations::MAX_GROUP_BYTES;
use crate::file::{self, MAX_ENVS};
use crate::job::{Job, Length, Variant};
use crate::latency::{MAX_MS, MAX_STEPS};
use crate::model_server;
use crate::plan::RunPlan;

/// Upper limit for the episodes of all jobs together. Ten thousand jobs of ten thousand episodes
/// each fit; counts that take more than a minute to iterate over do not.
const MAX_EPISODES_OF_ALL: u64 = 1 << 30;

/// Upper limit for the ranks of a run, far beyond any machine.
const MAX_WORLD_SIZE: usize = 1 << 20;

/// Upper limit for the positions of jobs: a jobs file of 64 MiB has fewer.
const MAX_INDEX: usize = 1 << 24;

/// Checks a plan that was read from a folder.
///
/// # Errors
/// Returns the first field whose value `rrun` would never have written.
pub(super) fn check(plan: &RunPlan) -> Result<(), FieldError> {
    at_most("world_size", plan.world_size as u64, MAX_WORLD_SIZE as u64)?;
    let (mut indices, mut episodes) = (HashSet::new(), 0_u64);
    for job in &plan.jobs {
        let place = format!("job {} ({})", job.index.0, job.name.escape_debug());
        check_job(job).map_err(|(field, reason)| FieldError {
            place: format!("{place} field {field}"),
            unknown: None,
            reason,
        })?;
        if !indices.insert(job.index) {
            let reason = "another job has the same position".to_owned();
            return Err(FieldError {
                place: format!("{place} field index"),
                unknown: None,
                reason,
            });
        }
        episodes += if let Length::Episodes(count) = job.length {
            count
        } else {
            0
        };
    }
    at_most("jobs", episodes, MAX_EPISODES_OF_ALL).map_err(|err| FieldError {
        reason: format!("episodes in all: {}", err.reason),
        ..err
    })?;
    file::refuse_duplicates(&plan.jobs)?;
    plan.model_server
        .as_ref()
        .map_or(Ok(()), model_server::check)
}

/// Checks the command-line options that `--resume` is to take over.
///
/// # Errors
/// Returns the first option that no command line can have left in a plan.
pub(super) fn check_options(plan: &RunPlan) -> Result<(), FieldError> {
    for name in plan.options.keys() {
        if !eval_args::is_taken_over(name) {
            let reason = "it is not an option that --resume takes over".to_owned();
            return Err(FieldError {
                place: format!("options field {}", name.escape_debug()),
                unknown: None,
                reason,
            });
        }
    }
    Ok(())
}

fn at_most(field: &str, found: u64, limit: u64) -> Result<(), FieldError> {
    if found <= limit {
        return Ok(());
    }
    let reason = format!("found {found}, expected a whole number up to {limit}");
    Err(FieldError {
        place: format!("field {field}"),
        unknown: None,
        reason,
    })
}

/// Checks one job; the error names the field and the reason.
fn check_job(job: &Job) -> Result<(), (&'static str, String)> {
    file::check_name(&job.name).map_err(|err| ("name", err.to_string()))?;
    if let Some(variant) = &job.variant {
        check_variant(variant)?;
    }
    let episodes = if let Length::Episodes(count) = job.length {
        count
    } else {
        1
    };
    let steps = if let Length::Steps(steps) = job.length {
        steps
    } else {
        1
    };
    let most_envs = if job.sharing.is_some() {
        MAX_TOTAL_ENVS
    } else {
        MAX_ENVS
    };
    let (total, group) = job.sharing.map_or((1, 1), |sharing| {
        (sharing.total_num_envs, sharing.group_size)
    });
    let epoch_steps = job.rollout.max_steps_per_rollout_epoch.unwrap_or(1);
    let counts = [
        (
            "index",
            (job.index.0 as u64).saturating_add(1),
            MAX_INDEX as u64,
        ),
        ("num_envs", job.num_envs as u64, most_envs),
        ("total_num_envs", total as u64, MAX_TOTAL_ENVS),
        ("group_size", group as u64, MAX_TOTAL_ENVS),
        ("num_episodes", episodes, MAX_EPISODES),
        ("num_steps", steps, u64::MAX),
        ("num_rebuilds", job.num_rebuilds, MAX_EPISODES),
        ("rollout_epoch", job.rollout.rollout_epoch, MAX_EPISODES),
        (
            "max_steps_per_rollout_epoch",
            epoch_steps,
            u64::from(u32::MAX),
        ),
        (
            "pipeline_stage_num",
            job.rollout.pipeline_stage_num.unwrap_or(1) as u64,
            MAX_TOTAL_ENVS,
        ),
        (
            "video_cfg field fps",
            u64::from(job.video.fps.unwrap_or(1)),
            1000,
        ),
    ];
    for (field, found, limit) in counts {
        if !(1..=limit).contains(&found) {
            return Err((
                field,
                format!("found {found}, expected a whole number from 1 to {limit}"),
            ));
        }
    }
    if let Some(suite) = &job.suite {
        file::suite::check(suite).map_err(|reason| ("suite", reason))?;
    }
    if job
        .video
        .base_dir
        .as_ref()
        .is_some_and(|dir| dir.to_string_lossy().contains('\0'))
    {
        return Err((
            "video_cfg field video_base_dir",
            "it is not a path".to_owned(),
        ));
    }
    if job
        .latency
        .is_some_and(|latency| !latency.delay.is_in_range())
    {
        let reason = format!("expected at most {MAX_STEPS} steps or {MAX_MS} milliseconds");
        return Err(("latency", reason));
    }
    Ok(())
}

/// Checks the names that a report shows in its tables.
fn check_variant(variant: &Variant) -> Result<(), (&'static str, String)> {
    for (field, name) in [("variant.of", &variant.of), ("variant.name", &variant.name)] {
        file::check_name(name).map_err(|err| (field, err.to_string()))?;
    }
    let is_long = |group: &&String| group.len() > MAX_GROUP_BYTES;
    match variant.groups.iter().find(is_long) {
        Some(group) => Err((
            "variant.groups",
            format!(
                "found a name of {} bytes, expected at most {MAX_GROUP_BYTES}",
                group.len()
            ),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::layout::RunFolder;
    use crate::samples;

    /// Reads a plan of two jobs with these changes.
    fn read(changes: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let job = |name: &str| json!({"name": name, "suite": {"name": "s", "protocol": "1"}, "latency": {"steps": 1}});
        let plan = samples::plan(
            &samples::eval_args(&[]),
            samples::jobs([job("a"), job("b")]),
        );
        let plan = rig::cases::changed(&serde_json::to_value(plan).unwrap(), changes);
        std::fs::write(folder.plan(), plan.to_string()).unwrap();
        RunPlan::read(&folder).map_or_else(
            |err| {
                err.to_string()
                    .replace(&folder.plan().display().to_string(), "plan.json")
            },
            |_| "accepted".to_owned(),
        )
    }

    #[test]
    fn what_no_plan_of_ours_has_is_refused() {
        rig::cases::check("src/plan/refusals.txt", read);
    }

    #[test]
    fn a_name_that_leads_out_of_the_folder_is_refused() {
        for name in [
            "../EVIL",
            "/etc/cron.d/x",
            "a/b",
            "..",
            ".",
            "",
            "a\0b",
            "live",
            "\u{1b}[2J",
        ] {
            let told = read(&format!("jobs/0/name = {}", json!(name)));
            assert!(told.contains("field name: "), "{name:?}: {told}");
            assert!(told.contains("cannot be a file name"), "{name:?}: {told}");
        }
    }

    #[test]
    fn names_that_are_shown_are_short() {
        let long = Value::from("x".repeat(201));
        let variant = json!({"of": "b", "name": "dark", "groups": [long]});
        let told = read(&format!("jobs/0/variant = {variant}"));
        let wanted = "field variant.groups: found a name of 201 bytes";
        assert!(told.contains(wanted), "{told}");
        let suite = json!({"name": "s", "protocol": "1", "overrides": vec!["seed"; 65]});
        let told = read(&format!("jobs/0/suite = {suite}"));
        assert!(told.contains("job 0 (a) field suite: "), "{told}");
    }

    #[test]
    fn an_option_that_resume_does_not_take_over_is_refused() {
        let told = |name: &str| {
            let options = [(name.to_owned(), "x".to_owned())].into();
            let checked = check_options(&RunPlan {
                options,
                ..RunPlan::default()
            });
            checked.map_err(|refusal| refusal.to_string())
        };
        for name in [
            "output",
            "jobs",
            "set",
            "resume",
            "policy-device",
            "no such",
        ] {
            let refusal = told(name).unwrap_err();
            let wanted = "not an option that --resume takes over";
            assert!(refusal.contains(wanted), "{refusal}");
        }
        assert_eq!((told("no-video"), told("max-batch")), (Ok(()), Ok(())));
    }

    #[test]
    fn a_plan_that_is_no_regular_file_or_too_large_is_refused_without_being_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        std::os::unix::fs::symlink("/dev/zero", folder.plan()).unwrap();
        let told = || RunPlan::read(&folder).unwrap_err().to_string();
        let wanted = "it is a device, expected a regular file";
        assert!(told().contains(wanted), "{}", told());
        std::fs::remove_file(folder.plan()).unwrap();
        let sparse = std::fs::File::create(folder.plan()).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let words = "has 1099511627776 bytes, expected at most";
        assert!(told().contains(words), "{}", told());
    }
}
