//! How many episodes end in a minute, of late.

use std::collections::VecDeque;

use jobs::time::Moment;

/// Seconds over which the rate is measured.
const WINDOW_S: f64 = 300.0;

/// Fewest episodes from which a rate is computed.
const LEAST: usize = 3;

/// Most episodes that are remembered; of more, the last ones count.
const MOST: usize = 4096;

/// When the last episodes ended.
#[derive(Clone, Debug, Default)]
pub struct RecentRate {
    ends: VecDeque<Moment>,
}

impl RecentRate {
    /// Takes the end of an episode. Ranks write their journals independently, so the order is not
    /// quite that of time.
    pub(super) fn on(&mut self, ended: Moment) {
        let at = self.ends.partition_point(|end| *end <= ended);
        self.ends.insert(at, ended);
        if self.ends.len() > MOST {
            self.ends.pop_front();
        }
    }

    /// Returns the episodes per second until `now`; `None` as long as too few have ended.
    pub fn per_second(&self, now: Moment) -> Option<f64> {
        let from = now.minus(WINDOW_S);
        let recent = self.ends.len() - self.ends.partition_point(|end| *end < from);
        let first = self.ends.get(self.ends.len() - recent)?;
        // The first end opens the time that is measured.
        let seconds = now.since(*first);
        (recent >= LEAST && seconds > 0.0).then(|| (recent - 1) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Moment {
        Moment::parse(&format!(
            "2026-11-21T10:{:02}:{:02}.000Z",
            second / 60,
            second % 60
        ))
    }

    #[test]
    fn the_rate_is_that_of_the_last_five_minutes() {
        let mut rate = RecentRate::default();
        let seconds = [0, 10, 400, 420, 410].into_iter();
        seconds.for_each(|second| rate.on(at(second)));
        assert_eq!(rate.per_second(at(440)), Some(2.0 / 40.0));
        assert_eq!(rate.per_second(at(2000)), None, "nothing has ended of late");
    }

    #[test]
    fn two_episodes_are_no_rate() {
        let mut rate = RecentRate::default();
        rate.on(at(1));
        rate.on(at(2));
        assert_eq!(rate.per_second(at(3)), None);
        rate.on(at(3));
        assert_eq!(rate.per_second(at(3)), Some(1.0));
    }
}
