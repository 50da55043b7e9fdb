//! The ranks of the bench `assign`: they claim leases from a store of torch's protocol and return
//! them as done.
//!
//! ```text
//! measure assign PORT RANKS LEASES PAUSE_MS
//!     prints {"claim_p50_us": …, "claim_p99_us": …, "mark_p50_us": …, "mark_p99_us": …}
//! ```
//! Every rank has a thread and its own lease client, as in an evaluation. Together they claim
//! LEASES leases of one job, each with a pause before the next that stands for an episode. *claim*
//! is the time from the request to the block. *mark* is the time that an episode waits before it is
//! written.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use jobs::assign::lease::{LeasedJob, NextStep};
use jobs::assign::{self, Assignment, Work};
use jobs::job::JobIndex;
use jobs::placement::Placement;
use runtime::eval::lease::Leases;
use serde_json::json;
use tcpstore::StoreAddr;

use crate::{Outcome, now, pause};

type Failure = Box<dyn Error + Send + Sync>;

/// Latencies of one rank.
#[derive(Default)]
struct Seen {
    claims: Vec<Duration>,
    marks: Vec<Duration>,
}

pub fn main(words: &[&str]) -> Outcome<()> {
    let &[port, ranks, leases, rest] = words else {
        return Err("expected PORT RANKS LEASES PAUSE_MS".into());
    };
    let (port, ranks, leases) = (port.parse()?, ranks.parse()?, leases.parse()?);
    let rest = Duration::from_millis(rest.parse()?);
    let prefix = format!("bench/{}", std::process::id());
    let ready = Barrier::new(ranks);
    let work = work(leases)?;
    let mut all = Seen::default();
    thread::scope(|scope| -> Result<(), Failure> {
        let start = |rank| {
            let (prefix, work, ready) = (prefix.clone(), &work, &ready);
            scope.spawn(move || -> Result<Seen, Failure> {
                let addr = StoreAddr::local(port);
                let held = Leases::start(addr, prefix, rank, vec![task(leases)])?;
                run(held, work, rest, ready)
            })
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        for thread in threads {
            let seen = thread.join().map_err(|_| "a rank panicked")??;
            all.claims.extend(seen.claims);
            all.marks.extend(seen.marks);
        }
        Ok(())
    })
    .map_err(|err| -> Box<dyn Error> { err })?;
    if all.claims.len() as u64 != leases {
        return Err(format!("{} of {leases} leases were taken", all.claims.len()).into());
    }
    all.claims.sort_unstable();
    all.marks.sort_unstable();
    let us = |times: &[Duration], share: f64| {
        let time = times.get((times.len() as f64 * share) as usize);
        (time.copied().unwrap_or_default().as_secs_f64() * 1e7).round() / 10.0
    };
    let measured = json!({
        "claim_p50_us": us(&all.claims, 0.5),
        "claim_p99_us": us(&all.claims, 0.99),
        "mark_p50_us": us(&all.marks, 0.5),
        "mark_p99_us": us(&all.marks, 0.99),
    });
    println!("{measured}");
    Ok(())
}

/// Returns the job, all of which each rank may run.
fn work(episodes: u64) -> Outcome<Work> {
    let job = json!({"name": "a", "arena_env_args": {"environment": "reach"},
                     "policy_type": "scripted", "num_episodes": episodes});
    let jobs = jobs::file::parse(&json!({"jobs": [job]}))?;
    let placement = Placement::of_ranks(vec![0]);
    Ok(assign::work(&jobs, &placement, Assignment::default(), 0).remove(0))
}

/// Returns the blocks of the job, of one episode each.
fn task(episodes: u64) -> LeasedJob {
    LeasedJob {
        job: JobIndex(0),
        blocks: (0..episodes).map(|first| first..first + 1).collect(),
        done: BTreeSet::new(),
        block_s: 1.0,
    }
}

fn run(mut held: Leases, work: &Work, rest: Duration, ready: &Barrier) -> Result<Seen, Failure> {
    ready.wait();
    let mut seen = Seen::default();
    loop {
        let asked = now();
        let NextStep::Run(claim) = held.claim(BTreeSet::new())? else {
            return Ok(seen);
        };
        seen.claims.push(asked.elapsed());
        held.hold(&claim, work, true, &[]);
        pause(rest);
        let asked = now();
        if !held.may_write(claim.job, claim.episodes.start)? {
            return Err("a lease was lost".into());
        }
        seen.marks.push(asked.elapsed());
        held.written(claim.job, claim.episodes.start);
    }
}
