//! Computes what the episodes of a job felt of its latency, and the series of jobs that are equal
//! but for it.

use std::io;

use jobs::episode::FeltLatency;
use jobs::job::Job;
use jobs::latency::Delay;
use jobs::plan::Identity;

use crate::OrderedMap;
use crate::merged::Merged;
use crate::schema::{
    JobReport, LatencyMode, LatencyPoint, LatencyReport, LatencySeries, LatencyUnit,
};
use crate::stats::Solved;

/// Returns the latency of a job; `None` if it has none.
pub(crate) fn of_job(merged: &Merged, job: &Job) -> io::Result<Option<LatencyReport>> {
    let Some(latency) = job.latency else {
        return Ok(None);
    };
    let (mut felt, mut reader) = (FeltLatency::default(), merged.journals.reader());
    for record in merged.episodes(job.index) {
        if let Some(of_episode) = &merged.episode(&mut reader, record)?.latency {
            felt.merge(of_episode);
        }
    }
    let (mode, given) = match latency.delay {
        Delay::Steps(steps) => (LatencyMode::Steps, Some(steps as f64)),
        Delay::Ms(ms) => (LatencyMode::Ms, Some(ms)),
        Delay::Measured => (LatencyMode::Measured, None),
    };
    let any = |steps: u64| (felt.inferences > 0).then_some(steps);
    Ok(Some(LatencyReport {
        mode,
        given,
        hold: latency.hold,
        inferences: felt.inferences,
        min_steps: any(felt.min_steps),
        mean_steps: felt.mean_steps(),
        max_steps: any(felt.max_steps),
        held_actions: felt.held,
    }))
}

/// Returns the series of jobs that are equal but for their latency, if it differs among them;
/// `reports` are those of the jobs, in order.
pub(crate) fn series(jobs: &[Job], reports: &[JobReport], seed: u64) -> Vec<LatencySeries> {
    if jobs.iter().all(|job| job.latency.is_none()) {
        return Vec::new();
    }
    let mut equal: OrderedMap<_, Vec<&JobReport>> = OrderedMap::default();
    for (job, report) in jobs.iter().zip(reports) {
        let identity = Identity::of(job, seed).without_latency();
        equal.entry(identity).or_default().push(report);
    }
    equal.values().filter_map(|jobs| one_series(jobs)).collect()
}

fn one_series(jobs: &[&JobReport]) -> Option<LatencySeries> {
    let unit = unit(jobs);
    let mut points: Vec<_> = jobs.iter().filter_map(|job| point(job, unit)).collect();
    points.sort_by(|a, b| a.latency.total_cmp(&b.latency));
    let (first, last) = (points.first()?, points.last()?);
    if first.latency >= last.latency {
        return None;
    }
    Some(LatencySeries {
        environment: jobs.first()?.environment.clone(),
        policy_type: jobs.first()?.policy_type.clone(),
        unit,
        points,
    })
}

/// Returns milliseconds if some latency is given in them, and every other one is 0.
fn unit(jobs: &[&JobReport]) -> LatencyUnit {
    let latencies = || jobs.iter().filter_map(|job| job.latency.as_ref());
    let is_in_ms = |latency: &LatencyReport| latency.mode == LatencyMode::Ms;
    let fits = |latency: &LatencyReport| is_in_ms(latency) || latency.given == Some(0.0);
    if latencies().any(is_in_ms) && latencies().all(fits) {
        LatencyUnit::Ms
    } else {
        LatencyUnit::Steps
    }
}

/// Returns the point of a job; `None` if its latency in this unit is not known.
fn point(job: &JobReport, unit: LatencyUnit) -> Option<LatencyPoint> {
    let latency = match &job.latency {
        None => 0.0,
        Some(latency) => match (latency.mode, unit) {
            (LatencyMode::Steps, _) | (LatencyMode::Ms, LatencyUnit::Ms) => latency.given?,
            (LatencyMode::Ms | LatencyMode::Measured, _) => latency.mean_steps?,
        },
    };
    Some(LatencyPoint {
        job: job.name.clone(),
        latency,
        rates: Solved::from(&job.rates).into(),
    })
}
