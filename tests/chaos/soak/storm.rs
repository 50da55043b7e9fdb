//! The faults of a soak test: one every few seconds, by a seed.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use rig::wait::now;

use crate::chaos::fault::{python_processes, send, stop};
use crate::chaos::soak::nodes::Nodes;

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gust {
    /// All processes of a node are gone, and come back after a while.
    LoseNode,
    /// The same of the node that hosts the rendezvous.
    LoseHost,
    /// SIGTERM to a launcher: the node leaves.
    Leave,
    KillRank,
    /// SIGSTOP to a rank, for a while.
    StopRank,
    /// SIGSTOP to a rank, without an end: it hangs.
    HangRank,
    KillSimulator,
    /// SIGSTOP to a simulator, without an end.
    HangSimulator,
    /// SIGSTOP to a launcher, for longer than the others wait for it.
    StopLauncher,
}

impl Gust {
    /// What may happen, the more often the more often it is listed.
    const ALL: [Gust; 17] = [
        Gust::LoseNode,
        Gust::LoseNode,
        Gust::LoseHost,
        Gust::LoseHost,
        Gust::Leave,
        Gust::KillRank,
        Gust::KillRank,
        Gust::KillRank,
        Gust::StopRank,
        Gust::StopRank,
        Gust::HangRank,
        Gust::KillSimulator,
        Gust::KillSimulator,
        Gust::KillSimulator,
        Gust::HangSimulator,
        Gust::HangSimulator,
        Gust::StopLauncher,
    ];

    fn name(self) -> &'static str {
        match self {
            Gust::LoseNode => "a node is lost",
            Gust::LoseHost => "the host is lost",
            Gust::Leave => "a node leaves (SIGTERM)",
            Gust::KillRank => "SIGKILL to a rank",
            Gust::StopRank => "SIGSTOP to a rank, for a while",
            Gust::HangRank => "SIGSTOP to a rank",
            Gust::KillSimulator => "SIGKILL to a simulator",
            Gust::HangSimulator => "SIGSTOP to a simulator",
            Gust::StopLauncher => "SIGSTOP to a launcher, for 4 s",
        }
    }
}

/// The faults so far, and the next one.
pub struct Storm {
    seed: u64,
    count: u64,
    next: Instant,
    /// Mean time between two faults.
    pace: Duration,
    met: BTreeMap<Gust, [u64; 2]>,
}

impl Storm {
    /// Returns the faults of this seed. A short run has more of them in the same time.
    pub fn new(seed: u64, hours: f64) -> Storm {
        let pace = Duration::from_secs(if hours < 1.0 { 2 } else { 5 });
        Storm {
            seed,
            count: 0,
            next: now() + pace,
            pace,
            met: BTreeMap::new(),
        }
    }

    fn draw(&self, what: u64) -> u64 {
        jobs::seed::noise(self.seed, self.count, what)
    }

    /// Injects a fault, if it is time for one.
    pub fn blow(&mut self, nodes: &mut Nodes) {
        if now() < self.next {
            return;
        }
        self.count += 1;
        let gust = Gust::ALL[self.draw(0) as usize % Gust::ALL.len()];
        let has_met = self.inject(gust, nodes);
        self.met.entry(gust).or_default()[usize::from(!has_met)] += 1;
        let share = 0.5 + (self.draw(1) % 1000) as f64 / 1000.0;
        self.next = now() + self.pace.mul_f64(share);
    }

    /// Returns whether there was something to do it to.
    fn inject(&self, gust: Gust, nodes: &mut Nodes) -> bool {
        let which = self.draw(2) as usize;
        let time = Duration::from_millis(200 + self.draw(3) % 2800);
        let pick = |pids: Vec<i32>| pids.get(which % pids.len().max(1)).copied();
        let launchers: Vec<i32> = nodes.up().iter().map(|running| running.pid()).collect();
        let simulators = || python_processes(nodes.mark()).1;
        match gust {
            Gust::LoseNode => {
                let others = launchers.into_iter().filter(|pid| !nodes.is_host(*pid));
                pick(others.collect()).is_some_and(|pid| lose(nodes, pid, time))
            }
            Gust::LoseHost => {
                let host = launchers.into_iter().find(|pid| nodes.is_host(*pid));
                host.is_some_and(|pid| lose(nodes, pid, time))
            }
            Gust::Leave => pick(launchers).is_some_and(|pid| send(pid, "TERM")),
            Gust::KillRank => pick(nodes.ranks()).is_some_and(|pid| send(pid, "KILL")),
            Gust::StopRank => pick(nodes.ranks()).is_some_and(|pid| stop(pid, time)),
            Gust::HangRank => pick(nodes.ranks()).is_some_and(|pid| send(pid, "STOP")),
            Gust::KillSimulator => pick(simulators()).is_some_and(|pid| send(pid, "KILL")),
            Gust::HangSimulator => pick(simulators()).is_some_and(|pid| send(pid, "STOP")),
            Gust::StopLauncher => {
                let long = Duration::from_secs(4);
                pick(launchers).is_some_and(|pid| stop(pid, long))
            }
        }
    }
}

/// Kills a launcher, whose ranks die with it, and keeps it down for a while.
fn lose(nodes: &mut Nodes, pid: i32, time: Duration) -> bool {
    let is_lost = send(pid, "KILL");
    nodes.rest(pid, time);
    is_lost
}

impl Display for Storm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let all: u64 = self.met.values().map(|[met, _]| met).sum();
        writeln!(f, "{:<32} {:>6} {:>10}", "fault", "met", "no target")?;
        for (gust, [met, missed]) in &self.met {
            writeln!(f, "{:<32} {met:>6} {missed:>10}", gust.name())?;
        }
        writeln!(f, "{:<32} {all:>6}", "all")
    }
}
