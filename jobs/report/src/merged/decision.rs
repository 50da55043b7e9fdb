//! The decision of a sequential test that holds for the run as it is now.

use jobs::journal::{Decision, Verdict};
use jobs::time::Moment;

use crate::merged::Merged;

impl Merged {
    /// Returns the last decision, unless another launch has continued the run since then. A folder
    /// into which several runs were merged has none: each decision was about one of them.
    pub fn decision(&self) -> Option<&Decision> {
        let last = self
            .state
            .decisions
            .iter()
            .max_by_key(|decision| Moment::parse(&decision.at))?;
        let is_one_run = self.plan.provenance.runs.len() < 2;
        (is_one_run && !self.is_continued_after(last)).then_some(last)
    }

    /// Returns the number of rounds that the run needed, if a sequential test has decided.
    pub(crate) fn needed_rounds(&self) -> Option<u64> {
        self.decision()
            .filter(|decision| decision.verdict != Verdict::Undecided)
            .map(|decision| decision.rounds)
    }

    fn is_continued_after(&self, decision: &Decision) -> bool {
        let lives = self
            .state
            .events
            .iter()
            .flat_map(|events| events.lives.iter().chain(&events.repeats));
        let at = Moment::parse(&decision.at);
        lives
            .map(|life| &life.start)
            .any(|start| start.launch != decision.launch && Moment::parse(&start.started) > at)
    }
}
