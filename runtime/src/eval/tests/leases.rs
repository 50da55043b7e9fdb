//! Test helpers: a real store, and ranks with leases in it.

use std::collections::BTreeSet;
use std::time::Duration;

use jobs::assign::lease::{Claim, NextStep};
use jobs::assign::{self, Assign, Assignment, Shard, Work};
use jobs::job::Job;
use jobs::placement::Placement;
use serde_json::json;

use crate::eval::lease::{BlockCut, Leases};

use tcpstore::{Store, StoreAddr};

/// Starts a store in this process.
pub fn serve() -> Store {
    Store::connect(&StoreAddr::local(0), 1, true, Duration::from_secs(10)).unwrap()
}

/// Returns a job with `episodes` episodes in `rebuilds` builds of `num_envs` environments, which is
/// the size of its blocks at most.
pub fn work(episodes: u64, rebuilds: u64, num_envs: u64) -> Work {
    let env = json!({"environment": "reach", "num_envs": num_envs});
    let more = json!({"num_episodes": episodes, "num_rebuilds": rebuilds, "arena_env_args": env});
    leased(&crate::eval::tests::jobs([more])).remove(0)
}

/// Returns the jobs of two ranks, which get leases for them.
pub fn leased(jobs: &[Job]) -> Vec<Work> {
    let dynamic = Assignment {
        assign: Assign::Dynamic,
        shard: Shard::Episodes,
    };
    assign::work(jobs, &Placement::of_ranks(vec![0; 2]), dynamic, 0)
}

/// How their jobs are cut.
pub const CUT: BlockCut = BlockCut {
    shard: Shard::Episodes,
    world_size: 2,
};

/// Returns the leases of one of two ranks.
pub fn client(store: &Store, rank: usize, work: &Work) -> Leases {
    client_at(store.port(), rank, work)
}

/// Works like [`client`], with the store at a port.
pub fn client_at(port: u16, rank: usize, work: &Work) -> Leases {
    let (addr, prefix) = (StoreAddr::local(port), "leases".to_owned());
    let tasks = CUT.tasks(std::slice::from_ref(work), &[]);
    Leases::start(addr, prefix, rank, tasks).unwrap()
}

/// Returns the next claim of a rank.
pub fn claim(leases: &mut Leases) -> Claim {
    match leases.claim(BTreeSet::new()).unwrap() {
        NextStep::Run(claim) => claim,
        other => panic!("there is work: {other:?}"),
    }
}

/// Lets a rank without leases begin with a job, of which the episodes `done` have ended; returns
/// its first claim.
pub fn begin(leases: &mut Leases, work: &Work, done: &[u64]) -> Claim {
    let first = claim(leases);
    assert!(leases.hold(&first, work, true, done));
    leases.visit(work, done.to_vec(), BTreeSet::new());
    assert_eq!(leases.next_build(), Some(0));
    first
}
