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
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use crate::eval_args::EvalArgs;
    use crate::file::JobFile;
    use crate::layout::RunFolder;

    /// Returns the error for a plan of two jobs in which the value at `pointer` is replaced.
    fn refusal(pointer: &str, value: Value) -> String {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let entry = |name: &str| {
            json!({"name": name, "arena_env_args": {"environment": "reach"}, "policy_type": "scripted",
                                        "num_episodes": 4, "rollout_epoch": null,
                   "suite": {"name": "s", "protocol": "1"}, "latency": {"steps": 1}})
        };
        let jobs = file::parse(&json!({"jobs": [entry("a"), entry("b")]})).unwrap();
        let args =
            EvalArgs::parse_words(&["--jobs".into(), "jobs.json".into(), "--no-video".into()])
                .unwrap();
        let file = JobFile {
            path: "jobs.json".into(),
            sha256: String::new(),
            jobs,
            model_server: None,
        };
        let mut plan = serde_json::to_value(RunPlan::new(&args, file, 1, String::new())).unwrap();
        // A job without a variant has no such field.
        plan["jobs"][0]["variant"] = Value::Null;
        plan["model_server"] = Value::Null;
        *plan
            .pointer_mut(pointer)
            .unwrap_or_else(|| panic!("there is no {pointer}")) = value;
        std::fs::write(folder.plan(), plan.to_string()).unwrap();
        RunPlan::read(&folder).map_or_else(|err| err.to_string(), |_| "accepted".to_owned())
    }

    #[test]
    fn a_plan_as_we_write_it_is_accepted() {
        assert_eq!(refusal("/world_size", json!(3)), "accepted");
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
            "journal",
            "live",
            "\u{1b}[2J",
        ] {
            let told = refusal("/jobs/0/name", json!(name));
            assert!(
                told.contains("field name: ") && told.contains("cannot be a file name"),
                "{name:?}: {told}"
            );
        }
        assert!(refusal("/jobs/1/name", json!("A")).contains("is also the name of job 0"));
    }

    #[test]
    fn a_suite_that_no_jobs_file_may_name_is_refused() {
        let suite = |name: &str, overrides: usize| json!({"name": name, "protocol": "1", "overrides": vec!["num_episodes"; overrides]});
        assert_eq!(refusal("/jobs/0/suite", suite("libero_10", 1)), "accepted");
        for (name, overrides) in [("\u{1b}[2J", 0), ("", 0), ("libero_10", 65)] {
            let told = refusal("/jobs/0/suite", suite(name, overrides));
            assert!(told.contains("job 0 (a) field suite: "), "{name:?}: {told}");
        }
    }

    #[test]
    fn the_names_of_a_variant_are_checked() {
        let told = |of: &str, group: &str| {
            let variant = json!({"of": of, "name": "dark", "groups": [group]});
            refusal("/jobs/0/variant", variant)
        };
        assert_eq!(told("b", "light"), "accepted");
        assert!(told("../b", "light").contains("field variant.of: `../b` cannot be a file name"));
        let long = told("b", &"x".repeat(201));
        assert!(
            long.contains("field variant.groups: found a name of 201 bytes"),
            "{long}"
        );
    }

    #[test]
    fn a_number_that_sizes_a_loop_is_bounded() {
        let huge = json!(1_000_000_000_000_u64);
        for (pointer, field) in [
            ("/jobs/0/length/episodes", "num_episodes"),
            ("/jobs/0/num_envs", "num_envs"),
            ("/jobs/0/num_rebuilds", "num_rebuilds"),
            ("/jobs/0/rollout/rollout_epoch", "rollout_epoch"),
            ("/jobs/0/index", "index"),
            ("/world_size", "world_size"),
        ] {
            let told = refusal(pointer, huge.clone());
            assert!(
                told.contains(&format!("field {field}: found 1000000000")),
                "{pointer}: {told}"
            );
        }
        assert!(refusal("/jobs/0/num_rebuilds", json!(0)).contains("field num_rebuilds: found 0"));
        for delay in [
            json!({"steps": 5000}),
            json!({"ms": -1.0}),
            json!({"ms": 1e300}),
        ] {
            let text = refusal("/jobs/0/latency/delay", delay);
            assert!(
                text.contains("field latency: expected at most 4096 steps"),
                "{text}"
            );
        }
        assert!(refusal("/jobs/1/index", json!(0)).contains("another job has the same position"));
    }

    #[test]
    fn a_model_server_that_no_jobs_file_may_have_is_refused() {
        let server = |field: &str, value: Value| {
            let mut server = json!({"command": ["serve"], "health": {"port": 8000}, "max_restarts": 3,
                                    "start_timeout": {"secs": 600, "nanos": 0},
                                    "stop_timeout": {"secs": 30, "nanos": 0}});
            server[field] = value;
            refusal("/model_server", server)
        };
        let days = |days: u64| json!({"secs": days * 86_400, "nanos": 0});
        assert_eq!(server("start_timeout", days(1)), "accepted");
        for (field, value, told) in [
            ("command", json!([]), "field command: found a list of 0"),
            (
                "command",
                json!([""]),
                "field command: the program is empty",
            ),
            (
                "start_timeout",
                days(2),
                "field start_timeout: found 172800",
            ),
            ("stop_timeout", days(1), "field stop_timeout: found 86400"),
            ("stop_timeout", days(0), "field stop_timeout: found 0"),
            (
                "max_restarts",
                json!(1001),
                "field max_restarts: found 1001",
            ),
            (
                "devices",
                json!([0, 0]),
                "field devices: GPU 0 is listed twice",
            ),
            (
                "env",
                json!({"A=B": "x"}),
                "field env: `A=B` is not the name",
            ),
            (
                "health",
                json!({"url": {"host": "h", "port": 1, "path": "/ HTTP/1.1\r\nX: y"}}),
                "field health_url: `http://h:1/ HTTP/1.1\\r\\nX: y` cannot be polled",
            ),
        ] {
            let text = server(field, value);
            assert!(text.contains(&format!("model_server {told}")), "{text}");
        }
        let endless = json!({"secs": u64::MAX, "nanos": 0});
        let text = server("start_timeout", endless);
        assert!(
            text.contains("model_server field start_timeout: found 184467"),
            "{text}"
        );
    }

    #[test]
    fn an_option_that_resume_does_not_take_over_is_refused() {
        let told = |name: &str| {
            let options = BTreeMap::from([(name.to_owned(), "x".to_owned())]);
            check_options(&RunPlan {
                options,
                ..RunPlan::default()
            })
            .map_err(|refusal| refusal.to_string())
        };
        for name in [
            "output",
            "jobs",
            "set",
            "resume",
            "policy-device",
            "no such",
        ] {
            assert!(
                told(name)
                    .unwrap_err()
                    .contains("not an option that --resume takes over"),
                "{name}"
            );
        }
        assert_eq!((told("no-video"), told("max-batch")), (Ok(()), Ok(())));
    }

    #[test]
    fn a_plan_that_is_no_regular_file_or_too_large_is_refused_without_being_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        std::os::unix::fs::symlink("/dev/zero", folder.plan()).unwrap();
        let told = || RunPlan::read(&folder).unwrap_err().to_string();
        assert!(
            told().contains("it is a device, expected a regular file"),
            "{}",
            told()
        );
        std::fs::remove_file(folder.plan()).unwrap();
        std::fs::File::create(folder.plan())
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        assert!(
            told().contains("has 1099511627776 bytes, expected at most"),
            "{}",
            told()
        );
    }
}
