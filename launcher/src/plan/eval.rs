//! What `eval` asks for, checked before anything is started.

use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use jobs::assign::{Assignment, Shard};
use jobs::eval_args::EvalArgs;
use jobs::known;
use jobs::layout::RunFolder;
use jobs::memory::measured::MeasuredError;
use jobs::placement::{Placement, Resources};
use jobs::plan::{RunFolderError, RunPlan, WordsError};
use jobs::setup::{Setup, SetupError};
use jobs::time::rfc3339;
use serde::Serialize;

use crate::cli::{Cli, Environment};
use crate::node::Node;
use crate::node::nvml::Memory;
use crate::plan::PlanError;
use crate::plan::crowd::{self, NoRoom};
use crate::plan::idle;
use crate::plan::program::Program;
use crate::plan::room::{Room, TooMuch};
use crate::plan::seating::{Launch, Seating, SeatingError};
use crate::say::Note;

/// Tells the ranks how many GPUs a node has, so that all of them read a placement as the launcher does.
pub const GPUS_VARIABLE: &str = "RRUN_GPUS_PER_NODE";

/// A checked evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalPlan {
    /// What is written to `plan.json`.
    pub run: RunPlan,
    /// The run folder, as it was named.
    pub output: std::path::PathBuf,
    /// Visible GPUs of a node.
    pub gpus: usize,
    /// Who sits where.
    pub seating: Seating,
    /// `--accept-changed-jobs`.
    pub accepts_changed_jobs: bool,
    /// What is said before the start.
    #[serde(skip)]
    pub notes: Vec<Note>,
}

/// Why an evaluation was refused.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// The command line of `eval`, or its help: clap's text and exit code are the ones to use.
    #[error("{0}")]
    Usage(clap::Error),
    /// The jobs file, a configuration, the placement.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Who sits where.
    #[error(transparent)]
    Seating(#[from] SeatingError),
    /// A name in the jobs file.
    #[error("`{path}`: {unknown}")]
    Unknown {
        /// The jobs file.
        path: String,
        /// What is not known.
        unknown: Box<known::Refused>,
    },
    /// The run folder.
    #[error(transparent)]
    Folder(#[from] RunFolderError),
    /// `--measured`.
    #[error(transparent)]
    Measured(#[from] MeasuredError),
    /// More than a GPU has.
    #[error(transparent)]
    Memory(#[from] TooMuch),
    /// More than the node has.
    #[error(transparent)]
    Crowd(#[from] NoRoom),
    /// `--policy-device-id` names a GPU that is not there.
    #[error("--policy-device-id is {found}, {visible}")]
    Device {
        /// What was asked for.
        found: i64,
        /// What there is, as a clause.
        visible: String,
    },
}

impl From<WordsError> for EvalError {
    fn from(err: WordsError) -> Self {
        match err {
            WordsError::Usage(usage) => Self::Usage(usage),
            WordsError::Folder(folder) => Self::Folder(folder),
        }
    }
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

/// What the words after `eval` ask for.
#[derive(Debug)]
pub struct Asked {
    args: EvalArgs,
    setup: Setup,
}

impl Asked {
    /// What `cli` asks of the built-in evaluation, `None` if it asks for another program.
    ///
    /// # Errors
    /// As [`Self::read`], and a rank binary that is not there.
    pub fn of(cli: &Cli, env: &Environment, node: &Node) -> Result<Option<Self>, PlanError> {
        if Program::built_in(cli) != Some("eval") {
            return Ok(None);
        }
        Program::new(cli, env, node)?;
        Ok(Some(Self::read(&cli.args, env)?))
    }

    /// Reads the words and the files that they name; `env` answers `${oc.env:NAME}`.
    ///
    /// # Errors
    /// [`EvalError`] for the first thing that is wrong.
    pub fn read(words: &[OsString], env: &Environment) -> Result<Self, EvalError> {
        let args = EvalArgs::read_words(words)?;
        let variable = |name: &str| env.get(name).map(|value| value.to_string_lossy().into_owned());
        let setup = Setup::read(&args, &variable)?;
        let path = || setup.file.path.display().to_string();
        known::check(&setup.file.jobs)
            .map_err(|unknown| EvalError::Unknown { path: path(), unknown: Box::new(unknown) })?;
        Ok(Self { args, setup })
    }

    /// How many ranks this node runs, if the placement or `--workers-per-gpu` says.
    ///
    /// # Errors
    /// [`SeatingError`], where that contradicts `launch`.
    pub fn nproc(&self, launch: Launch) -> Result<Option<usize>, EvalError> {
        if self.setup.components.is_none() && self.args.workers_per_gpu.is_none() {
            return Ok(None);
        }
        Ok(Some(launch.seat(&self.setup, self.per_gpu())?.0))
    }

    /// Ranks of this node, fewer than `nproc` if these cannot all have work, and what is said about it. Who has placed them
    /// knows how many there are.
    ///
    /// # Errors
    /// [`EvalError::Crowd`].
    pub fn ranks(&self, nproc: usize, nodes: usize, node: &Node) -> Result<(usize, Vec<Note>), EvalError> {
        let Setup { file, assignment, components, .. } = &self.setup;
        let units = components.is_none().then(|| crowd::units(&file.jobs, *assignment)).flatten();
        let by_episodes = Assignment { shard: Shard::Episodes, ..*assignment };
        let (nproc, fewer) =
            crowd::useful(nproc, nodes, (units, assignment.shard), crowd::units(&file.jobs, by_episodes));
        if !self.args.no_memory_check {
            crowd::check(nproc, node)?;
        }
        Ok((nproc, fewer.into_iter().chain(crowd::warning(nproc, node.cpus)).collect()))
    }

    /// Checks the rest; `memory` is that of the visible GPUs, as far as it is known. Writes nothing.
    ///
    /// # Errors
    /// [`EvalError`] for the first thing that is wrong.
    pub fn check(self, launch: Launch, memory: &[Memory]) -> Result<EvalPlan, EvalError> {
        let (nproc, placement) = launch.seat(&self.setup, self.per_gpu())?;
        let world_size = nproc * launch.nodes.1;
        let resources = Resources::new(launch.gpus, launch.nodes.1);
        check_device(&self.args, world_size, launch.gpus)?;
        self.check_places(&placement, resources)?;
        self.setup.check(&placement)?;
        let output = self.setup.output.clone();
        let room = Room::new(&self.args, resources, memory)?;
        if !self.args.no_memory_check {
            room.check(&self.setup, &placement, resources)?;
        }
        // Whoever leaves the number of nodes open does not know how many ranks there will be.
        let is_fixed = launch.nodes.0 == launch.nodes.1;
        let idle = is_fixed.then(|| idle::note(&self.setup.file.jobs, world_size, self.setup.assignment)).flatten();
        let seating = Seating::new(&self.setup, placement, resources, &room);
        let run = RunPlan::new(&self.args, self.setup.file, world_size, rfc3339(SystemTime::now()))
            .started_in(Path::new("."));
        let accepts_changed_jobs = self.args.accept_changed_jobs;
        let changes = run.check(&RunFolder::new(&output), accepts_changed_jobs)?;
        let is_moot = self.args.gpu_memory.is_some() && resources == Resources::Labels;
        let moot = is_moot.then(|| "--gpu-memory is of no use: there is no GPU here".to_owned());
        let warnings = self.setup.notes.into_iter().chain(changes).chain(moot).map(Note::warning);
        let notes = warnings.chain(idle).chain(seating.notes()).collect();
        Ok(EvalPlan { run, output, gpus: launch.gpus, seating, accepts_changed_jobs, notes })
    }

    fn per_gpu(&self) -> Option<usize> {
        self.args.workers_per_gpu.map(|per_gpu| per_gpu as usize)
    }

    /// One device for all policies beside a place for each.
    fn check_places(&self, placement: &Placement, resources: Resources) -> Result<(), EvalError> {
        let (args, place) =
            (&self.args, if self.setup.components.is_some() { "the placement" } else { "--workers-per-gpu" });
        if self.setup.components.is_none() && args.workers_per_gpu.is_none() {
            return Ok(());
        }
        let by_id = args.policy_device_id.map(|asked| (format!("--policy-device-id {asked}"), asked));
        let named = args.policy_device.as_deref().and_then(|name| {
            Some((format!("--policy-device {name}"), name.trim().strip_prefix("cuda:")?.parse().ok()?))
        });
        for (option, asked) in by_id.into_iter().chain(named) {
            let devices = placement.rollout.iter().map(|process| resources.device(process.gpu()));
            let other = devices.enumerate().find_map(|(rank, device)| {
                device.filter(|device| i64::try_from(*device) != Ok(asked)).map(|device| (rank, device))
            });
            if let Some((rank, device)) = other {
                return Err(SeatingError::Device { option, asked, place, rank, device }.into());
            }
        }
        Ok(())
    }
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
    /// Writes `plan.json`, or finds it there: the last thing before ranks are started. `launch` is the one that has the
    /// folder.
    ///
    /// # Errors
    /// [`RunFolderError`] when the folder cannot be written, or meanwhile holds another run.
    pub fn settle(&self, launch: Option<&str>) -> Result<(), RunFolderError> {
        let folder = RunFolder::new(&self.output);
        self.run.clone().of_launch(launch.map(str::to_owned)).settle(&folder, self.accepts_changed_jobs).map(drop)
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
        let launch = Launch { nproc: Some(1), nodes: (1, 1), gpus, is_virtual: false };
        let checked = Asked::read(&words, &Environment::default()).and_then(|asked| asked.check(launch, &[]));
        let answer = checked.map_or_else(|err| err.to_string(), |_| "accepted".to_owned());
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
        let text = Asked::read(&words, &Environment::default()).unwrap_err().to_string();
        assert!(text.starts_with("cannot read jobs file `/nowhere/jobs.json`: No such file"), "{text}");
    }
}
