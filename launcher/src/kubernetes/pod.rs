//! Determines which pod of which Job this is, by variables and host name. Pure.
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

use std::str::FromStr;

use crate::cli::Environment;
use crate::kubernetes::error::KubernetesError;

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
pub enum PodPlace {
    /// Not in an Indexed Job.
    Outside,
    /// In an Indexed Job whose pods each launch on their own.
    Alone {
        /// Index of this pod.
        index: usize,
    },
    /// In a Job, or JobSet, whose pods form one launch.
    Member(Pod),
}

/// One pod of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Whether a JobSet made the Job.
    pub is_of_jobset: bool,
    /// Name of the Job; if a replicated job of a JobSet has several, their common part. `None` if
    /// the host name is not that of a pod.
    pub name: Option<String>,
    /// First group of the UID of the Job or JobSet, if the manifest passes it.
    pub uid: Option<String>,
    /// Number of times that the JobSet has started all Jobs again.
    pub restarts: u32,
    /// Index of this pod among all.
    pub node_rank: usize,
    /// Number of pods.
    pub nnodes: usize,
    /// Where the first pod is; `None` if there is only one.
    pub master: Option<PodMaster>,
}

/// Where the first pod of a launch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodMaster {
    /// Its name in the DNS, or `MASTER_ADDR`.
    pub addr: String,
    /// `MASTER_PORT`, else 29500.
    pub port: u16,
}

impl PodPlace {
    /// Reads the variables. `full_name` is the name of this machine, with its domain if it has one.
    ///
    /// # Errors
    /// Returns an error if variables are missing or contradict each other, or if the address of the
    /// first pod does not follow from them.
    pub fn read(env: &Environment, full_name: &str) -> Result<PodPlace, KubernetesError> {
        let index: Option<usize> = number(env, INDEX)?;
        let completions: Option<usize> = number(env, COMPLETIONS)?;
        match (index, completions) {
            (None, None) => Ok(PodPlace::Outside),
            (Some(index), None) => Ok(PodPlace::Alone { index }),
            (None, Some(_)) => Err(KubernetesError::Missing {
                given: COMPLETIONS,
                name: INDEX,
                hint: "a Job with `completionMode: Indexed` has it",
            }),
            (Some(index), Some(completions)) => {
                let place = JobPlace::read(env, index, completions)?;
                Ok(PodPlace::Member(place.pod(env, full_name)?))
            }
        }
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
    fn read(
        env: &Environment,
        index: usize,
        completions: usize,
    ) -> Result<JobPlace, KubernetesError> {
        below(INDEX, index, completions)?;
        let missing = |given, name| {
            let hint = "both come from annotations of the pod, by the downward API";
            KubernetesError::Missing { given, name, hint }
        };
        let replica = match (number(env, JOB_INDEX)?, number(env, REPLICAS)?) {
            (None, None) => None,
            (Some(_), None) => return Err(missing(JOB_INDEX, REPLICAS)),
            (None, Some(_)) => return Err(missing(REPLICAS, JOB_INDEX)),
            (Some(job), Some(replicas)) => {
                below(JOB_INDEX, job, replicas)?;
                Some((job, replicas))
            }
        };
        Ok(JobPlace {
            index,
            completions,
            replica,
        })
    }

    fn pod(&self, env: &Environment, full_name: &str) -> Result<Pod, KubernetesError> {
        let (job, replicas) = self.replica.unwrap_or((0, 1));
        let nnodes = replicas.checked_mul(self.completions);
        let nnodes = nnodes.ok_or_else(|| KubernetesError::Value {
            name: COMPLETIONS,
            found: self.completions.to_string(),
            wanted: "a number of pods".to_owned(),
        })?;
        let restarts: Option<u32> = number(env, RESTARTS)?;
        let (host, domain) = full_name.split_once('.').unwrap_or((full_name, ""));
        let name = host.strip_suffix(&self.ending());
        let name = name.filter(|name| !name.is_empty());
        let master = match nnodes {
            1 => None,
            _ => Some(self.master(env, (host, name), domain)?),
        };
        Ok(Pod {
            is_of_jobset: self.replica.is_some() || restarts.is_some(),
            name: name.map(str::to_owned),
            uid: uid(env, replicas),
            restarts: restarts.unwrap_or(0),
            node_rank: job * self.completions + self.index,
            nnodes,
            master,
        })
    }

    /// Returns where the first pod is: at `MASTER_ADDR`, or beside this one in the DNS.
    fn master(
        &self,
        env: &Environment,
        (host, name): (&str, Option<&str>),
        domain: &str,
    ) -> Result<PodMaster, KubernetesError> {
        let port = match number(env, "MASTER_PORT")? {
            None => PORT,
            Some(0) => {
                return Err(KubernetesError::Value {
                    name: "MASTER_PORT",
                    found: "0".to_owned(),
                    wanted: "a port that all pods know".to_owned(),
                });
            }
            Some(port) => port,
        };
        if let Some(addr) = text(env, "MASTER_ADDR") {
            return Ok(PodMaster { addr, port });
        }
        let Some(name) = name else {
            let (found, ending) = (host.to_owned(), self.ending());
            return Err(KubernetesError::HostName { found, ending });
        };
        if domain.is_empty() {
            let host = host.to_owned();
            return Err(KubernetesError::Domain { host });
        }
        let first = self.ending_of(0, 0);
        let addr = format!("{name}{first}.{domain}");
        Ok(PodMaster { addr, port })
    }

    /// Returns the end of this pod's host name, after the name that all pods share.
    fn ending(&self) -> String {
        let (job, _) = self.replica.unwrap_or((0, 1));
        self.ending_of(job, self.index)
    }

    fn ending_of(&self, job: usize, index: usize) -> String {
        match self.replica {
            Some(_) => format!("-{job}-{index}"),
            None => format!("-{index}"),
        }
    }
}

/// Returns the first group of the UID that all pods share. Each Job of a JobSet has another one.
fn uid(env: &Environment, replicas: usize) -> Option<String> {
    let of_job = || text(env, "JOB_UID").filter(|_| replicas == 1);
    let uid = text(env, "JOBSET_UID").or_else(of_job)?;
    uid.split('-').next().map(str::to_owned)
}

fn below(name: &'static str, found: usize, count: usize) -> Result<(), KubernetesError> {
    if found < count {
        return Ok(());
    }
    let of = match name {
        INDEX => COMPLETIONS,
        _ => REPLICAS,
    };
    Err(KubernetesError::Value {
        name,
        found: found.to_string(),
        wanted: format!("less than {of}, which is {count}"),
    })
}

fn text(env: &Environment, name: &str) -> Option<String> {
    env.non_empty(name)
        .map(|value| value.to_string_lossy().into_owned())
}

fn number<T: FromStr>(env: &Environment, name: &'static str) -> Result<Option<T>, KubernetesError> {
    let Some(found) = text(env, name) else {
        return Ok(None);
    };
    found.parse().map(Some).map_err(|_| KubernetesError::Value {
        name,
        found,
        wanted: match name {
            "MASTER_PORT" => "a port".to_owned(),
            _ => "a whole number".to_owned(),
        },
    })
}
