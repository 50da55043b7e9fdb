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
//! [`crate::plan::RendezvousPlan::nodes_return`].

use anyhow::{Context as _, bail, ensure};

use crate::cli::Environment;
use crate::cluster::{Inferred, Meeting, node_note, number, unfit};

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

/// Infers the options, with `nproc` if `--nproc-per-node` was given. `full_name` is the name of this
/// machine, with its domain if it has one, `gpus` the number of GPUs of this pod.
///
/// # Errors
/// Returns an error if variables are missing or contradict each other, or if the address of the
/// first pod does not follow from them.
pub fn infer(
    env: &Environment,
    full_name: &str,
    gpus: usize,
    nproc: Option<&str>,
) -> anyhow::Result<Inferred> {
    let (index, completions) = match pair(env, INDEX, COMPLETIONS)? {
        (None, None) => return Ok(Inferred::default()),
        (Some(index), None) => return Ok(alone(index)),
        (None, Some(_)) => bail!(
            "{COMPLETIONS} is set, but {INDEX} is not (a Job with `completionMode: Indexed` has it)"
        ),
        (Some(index), Some(completions)) => (index, completions),
    };
    let (host, domain) = full_name.split_once('.').unwrap_or((full_name, ""));
    let replica = replica(env)?;
    let pod = Pod {
        index,
        completions,
        replica,
        host,
        domain,
    };
    let restarts: Option<u32> = number(env, RESTARTS, "a whole number")?;
    let meeting = pod.meeting(env)?;
    let (name, uid) = (pod.name(), uid(env, pod.job().1));
    let kind = match replica.is_some() || restarts.is_some() {
        true => "JobSet",
        false => "Job",
    };
    let (again, suffix) = match restarts.unwrap_or(0) {
        0 => (String::new(), String::new()),
        restarts => (format!(" (restart {restarts})"), format!(".r{restarts}")),
    };
    let place = ["Kubernetes", kind].into_iter().chain(name);
    let place = place.collect::<Vec<_>>().join(" ") + &again;
    let parts: Vec<_> = name.into_iter().chain(uid.as_deref()).collect();
    let gpus = Some(gpus).filter(|&gpus| gpus > 0 && nproc.is_none());
    let by_gpus = gpus.map(|gpus| (gpus, "GPUs"));
    Ok(Inferred {
        // For example `eval.1f0c3ab2`, after a restart of the JobSet `set-workers.1f0c3ab2.r1`.
        run_id: (!parts.is_empty()).then(|| parts.join(".") + &suffix),
        nproc: gpus,
        nodes_return: true,
        notes: vec![node_note(&place, nproc, by_gpus, meeting.as_ref())],
        meeting,
        ..Inferred::default()
    })
}

/// Infers nothing for an Indexed Job whose pods each launch on their own.
fn alone(index: usize) -> Inferred {
    Inferred::with_warning(format!(
        "Kubernetes: this is pod {index} of an Indexed Job, and JOB_COMPLETIONS is not set: this \
         launch is on this pod alone; with the variable, all pods form one launch"
    ))
}

/// One pod of a launch.
struct Pod<'a> {
    /// Index in its Job, which has so many completions.
    index: usize,
    completions: usize,
    /// Index of the Job among the replicas of a JobSet, and their number.
    replica: Option<(usize, usize)>,
    host: &'a str,
    domain: &'a str,
}

impl Pod<'_> {
    fn job(&self) -> (usize, usize) {
        self.replica.unwrap_or((0, 1))
    }

    /// Returns the name of the Job; if a replicated job of a JobSet has several, their common part.
    /// `None` if the host name is not that of a pod.
    fn name(&self) -> Option<&str> {
        let name = self
            .host
            .strip_suffix(&self.ending(self.job().0, self.index));
        name.filter(|name| !name.is_empty())
    }

    /// Returns where the pods meet; `None` if there is only one.
    fn meeting(&self, env: &Environment) -> anyhow::Result<Option<Meeting>> {
        let (job, replicas) = self.job();
        let Some(nnodes) = replicas.checked_mul(self.completions) else {
            let found = self.completions.to_string();
            return Err(unfit(COMPLETIONS, &found, "a number of pods"));
        };
        if nnodes == 1 {
            return Ok(None);
        }
        let (addr, port) = self.first(env)?;
        Ok(Some(Meeting {
            nnodes,
            node_rank: job * self.completions + self.index,
            addr,
            port,
        }))
    }

    /// Returns where the first pod is: at `MASTER_ADDR`, or beside this one in the DNS.
    fn first(&self, env: &Environment) -> anyhow::Result<(String, u16)> {
        let port = number(env, "MASTER_PORT", "a port")?.unwrap_or(PORT);
        if port == 0 {
            return Err(unfit("MASTER_PORT", "0", "a port that all pods know"));
        }
        if let Some(addr) = env.text("MASTER_ADDR") {
            return Ok((addr, port));
        }
        let Pod { host, domain, .. } = self;
        let name = self.name().with_context(|| {
            format!(
                "the name of this pod is `{host}`, expected `<job>{}` as in an Indexed Job without \
                 hostNetwork: set MASTER_ADDR to the address of the first pod",
                self.ending(self.job().0, self.index)
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
