//! What a browser with the token may ask of the ranks. Pure, but for the file that they read.

use std::io;

use jobs::layout::RunFolder;
use jobs::live::Commands;
use jobs::plan::RunPlan;
use serde::Deserialize;

/// What a browser asks for: `{"command": "skip", "job": "reach"}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Asked {
    /// Begin no more episodes, and end the run.
    Stop,
    /// Begin no more episodes of a job.
    Skip {
        /// Its name.
        job: String,
    },
}

/// The reason why a command is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("this is no command: {0}")]
    Unknown(#[from] serde_json::Error),
    #[error("the run has no job `{0}`")]
    NoJob(String),
    #[error("the command cannot be written for the ranks: {0}")]
    Io(#[from] io::Error),
}

impl Asked {
    /// Reads the body of a request.
    pub(super) fn read(body: &[u8]) -> Result<Self, CommandError> {
        Ok(serde_json::from_slice(body)?)
    }

    /// Returns the commands with this one.
    pub(super) fn added_to(
        &self,
        commands: &Commands,
        plan: &RunPlan,
    ) -> Result<Commands, CommandError> {
        let mut commands = commands.clone();
        match self {
            Self::Stop => commands.stop = true,
            Self::Skip { job: name } => {
                let job = plan.jobs.iter().find(|job| job.name == *name);
                let job = job.ok_or_else(|| CommandError::NoJob(name.clone()))?;
                commands.skip.insert(job.index);
            }
        }
        Ok(commands)
    }

    /// Returns the line that tells the user of the launcher.
    pub(super) fn said(&self) -> String {
        match self {
            Self::Stop => {
                "page: no more episodes begin; the run ends after those that run".to_owned()
            }
            Self::Skip { job } => format!("page: no more episodes of {job} begin"),
        }
    }
}

/// Writes the commands where the ranks read them.
pub(super) fn write(commands: &Commands, folder: &RunFolder) -> Result<(), CommandError> {
    Ok(commands.write(folder)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jobs::job::JobIndex;
    use serde_json::json;

    use super::*;

    fn plan() -> RunPlan {
        RunPlan {
            jobs: jobs::samples::jobs(["a", "b"].map(|name| json!({"name": name}))),
            ..RunPlan::default()
        }
    }

    #[test]
    fn commands_add_up() {
        let skip = Asked::read(br#"{"command": "skip", "job": "b"}"#).unwrap();
        let commands = skip.added_to(&Commands::default(), &plan()).unwrap();
        let stop = Asked::read(br#"{"command": "stop"}"#).unwrap();
        let commands = stop.added_to(&commands, &plan()).unwrap();
        assert_eq!(
            (commands.stop, commands.skip),
            (true, BTreeSet::from([JobIndex(1)]))
        );
    }

    #[test]
    fn what_is_no_command_is_refused_with_its_reason() {
        for body in [
            "",
            "{}",
            "[]",
            r#"{"command": "kill"}"#,
            r#"{"command": "skip"}"#,
        ] {
            let err = Asked::read(body.as_bytes()).unwrap_err().to_string();
            assert!(err.starts_with("this is no command: "), "{body}: {err}");
        }
        let skip = Asked::Skip {
            job: "c".to_owned(),
        };
        let err = skip.added_to(&Commands::default(), &plan()).unwrap_err();
        assert_eq!(err.to_string(), "the run has no job `c`");
    }
}
