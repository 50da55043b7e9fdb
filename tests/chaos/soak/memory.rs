//! Memory of launchers and ranks while a run goes on.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::time::{Duration, Instant};

use rig::wait::now;

use crate::chaos::soak::nodes::Nodes;

/// Parts of the run by which memory is told.
const PARTS: usize = 10;

/// Time between two samples.
const PERIOD: Duration = Duration::from_secs(1);

/// A process that is younger than this is still starting.
const GROWN: Duration = Duration::from_secs(3);

/// Anonymous memory in MiB of all launchers and ranks, by parts of the run.
#[derive(Default)]
pub struct Memory {
    last: Option<Instant>,
    /// By the name of what the processes are.
    samples: BTreeMap<&'static str, [Vec<f64>; PARTS]>,
    /// First samples of processes, to know their age.
    seen: BTreeMap<i32, Instant>,
}

impl Memory {
    /// Takes a sample, if it is time for one. `progress` is the share of the episodes that are done.
    pub fn sample(&mut self, nodes: &Nodes, progress: f64) {
        if self.last.is_some_and(|last| last.elapsed() < PERIOD) {
            return;
        }
        self.last = Some(now());
        let part = ((progress * PARTS as f64) as usize).min(PARTS - 1);
        let launchers = nodes.up().into_iter();
        let launchers = launchers.map(|running| ("launchers", running.pid()));
        let ranks = nodes.ranks().into_iter().map(|pid| ("ranks", pid));
        for (name, pid) in launchers.chain(ranks) {
            let since = *self.seen.entry(pid).or_insert_with(now);
            if let Some(mib) = anonymous_mib(pid).filter(|_| since.elapsed() >= GROWN) {
                self.samples.entry(name).or_default()[part].push(mib);
            }
        }
    }

    /// Checks that processes do not grow while nothing happens to them: in the last part, they need
    /// no more memory than in the one before. Earlier they are young, and what one needs depends on
    /// the jobs that it has run.
    pub fn check(&self) {
        for (name, samples) in &self.samples {
            let (Some(early), Some(late)) =
                (median(&samples[PARTS - 2]), median(&samples[PARTS - 1]))
            else {
                continue;
            };
            assert!(
                late <= early * 1.1 + 4.0,
                "memory of {name} has grown from {early:.1} to {late:.1} MiB"
            );
        }
    }
}

fn anonymous_mib(pid: i32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

impl Display for Memory {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "anonymous memory, MiB, by tenths of the episodes")?;
        for (name, samples) in &self.samples {
            let medians = samples.iter().map(|samples| median(samples).unwrap_or(0.0));
            writeln!(f, "{name:<10} {:.1?}", medians.collect::<Vec<_>>())?;
        }
        Ok(())
    }
}
