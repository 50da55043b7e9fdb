//! What a user asks of the ranks on the page of the run (`--page`): to begin no more episodes,
//! of all jobs or of some. Episodes that run are finished, as after an early stop.
//!
//! A rank looks at the file of the commands about once a second, before it begins an episode.

use std::time::{Duration, Instant};

use jobs::layout::RunFolder;
use jobs::live::Commands;

use crate::eval::monitor::Every;

/// Time between two looks at the file.
const PERIOD: Duration = Duration::from_secs(1);

/// The commands of the page.
#[derive(Debug)]
pub struct LiveOrders {
    /// The run folder, and the launch whose commands count; `None` without a page.
    place: Option<(RunFolder, String)>,
    read: Every,
    commands: Commands,
}

impl LiveOrders {
    /// Prepares to read the commands for `launch`; there are none without a page.
    pub fn new(folder: &RunFolder, launch: Option<&str>, has_page: bool) -> Self {
        let launch = launch.filter(|_| has_page);
        Self {
            place: launch.map(|launch| (folder.clone(), launch.to_owned())),
            read: Every::default(),
            commands: Commands::default(),
        }
    }

    /// Returns whether the run has a page.
    pub fn has_page(&self) -> bool {
        self.place.is_some()
    }

    /// Returns the commands, as they were a second ago or later.
    pub fn at(&mut self, now: Instant) -> &Commands {
        if let Some((folder, launch)) = &self.place
            && self.read.due(PERIOD, now)
        {
            self.commands = Commands::read(folder, launch);
        }
        &self.commands
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jobs::job::JobIndex;

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
        let mut orders = LiveOrders::new(&folder, Some("0a1b"), true);
        let begin = clock::now();
        assert!(orders.at(begin).allows(JobIndex(1)));
        written(&folder);
        assert!(orders.at(begin + PERIOD / 2).allows(JobIndex(1)));
        assert!(!orders.at(begin + PERIOD).allows(JobIndex(1)));
        assert!(orders.at(begin + PERIOD).allows(JobIndex(0)));
        assert!(!orders.at(begin + PERIOD).stop);
    }

    #[test]
    fn without_a_page_or_for_another_launch_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        written(&folder);
        for (launch, has_page) in [(Some("0a1b"), false), (Some("other"), true), (None, true)] {
            let mut orders = LiveOrders::new(&folder, launch, has_page);
            assert!(orders.at(clock::now()).allows(JobIndex(1)), "{launch:?}");
        }
    }
}
