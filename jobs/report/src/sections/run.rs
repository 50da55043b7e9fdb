//! Computes the sections of a report about the run (time, machines, configuration) and its ranks:
//! what each did, and when.

use std::collections::{BTreeMap, BTreeSet};

use jobs::job::JobIndex;
use jobs::journal::{PolicyFiles, RankStart};
use jobs::plan::RunPlan;
use jobs::time::Moment;
use serde_json::Value;

use crate::Context;
use crate::merged::Merged;
use crate::merged::lives::{Events, LifeLines, SpanLines, busy_share};
use crate::schema::{
    ConfigReport, GpuReport, HowEnded, JobReport, JobSpan, LaunchReport, LifeReport, PolicyReport,
    RankReport, RunReport,
};
use crate::sections::per_job::distinct;

/// Returns when and where the run took place, and how its report was made.
pub(crate) fn run(merged: &Merged, context: Context) -> RunReport {
    let starts = || merged.starts();
    let last = last_start(&merged.state.events);
    let gpu = |start: &RankStart| {
        Some(GpuReport {
            host: start.host.clone(),
            node: start.node,
            gpu: start.gpu.clone()?,
        })
    };
    RunReport {
        id: merged.plan.id.clone(),
        started: starts().map(|start| start.started.clone()).min(),
        ended: merged.state.span.map(|[_, last]| last.text()),
        wall_s: merged.state.span.map(|[first, last]| last.since(first)),
        written: context.created,
        argv: context.argv,
        git: merged.plan.git.clone(),
        world_size: last.map_or(merged.plan.world_size, |start| start.world_size),
        hosts: distinct(starts().map(|start| start.host.clone())),
        gpus: distinct(starts().filter_map(gpu)),
        versions: versions(starts()),
        launches: launches(&merged.state.events),
        resumed_from: merged.plan.resumed_from.clone(),
        gathered_by: context.route,
        missing_ranks: context.missing_ranks,
        stopped: context.stopped,
        rrun: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Returns the last start, but not of a run that was merged into this one: whose rank started last
/// says nothing about the others.
fn last_start(events: &[Events]) -> Option<&RankStart> {
    let is_own = |events: &&Events| run_of(&events.journal).is_none();
    let lives = events.iter().filter(is_own).flat_map(|own| &own.lives);
    let starts = || lives.clone().map(|life| &life.start);
    let time = |start: &&RankStart| Moment::parse(&start.started);
    let last = starts().max_by_key(time)?;
    // The clocks of machines may differ by more than a restart takes.
    let of_launch = starts().filter(|one| one.launch.is_some() && one.launch == last.launch);
    let place = |start: &&RankStart| (start.restart, start.round, time(start));
    of_launch.max_by_key(place).or(Some(last))
}

/// Returns the starts of the lowest rank, without the restarts by its launcher; in a merged folder
/// those of each run.
fn launches(events: &[Events]) -> Vec<LaunchReport> {
    let mut lowest: BTreeMap<Option<&str>, &Events> = BTreeMap::new();
    let begun = events.iter().filter(|one| one.starts().next().is_some());
    for events in begun {
        let kept = lowest.entry(run_of(&events.journal)).or_insert(events);
        if events.rank < kept.rank {
            *kept = events;
        }
    }
    let starts = lowest.values().flat_map(|events| events.starts());
    let first = starts.filter(|start| start.restart == 0 && start.round == 0);
    distinct(first.map(|start| LaunchReport {
        started: start.started.clone(),
        world_size: start.world_size,
    }))
}

/// Returns the suffix that a merged folder adds to the journals of a run: `5f1c` of
/// `journal/journal_rank0_5f1c.jsonl`, `5f1c_09ab` of one of copies that have diverged.
pub(crate) fn run_of(journal: &str) -> Option<&str> {
    let stem = journal.rsplit('/').next()?.strip_suffix(".jsonl")?;
    let (_, run) = stem.strip_prefix("journal_rank")?.split_once('_')?;
    Some(run)
}

/// Returns the versions that ranks reported, by program or library.
pub(crate) fn versions<'a>(
    starts: impl Iterator<Item = &'a RankStart>,
) -> BTreeMap<String, Vec<String>> {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, version) in distinct(starts.flat_map(|start| &start.versions)) {
        versions
            .entry(name.clone())
            .or_default()
            .push(version.clone());
    }
    versions
}

/// Returns what was asked for, and the settings in effect.
pub(crate) fn config(merged: &Merged, jobs: &[JobReport]) -> ConfigReport {
    let plan = &merged.plan;
    let rules = merged.starts().map(|start| start.device_reason.clone());
    ConfigReport {
        jobs_file: plan.jobs_file.clone(),
        sha256: plan.jobs_sha256.clone(),
        seed: plan.seed,
        world_size_at_start: plan.world_size,
        policies: policies(merged, jobs),
        device_rules: distinct(rules.filter(|rule| !rule.is_empty())),
        settings: common(jobs),
    }
}

fn policies(merged: &Merged, jobs: &[JobReport]) -> Vec<PolicyReport> {
    let of = |job: &&JobReport, path: &str| {
        job.settings.get("policy_path").and_then(Value::as_str) == Some(path)
    };
    let dtype = |job: &JobReport| Some(job.settings.get("dtype")?.as_str()?.to_owned());
    let report = |files: &PolicyFiles| {
        let own = jobs.iter().filter(|job| of(job, &files.path));
        PolicyReport {
            files: files.into(),
            dtypes: distinct(own.filter_map(dtype)),
        }
    };
    distinct(merged.policies().iter().map(report))
}

/// Returns the settings that all jobs which were begun have in common.
fn common(jobs: &[JobReport]) -> BTreeMap<String, Value> {
    let mut begun = jobs.iter().filter(|job| !job.settings.is_empty());
    let Some(first) = begun.next() else {
        return BTreeMap::new();
    };
    begun.fold(first.settings.clone(), |mut common, job| {
        common.retain(|name, value| job.settings.get(name) == Some(value));
        common
    })
}

/// Returns one entry for each journal in which a rank has started.
pub(crate) fn ranks(merged: &Merged) -> Vec<RankReport> {
    let mut ran = vec![(0, BTreeSet::new()); merged.state.events.len()];
    for job in &merged.plan.jobs {
        for record in merged.episodes(job.index) {
            let (episodes, jobs) = &mut ran[record.place.source as usize];
            *episodes += 1;
            jobs.insert(job.index);
        }
    }
    let events = merged.state.events.iter().zip(ran);
    let begun = events.filter(|(events, _)| !events.lives.is_empty());
    let report = |(events, (episodes, mut jobs)): (&Events, (u64, BTreeSet<JobIndex>))| {
        let spans = events.lives.iter().flat_map(|life| &life.spans);
        jobs.extend(spans.map(|span| span.job));
        rank(&merged.plan, events, episodes, jobs.len() as u64)
    };
    let mut ranks: Vec<_> = begun.map(report).collect();
    ranks.sort_by(|a, b| (a.rank, &a.journal).cmp(&(b.rank, &b.journal)));
    ranks
}

fn rank(plan: &RunPlan, events: &Events, episodes: u64, jobs: u64) -> RankReport {
    let last = events.place().cloned().unwrap_or_default();
    let busy_s: f64 = events.lives.iter().map(LifeLines::busy_s).sum();
    let spans = events.lives.iter().flat_map(|life| &life.spans);
    let count = |of: fn(&&LifeLines) -> bool| events.lives.iter().filter(of).count() as u64;
    RankReport {
        rank: last.rank,
        journal: events.journal.clone(),
        node: last.node,
        local_rank: last.local_rank,
        host: last.host,
        device: last.device,
        device_reason: last.device_reason,
        starts: events.lives.len() as u64,
        restarts: count(|life| life.start.restart > 0),
        deaths: count(|life| life.how == HowEnded::Died),
        busy_s,
        idle_s: (events.lives.iter().map(LifeLines::wall_s).sum::<f64>() - busy_s).max(0.0),
        jobs,
        episodes,
        costs: events.costs.clone(),
        gpu_busy: busy_share(events.gpu_busy.iter().copied()),
        lives: events.lives.iter().map(life).collect(),
        spans: spans.map(|of| span(plan, of)).collect(),
    }
}

impl RankReport {
    /// Returns the share of its time that it was in jobs; `None` if no life came to an end.
    pub(crate) fn busy(&self) -> Option<f64> {
        let whole = self.busy_s + self.idle_s;
        (whole > 0.0).then(|| self.busy_s / whole)
    }
}

fn life(life: &LifeLines) -> LifeReport {
    LifeReport {
        started: life.start.started.clone(),
        ended: life.ended.text(),
        end: life.how,
        failure: life.end.as_ref().and_then(|end| end.failure.clone()),
        restart: life.start.restart,
        round: life.start.round,
        pid: life.start.pid,
    }
}

fn span(plan: &RunPlan, span: &SpanLines) -> JobSpan {
    JobSpan {
        job: plan.jobs[span.job.0].name.clone(),
        attempt: span.attempt,
        started: span.started.text(),
        ended: span.ended.text(),
        whole: span.whole,
        error: span.error.clone(),
    }
}
