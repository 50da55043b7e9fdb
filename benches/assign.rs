//! The ranks of the bench `assign`: they claim leases from a store of torch's protocol and return
//! them as done.
//!
//! ```text
//! assign PORT RANKS LEASES PAUSE_MS
//!     prints {"claim_p50_us": …, "claim_p99_us": …, "mark_p50_us": …, "mark_p99_us": …}
//! ```
//! Every rank has a thread and its own lease client, as in an evaluation. Together they claim
//! LEASES leases of one job, each with a pause before the next that stands for an episode. *claim*
//! is the time from the request to the block. *mark* is the time that an episode waits before it is
//! written.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench reads the clock, waits, and ends with an exit code"
)]

use std::collections::BTreeSet;
use std::process::exit;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use c10d::StoreAddr;
use jobs::assign::lease::{LeasedJob, NextStep, Want};
use jobs::job::JobIndex;
use runtime::eval::lease::{LeaseClient, LeaseConfig};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match *words.as_slice() {
        [port, ranks, leases, pause] => load(port, ranks, leases, pause),
        _ => Err("`PORT RANKS LEASES PAUSE_MS` is wanted (see benches/assign.py)".into()),
    };
    if let Err(err) = done {
        eprintln!("assign: {err}");
        exit(1);
    }
}

/// Latencies of one rank.
#[derive(Default)]
struct Seen {
    claims: Vec<Duration>,
    marks: Vec<Duration>,
}

fn load(port: &str, ranks: &str, leases: &str, pause: &str) -> Result<(), Failure> {
    let (port, ranks, leases) = (port.parse()?, ranks.parse()?, leases.parse()?);
    let pause = Duration::from_millis(pause.parse()?);
    let prefix = format!("bench/{}", std::process::id());
    let ready = Arc::new(Barrier::new(ranks));
    let threads: Vec<_> = (0..ranks)
        .map(|rank| {
            let addr = StoreAddr::local(port);
            let (config, ready) = (
                LeaseConfig {
                    addr,
                    prefix: prefix.clone(),
                    rank,
                },
                Arc::clone(&ready),
            );
            thread::spawn(move || run(config, leases, pause, &ready))
        })
        .collect();
    let mut all = Seen::default();
    for thread in threads {
        let seen = thread.join().map_err(|_| "a rank panicked")??;
        all.claims.extend(seen.claims);
        all.marks.extend(seen.marks);
    }
    if all.claims.len() != leases as usize {
        return Err(format!("{} of {leases} leases were taken", all.claims.len()).into());
    }
    let us = |times: &mut Vec<Duration>, share: f64| {
        times.sort_unstable();
        times
            .get((times.len() as f64 * share) as usize)
            .copied()
            .unwrap_or_default()
            .as_secs_f64()
            * 1e6
    };
    println!(
        "{{\"claim_p50_us\": {:.1}, \"claim_p99_us\": {:.1}, \"mark_p50_us\": {:.1}, \"mark_p99_us\": {:.1}}}",
        us(&mut all.claims, 0.5),
        us(&mut all.claims, 0.99),
        us(&mut all.marks, 0.5),
        us(&mut all.marks, 0.99)
    );
    Ok(())
}

fn run(
    config: LeaseConfig,
    leases: u64,
    pause: Duration,
    ready: &Barrier,
) -> Result<Seen, Failure> {
    let job = JobIndex(0);
    let blocks = (0..leases).map(|first| first..first + 1).collect();
    let (client, me) = LeaseClient::start(
        config,
        vec![LeasedJob {
            job,
            blocks,
            done: BTreeSet::new(),
            block_s: 1.0,
        }],
    )?;
    ready.wait();
    let mut seen = Seen::default();
    loop {
        let asked = Instant::now();
        let NextStep::Run(claim) = client.claim(Want::Any, BTreeSet::new())? else {
            return Ok(seen);
        };
        seen.claims.push(asked.elapsed());
        thread::sleep(pause);
        let asked = Instant::now();
        let marked = client
            .mark(me, job, claim.block)?
            .ok_or("a lease was lost")?;
        seen.marks.push(asked.elapsed());
        client.done(marked, job, claim.block);
    }
}
