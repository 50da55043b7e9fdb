//! Runs episodes of a certificate again, from the certificate alone.

use jobs::plan::RunPlan;
use jobs::refusal::Refusal;
use report::certificate::sample::{self, ChosenEpisode};
use report::certificate::{Certificate, RepeatedEpisode};
use report::verify::rerun;

use crate::tools::rerun::{Rerun, RerunArgs, RerunRequest, none, unnameable};

/// Episodes of a certificate to run again.
pub(in crate::tools) struct CertifiedRequest<'a> {
    pub(in crate::tools) certificate: &'a Certificate,
    /// The plan of its jobs, with the paths of this machine.
    pub(in crate::tools) plan: &'a RunPlan,
    pub(in crate::tools) chosen: &'a [ChosenEpisode],
    /// What the plan was read from, as the subject of a sentence.
    pub(in crate::tools) whose: String,
    /// The option that asks for it.
    pub(in crate::tools) asked: &'static str,
}

impl RerunArgs {
    /// Runs episodes of a certificate, and returns what came out of each.
    pub(in crate::tools) fn run_certified(
        &self,
        request: CertifiedRequest,
    ) -> Result<(Rerun, Vec<RepeatedEpisode>), Refusal> {
        let CertifiedRequest {
            certificate,
            plan,
            chosen,
            whose,
            asked,
        } = request;
        if chosen.is_empty() {
            return Err(none());
        }
        let results = sample::results(certificate, chosen);
        let contents = &certificate.contents;
        let machine = contents.machines.first().cloned().unwrap_or_default();
        let again = self.run(RerunRequest {
            whose,
            asked,
            plan: rerun::plan(plan, &results).ok_or_else(unnameable)?,
            world_size: contents.run.world_size,
            threads: machine.threads,
            rounding: &machine.rounding,
        })?;
        let merged = again.merged()?;
        let episodes = sample::repeated(chosen, &merged, &again.plan);
        let episodes = episodes.map_err(|err| again.named(err))?;
        drop(merged);
        Ok((again, episodes))
    }
}
