//! Infers the options of a launch that the command line leaves out from its pod. Pure.

use jobs::count::counted;

use crate::cli::inferred::InferredMeeting;
use crate::kubernetes::pod::{Pod, PodPlace};
use crate::say::note::Note;

/// The inferred options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubernetesInference {
    /// How the launchers meet, if there are several.
    pub meeting: Option<InferredMeeting>,
    /// Name and UID of the Job as run id, for example `eval.1f0c3ab2`; after a restart of the
    /// JobSet `set-workers.1f0c3ab2.r1`.
    pub run_id: Option<String>,
    /// Number of ranks of this launcher, if it differs from torchrun's default.
    pub nproc: Option<usize>,
    /// Notes for the user.
    pub notes: Vec<Note>,
}

impl KubernetesInference {
    /// Infers the options. `gpus` is the number of GPUs of this pod, `nproc` is `--nproc-per-node`
    /// if it was given.
    pub fn new(place: &PodPlace, gpus: usize, nproc: Option<&str>) -> KubernetesInference {
        match place {
            PodPlace::Outside => KubernetesInference::default(),
            PodPlace::Alone { index } => alone(*index),
            PodPlace::Member(pod) => member(pod, gpus, nproc),
        }
    }
}

fn alone(index: usize) -> KubernetesInference {
    let note = format!(
        "Kubernetes: this is pod {index} of an Indexed Job, and JOB_COMPLETIONS is not set: this \
         launch is on this pod alone; with the variable, all pods form one launch"
    );
    KubernetesInference {
        notes: vec![Note::warning(note)],
        ..KubernetesInference::default()
    }
}

fn member(pod: &Pod, gpus: usize, nproc: Option<&str>) -> KubernetesInference {
    let inferred = Some(gpus).filter(|&gpus| gpus > 0 && nproc.is_none());
    let here = match (nproc, inferred) {
        (Some(given), _) => format!("--nproc-per-node {given}"),
        (None, Some(gpus)) => format!("{} here (GPUs)", counted(gpus, "rank")),
        (None, None) => "1 rank here (no GPU)".to_owned(),
    };
    let label = label(pod);
    let mut inference = KubernetesInference {
        run_id: run_id(pod),
        nproc: inferred,
        ..KubernetesInference::default()
    };
    let Some(master) = &pod.master else {
        let note = format!("Kubernetes {label}: 1 node, {here}");
        inference.notes.push(Note::info(note));
        return inference;
    };
    let (node_rank, nnodes) = (pod.node_rank, pod.nnodes);
    inference.notes.push(Note::info(format!(
        "Kubernetes {label}: node {node_rank} of {nnodes}, {here}, meeting at {}:{}",
        master.addr, master.port
    )));
    inference.meeting = Some(InferredMeeting {
        nnodes,
        node_rank,
        master_addr: master.addr.clone(),
        master_port: master.port,
    });
    inference
}

/// Returns the run id, the same on all pods; `None` if the manifest passes nothing for it.
fn run_id(pod: &Pod) -> Option<String> {
    let parts: Vec<&str> = pod
        .name
        .iter()
        .chain(&pod.uid)
        .map(String::as_str)
        .collect();
    if parts.is_empty() {
        return None;
    }
    let id = parts.join(".");
    Some(match pod.restarts {
        0 => id,
        restarts => format!("{id}.r{restarts}"),
    })
}

/// Returns the name of a Job: `Job eval`, `JobSet set-workers (restart 1)`.
fn label(pod: &Pod) -> String {
    let kind = if pod.is_of_jobset { "JobSet" } else { "Job" };
    let name = match &pod.name {
        Some(name) => format!("{kind} {name}"),
        None => kind.to_owned(),
    };
    match pod.restarts {
        0 => name,
        restarts => format!("{name} (restart {restarts})"),
    }
}
