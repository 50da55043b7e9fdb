//! The arguments after `eval`, completed by those of the run that `--resume` names.

use std::ffi::OsString;

use crate::eval_args::{EvalArgs, resume};
use crate::layout::RunFolder;
use crate::plan::{RunPlan, checked};
use crate::refusal::{Refusal, Refused};

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
        checked::check_options(&run).map_err(|err| {
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
    use super::*;

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
