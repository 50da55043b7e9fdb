//! Computes a GPU's utilization over time from samples. Pure: no I/O and no clock of its own.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum time that one sample covers. After a longer gap the thread, or the machine, was asleep.
const LONGEST: Duration = Duration::from_secs(5);

/// Busy time of a GPU since some beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuBusy {
    /// Seconds in which the GPU was busy.
    pub busy_s: f64,
    /// Seconds that the samples cover.
    pub seen_s: f64,
}

impl GpuBusy {
    /// Adds a sample: the GPU was busy for `share` of the time since the previous sample.
    pub fn add(&mut self, share: f64, since: Duration) {
        let seconds = since.min(LONGEST).as_secs_f64();
        self.busy_s += share.clamp(0.0, 1.0) * seconds;
        self.seen_s += seconds;
    }

    /// Returns the busy time since `before`, or all of it if the counters have been restarted.
    pub fn since(self, before: Self) -> Self {
        if self.seen_s < before.seen_s {
            return self;
        }
        Self {
            busy_s: (self.busy_s - before.busy_s).max(0.0),
            seen_s: self.seen_s - before.seen_s,
        }
    }

    /// Returns the utilization from 0 to 1; `None` if no time is covered.
    pub fn share(self) -> Option<f64> {
        (self.seen_s > 0.0).then(|| (self.busy_s / self.seen_s).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_stands_for_the_time_since_the_one_before() {
        let mut busy = GpuBusy::default();
        assert_eq!(busy.share(), None);
        busy.add(1.0, Duration::from_secs(1));
        busy.add(0.0, Duration::from_secs(3));
        assert_eq!(busy.share(), Some(0.25));
        let before = busy;
        busy.add(0.5, Duration::from_secs(2));
        assert_eq!(busy.since(before).share(), Some(0.5));
        assert_eq!(busy.since(busy).share(), None, "no time has passed");
    }

    #[test]
    fn a_sleep_of_the_machine_is_not_work_and_a_new_beginning_is_not_negative() {
        let of = |busy_s, seen_s| GpuBusy { busy_s, seen_s };
        let mut busy = GpuBusy::default();
        busy.add(1.0, Duration::from_secs(3600));
        assert_eq!(busy, of(5.0, 5.0));
        let again = of(1.0, 4.0);
        assert_eq!(again.since(busy), again);
    }
}
