//! What `eval` asks for, checked before anything is started.

use std::ffi::OsString;
use std::time::SystemTime;

use jobs::eval_args::EvalArgs;
use jobs::file::{JobFile, JobFileError};
use jobs::known;
use jobs::layout::RunFolder;
use jobs::plan::{RunFolderError, RunPlan};
use jobs::time::rfc3339;
use serde::Serialize;

use crate::plan::PlanError;

/// A checked evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalPlan {
    /// What is written to `plan.json`.
    pub run: RunPlan,
    /// The run folder, as it was named.
    pub output: std::path::PathBuf,
}

/// Why an evaluation was refused.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// The command line of `eval`, or its help: clap's text and exit code are the ones to use.
    #[error("{0}")]
    Usage(clap::Error),
    /// The jobs file.
    #[error(transparent)]
    Jobs(#[from] JobFileError),
    /// A name in the jobs file.
    #[error("`{path}`: {unknown}")]
    Unknown {
        /// The jobs file.
        path: String,
        /// What is not known.
        unknown: Box<known::Unknown>,
    },
    /// The run folder.
    #[error(transparent)]
    Folder(#[from] RunFolderError),
    /// `--policy-device-id` names a GPU that is not there.
    #[error("--policy-device-id is {found}, {visible}")]
    Device {
        /// What was asked for.
        found: i64,
        /// What there is, as a clause.
        visible: String,
    },
}

impl From<EvalError> for PlanError {
    fn from(err: EvalError) -> Self {
        match err {
            EvalError::Usage(usage) => {
                let code = u8::try_from(usage.exit_code()).unwrap_or(2);
                PlanError::EvalUsage { text: usage.render().to_string(), code }
            }
            other => PlanError::Eval(other.to_string()),
        }
    }
}

/// Checks the words after `eval` for a launch of `world_size` ranks on a machine with `gpus` CUDA devices. Writes
/// nothing.
///
/// # Errors
/// [`EvalError`] for the first thing that is wrong.
pub fn check(words: &[OsString], world_size: usize, gpus: usize) -> Result<EvalPlan, EvalError> {
    let args = EvalArgs::parse_words(words).map_err(EvalError::Usage)?;
    let file = JobFile::read(&args.jobs)?;
    let unknown = |unknown| EvalError::Unknown { path: args.jobs.display().to_string(), unknown: Box::new(unknown) };
    known::check(&file.jobs).map_err(unknown)?;
    check_device(&args, world_size, gpus)?;
    let output = args.output();
    let run = RunPlan::new(&args, file, world_size, rfc3339(SystemTime::now()));
    run.check(&RunFolder::new(&output))?;
    Ok(EvalPlan { run, output })
}

/// A single rank takes the device that it is given; several take their own, and say so themselves.
fn check_device(args: &EvalArgs, world_size: usize, gpus: usize) -> Result<(), EvalError> {
    match args.policy_device_id {
        Some(found) if world_size == 1 && usize::try_from(found).map_or(true, |id| id >= gpus) => {
            let visible = match gpus {
                0 => "but no CUDA device is visible here".to_owned(),
                1 => "but only cuda:0 is visible here".to_owned(),
                count => format!("but only cuda:0 to cuda:{} are visible here", count - 1),
            };
            Err(EvalError::Device { found, visible })
        }
        _ => Ok(()),
    }
}

impl EvalPlan {
    /// Writes `plan.json`, or finds it there: the last thing before ranks are started.
    ///
    /// # Errors
    /// [`RunFolderError`] when the folder cannot be written, or meanwhile holds another run.
    pub fn settle(&self) -> Result<(), RunFolderError> {
        self.run.clone().settle(&RunFolder::new(&self.output)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(extra: &[&str], gpus: usize) -> String {
        let dir = tempfile::tempdir().unwrap();
        let jobs = dir.path().join("jobs.json");
        std::fs::write(
            &jobs,
            r#"{"jobs": [{"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted", "num_episodes": 1}]}"#,
        )
        .unwrap();
        let out = dir.path().join("out");
        let words = ["--jobs", jobs.to_str().unwrap(), "--output", out.to_str().unwrap()];
        let words: Vec<OsString> = words.iter().chain(extra).map(Into::into).collect();
        let answer = check(&words, 1, gpus).map_or_else(|err| err.to_string(), |_| "accepted".to_owned());
        assert!(!out.exists(), "checking writes nothing");
        answer
    }

    #[test]
    fn a_gpu_that_is_not_there_is_refused_with_those_that_are() {
        assert_eq!(
            refusal(&["--policy-device-id", "1"], 0),
            "--policy-device-id is 1, but no CUDA device is visible here"
        );
        assert_eq!(
            refusal(&["--policy-device-id", "4"], 4),
            "--policy-device-id is 4, but only cuda:0 to cuda:3 are visible here"
        );
        assert_eq!(
            refusal(&["--policy-device-id=-1"], 4),
            "--policy-device-id is -1, but only cuda:0 to cuda:3 are visible here"
        );
        assert_eq!(refusal(&["--policy-device-id", "1"], 2), "accepted");
    }

    #[test]
    fn a_missing_jobs_file_is_named() {
        let words = ["--jobs".into(), "/nowhere/jobs.json".into()];
        let text = check(&words, 1, 0).unwrap_err().to_string();
        assert!(text.starts_with("cannot read jobs file `/nowhere/jobs.json`: No such file"), "{text}");
    }
}
