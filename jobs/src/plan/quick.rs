//! `--quick`: one episode of each job, in a run folder of its own, which the next quick run replaces.

use std::fs;
use std::path::{Path, PathBuf};

use crate::eval_args::EvalArgs;
use crate::job::{Job, Length};
use crate::layout::RunFolder;
use crate::numbers::Numbers;
use crate::plan::{RunPlan, unusable};
use crate::policies;
use crate::refusal::Refusal;

impl RunPlan {
    /// Checks that a quick run may replace the contents of its folder: there is no plan, or that of
    /// a quick run. Writes nothing.
    ///
    /// # Errors
    /// Refuses another run, and what [`RunPlan::read`] refuses.
    pub fn check_quick(folder: &RunFolder) -> Result<(), Refusal> {
        if !folder.plan().exists() || Self::read(folder)?.quick {
            Ok(())
        } else {
            Err(Refusal::new(format_args!(
                "`{}` holds a run that is not a quick one, so --quick does not replace it; choose \
                 another --output",
                folder.root().display()
            )))
        }
    }

    /// Removes the files of an earlier quick run. The caller holds the lock of the folder, which
    /// stays.
    ///
    /// # Errors
    /// Returns the errors of [`RunPlan::check_quick`] and of the file system.
    pub fn clear_quick(folder: &RunFolder) -> Result<(), Refusal> {
        if !folder.plan().exists() {
            return Ok(());
        }
        Self::check_quick(folder)?;
        let io = unusable(folder);
        let locks = [folder.launches(), folder.plan_lock()];
        for entry in folder.root().read_dir().map_err(&io)? {
            let path = entry.map_err(&io)?.path();
            // The plan goes last: until then an interrupted removal can be repeated.
            if !locks.contains(&path) && path != folder.plan() {
                remove(&path).map_err(&io)?;
            }
        }
        fs::remove_file(folder.plan()).map_err(&io)
    }
}

/// Removes a file, a link or a folder; what a link leads to stays.
fn remove(path: &Path) -> std::io::Result<()> {
    match path.symlink_metadata()?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

/// The end of the name of a quick run's folder.
const SUFFIX: &str = "_quick";

/// Returns the folder of a quick run of the evaluation that writes into `output`.
pub(crate) fn quick_folder(output: &Path) -> PathBuf {
    let Some(name) = output.file_name() else {
        return output.join(SUFFIX.trim_start_matches('_'));
    };
    let mut name = name.to_owned();
    name.push(SUFFIX);
    output.with_file_name(name)
}

/// Returns the jobs with one episode each, the first of those that are selected, in one
/// environment. A job that all ranks share keeps its environments, and a replay its length.
pub(crate) fn shortened(jobs: Vec<Job>, args: &EvalArgs) -> Vec<Job> {
    jobs.into_iter().map(|job| short(job, args)).collect()
}

fn short(mut job: Job, args: &EvalArgs) -> Job {
    if job.total_num_envs.is_none() {
        job.num_envs = 1;
    }
    job.num_rebuilds = 1;
    match job.length {
        Length::Episodes(count) => {
            // The episode is numbered as in the whole run, so that it is the same one.
            let first = job.selection(count).iter().next();
            job.only = first.map(|first| Numbers::between(first..first + 1));
        }
        Length::Steps(_) => job.length = Length::Episodes(1),
        Length::Policy if args.num_steps.is_some() && !policies::has_length(&job.policy_type) => {
            job.length = Length::Episodes(1);
        }
        Length::Policy => {}
    }
    job
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::eval_args::ExportMode;
    use crate::samples::{eval_args, job};

    /// Creates a run folder with a plan and a few files.
    fn run(quick: bool) -> (tempfile::TempDir, RunFolder) {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(&dir.path().join("run"));
        let schema = crate::plan::SCHEMA.to_owned();
        let plan = RunPlan {
            schema,
            quick,
            ..RunPlan::default()
        };
        fs::create_dir_all(folder.launches()).unwrap();
        fs::create_dir_all(folder.journals()).unwrap();
        fs::write(folder.journal(0), "").unwrap();
        fs::write(dir.path().join("kept"), "").unwrap();
        std::os::unix::fs::symlink(dir.path().join("kept"), folder.root().join("link")).unwrap();
        fs::write(folder.plan(), serde_json::to_string(&plan).unwrap()).unwrap();
        (dir, folder)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = folder.read_dir().unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_quick_run_is_removed_but_for_the_lock() {
        let (dir, folder) = run(true);
        RunPlan::check_quick(&folder).unwrap();
        RunPlan::clear_quick(&folder).unwrap();
        assert_eq!(names(folder.root()), ["launch.lock"]);
        assert_eq!(names(dir.path()), ["kept", "run"], "links are not followed");
        RunPlan::clear_quick(&folder).unwrap();
    }

    #[test]
    fn another_run_is_never_removed() {
        let (_dir, folder) = run(false);
        let before = names(folder.root());
        for result in [RunPlan::check_quick(&folder), RunPlan::clear_quick(&folder)] {
            let text = result.unwrap_err().to_string();
            let told = "holds a run that is not a quick one";
            assert!(text.contains(told), "{text}");
        }
        fs::write(folder.plan(), "{").unwrap();
        RunPlan::clear_quick(&folder).unwrap_err();
        assert_eq!(names(folder.root()), before);
    }

    fn shortened_by(job: Job, words: &[&str]) -> Job {
        short(job, &eval_args(&[&["--quick"], words].concat()))
    }

    #[test]
    fn the_folder_is_beside_that_of_the_whole_run() {
        let folder = |path: &str| quick_folder(Path::new(path));
        assert_eq!(folder("outputs/a"), Path::new("outputs/a_quick"));
        assert_eq!(folder("/runs/a.b/"), Path::new("/runs/a.b_quick"));
        assert_eq!(folder("."), Path::new("./quick"));
    }

    #[test]
    fn a_job_keeps_the_first_of_its_episodes_with_its_number() {
        let episodes = job(json!({"num_episodes": 50, "num_rebuilds": 5,
                                  "arena_env_args": {"environment": "reach", "num_envs": 8}}));
        let short = shortened_by(episodes.clone(), &[]);
        assert_eq!((short.num_envs, short.num_rebuilds), (1, 1));
        assert_eq!(short.length, Length::Episodes(50));
        assert_eq!(short.selection(50).iter().collect::<Vec<_>>(), [0]);

        let only = Some("7-9".parse().unwrap());
        let short = shortened_by(Job { only, ..episodes }, &[]);
        assert_eq!(short.selection(50).iter().collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn a_job_in_steps_becomes_one_episode_and_a_replay_stays_whole() {
        let steps = job(json!({"num_episodes": null, "num_steps": 900}));
        assert_eq!(shortened_by(steps, &[]).length, Length::Episodes(1));
        let open = job(json!({"num_episodes": null}));
        let found = shortened_by(open.clone(), &["--num-steps", "9"]).length;
        assert_eq!(found, Length::Episodes(1));
        assert_eq!(shortened_by(open, &[]).length, Length::Policy);
        let replay = job(json!({"num_episodes": null, "policy_type": "replay_action",
                                "policy_config_dict": {"replay_file_path": "a.hdf5"}}));
        let shown = shortened_by(replay, &["--num-steps", "9"]).length;
        assert_eq!(shown, Length::Policy);
    }

    #[test]
    fn a_shared_job_keeps_its_environments() {
        let shared = job(json!({"total_num_envs": 8, "num_episodes": 80}));
        let short = shortened_by(shared.clone(), &[]);
        assert_eq!(short.num_envs, shared.num_envs);
        assert_eq!(short.total_num_envs, shared.total_num_envs);
        assert_eq!(short.selection(80).count(), 1);
    }

    #[test]
    fn nothing_is_recorded() {
        let args = eval_args(&["--quick"]);
        assert!(args.no_video && args.export_mode == ExportMode::None);
        let given: Vec<_> = args.given.keys().map(String::as_str).collect();
        assert_eq!(given, ["export-mode", "no-video"]);
    }
}
