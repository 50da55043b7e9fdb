//! The faults of a soak test: one every few seconds, by a seed.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use rig::wait::now;

use crate::chaos::fault::{python_processes, send, stop};
use crate::chaos::soak::nodes::Nodes;
use crate::chaos::tally::Tally;

/// What may happen.
#[derive(Clone, Copy, Debug)]
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
    /// Returns what happens, the more often the wider its range.
    fn of(draw: u64) -> Gust {
        match draw % 17 {
            0..2 => Gust::LoseNode,
            2..4 => Gust::LoseHost,
            4 => Gust::Leave,
            5..8 => Gust::KillRank,
            8..10 => Gust::StopRank,
            10 => Gust::HangRank,
            11..14 => Gust::KillSimulator,
            14..16 => Gust::HangSimulator,
            _ => Gust::StopLauncher,
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
    tally: Tally,
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
            tally: Tally::default(),
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
        let gust = Gust::of(self.draw(0));
        let has_met = self.inject(gust, nodes);
        self.tally.fault(gust, has_met);
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
        self.tally.fmt(f)
    }
}
