//! Graceful stop: after a signal (SIGINT, SIGTERM, SIGHUP), or if another rank ends the evaluation,
//! this rank ends at its next step and leaves all files complete.
//!
//! If a sequential test has decided, it begins no more episodes, but finishes those that are under
//! way: dropping them would favour short, successful ones in the rates of the report. The same
//! holds if a user asks on the page of the run (`--page`) that no more episodes begin, of all jobs
//! or of some. A rank looks at the file of these commands about once a second, before it begins an
//! episode.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jobs::layout::RunFolder;
use jobs::live::Commands;

use crate::eval::monitor::Every;

/// A stop request by a signal or another rank, polled by the loop.
#[derive(Debug, Default)]
pub struct StopRequest {
    signals: Arc<AtomicUsize>,
    called_off: Option<String>,
    /// Whether no more episodes are to begin. It is not a stop: the rank ends in the usual way.
    pub is_decided: bool,
}

impl StopRequest {
    /// Installs the signal handlers. A second signal ends the process at once.
    ///
    /// # Errors
    /// Returns an error if a handler is already installed.
    pub fn on_signals() -> Result<Self, ctrlc::Error> {
        let stop = Self::default();
        let signals = Arc::clone(&stop.signals);
        ctrlc::set_handler(move || {
            if signals.fetch_add(1, Ordering::SeqCst) > 0 {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the user asked twice; the journal is synced line by line"
                )]
                std::process::exit(130);
            }
        })?;
        Ok(stop)
    }

    /// Stops this rank because another rank has ended the evaluation for `reason`. Only the first
    /// reason is kept.
    pub fn call_off(&mut self, reason: String) {
        self.called_off.get_or_insert(reason);
    }

    /// Returns whether a stop was requested.
    pub fn asked(&self) -> bool {
        self.signalled() || self.called_off.is_some()
    }

    /// Returns the reason for the stop, if one was requested.
    pub fn reason(&self) -> Option<String> {
        match self.signalled() {
            true => Some("stopped by a signal".to_owned()),
            false => self.called_off.clone(),
        }
    }

    fn signalled(&self) -> bool {
        self.signals.load(Ordering::SeqCst) > 0
    }
}

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

    use super::*;
    use jobs::job::JobIndex;

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
