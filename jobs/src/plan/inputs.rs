//! The inputs of a plan's jobs: what they are at this start, and what has changed since the run was
//! begun.

use std::collections::BTreeMap;

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
    /// Whether `RunPlan::inputs` has been settled against those of the run.
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
        now.is_settled = is_begun;
    }

    /// Returns the inputs of the run with what may have changed about them: the time of a file. Only
    /// the launcher does that, because nobody writes a journal yet.
    pub(super) fn renewed_inputs(&self, found: &Self) -> BTreeMap<String, InputFile> {
        let Some(now) = self.now.as_ref().filter(|now| now.asker == Asker::Alone) else {
            return found.inputs.clone();
        };
        if found.inputs.is_empty() || !now.is_settled {
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
        let pending = self.now.as_ref().filter(|_| job.status == Status::Pending);
        let names = pending
            .into_iter()
            .flat_map(|now| now.inputs.of_job(&job.name));
        names
            .filter_map(|name| {
                let (then, now) = (run.inputs.get(name)?, self.inputs.get(name)?);
                (!then.is_same(now)).then(|| FieldChange {
                    field: format!("`{name}`"),
                    before: Some(then.to_string()),
                    after: Some(now.to_string()),
                })
            })
            .collect()
    }
}
