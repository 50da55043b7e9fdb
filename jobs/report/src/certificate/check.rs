//! Checks a certificate by itself: everything that follows from something else in it is computed
//! again.

use jobs::episode::{End, EpisodeOutcome};
use jobs::job::{Job, Length, Status};
use jobs::plan::RunPlan;
use jobs::seed;

use crate::certificate::{Certificate, CertifiedJob, Contents, Sample, plan, sample, solved};
use crate::stats::SolvedRate;
use crate::verify::episodes;

/// Largest difference of a rate that another program may round differently.
const ROUNDING: f64 = 1e-9;

impl Certificate {
    /// Returns what is wrong with the certificate, one line each. The hash of its contents is
    /// checked when it is read.
    pub fn check(&self) -> Vec<String> {
        let plan = match plan(self) {
            Ok(plan) => plan,
            Err(err) => return vec![format!("its jobs are refused: {err}")],
        };
        let mut wrong = Vec::new();
        for (job, certified) in plan.jobs.iter().zip(&self.contents.jobs) {
            let told = check_job(&plan, job, certified);
            wrong.extend(told.into_iter().map(|text| format!("{}: {text}", job.name)));
        }
        let all = self.contents.jobs.iter().flat_map(|job| &job.episodes);
        if !agree(self.contents.rates, solved(all)) {
            wrong.push("the rates of all jobs do not follow from the episodes".to_owned());
        }
        wrong.extend(completeness(&self.contents));
        if let Some(sample) = &self.sample {
            wrong.extend(check_sample(self, sample));
        }
        wrong
    }
}

fn check_job(plan: &RunPlan, job: &Job, certified: &CertifiedJob) -> Vec<String> {
    let Length::Episodes(count) = job.length else {
        return vec!["it has no num_episodes".to_owned()];
    };
    let mut wrong = Vec::new();
    if job.status != Status::Pending {
        wrong.push(
            "its status is not `pending`, so that its episodes cannot be run again".to_owned(),
        );
    }
    // A stranger's list may be as short as `0-4294967295`, so it is not followed.
    if certified.planned.below(count) != certified.planned {
        return vec![format!(
            "episodes {} were planned of a job that has {count}",
            certified.planned
        )];
    }
    if !certified
        .episodes
        .is_sorted_by(|a, b| a.episode < b.episode)
    {
        wrong.push("its episodes are not in ascending order, each once".to_owned());
    }
    let of = |is_wrong: &dyn Fn(&EpisodeOutcome) -> bool| -> Vec<u64> {
        let wrong = certified.episodes.iter().filter(|one| is_wrong(one));
        wrong.map(|one| one.episode).collect()
    };
    let unplanned = of(&|one| !certified.planned.has(one.episode));
    let seeds = of(&|one| one.seed != seed::episode(plan.seed, job, one.episode));
    let ends = of(&|one| match one.end {
        End::Success => one.success != Some(true),
        End::Error => one.success.is_some(),
        End::Terminated | End::TimeLimit => one.success.is_none(),
    });
    for (numbers, what) in [
        (unplanned, "not planned"),
        (seeds, "not run from the seed that plan and number give"),
        (ends, "solved in one field and not in another"),
    ] {
        if !numbers.is_empty() {
            wrong.push(format!("{} {what}", episodes(numbers)));
        }
    }
    if !agree(certified.rates, solved(&certified.episodes)) {
        wrong.push("its rates do not follow from its episodes".to_owned());
    }
    wrong
}

/// Returns why a certificate is not complete although it says so.
fn completeness(contents: &Contents) -> Option<String> {
    let is_whole = |job: &CertifiedJob| {
        job.is_planned_whole()
            && job.planned.count() == job.episodes.len() as u64
            && job.episodes.iter().all(|one| one.success.is_some())
    };
    let lacking = contents.jobs.iter().find(|job| !is_whole(job));
    match lacking {
        _ if !contents.complete => None,
        Some(job) => Some(format!(
            "{}: not every episode was planned, run and scored, though the certificate says that it \
             is complete",
            job.name()
        )),
        None if !contents.findings.is_empty() => {
            Some("it says that it is complete, and has findings".to_owned())
        }
        None => None,
    }
}

fn check_sample(certificate: &Certificate, found: &Sample) -> Option<String> {
    if found.episodes.is_empty() {
        return Some("its sample is empty".to_owned());
    }
    let chosen = sample::choose(
        &certificate.contents,
        found.episodes.len(),
        &certificate.sha256,
    );
    let is_chosen = chosen.iter().eq(found.episodes.iter().map(|one| &one.id));
    (!is_chosen).then(|| "its sample does not have the episodes that its hash chooses".to_owned())
}

/// Returns whether rates are the same up to rounding.
fn agree(said: SolvedRate, computed: SolvedRate) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= ROUNDING;
    let rate = match (said.success_rate, computed.success_rate) {
        (Some(a), Some(b)) => near(a, b),
        (a, b) => a == b,
    };
    let interval = match (said.wilson95, computed.wilson95) {
        (Some([low, high]), Some(wanted)) => near(low, wanted[0]) && near(high, wanted[1]),
        (a, b) => a == b,
    };
    (said.episodes, said.successes) == (computed.episodes, computed.successes) && rate && interval
}
