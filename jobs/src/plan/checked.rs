//! Reads the parts of a plan that another user may have written: jobs and model server must be those
//! of a jobs file before a name becomes a path or a number the bound of a loop, and `--resume` takes
//! over no option but those of `eval`.

use std::ffi::OsString;

use serde_json::Value;

use crate::eval_args::{self, EvalArgs, resume};
use crate::job::Length;
use crate::layout::RunFolder;
use crate::plan::RunPlan;
use crate::refusal::{Refusal, Refused};
use crate::{file, model_server};

/// Upper limit for the episodes of all jobs together. Ten thousand jobs of ten thousand episodes
/// each fit; counts that take more than a minute to iterate over do not.
const MAX_EPISODES_OF_ALL: u64 = 1 << 30;

/// Upper limit for the ranks of a run, far beyond any machine.
const MAX_WORLD_SIZE: u64 = 1 << 20;

/// Completes a plan by its jobs and its model server, which are those of a jobs file; a job may also
/// have the episodes of `--only`. `written` is the JSON of the plan.
///
/// # Errors
/// Refuses the first field whose value `rrun` would never have written.
pub(super) fn complete(plan: &mut RunPlan, written: &Value) -> Result<(), Refusal> {
    at_most("world_size", plan.world_size as u64, MAX_WORLD_SIZE)?;
    let entries = match &written["jobs"] {
        Value::Array(entries) => entries,
        other => {
            return Err(Refusal::found(
                "field jobs",
                other,
                "expected a list of jobs",
            ));
        }
    };
    plan.jobs = file::jobs(entries)?;
    if plan.jobs.len() != entries.len() {
        return Err(Refusal::at(
            "field jobs",
            "variants are not written as jobs",
        ));
    }
    let episodes = plan.jobs.iter().map(|job| match job.length {
        Length::Episodes(count) => count,
        Length::Steps(_) | Length::Policy => 0,
    });
    at_most("jobs: episodes in all", episodes.sum(), MAX_EPISODES_OF_ALL)?;
    plan.model_server = model_server::read(&written[model_server::FIELD])?;
    Ok(())
}

/// Checks the command-line options that `--resume` is to take over.
///
/// # Errors
/// Refuses the first option that no command line can have left in a plan.
fn check_options(plan: &RunPlan) -> Result<(), Refusal> {
    let other = plan
        .options
        .keys()
        .find(|name| !eval_args::is_taken_over(name));
    other.map_or(Ok(()), |name| {
        let place = format!("options field {}", name.escape_debug());
        Err(Refusal::at(
            place,
            "it is not an option that --resume takes over",
        ))
    })
}

fn at_most(field: &str, found: u64, limit: u64) -> Result<(), Refusal> {
    if found <= limit {
        return Ok(());
    }
    let reason = format!("found {found}, expected a whole number up to {limit}");
    Err(Refusal::at(format_args!("field {field}"), reason))
}

impl EvalArgs {
    /// Parses the arguments after `eval`; `--resume` adds the options of its run.
    ///
    /// # Errors
    /// Refuses a folder without a run, and arguments that cannot be parsed.
    pub fn read_words(words: &[OsString]) -> Result<Self, Refused> {
        let args = Self::parse_words(words)?;
        let Some(dir) = &args.resume else {
            return Ok(args);
        };
        let folder = RunFolder::new(dir);
        if !folder.plan().exists() {
            return Err(Refused::Input(Refusal::new(format_args!(
                "`{}` has no plan.json, so there is no run to resume; start one with --jobs and \
                 --output",
                dir.display()
            ))));
        }
        let run = RunPlan::read(&folder)?;
        check_options(&run).map_err(|err| {
            let path = folder.plan();
            Refusal::at(format_args!("`{}` cannot be used", path.display()), err)
        })?;
        let mut options = run.options;
        options.insert("seed".to_owned(), run.seed.to_string());
        let taken_over = options
            .iter()
            .filter(|(name, _)| !args.given.contains_key(*name));
        let word = |(name, value): (&String, &String)| resume::word(name, value).into();
        let all: Vec<_> = words.iter().cloned().chain(taken_over.map(word)).collect();
        Ok(Self::parse_words(&all)?)
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
        told(&folder)
    }

    fn told(folder: &RunFolder) -> String {
        RunPlan::read(folder).map_or_else(
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
    fn a_plan_of_an_older_version_is_refused_in_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        std::fs::write(folder.plan(), include_str!("older.json")).unwrap();
        let wanted = format!(
            "run folder `{}` has a plan of schema `rrun/plan/1`, expected `rrun/plan/3`; choose \
             another --output",
            dir.path().display()
        );
        assert_eq!(told(&folder), wanted);
    }

    #[test]
    fn the_jobs_of_a_plan_are_those_of_a_jobs_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let entry = json!({"name": "a", "arena_env_args": {"environment": "reach", "num_envs": 1},
                           "policy_type": "scripted", "num_episodes": 3});
        let server = json!({"command": ["serve"], "health_port": 1, "max_restarts": 3,
                            "start_timeout": 600.0, "stop_timeout": 30.0});
        let file = json!({"model_server": server, "jobs": [entry]});
        let file = crate::file::JobFile::new("jobs.json".as_ref(), String::new(), &file).unwrap();
        let plan = RunPlan::new(&samples::eval_args(&[]), file, 1, String::new());
        plan.write(&folder).unwrap();
        let written: Value =
            serde_json::from_slice(&std::fs::read(folder.plan()).unwrap()).unwrap();
        assert_eq!(written["jobs"], json!([entry]));
        assert_eq!(written["model_server"], server);
        assert_eq!(RunPlan::read(&folder).unwrap(), plan);
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
        let wanted = "field variant.groups: expected names of up to 200 bytes";
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

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(Into::into).collect()
    }

    /// Creates a folder with a run that was begun by these arguments.
    fn run(begun_by: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let job = r#"{"jobs": [{"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted"}]}"#;
        let jobs = dir.path().join("jobs.json");
        std::fs::write(&jobs, job).unwrap();
        let args = EvalArgs::parse_words(&words(
            &[&["--jobs", jobs.to_str().unwrap()], begun_by].concat(),
        ))
        .unwrap();
        let file = crate::file::JobFile::read(&jobs).unwrap();
        RunPlan::new(&args, file, 1, String::new())
            .settle(&RunFolder::new(dir.path()), false)
            .unwrap();
        dir
    }

    #[test]
    fn a_resumed_run_keeps_its_options_but_for_those_that_are_given_and_those_that_say_where() {
        let dir = run(&[
            "--seed",
            "7",
            "--no_video",
            "--video-cameras",
            "a,b",
            "--policy-device",
            "cpu",
            "--max-batch=2",
        ]);
        let path = dir.path().to_str().unwrap();
        let args = EvalArgs::read_words(&words(&[
            "--resume",
            path,
            "--video-cameras=c",
            "--max_batch",
            "4",
        ]))
        .unwrap();
        assert_eq!(args.seed, 7);
        assert!(args.no_video);
        assert_eq!(args.max_batch, Some(4));
        assert_eq!(args.video_cameras, Some(vec!["c".to_owned()]));
        assert_eq!(args.policy_device, None);
        let again = EvalArgs::read_words(&words(&["--resume", path, "--seed", "8"])).unwrap();
        let found = (again.seed, again.video_cameras.map(|names| names.join(" ")));
        assert_eq!(found, (8, Some("a b".to_owned())));
    }

    #[test]
    fn a_folder_without_a_run_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let text = EvalArgs::read_words(&words(&["--resume", dir.path().to_str().unwrap()]))
            .unwrap_err()
            .to_string();
        let told = "has no plan.json, so there is no run to resume";
        assert!(text.contains(told), "{text}");
    }
}
