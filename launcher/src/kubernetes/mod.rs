//! Kubernetes integration: infers options that the command line leaves out from the variables of an
//! Indexed Job, or of a JobSet.
//!
//! ```text
//! variables, host name ─► pod ─► infer ─► options that were not given: --nnodes --node-rank
//!                       (where) (what)      --master-addr --master-port --nproc-per-node --rdzv-id
//! ```
//! As with SLURM, a command line with a rendezvous option means the same as under torchrun, and
//! nothing is inferred. Within a SLURM job, SLURM's variables count and those of Kubernetes do not:
//! a pod may be a node of a SLURM cluster, and then SLURM has started the launcher.
//!
//! A Job starts failed pods again one by one, and never a pod that has succeeded. So all launchers
//! end alike, and a pod that comes back waits until the launch without it has ended, see
//! [`crate::plan::rendezvous::RendezvousPlan::nodes_return`].

pub mod error;
pub mod infer;
pub mod pod;

use std::time::Duration;

use crate::cli::{Cli, Environment};
use crate::kubernetes::error::KubernetesError;
use crate::kubernetes::infer::KubernetesInference;
use crate::kubernetes::pod::PodPlace;
use crate::node::Node;
use crate::plan::LaunchPlan;
use crate::say::note::Note;

/// Time between SIGTERM and SIGKILL. The kubelet's own SIGKILL comes 30 s after its SIGTERM, unless
/// the pod has another `terminationGracePeriodSeconds`; the remaining three seconds are for the
/// report.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(27);

/// A command line with the inferred options.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    /// The options, given or inferred.
    pub cli: Cli,
    /// Whether this pod is one of those of a Job that form the launch.
    is_of_job: bool,
    notes: Vec<Note>,
}

impl Kubernetes {
    /// Returns the command line as it is.
    pub fn unused(cli: &Cli) -> Kubernetes {
        Kubernetes {
            cli: cli.clone(),
            is_of_job: false,
            notes: Vec::new(),
        }
    }

    /// Infers options from the variables of the pod, unless `--kubernetes off` or a rendezvous
    /// option is given.
    ///
    /// # Errors
    /// Returns an error if variables are missing or contradict each other, or if the address of the
    /// first pod does not follow from them.
    pub fn new(cli: &Cli, env: &Environment, node: &Node) -> Result<Kubernetes, KubernetesError> {
        if cli.kubernetes == "off" || cli.has_rendezvous_option() {
            return Ok(Kubernetes::unused(cli));
        }
        let place = PodPlace::read(env, &node.full_name)?;
        let visible_devices = env
            .get("CUDA_VISIBLE_DEVICES")
            .map(|list| list.to_string_lossy());
        let gpus = node.visible_gpus(visible_devices.as_deref());
        let nproc = cli
            .is_given("nproc-per-node")
            .then_some(cli.nproc_per_node.as_str());
        let inference = KubernetesInference::new(&place, gpus, nproc);
        let (meeting, run_id) = (inference.meeting.as_ref(), inference.run_id.as_deref());
        Ok(Kubernetes {
            cli: cli.with_inferred(meeting, inference.nproc, run_id),
            is_of_job: matches!(place, PodPlace::Member(_)),
            notes: inference.notes,
        })
    }

    /// Adds to the plan what is not an option: that pods are started again one by one, the shutdown
    /// timeout, and notes.
    pub fn complete(self, plan: &mut LaunchPlan, env: &Environment) {
        if self.is_of_job {
            if let Some(rendezvous) = &mut plan.rendezvous {
                rendezvous.nodes_return = true;
            }
            let is_default =
                self.cli.shutdown_timeout.is_none() && !env.has("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
            if is_default {
                plan.shutdown_timeout = SHUTDOWN_TIMEOUT;
            }
        }
        plan.notes.splice(0..0, self.notes);
    }
}

#[cfg(test)]
mod tests;
