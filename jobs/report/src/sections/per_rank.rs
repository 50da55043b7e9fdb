//! Computes the report of each rank: what it did, and when.

use std::collections::BTreeSet;

use jobs::plan::RunPlan;

use crate::merged::Merged;
use crate::merged::busy;
use crate::merged::lives::{Events, LifeLines, SpanLines};
use crate::schema::{HowEnded, JobSpan, LifeReport, RankReport};

/// Returns one entry for each journal in which a rank has started.
pub(crate) fn ranks(merged: &Merged) -> Vec<RankReport> {
    let sources = merged.journals.sources().len();
    let (mut episodes, mut jobs) = (vec![0; sources], vec![BTreeSet::new(); sources]);
    for job in &merged.plan.jobs {
        for record in &merged.lines(job.index).episodes {
            let source = record.place.source as usize;
            episodes[source] += 1;
            jobs[source].insert(job.index);
        }
    }
    for (events, jobs) in merged.state.events.iter().zip(&mut jobs) {
        jobs.extend(
            events
                .lives
                .iter()
                .flat_map(|life| &life.spans)
                .map(|span| span.job),
        );
    }
    let begun = merged
        .state
        .events
        .iter()
        .enumerate()
        .filter(|(_, events)| !events.lives.is_empty());
    let mut ranks: Vec<_> = begun
        .map(|(index, events)| {
            rank(
                &merged.plan,
                events,
                episodes[index],
                jobs[index].len() as u64,
            )
        })
        .collect();
    ranks.sort_by(|a, b| (a.rank, &a.journal).cmp(&(b.rank, &b.journal)));
    ranks
}

fn rank(plan: &RunPlan, events: &Events, episodes: u64, jobs: u64) -> RankReport {
    let last = events.place().cloned().unwrap_or_default();
    let busy_s: f64 = events.lives.iter().map(LifeLines::busy_s).sum();
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
        gpu_busy: busy::share(events.gpu_busy.iter().copied()),
        lives: events.lives.iter().map(life).collect(),
        spans: events
            .lives
            .iter()
            .flat_map(|life| &life.spans)
            .map(|of| span(plan, of))
            .collect(),
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
        job: plan
            .jobs
            .get(span.job.0)
            .map_or_else(|| format!("job {}", span.job.0), |job| job.name.clone()),
        attempt: span.attempt,
        started: span.started.text(),
        ended: span.ended.text(),
        whole: span.whole,
        error: span.error.clone(),
    }
}
