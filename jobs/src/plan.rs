//! What a run was asked to do: `plan.json`, and by what a run folder is gone on with or refused.
//!
//! ```text
//! command line ─ words ─► EvalArgs ─► Setup ─► RunPlan
//!                   ▲ --resume                   │ settle
//!        plan.json ─┴─────────────── difference ─┤ none: the run goes on, as it was asked for now
//!                                    (identity)  │ one: refused with its lines
//!                                                └ one, accepted or nothing lost: supersede ─ carry ─► superseded/<n>
//! ```
//! A run is what its results depend on: its jobs by name, each with environment, policy, seed, length and rules. How
//! many ranks and environments run it, where, and what is filmed, may change with every start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::assign::Only;
use crate::eval_args::EvalArgs;
use crate::file::JobFile;
use crate::files::{self, MAX_DOCUMENT_BYTES};
use crate::job::{Job, Length};
use crate::journal::Provenance;
use crate::layout::RunFolder;
use crate::model_server::ModelServer;
use crate::{secrets, trust};

mod carry;
mod checked;
mod difference;
mod error;
mod git;
mod identity;
mod lock;
mod patience;
mod provenance;
mod resumed;
mod settle;
mod supersede;
mod words;

pub use difference::{Compared, Difference, Fate};
pub use error::RunFolderError;
pub use git::Git;
pub use identity::{FieldChange, Identity};
pub(crate) use lock::Lock as PlanLock;
pub use provenance::fingerprint;
pub(crate) use provenance::joined as joined_provenance;
pub use resumed::Resumed;
pub use supersede::are_moves_of_ours;
pub use words::WordsError;

use supersede::Standing;

/// Schema of `plan.json`.
const SCHEMA: &str = "rrun/plan/1";

fn is_nothing(provenance: &Provenance) -> bool {
    *provenance == Provenance::default()
}

/// What a run was asked to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// `rrun/plan/1`.
    pub schema: String,
    /// 128 random bits in hex, which no other run has.
    #[serde(default)]
    pub id: String,
    /// The jobs file, as it was named.
    pub jobs_file: String,
    /// Identity of its bytes.
    pub jobs_sha256: String,
    /// Base seed.
    pub seed: u64,
    /// Of the jobs file these jobs and episodes only; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Only>,
    /// Ranks when it was begun; a run can be gone on with by another number.
    pub world_size: usize,
    /// All jobs that may run, in file order.
    pub jobs: Vec<Job>,
    /// What `rrun` keeps running beside the ranks, as the first start had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_server: Option<ModelServer>,
    /// Options of the command line that began it, by their long names; a flag has an empty text. `--resume` takes them
    /// over, but for those that say where.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Version of `rrun` that began it.
    pub rrun: String,
    /// The folder that it was begun in, if that is under git.
    #[serde(default)]
    pub git: Option<Git>,
    /// UTC.
    pub created: String,
    /// Every start after the first one.
    #[serde(default)]
    pub resumed_from: Vec<Resumed>,
    /// The folder that this start is in: git is asked about it.
    #[serde(skip)]
    pub started_in: Option<PathBuf>,
    /// By what the lines of the journals are known to be of this run.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub provenance: Provenance,
    /// The launch that asks, which has the folder or is about to take it.
    #[serde(skip)]
    pub launch: Option<String>,
    /// What has changed since the last start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}

impl RunPlan {
    /// Decides what is run; `--num-steps` fills in for jobs without a length of their own.
    pub fn new(args: &EvalArgs, file: JobFile, world_size: usize, created: String) -> Self {
        let mut jobs = file.jobs;
        for job in &mut jobs {
            if let (Length::Policy, Some(steps), false) =
                (job.length, args.num_steps, job.policy_type == "replay_action")
            {
                job.length = Length::Steps(steps);
            }
        }
        Self {
            schema: SCHEMA.to_owned(),
            jobs_file: file.path.display().to_string(),
            jobs_sha256: file.sha256,
            seed: args.seed,
            only: args.only.clone(),
            world_size,
            jobs,
            model_server: file.model_server,
            options: args.given.clone(),
            rrun: env!("CARGO_PKG_VERSION").to_owned(),
            created,
            ..Self::default()
        }
    }

    /// Lets git be asked about the folder that it is started in.
    #[must_use]
    pub fn started_in(self, folder: &Path) -> Self {
        Self { started_in: Some(folder.to_owned()), ..self }
    }

    /// Names the launch that this is asked for: the folder may be its own already.
    #[must_use]
    pub fn of_launch(self, launch: Option<String>) -> Self {
        Self { launch, ..self }
    }

    /// What comes before [`RunPlan::settle`] of a run that this command line may begin: a folder that nobody else can look
    /// into where the jobs refer to a secret, and a note that this user has begun a run with what they name.
    ///
    /// # Errors
    /// Those of the file system, for the folder.
    pub fn prepare(&self, folder: &RunFolder) -> Result<(), RunFolderError> {
        if secrets::is_referred_to(&self.jobs, self.model_server.as_ref()) {
            folder.make_private().map_err(error::io(folder.root()))?;
        }
        let uses = trust::uses(&self.jobs, self.model_server.as_ref());
        // Without a home that can be written there is nothing to remember it in: `--resume` asks then.
        let _ = trust::remember(&uses, &|name| std::env::var(name).ok());
        Ok(())
    }

    fn ask_git(&self) -> Option<Git> {
        Git::of(self.started_in.as_deref()?)
    }

    /// Reads the plan of a run folder.
    ///
    /// # Errors
    /// [`RunFolderError`] when there is none, or it is damaged or of another version, or says what no jobs file may say.
    pub fn read(folder: &RunFolder) -> Result<Self, RunFolderError> {
        let path = Standing::of(folder).plan;
        let text = files::read(&path, MAX_DOCUMENT_BYTES)
            .map_err(|err| RunFolderError::Unreadable { path: path.clone(), err })?;
        Self::parse(folder, &text)
    }

    /// Reads the text of the plan of a run folder, and holds it to what a jobs file may say.
    ///
    /// # Errors
    /// As [`RunPlan::read`], without those of the file system.
    pub fn parse(folder: &RunFolder, text: &[u8]) -> Result<Self, RunFolderError> {
        let plan: Self =
            serde_json::from_slice(text).map_err(|err| RunFolderError::Damaged { path: folder.plan(), err })?;
        if plan.schema != SCHEMA {
            let (folder, found) = (folder.root().to_owned(), plan.schema);
            return Err(RunFolderError::Schema { folder, found, wanted: SCHEMA });
        }
        checked::check(&plan).map_err(|refusal| RunFolderError::Refused { path: folder.plan(), refusal })?;
        Ok(plan)
    }
}

#[cfg(test)]
mod tests;
