//! Which pod of which Indexed Job or JobSet this is, by variables and host name, and what follows.
//! Pure.
//!
//! ```text
//! Job eval, completions: 4                     pod 2 is eval-2.<subdomain>…
//! JobSet set, replicated job workers,
//!   replicas: 2, each with completions: 4      pod 2 of Job 1 is set-workers-1-2.<subdomain>…,
//!                                              node 6 of 8
//! ```
//! Kubernetes sets `JOB_COMPLETION_INDEX` alone. The manifest sets the other variables: the number
//! of completions, which a pod cannot read, and by the downward API what JobSet writes into the
//! annotations of its pods.
//!
//! A Job starts failed pods again one by one, and never a pod that has succeeded. So all launchers
//! end alike, and a pod that comes back waits until the launch without it has ended, see
//! [`crate::plan::rendezvous::RendezvousPlan::nodes_return`].

use anyhow::{Context as _, bail, ensure};

use crate::cli::Environment;
use crate::cluster::{Inferred, Meeting, node_note, number, unfit};
use crate::say::note::Note;

/// Index of the pod in its Job, set by Kubernetes.
const INDEX: &str = "JOB_COMPLETION_INDEX";

/// Number of pods of the Job, `completions` of its specification.
const COMPLETIONS: &str = "JOB_COMPLETIONS";

/// Annotation `jobset.sigs.k8s.io/job-index`.
const JOB_INDEX: &str = "JOBSET_JOB_INDEX";

/// Annotation `jobset.sigs.k8s.io/replicatedjob-replicas`.
const REPLICAS: &str = "JOBSET_REPLICATEDJOB_REPLICAS";

/// Annotation `jobset.sigs.k8s.io/restart-attempt`.
const RESTARTS: &str = "JOBSET_RESTART_ATTEMPT";

/// Torch's port of the static backend (torch/distributed/run.py, torch 2.11). Every pod has an
/// address of its own, so that launches cannot collide.
const PORT: u16 = 29_500;

/// The place of this process in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not in an Indexed Job.
    Outside,
    /// In an Indexed Job whose pods each launch on their own; the index of this pod.
    Alone(usize),
    /// In a Job, or JobSet, whose pods form one launch.
    Member(Pod),
}

/// One pod of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Whether a JobSet made the Job.
    is_of_jobset: bool,
    /// Name of the Job; if a replicated job of a JobSet has several, their common part. `None` if
    /// the host name is not that of a pod.
    name: Option<String>,
    /// First group of the UID of the Job or JobSet, if the manifest passes it.
    uid: Option<String>,
    /// Number of times that the JobSet has started all Jobs again.
    restarts: u32,
    /// Where the pods meet; `None` if there is only one.
    meeting: Option<Meeting>,
}

impl Place {
    /// Reads the variables. `full_name` is the name of this machine, with its domain if it has one.
    ///
    /// # Errors
    /// Returns an error if variables are missing or contradict each other, or if the address of the
    /// first pod does not follow from them.
    pub fn read(env: &Environment, full_name: &str) -> anyhow::Result<Place> {
        match pair(env, INDEX, COMPLETIONS)? {
            (None, None) => Ok(Place::Outside),
            (Some(index), None) => Ok(Place::Alone(index)),
            (None, Some(_)) => bail!(
                "{COMPLETIONS} is set, but {INDEX} is not (a Job with `completionMode: Indexed` \
                 has it)"
            ),
            (Some(index), Some(completions)) => {
                let place = JobPlace {
                    index,
                    completions,
                    replica: replica(env)?,
                };
                Ok(Place::Member(place.pod(env, full_name)?))
            }
        }
    }

    /// Infers the options. `gpus` is the number of GPUs of this pod, `nproc` is `--nproc-per-node`
    /// if it was given.
    pub fn infer(self, gpus: usize, nproc: Option<&str>) -> Inferred {
        let pod = match self {
            Place::Outside => return Inferred::default(),
            Place::Alone(index) => {
                let note = format!(
                    "Kubernetes: this is pod {index} of an Indexed Job, and JOB_COMPLETIONS is not \
                     set: this launch is on this pod alone; with the variable, all pods form one \
                     launch"
                );
                return Inferred {
                    notes: vec![Note::warning(note)],
                    ..Inferred::default()
                };
            }
            Place::Member(pod) => pod,
        };
        let gpus = Some(gpus).filter(|&gpus| gpus > 0 && nproc.is_none());
        let by_gpus = gpus.map(|gpus| (gpus, "GPUs"));
        let place = format!("Kubernetes {}", pod.label());
        Inferred {
            run_id: pod.run_id(),
            nproc: gpus,
            nodes_return: true,
            notes: vec![node_note(&place, nproc, by_gpus, pod.meeting.as_ref())],
            meeting: pod.meeting,
            ..Inferred::default()
        }
    }
}

impl Pod {
    /// Returns name and UID of the Job as run id, for example `eval.1f0c3ab2`, after a restart of
    /// the JobSet `set-workers.1f0c3ab2.r1`; `None` if the manifest passes nothing for it.
    fn run_id(&self) -> Option<String> {
        let parts: Vec<&str> = [&self.name, &self.uid]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let id = parts.join(".");
        match self.restarts {
            _ if id.is_empty() => None,
            0 => Some(id),
            restarts => Some(format!("{id}.r{restarts}")),
        }
    }

    /// Returns the name of the Job: `Job eval`, `JobSet set-workers (restart 1)`.
    fn label(&self) -> String {
        let kind = if self.is_of_jobset { "JobSet" } else { "Job" };
        let mut label = kind.to_owned();
        if let Some(name) = &self.name {
            label += &format!(" {name}");
        }
        if self.restarts > 0 {
            label += &format!(" (restart {})", self.restarts);
        }
        label
    }
}

/// The index of a pod in its Job, and that of the Job.
struct JobPlace {
    index: usize,
    completions: usize,
    /// Index of the Job among the replicas of a JobSet, and their number.
    replica: Option<(usize, usize)>,
}

impl JobPlace {
    fn pod(&self, env: &Environment, full_name: &str) -> anyhow::Result<Pod> {
        let (job, replicas) = self.replica.unwrap_or((0, 1));
        let nnodes = replicas.checked_mul(self.completions);
        let nnodes = nnodes.ok_or_else(|| {
            unfit(
                COMPLETIONS,
                &self.completions.to_string(),
                "a number of pods",
            )
        })?;
        let restarts: Option<u32> = number(env, RESTARTS, "a whole number")?;
        let (host, domain) = full_name.split_once('.').unwrap_or((full_name, ""));
        let name = host.strip_suffix(&self.ending(job, self.index));
        let name = name.filter(|name| !name.is_empty());
        let meeting = match nnodes {
            1 => None,
            _ => {
                let (addr, port) = self.first(env, (host, name), domain)?;
                Some(Meeting {
                    nnodes,
                    node_rank: job * self.completions + self.index,
                    addr,
                    port,
                })
            }
        };
        Ok(Pod {
            is_of_jobset: self.replica.is_some() || restarts.is_some(),
            name: name.map(str::to_owned),
            uid: uid(env, replicas),
            restarts: restarts.unwrap_or(0),
            meeting,
        })
    }

    /// Returns where the first pod is: at `MASTER_ADDR`, or beside this one in the DNS.
    fn first(
        &self,
        env: &Environment,
        (host, name): (&str, Option<&str>),
        domain: &str,
    ) -> anyhow::Result<(String, u16)> {
        let port = number(env, "MASTER_PORT", "a port")?.unwrap_or(PORT);
        if port == 0 {
            return Err(unfit("MASTER_PORT", "0", "a port that all pods know"));
        }
        if let Some(addr) = env.text("MASTER_ADDR") {
            return Ok((addr, port));
        }
        let name = name.with_context(|| {
            let (job, _) = self.replica.unwrap_or((0, 1));
            format!(
                "the name of this pod is `{host}`, expected `<job>{}` as in an Indexed Job without \
                 hostNetwork: set MASTER_ADDR to the address of the first pod",
                self.ending(job, self.index)
            )
        })?;
        ensure!(
            !domain.is_empty(),
            "the pod `{host}` has no domain, so other pods cannot find the first one: set \
             `subdomain` of the pod template to the name of a headless Service, or MASTER_ADDR to \
             the address of the first pod"
        );
        Ok((format!("{name}{}.{domain}", self.ending(0, 0)), port))
    }

    /// Returns the end of a pod's host name, after the name that all pods share.
    fn ending(&self, job: usize, index: usize) -> String {
        match self.replica {
            Some(_) => format!("-{job}-{index}"),
            None => format!("-{index}"),
        }
    }
}

/// Returns the index of the Job among the replicas of a JobSet, and their number.
fn replica(env: &Environment) -> anyhow::Result<Option<(usize, usize)>> {
    let (given, missing) = match pair(env, JOB_INDEX, REPLICAS)? {
        (None, None) => return Ok(None),
        (Some(job), Some(replicas)) => return Ok(Some((job, replicas))),
        (Some(_), None) => (JOB_INDEX, REPLICAS),
        (None, Some(_)) => (REPLICAS, JOB_INDEX),
    };
    bail!(
        "{given} is set, but {missing} is not (both come from annotations of the pod, by the \
         downward API)"
    )
}

/// Returns an index, and the number that it has to be below.
fn pair(
    env: &Environment,
    index: &str,
    count: &str,
) -> anyhow::Result<(Option<usize>, Option<usize>)> {
    let wanted = "a whole number";
    match (
        number::<usize>(env, index, wanted)?,
        number(env, count, wanted)?,
    ) {
        (Some(at), Some(below)) if at >= below => {
            let wanted = format!("less than {count}, which is {below}");
            Err(unfit(index, &at.to_string(), &wanted))
        }
        found => Ok(found),
    }
}

/// Returns the first group of the UID that all pods share. Each Job of a JobSet has another one.
fn uid(env: &Environment, replicas: usize) -> Option<String> {
    let of_job = || env.text("JOB_UID").filter(|_| replicas == 1);
    let uid = env.text("JOBSET_UID").or_else(of_job)?;
    uid.split('-').next().map(str::to_owned)
}
