//! What a user asks of the ranks on the page of the run (`--page-port`): to begin no more episodes,
//! of all jobs or of some. Episodes that run are finished, as after an early stop.
//!
//! A rank looks at the file of the commands about once a second, before it begins an episode.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jobs::job::JobIndex;
use jobs::layout::RunFolder;
use jobs::live::Commands;

/// Time between two looks at the file.
const PERIOD: Duration = Duration::from_secs(1);

/// The commands of the page.
#[derive(Debug)]
pub struct LiveOrders {
    /// The run folder, and the launch whose commands count; `None` without a page.
    place: Option<(RunFolder, String)>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    read: Option<Instant>,
    commands: Commands,
}

impl LiveOrders {
    /// Prepares to read the commands for `launch`; there are none without a page.
    pub fn new(folder: &RunFolder, launch: Option<&str>, has_page: bool) -> Self {
        let launch = launch.filter(|_| has_page);
        Self {
            place: launch.map(|launch| (folder.clone(), launch.to_owned())),
            known: Mutex::default(),
        }
    }

    /// Returns whether the run has a page.
    pub fn has_page(&self) -> bool {
        self.place.is_some()
    }

    /// Returns whether no episode of any job is to begin.
    pub fn stop(&self, now: Instant) -> bool {
        self.with(now, |commands| commands.stop)
    }

    /// Returns whether no episode of this job is to begin.
    pub fn forbid(&self, job: JobIndex, now: Instant) -> bool {
        self.with(now, |commands| !commands.allows(job))
    }

    fn with(&self, now: Instant, of: impl FnOnce(&Commands) -> bool) -> bool {
        let Some((folder, launch)) = &self.place else {
            return false;
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |read: Instant| now.saturating_duration_since(read) >= PERIOD;
        if known.read.is_none_or(is_old) {
            known.read = Some(now);
            known.commands = Commands::read(folder, launch);
        }
        of(&known.commands)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::clock;

    fn written(folder: &RunFolder) {
        let commands = Commands {
            launch: "0a1b".to_owned(),
            stop: false,
            skip: BTreeSet::from([JobIndex(1)]),
        };
        commands.write(folder).unwrap();
    }

    #[test]
    fn commands_are_known_within_a_second_and_read_no_more_often() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let orders = LiveOrders::new(&folder, Some("0a1b"), true);
        let begin = clock::now();
        assert!(!orders.forbid(JobIndex(1), begin));
        written(&folder);
        assert!(!orders.forbid(JobIndex(1), begin + PERIOD / 2));
        assert!(orders.forbid(JobIndex(1), begin + PERIOD));
        assert!(!orders.forbid(JobIndex(0), begin + PERIOD));
        assert!(!orders.stop(begin + PERIOD));
    }

    #[test]
    fn without_a_page_or_for_another_launch_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        written(&folder);
        for (launch, has_page) in [(Some("0a1b"), false), (Some("other"), true), (None, true)] {
            let orders = LiveOrders::new(&folder, launch, has_page);
            assert!(!orders.forbid(JobIndex(1), clock::now()), "{launch:?}");
        }
    }
}
