//! Says what SLURM's and Kubernetes' variables tell, and what a launch takes from them.

use crate::cli::Environment;
use crate::cluster::Inferred;
use crate::cluster::slurm::{Job, Place};
use crate::tools::doctor::Site;
use crate::tools::doctor::check::Finding;

/// Variables of Kubernetes that tell where a pod is: of every pod, of an Indexed Job, of a JobSet.
const KUBERNETES: [&str; 6] = [
    "KUBERNETES_SERVICE_HOST",
    "JOB_COMPLETION_INDEX",
    "JOBSET_NAME",
    "REPLICATED_JOB_NAME",
    "JOB_INDEX",
    "JOBSET_RESTART_ATTEMPT",
];

pub(super) fn slurm(site: &Site) -> Vec<Finding> {
    vec![of_slurm(&site.env)]
}

pub(super) fn kubernetes(site: &Site) -> Vec<Finding> {
    vec![of_kubernetes(&site.env)]
}

fn of_slurm(env: &Environment) -> Finding {
    let name = "SLURM";
    match inferred(env) {
        Ok(None) => Finding::note(name, "not in a job"),
        Ok(Some(found)) => Finding::ok(name, found),
        Err(err) => {
            let remedy = "correct the srun or sbatch command, or launch with `rrun --slurm off`";
            Finding::failed(name, format!("{err:#}"), remedy)
        }
    }
}

/// Describes the place in SLURM and the options that a launch takes from it; `None` outside of a
/// job.
fn inferred(env: &Environment) -> anyhow::Result<Option<String>> {
    let place = Place::read(env)?;
    let described = match &place {
        Place::Outside => return Ok(None),
        Place::Shell(job) => format!("in the shell of job {}", name(job)),
        Place::Batch { job, .. } => format!("in the batch script of job {}", name(job)),
        Place::Step(step) => format!(
            "task {} of {} in step {} of job {}",
            step.proc_id,
            step.num_tasks,
            step.id,
            name(&step.job)
        ),
    };
    let options = options(&place.infer(env, None)?);
    Ok(Some(match options.is_empty() {
        true => format!("{described}; a launch is on this machine alone"),
        false => format!("{described}; a launch takes {}", options.join(" ")),
    }))
}

fn options(found: &Inferred) -> Vec<String> {
    let mut options = Vec::new();
    if let Some(meeting) = &found.meeting {
        options.push(format!("--nnodes {}", meeting.nnodes));
        options.push(format!("--node-rank {}", meeting.node_rank));
        options.push(format!("--master-addr {}", meeting.addr));
        options.push(format!("--master-port {}", meeting.port));
    }
    let ranks = found.nproc.map(|ranks| format!("--nproc-per-node {ranks}"));
    options.extend(ranks);
    options
}

fn name(job: &Job) -> String {
    let element = job.element.clone();
    element.unwrap_or_else(|| job.id.to_string())
}

fn of_kubernetes(env: &Environment) -> Finding {
    let set: Vec<String> = KUBERNETES
        .into_iter()
        .filter_map(|name| Some(format!("{name}={}", env.get(name)?.to_string_lossy())))
        .collect();
    match set.is_empty() {
        true => Finding::note("Kubernetes", "not in a pod"),
        false => Finding::ok("Kubernetes", set.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::STEP;
    use crate::tests::environment;
    use crate::tools::doctor::check::Grade;

    #[test]
    fn a_step_says_what_a_launch_takes_from_it() {
        let none = Finding::note("SLURM", "not in a job");
        assert_eq!(of_slurm(&Environment::default()), none);
        let found = of_slurm(&environment(STEP));
        let expected = "task 3 of 4 in step 0 of job 1; a launch takes --nnodes 4 --node-rank 3 \
                        --master-addr node1 --master-port 10008 --nproc-per-node 1";
        assert_eq!(found, Finding::ok("SLURM", expected));
        let wrong = of_slurm(&Environment::from([("SLURM_JOB_ID", "twelve")]));
        assert_eq!(wrong.grade, Grade::Failed);
        assert!(wrong.found.contains("SLURM_JOB_ID"), "{wrong:?}");
    }

    #[test]
    fn an_indexed_job_is_seen() {
        let none = Finding::note("Kubernetes", "not in a pod");
        assert_eq!(of_kubernetes(&Environment::default()), none);
        let env = Environment::from([
            ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
            ("JOB_COMPLETION_INDEX", "3"),
        ]);
        let expected = "KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=3";
        assert_eq!(of_kubernetes(&env), Finding::ok("Kubernetes", expected));
    }
}
