//! The faults of a soak test: one every few seconds, by a seed.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use rig::wait::now;

use crate::chaos::fault::{Blow, Fault, Victim, pick, python_processes};
use crate::chaos::soak::nodes::Nodes;
use crate::chaos::tally::Tally;

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
        let fault = self.fault();
        let has_met = inject(fault, nodes);
        self.tally
            .fault(Fault::Strike(fault.0, fault.1, fault.2), has_met);
        let share = 0.5 + (self.draw(1) % 1000) as f64 / 1000.0;
        self.next = now() + self.pace.mul_f64(share);
    }

    /// Returns what happens next, the more often the wider its range.
    fn fault(&self) -> (Blow, Victim, u64) {
        let time = Duration::from_millis(200 + self.draw(3) % 2800);
        let (blow, victim) = match self.draw(0) % 17 {
            // A launcher's ranks die with it: all processes of a node are gone.
            0..2 => (Blow::Kill, Victim::Launcher),
            2..4 => (Blow::Kill, Victim::Host),
            // The node leaves.
            4 => (Blow::Term, Victim::Launcher),
            5..8 => (Blow::Kill, Victim::Rank),
            8..10 => (Blow::Stop(time), Victim::Rank),
            10 => (Blow::Hang, Victim::Rank),
            11..14 => (Blow::Kill, Victim::Simulator),
            14..16 => (Blow::Hang, Victim::Simulator),
            // Longer than the others wait for it.
            _ => (Blow::Stop(Duration::from_secs(4)), Victim::Launcher),
        };
        (blow, victim, self.draw(2))
    }
}

/// Returns whether there was something to do it to. A launcher that is killed stays down for a
/// while.
fn inject((blow, victim, which): (Blow, Victim, u64), nodes: &mut Nodes) -> bool {
    let launchers = nodes.up().into_iter().map(|running| running.pid());
    let pids: Vec<i32> = match (blow, victim) {
        (_, Victim::Host) => launchers.filter(|pid| nodes.is_host(*pid)).collect(),
        (Blow::Kill, Victim::Launcher) => launchers.filter(|pid| !nodes.is_host(*pid)).collect(),
        (_, Victim::Launcher) => launchers.collect(),
        (_, Victim::Rank) => nodes.ranks(),
        (_, Victim::Simulator | Victim::Policy) => python_processes(nodes.mark()).1,
    };
    let Some(pid) = pick(&pids, which) else {
        return false;
    };
    let is_struck = blow.strike(pid);
    if blow == Blow::Kill && matches!(victim, Victim::Launcher | Victim::Host) {
        nodes.rest(pid, Duration::from_millis(200 + which % 2800));
    }
    is_struck
}

impl Display for Storm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.tally.fmt(f)
    }
}
