//! The plan of an evaluation (`eval`): what its ranks run, and where.

use std::path::PathBuf;

use fit::memory::Need;
use jobs::assign::Assignment;
use jobs::eval_args::EvalArgs;
use jobs::journal::Question;
use jobs::layout::RunFolder;
use jobs::placement::{Placement, Resources};
use jobs::plan::RunPlan;
use jobs::refusal::Refusal;
use jobs::tracking::TrackingArgs;
use serde::Serialize;

use crate::plan::page::PagePlan;
use crate::say::note::Note;

/// A checked evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalPlan {
    /// The contents of `plan.json`.
    pub run: RunPlan,
    /// The run folder, as the user named it.
    pub output: PathBuf,
    /// Number of visible GPUs per node.
    pub gpus: usize,
    /// The rule by which ranks get their work.
    #[serde(skip)]
    pub assignment: Assignment,
    /// The placement of ranks and environment workers.
    pub seating: SeatingPlan,
    /// `--accept-changed-jobs`: whether the jobs may differ from those of the existing run.
    pub accepts_changed_jobs: bool,
    /// The sequential test that may end the run (`--stop-when`), and decides the exit code.
    pub early_stop: Option<EarlyStopPlan>,
    /// The experiment trackers that rank 0 logs to.
    #[serde(skip_serializing_if = "TrackingArgs::is_off")]
    pub tracking: TrackingArgs,
    /// The page that is served while the evaluation lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<PagePlan>,
    /// Lines to print before the start.
    #[serde(skip)]
    pub notes: Vec<Note>,
}

/// A sequential test that may end a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EarlyStopPlan {
    /// What it is to find out.
    pub question: Question,
    /// The reference: the path of a run, or a published rate.
    pub against: String,
    /// The margin, as a difference of rates.
    pub margin: f64,
    /// Probability of a wrong verdict, at most.
    pub level: f64,
}

impl EarlyStopPlan {
    /// Returns the test that the command line asks for.
    pub fn of(args: &EvalArgs) -> Option<Self> {
        let run = args.against.as_ref().map(|run| run.display().to_string());
        let claim = args.claim.map(|claim| claim.to_string());
        Some(Self {
            question: args.question()?,
            against: run.or(claim)?,
            margin: args.margin,
            level: args.level,
        })
    }
}

/// The placement of a launch, and what is printed about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeatingPlan {
    /// Environment workers and policies, and their GPUs.
    pub placement: Placement,
    /// What the numbers of the placement count.
    pub resources: Resources,
    /// Whether the user gave a placement; otherwise each rank has its own GPU, together with its
    /// environments.
    pub is_placed: bool,
    /// Number of environments of the largest shared job.
    pub total_num_envs: Option<usize>,
    /// One line per GPU.
    pub allocation: Vec<String>,
    /// One line per worker, if environments are shared.
    pub distribution: Vec<String>,
    /// The memory needed on each GPU.
    pub memory: Vec<Need>,
    /// Warnings about the placement.
    pub warnings: Vec<String>,
}

impl EvalPlan {
    /// Writes `plan.json`, or checks the existing one; this is the last step before ranks are
    /// started. `launch` is the id of the launch that holds the folder. A quick run first removes the
    /// files of the one before.
    ///
    /// # Errors
    /// Refuses a folder that cannot be written, or holds another run by now.
    pub fn settle(&self, launch: Option<&str>) -> Result<(), Refusal> {
        let folder = RunFolder::new(&self.output);
        if self.run.quick {
            RunPlan::clear_quick(&folder)?;
        }
        self.run
            .clone()
            .of_launch(launch.map(str::to_owned))
            .settle(&folder, self.accepts_changed_jobs)
            .map(drop)
    }
}
