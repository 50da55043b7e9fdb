//! Learns from out-of-memory errors how many rows fit into one inference. It has no side effects.
//!
//! ```text
//! 8 rows ─ out of memory ─► 4 rows ─ out of memory ─► 2 rows ─ answered: limit 2, reported
//! 1 row ─ out of memory ─► 1 row again ─ out of memory ─► give up
//! ```
//!
//! The limit only decreases: a batch that did not fit once will not fit again when the other users
//! of the GPU are at their peak.

/// The known limit of a checkpoint on this device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ladder {
    /// Maximum number of rows, once memory ran out; 0 if not even one row fitted.
    limit: Option<usize>,
    /// The batch size that did not fit, until a smaller batch has been answered.
    falls_from: Option<usize>,
    /// Whether the last inference was a single row that did not fit.
    is_last_try: bool,
}

/// A completed reduction of the batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// The batch size that did not fit.
    pub from: usize,
    /// Maximum number of rows from now on.
    pub to: usize,
}

impl Ladder {
    /// Returns the maximum number of rows, if memory ever ran out; 0 if not even one row fitted.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Returns the number of rows to try next; 1 if none has fitted so far.
    pub fn rows(&self) -> usize {
        self.limit.unwrap_or(usize::MAX).max(1)
    }

    /// Records that memory ran out with `rows` rows, at least one. Returns whether to try again:
    /// half of the rows, or the single row once more, because another process may have released its
    /// memory.
    pub fn on_oom(&mut self, rows: usize) -> bool {
        if rows > 1 {
            self.falls_from.get_or_insert(rows);
            self.limit = Some(self.limit.map_or(rows / 2, |limit| limit.min(rows / 2)));
            return true;
        }
        self.is_last_try = !self.is_last_try;
        if !self.is_last_try {
            self.limit = Some(0);
        }
        self.is_last_try
    }

    /// Records an answered batch. Returns the reduction for the user, once for each.
    pub fn on_answer(&mut self) -> Option<Landed> {
        self.is_last_try = false;
        if self.limit == Some(0) {
            // Another process has released its memory.
            self.limit = Some(1);
        }
        let from = self.falls_from.take()?;
        Some(Landed {
            from,
            to: self.limit.unwrap_or(from),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_halved_until_they_fit_and_it_is_said_once() {
        let mut ladder = Ladder::default();
        assert_eq!(ladder.on_answer(), None);
        assert_eq!((ladder.on_oom(9), ladder.limit()), (true, Some(4)));
        assert_eq!((ladder.on_oom(4), ladder.limit()), (true, Some(2)));
        assert_eq!(ladder.on_answer(), Some(Landed { from: 9, to: 2 }));
        assert_eq!(ladder.on_answer(), None);
        assert_eq!((ladder.on_oom(2), ladder.limit()), (true, Some(1)));
        assert_eq!(ladder.on_answer(), Some(Landed { from: 2, to: 1 }));
    }

    #[test]
    fn where_no_row_fits_the_limit_is_none_at_all_until_one_does() {
        let mut ladder = Ladder::default();
        assert_eq!((ladder.on_oom(2), ladder.limit()), (true, Some(1)));
        assert_eq!((ladder.on_oom(1), ladder.on_oom(1)), (true, false));
        assert_eq!((ladder.limit(), ladder.rows()), (Some(0), 1));
        assert_eq!(ladder.on_answer(), Some(Landed { from: 2, to: 1 }));
        assert_eq!((ladder.limit(), ladder.rows()), (Some(1), 1));
    }

    #[test]
    fn one_row_is_tried_twice() {
        let mut ladder = Ladder::default();
        assert_eq!([ladder.on_oom(1), ladder.on_oom(1)], [true, false]);
        assert_eq!(
            [ladder.on_oom(1), ladder.on_oom(1)],
            [true, false],
            "the next row too"
        );
        assert!(ladder.on_oom(1));
        ladder.on_answer();
        assert!(ladder.on_oom(1), "it had passed");
        assert_eq!(ladder.limit(), Some(1));
    }
}
