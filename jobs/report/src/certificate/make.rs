//! Makes the contents of a certificate from the plan and journals of a run.

use std::collections::BTreeMap;
use std::io;

use jobs::episode::EpisodeOutcome;
use jobs::files;
use jobs::inputs::{InputFile, SumCache};
use jobs::job::{Job, Length, Status};
use jobs::layout::RunFolder;
use jobs::refusal::Refusal;
use jobs::sha256;
use serde_json::Value;

use crate::certificate::{
    Certificate, CertifiedFiles, CertifiedInput, CertifiedJob, CertifiedJournal, CertifiedRun,
    Contents, Machine, SCHEMA, canonical,
};
use crate::merged::Merged;
use crate::sections::per_job::distinct;
use crate::sections::run::versions;
use crate::stats::{Solved, SolvedRate};
use crate::verify::HOW;

/// Makes the certificate of a run, or of those jobs of it that are `wanted`, without a sample.
/// `findings` are those of `rrun verify`; with any, the certificate is not complete.
///
/// # Errors
/// Refuses a run whose episodes are not counted, and for an integer that JSON cannot
/// carry everywhere.
pub fn make(
    folder: &RunFolder,
    merged: &Merged,
    wanted: impl Fn(&Job) -> bool,
    mut findings: Vec<String>,
) -> Result<Certificate, Refusal> {
    let pending = |job: &&Job| job.status == Status::Pending && wanted(job);
    let jobs: Vec<_> = merged
        .plan
        .jobs
        .iter()
        .filter(pending)
        .map(|planned| job(merged, planned, &mut findings))
        .collect::<Result<_, _>>()?;
    if jobs.is_empty() {
        return Err(Refusal::new("no job of the plan was to run"));
    }
    let server = merged.plan.model_server.as_ref();
    let contents = Contents {
        complete: findings.is_empty(),
        findings,
        run: run(folder, merged).map_err(Refusal::new)?,
        policies: distinct(merged.policies().iter().map(CertifiedFiles::from)),
        inputs: inputs(folder, merged),
        machines: machines(merged),
        versions: versions(merged.starts()),
        model_server: jobs::file::jobs_file(&[], server)
            .get("model_server")
            .cloned(),
        rates: solved(jobs.iter().flat_map(|job| &job.episodes)),
        jobs,
    };
    Ok(Certificate {
        schema: SCHEMA.to_owned(),
        sha256: canonical::sha256(&contents)
            .map_err(|err| err.inside("the run has a value that no certificate can have"))?,
        contents,
        sample: None,
    })
}

/// Returns the rate of some episodes.
pub(super) fn solved<'a>(episodes: impl IntoIterator<Item = &'a EpisodeOutcome>) -> SolvedRate {
    Solved::of(episodes.into_iter().map(|one| one.success)).into()
}

/// Returns the files of the plan whose sums are known. Those of large ones are computed beside an
/// evaluation.
fn inputs(folder: &RunFolder, merged: &Merged) -> Vec<CertifiedInput> {
    let sums = SumCache::open(&folder.policy_files());
    let input = |(path, file): (&String, &InputFile)| {
        let known = file.sha256.as_deref();
        let sha256 = known.or_else(|| sums.sum(path.as_ref(), file))?.to_owned();
        Some(CertifiedInput {
            path: path.clone(),
            sha256,
            bytes: file.bytes,
        })
    };
    merged.plan.inputs.iter().filter_map(input).collect()
}

/// Returns the machines of the ranks, each once.
pub fn machines(merged: &Merged) -> Vec<Machine> {
    distinct(merged.starts().map(Machine::from))
}

fn run(folder: &RunFolder, merged: &Merged) -> io::Result<CertifiedRun> {
    let plan = &merged.plan;
    let journal = |name: String| {
        let sum = sha256::of_reader(files::open(&folder.root().join(&name))?)?;
        io::Result::Ok(CertifiedJournal {
            name,
            sha256: sum.sha256,
            bytes: sum.bytes,
        })
    };
    let names = merged.journals.sources().iter().map(|one| one.name.clone());
    Ok(CertifiedRun {
        id: plan.id.clone(),
        created: plan.created.clone(),
        ended: merged.state.span.map(|[_, last]| last.text()),
        rrun: plan.rrun.clone(),
        git: plan.git.clone(),
        world_size: plan.world_size,
        seed: plan.seed,
        options: plan.options.clone(),
        jobs_file: plan.jobs_file.clone(),
        jobs_sha256: plan.jobs_sha256.clone(),
        plan_sha256: sha256::of_reader(files::open(&folder.plan())?)?.sha256,
        journals: names.map(journal).collect::<io::Result<_>>()?,
    })
}

fn job(merged: &Merged, job: &Job, findings: &mut Vec<String>) -> Result<CertifiedJob, Refusal> {
    let Length::Episodes(count) = job.length else {
        return Err(Refusal::new(format_args!(
            "job `{}` has no num_episodes, so its episodes cannot be run again one by one; give it \
             num_episodes instead of num_steps",
            job.name
        )));
    };
    if let Some(only) = &job.only {
        findings.push(format!(
            "{}: {} of {count} episodes were planned (--only)",
            job.name,
            only.count()
        ));
    }
    let mut episodes = Vec::new();
    let read = merged.each_episode_of(job, |episode| episodes.push(episode.outcome()));
    read.map_err(Refusal::new)?;
    let planned = job.selected(count);
    if merged.decision().is_some() && (episodes.len() as u64) < planned {
        findings.push(format!(
            "{}: {} of {planned} episodes were run, because the run was stopped early (--stop-when)",
            job.name,
            episodes.len()
        ));
    }
    let mut entry = jobs::file::entry(job);
    entry.remove("video_cfg");
    Ok(CertifiedJob {
        entry,
        settings: settings(merged, job),
        planned: job.selection(count),
        scored_again: merged.duplicates_of(job).count() as u64,
        rates: solved(&episodes),
        episodes,
    })
}

/// Returns the settings of the last start, without those that affect no result.
fn settings(merged: &Merged, job: &Job) -> BTreeMap<String, Value> {
    let mut settings = merged.settings_of(job).last().cloned().unwrap_or_default();
    settings.retain(|name, _| !HOW.contains(&name.as_str()));
    settings
}
