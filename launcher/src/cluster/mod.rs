//! What the variables of SLURM or Kubernetes say about a launch, where the command line leaves it
//! out.
//!
//! ```text
//! variables ─► Place ─► Inferred ─► the plan: --nnodes --node-rank --master-addr --master-port
//!              (where)  (what)                --nproc-per-node --rdzv-id, signals, time to end
//! ```
//! A command line with a rendezvous option means the same as under torchrun, and no option is
//! inferred. Within a SLURM job, SLURM's variables count and those of Kubernetes do not: a pod may
//! be a node of a SLURM cluster, and then SLURM has started the launcher.

pub mod hostlist;
pub mod kubernetes;
pub mod slurm;

use std::str::FromStr;
use std::time::Duration;

use anyhow::anyhow;
use jobs::count::counted;

use crate::cli::{Cli, Environment};
use crate::cluster::slurm::Step;
use crate::node::Node;
use crate::plan::Sender;
use crate::say::Note;

/// Time between SIGTERM and SIGKILL where the cluster's own SIGKILL comes 30 s after its SIGTERM:
/// SLURM's `KillWait`, and `terminationGracePeriodSeconds` of a pod. The remaining three seconds
/// are for the report.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(27);

/// What follows from the variables.
#[derive(Clone, Debug, Default)]
pub struct Inferred {
    /// How the launchers meet, if there are several and no option says it.
    pub meeting: Option<Meeting>,
    /// The run id, the same on all nodes.
    pub run_id: Option<String>,
    /// Number of ranks of this launcher, if it differs from torchrun's default.
    pub nproc: Option<usize>,
    /// Set if this is one of several tasks of SLURM on its node and therefore a single rank.
    pub task: Option<Step>,
    /// Who sends signals to the launcher.
    pub sender: Sender,
    /// Whether the pods of a Job form the launch: Kubernetes starts failed pods again one by one,
    /// and never a pod that has succeeded.
    pub nodes_return: bool,
    /// Notes for the user.
    pub notes: Vec<Note>,
}

/// Where launchers meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// Number of launchers.
    pub nnodes: usize,
    /// Index of this launcher.
    pub node_rank: usize,
    /// Name or address of the first node.
    pub addr: String,
    /// A port of the first node.
    pub port: u16,
}

impl Inferred {
    /// Infers nothing, with a reason.
    fn with_warning(text: String) -> Inferred {
        Inferred {
            notes: vec![Note::warning(text)],
            ..Inferred::default()
        }
    }

    /// Returns the time between SIGTERM and SIGKILL, unless an option or a variable says it.
    pub fn shutdown_timeout(&self) -> Option<Duration> {
        let is_killed = self.sender != Sender::Anyone || self.nodes_return;
        is_killed.then_some(SHUTDOWN_TIMEOUT)
    }
}

/// Infers what `cli` leaves out from the variables of SLURM, or of a pod of Kubernetes.
///
/// # Errors
/// Returns an error if variables are missing or contradict each other, and for a launch whose
/// launchers could not find each other.
pub fn infer(cli: &Cli, env: &Environment, node: &Node) -> anyhow::Result<Inferred> {
    let given = cli.is_given("nproc-per-node");
    let nproc = given.then_some(cli.nproc_per_node.as_str());
    let place = match cli.slurm.as_str() {
        "off" => Ok(None),
        _ => slurm::Place::read(env),
    };
    match (place, cli.has_rendezvous_option()) {
        (Ok(None), _) => {}
        (Ok(Some(place)), false) => return place.infer(env, nproc),
        (Ok(Some(place)), true) => return Ok(place.beside(cli)),
        (Err(err), false) => return Err(said(&err, "SLURM", "slurm")),
        (Err(_), true) => return Ok(Inferred::default()),
    }
    if cli.kubernetes == "off" || cli.has_rendezvous_option() {
        return Ok(Inferred::default());
    }
    let gpus = node.visible_gpus(env.visible_devices().as_deref());
    let inferred = kubernetes::infer(env, &node.full_name, gpus, nproc);
    inferred.map_err(|err| said(&err, "Kubernetes", "kubernetes"))
}

/// Adds to an error whose variables they are, and how to do without them.
fn said(err: &anyhow::Error, cluster: &str, option: &str) -> anyhow::Error {
    anyhow!("{cluster}: {err:#}; `--{option} off` launches without these variables")
}

/// Returns the number in a variable, if it is set.
fn number<T: FromStr>(env: &Environment, name: &str, wanted: &str) -> anyhow::Result<Option<T>> {
    let Some(found) = env.text(name) else {
        return Ok(None);
    };
    match found.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(unfit(name, &found, wanted)),
    }
}

/// Refuses the value of a variable.
fn unfit(name: &str, found: &str, wanted: &str) -> anyhow::Error {
    anyhow!("the variable {name} is `{found}`, expected {wanted}")
}

/// Says which node of a launch this is, how many ranks it has and where it meets the others.
fn node_note(
    place: &str,
    nproc: Option<&str>,
    gpus: Option<(usize, &str)>,
    meeting: Option<&Meeting>,
) -> Note {
    let here = match (nproc, gpus) {
        (Some(given), _) => format!("--nproc-per-node {given}"),
        (None, Some((count, source))) => format!("{} here ({source})", counted(count, "rank")),
        (None, None) => "1 rank here (no GPU)".to_owned(),
    };
    Note::info(match meeting {
        None => format!("{place}: 1 node, {here}"),
        Some(Meeting {
            nnodes,
            node_rank,
            addr,
            port,
        }) => {
            format!("{place}: node {node_rank} of {nnodes}, {here}, meeting at {addr}:{port}")
        }
    })
}

#[cfg(test)]
pub(crate) mod tests;
