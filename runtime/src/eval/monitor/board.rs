//! Shows the whole run on rank 0: on the terminal, to Prometheus and to experiment trackers.

use std::time::Instant;

use crate::eval::monitor::beat::Beat;
use crate::eval::monitor::exporter::Exporter;
use crate::eval::monitor::screen::Screen;
use crate::eval::monitor::tracking::Tracking;
use crate::eval::monitor::view::RunView;

/// Where the state of the whole run is shown.
pub struct Board {
    /// The state of the whole run.
    pub view: RunView,
    /// Prometheus.
    pub exporter: Option<Exporter>,
    /// Experiment trackers.
    pub tracking: Option<Tracking>,
}

impl Board {
    /// Shows the heartbeats of all ranks, in rank order.
    pub fn show<'b>(
        &mut self,
        beats: impl Iterator<Item = &'b Beat>,
        screen: &mut Screen,
        now: Instant,
    ) {
        let snapshot = self.view.on(beats, now);
        if let Some(exporter) = &self.exporter {
            exporter.show(&snapshot);
        }
        let tracking = self.tracking.as_mut();
        let notes = tracking.map(|tracking| tracking.on(&snapshot, now));
        notes.iter().flatten().for_each(|note| screen.say(note));
        screen.show(&snapshot, now);
    }
}
