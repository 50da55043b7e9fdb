//! Rebuilds from a certificate alone what is needed to run it again.

use jobs::assign::Only;
use jobs::eval_args::EvalArgs;
use jobs::file::JobFile;
use jobs::plan::RunPlan;
use jobs::refusal::Refusal;
use serde_json::{Value, json};

use crate::certificate::{Certificate, CertifiedJob};

/// Returns the jobs file of a certificate. Together with the base seed (`contents.run.seed`) and
/// [`only`], it asks for the episodes that were planned.
pub fn jobs_file(certificate: &Certificate) -> Value {
    let contents = &certificate.contents;
    let jobs: Vec<_> = contents.jobs.iter().map(|job| &job.entry).collect();
    match &contents.model_server {
        Some(server) => json!({"model_server": server, "jobs": jobs}),
        None => json!({"jobs": jobs}),
    }
}

/// Returns the value of `--only` with which the same episodes are planned; `None` if all were.
pub fn only(certificate: &Certificate) -> Option<Only> {
    let jobs = &certificate.contents.jobs;
    if jobs.iter().all(CertifiedJob::is_planned_whole) {
        return None;
    }
    let entry = |job: &CertifiedJob| format!("{}:{}", job.name(), job.planned);
    let entries: Vec<_> = jobs.iter().map(entry).collect();
    entries.join(";").parse().ok()
}

/// Returns the plan of a run of the certificate's jobs, which has not begun. The jobs are checked by
/// the rules of a jobs file.
///
/// # Errors
/// Refuses the first field that no jobs file may have.
pub fn plan(certificate: &Certificate) -> Result<RunPlan, Refusal> {
    plan_of(certificate, &jobs_file(certificate))
}

/// Returns the same plan with `jobs`, the certificate's jobs with the paths of this machine.
///
/// # Errors
/// Refuses the first field that no jobs file may have.
pub fn plan_of(certificate: &Certificate, jobs: &Value) -> Result<RunPlan, Refusal> {
    let run = &certificate.contents.run;
    let file = JobFile::new("certificate".as_ref(), run.jobs_sha256.clone(), jobs)?;
    let words = ["--jobs".into(), "certificate".into()];
    let args = EvalArgs {
        seed: run.seed,
        given: run.options.clone(),
        ..EvalArgs::parse_words(&words).expect("the words are those of `eval`")
    };
    let mut plan = RunPlan::new(&args, file, 1, run.created.clone());
    plan.id = certificate.sha256.chars().take(32).collect();
    for (job, certified) in plan.jobs.iter_mut().zip(&certificate.contents.jobs) {
        job.only = (!certified.is_planned_whole()).then(|| certified.planned.clone());
    }
    plan.only = only(certificate);
    Ok(plan)
}
