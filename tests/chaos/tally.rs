//! Counts faults.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display, Formatter};

/// For each fault, how often it had a target, and how often there was none any more.
#[derive(Default)]
pub struct Tally(BTreeMap<String, [u64; 2]>);

impl Tally {
    /// Counts a fault by the names of what happens and of its victim.
    pub fn fault(&mut self, fault: impl Debug, has_met: bool) {
        let name = format!("{fault:?}");
        let words = name.split(|c: char| !c.is_alphabetic());
        let words = words.filter(|word| word.len() > 2 && *word != "Strike");
        let name = words.collect::<Vec<_>>().join(" ");
        self.0.entry(name).or_default()[usize::from(!has_met)] += 1;
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let all: u64 = self.0.values().map(|[met, _]| met).sum();
        writeln!(f, "{:<16} {:>6} {:>12}", "fault", "met", "came too late")?;
        for (name, [met, missed]) in &self.0 {
            writeln!(f, "{name:<16} {met:>6} {missed:>12}")?;
        }
        writeln!(f, "{:<16} {all:>6}", "all")
    }
}
