//! Writes `variations.jsonl`: one line for each episode of a variant beside the same episode of its
//! control, so that the outcomes of a variant can be shared as a vector.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};

use jobs::seed;
use serde::Serialize;

use crate::merged::Merged;
use crate::merged::matches::EpisodePair;
use crate::merged::record::EpisodeRecord;

/// One line of the file. An episode that ended with an error has neither success, return nor
/// length.
#[derive(Serialize)]
struct PairLine<'a> {
    /// Name of the control job.
    job: &'a str,
    variant: &'a str,
    groups: &'a [String],
    policy_type: &'a str,
    episode: u64,
    seed: u64,
    control_success: Option<bool>,
    control_return: Option<f64>,
    control_length: Option<u32>,
    variant_success: Option<bool>,
    variant_return: Option<f64>,
    variant_length: Option<u32>,
}

impl Merged {
    /// Returns whether the plan has variants, so that there are pairs to write.
    pub(super) fn has_variants(&self) -> bool {
        self.plan.jobs.iter().any(|job| job.variant.is_some())
    }

    /// Writes the pairs of all variants, in the order of the plan.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub(super) fn write_variations(&self, to: &mut File) -> io::Result<()> {
        let mut to = BufWriter::new(to);
        let success = |record: &EpisodeRecord| record.outcome.ok().map(|scored| scored.solved);
        for job in self.variant_jobs() {
            for EpisodePair { control, variant } in self.pairs_of(&job) {
                let line = PairLine {
                    job: &job.control.name,
                    variant: &job.variant.name,
                    groups: &job.variant.groups,
                    policy_type: &job.job.policy_type,
                    episode: control.episode,
                    seed: seed::episode(self.plan.seed, job.control, control.episode),
                    control_success: success(control),
                    control_return: control.is_scored().then_some(control.return_),
                    control_length: control.is_scored().then_some(control.length),
                    variant_success: success(variant),
                    variant_return: variant.is_scored().then_some(variant.return_),
                    variant_length: variant.is_scored().then_some(variant.length),
                };
                serde_json::to_writer(&mut to, &line)?;
                to.write_all(b"\n")?;
            }
        }
        to.flush()
    }
}
