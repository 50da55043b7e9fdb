//! The inputs of a plan's jobs: what they are at this start, and what has changed since the run was
//! begun.

use std::collections::BTreeMap;

use serde_json::json;

use crate::inputs::versions::{self, OtherVersion};
use crate::inputs::{Asker, InputFile, Inputs, SumCache};
use crate::job::{Job, Status};
use crate::layout::RunFolder;
use crate::plan::RunPlan;
use crate::plan::identity::FieldChange;

/// The inputs at this start, and who found them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputsNow {
    inputs: Inputs,
    asker: Asker,
    /// Packages of each job with another version than the journals have.
    versions: BTreeMap<String, Vec<OtherVersion>>,
    /// Whether both have been settled against those of the run.
    is_settled: bool,
}

impl RunPlan {
    /// Looks at the inputs of the jobs, so that a start with others is another run. `variable`
    /// looks up an environment variable.
    #[must_use]
    pub fn with_inputs(
        self,
        folder: &RunFolder,
        asker: Asker,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let inputs = Inputs::of(&self.jobs, folder.root(), variable);
        Self {
            inputs: inputs.files.clone(),
            now: Some(InputsNow {
                inputs,
                asker,
                versions: BTreeMap::new(),
                is_settled: false,
            }),
            ..self
        }
    }

    /// Finds out which large inputs are those of the run in the folder.
    pub(super) fn settle_inputs(&mut self, found: &Self, folder: &RunFolder, is_begun: bool) {
        let Some(now) = self.now.as_mut().filter(|now| !now.is_settled) else {
            return;
        };
        let asker = match (now.asker, is_begun) {
            // Nothing has been done with the inputs of the plan; they are written again.
            (Asker::Alone, false) => return,
            (Asker::OneOfSeveral, false) => Asker::Rank,
            (asker, _) => asker,
        };
        let sums = SumCache::open(&folder.policy_files());
        self.inputs = now.inputs.since(&found.inputs, asker, &sums);
        if asker != Asker::Rank {
            now.versions = other_versions(found, folder);
        }
        now.is_settled = is_begun;
    }

    /// Returns the inputs of the run with what may have changed about them: the time of a file. Only
    /// the launcher does that, because nobody writes a journal yet.
    pub(super) fn renewed_inputs(&self, found: &Self) -> BTreeMap<String, InputFile> {
        let Some(now) = self.now.as_ref().filter(|now| now.asker == Asker::Alone) else {
            return found.inputs.clone();
        };
        if !now.is_settled {
            return self.inputs.clone();
        }
        let renewed = |(name, then): (&String, &InputFile)| {
            let now = self.inputs.get(name).unwrap_or(then);
            (name.clone(), now.clone())
        };
        found.inputs.iter().map(renewed).collect()
    }

    /// Returns which inputs of a job have other contents than in `run`. A file that was not there
    /// then, or is not there now, is no change: it may be an output, and what is needed and missing
    /// is refused elsewhere.
    pub(super) fn input_changes(&self, run: &Self, job: &Job) -> Vec<FieldChange> {
        let Some(now) = self.now.as_ref().filter(|_| job.status == Status::Pending) else {
            return Vec::new();
        };
        let of_file = |name: &str| {
            let (then, now) = (run.inputs.get(name)?, self.inputs.get(name)?);
            (!then.is_same(now)).then(|| FieldChange {
                field: format!("`{name}`"),
                before: Some(then.to_string()),
                after: Some(now.to_string()),
            })
        };
        let versions = now.versions.get(&job.name).into_iter().flatten();
        let of_package = |other: &OtherVersion| FieldChange {
            field: other.package.clone(),
            before: Some(other.before.clone()),
            after: Some(other.now.clone()),
        };
        let files = now.inputs.of_job(&job.name).filter_map(of_file);
        files.chain(versions.map(of_package)).collect()
    }
}

/// Returns the packages that are installed in another version than a run has had, by job.
fn other_versions(run: &RunPlan, folder: &RunFolder) -> BTreeMap<String, Vec<OtherVersion>> {
    let variable = |name: &str| std::env::var(name).ok();
    let recorded = versions::recorded(&folder.journals());
    // Hundreds of jobs may have one simulator.
    let mut known: BTreeMap<String, Vec<OtherVersion>> = BTreeMap::new();
    let of_job = |job: &Job| {
        let recorded = recorded.get(&job.name)?;
        let arguments = ["python", "env"].map(|name| job.env_args.get(name));
        let versions = recorded.get(versions::OF_SIMULATOR);
        let key = json!([job.environment, arguments, versions]).to_string();
        let others = known
            .entry(key)
            .or_insert_with(|| versions::changed(job, recorded, &variable));
        (!others.is_empty()).then(|| (job.name.clone(), others.clone()))
    };
    run.jobs.iter().filter_map(of_job).collect()
}
