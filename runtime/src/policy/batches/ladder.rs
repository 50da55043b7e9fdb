//! How many rows fit into one inference: learnt by falling. Pure.
//!
//! ```text
//! 8 rows ─ out of memory ─► 4 rows ─ out of memory ─► 2 rows ─ answered: 2 from now on, and that is said
//! 1 row ─ out of memory ─► 1 row, once more ─ out of memory ─► given up
//! ```
//!
//! Rows only become fewer: what was too much once is too much again, when the others on the GPU are at their peak.

/// What is known of a checkpoint on this device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ladder {
    /// Rows at most, once there were too many; 0 where not even one fitted.
    limit: Option<usize>,
    /// The rows that were too many, until fewer have been answered.
    falls_from: Option<usize>,
    /// One row was too much a moment ago.
    is_last_try: bool,
}

/// What to do when memory was short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Half of them.
    Halve,
    /// The one row again: what a neighbour took for a moment may be free.
    Again,
    /// Not even one row fits.
    GiveUp,
}

/// A fall that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// Rows that were too many.
    pub from: usize,
    /// Rows at most from now on.
    pub to: usize,
}

impl Ladder {
    /// Rows at most, if there ever were too many; 0 if one was.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Rows to try next: one where none has fitted so far.
    pub fn rows(&self) -> usize {
        self.limit.unwrap_or(usize::MAX).max(1)
    }

    /// Memory was short with so many rows, at least one.
    pub fn on_oom(&mut self, rows: usize) -> Next {
        if rows > 1 {
            self.falls_from.get_or_insert(rows);
            self.limit = Some(self.limit.map_or(rows / 2, |limit| limit.min(rows / 2)));
            return Next::Halve;
        }
        self.is_last_try = !self.is_last_try;
        if self.is_last_try {
            return Next::Again;
        }
        self.limit = Some(0);
        Next::GiveUp
    }

    /// Rows were answered. Says what the user has to know, once a fall.
    pub fn on_answer(&mut self) -> Option<Landed> {
        self.is_last_try = false;
        if self.limit == Some(0) {
            // What a neighbour took is free again.
            self.limit = Some(1);
        }
        let from = self.falls_from.take()?;
        Some(Landed { from, to: self.limit.unwrap_or(from) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_halved_until_they_fit_and_it_is_said_once() {
        let mut ladder = Ladder::default();
        assert_eq!(ladder.on_answer(), None);
        assert_eq!((ladder.on_oom(9), ladder.limit()), (Next::Halve, Some(4)));
        assert_eq!((ladder.on_oom(4), ladder.limit()), (Next::Halve, Some(2)));
        assert_eq!(ladder.on_answer(), Some(Landed { from: 9, to: 2 }));
        assert_eq!(ladder.on_answer(), None);
        assert_eq!((ladder.on_oom(2), ladder.limit()), (Next::Halve, Some(1)));
        assert_eq!(ladder.on_answer(), Some(Landed { from: 2, to: 1 }));
    }

    #[test]
    fn where_no_row_fits_the_limit_is_none_at_all_until_one_does() {
        let mut ladder = Ladder::default();
        assert_eq!((ladder.on_oom(2), ladder.limit()), (Next::Halve, Some(1)));
        assert_eq!((ladder.on_oom(1), ladder.on_oom(1)), (Next::Again, Next::GiveUp));
        assert_eq!((ladder.limit(), ladder.rows()), (Some(0), 1));
        assert_eq!(ladder.on_answer(), Some(Landed { from: 2, to: 1 }));
        assert_eq!((ladder.limit(), ladder.rows()), (Some(1), 1));
    }

    #[test]
    fn one_row_is_tried_twice() {
        let mut ladder = Ladder::default();
        assert_eq!([ladder.on_oom(1), ladder.on_oom(1)], [Next::Again, Next::GiveUp]);
        assert_eq!([ladder.on_oom(1), ladder.on_oom(1)], [Next::Again, Next::GiveUp], "the next row too");
        assert_eq!(ladder.on_oom(1), Next::Again);
        ladder.on_answer();
        assert_eq!(ladder.on_oom(1), Next::Again, "it had passed");
        assert_eq!(ladder.limit(), Some(1));
    }
}
