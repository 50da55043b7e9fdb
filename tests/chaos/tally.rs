//! Counts faults and results over all runs.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};

use crate::chaos::fault::Fault;
use crate::chaos::scenario::Scenario;

/// Counters over all runs.
#[derive(Default)]
pub struct Tally {
    pub launches: u64,
    pub violations: Vec<String>,
    runs: u64,
    /// For each fault, how often it had a target, and how often there was none any more.
    faults: BTreeMap<&'static str, [u64; 2]>,
}

impl Tally {
    /// Counts a fault.
    pub fn fault(&mut self, fault: &Fault, has_met: bool) {
        self.faults.entry(fault.name()).or_default()[usize::from(!has_met)] += 1;
    }

    /// Counts a finished run.
    pub fn ran(&mut self, scenario: &Scenario, found: Result<(), String>) {
        self.runs += 1;
        self.violations
            .extend(found.err().map(|reason| format!("{scenario:?}: {reason}")));
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let met: u64 = self.faults.values().map(|[met, _]| met).sum();
        writeln!(f, "{:<30} {:>6} {:>12}", "fault", "met", "came too late")?;
        for (name, [met, missed]) in &self.faults {
            writeln!(f, "{name:<30} {met:>6} {missed:>12}")?;
        }
        write!(
            f,
            "{} runs, {} launches, {met} faults: {} runs ended as undisturbed ones, {} did not",
            self.runs,
            self.launches,
            self.runs - self.violations.len() as u64,
            self.violations.len()
        )
    }
}
