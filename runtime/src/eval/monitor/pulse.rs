//! Tells the launcher of this node how far the rank is, if the launcher watches.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use jobs::live::{PULSE_VARIABLE, Pulse, RankPhase};

use crate::eval::monitor::Every;
use crate::eval::monitor::beat::Beat;

/// Interval of the pulses.
const PERIOD: Duration = Duration::from_secs(1);

/// The pulse of this rank.
#[derive(Debug, Default)]
pub struct RankPulse {
    file: Option<File>,
    told: Every,
    phase: Option<RankPhase>,
    /// How often the rank was awake while it waited.
    awake: u64,
}

impl RankPulse {
    /// Opens the file that the launcher names; without one, nothing is told.
    pub fn open() -> Self {
        let path = std::env::var_os(PULSE_VARIABLE).filter(|path| !path.is_empty());
        Self {
            file: path.and_then(|path| open(Path::new(&path))),
            ..Self::default()
        }
    }

    /// Tells how far the rank is, if the last pulse is old or of another phase.
    pub fn on(&mut self, beat: &Beat, now: Instant) {
        let Some(file) = &self.file else { return };
        let phase = match beat {
            beat if beat.arrived => RankPhase::Waiting,
            beat if beat.is_stepping => RankPhase::Stepping,
            _ => RankPhase::Preparing,
        };
        let is_due = self.told.due(PERIOD, now);
        if self.phase.replace(phase) == Some(phase) && !is_due {
            return;
        }
        self.awake += u64::from(phase == RankPhase::Waiting);
        let pulse = Pulse {
            pid: std::process::id(),
            progress: beat.moves + self.awake,
            phase,
            job: beat.job.clone(),
            steps: beat.steps,
        };
        if let Err(err) = pulse.write(file) {
            // The launcher then judges by CPU time and output alone.
            tracing::debug!(%err, "cannot tell the launcher of progress");
        }
    }
}

fn open(path: &Path) -> Option<File> {
    let file = File::create(path);
    file.inspect_err(
        |err| tracing::warn!(%err, path = %path.display(), "no pulse for the launcher"),
    )
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    fn pulse(path: &Path) -> RankPulse {
        RankPulse {
            file: open(path),
            ..RankPulse::default()
        }
    }

    fn read(path: &Path) -> Pulse {
        Pulse::read(path, std::process::id()).expect("a pulse")
    }

    #[test]
    fn a_change_of_phase_is_told_at_once_and_progress_once_a_second() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pulse");
        let (mut pulse, start) = (pulse(&path), now());
        let beat = |moves, is_stepping| Beat {
            moves,
            is_stepping,
            ..Beat::default()
        };
        pulse.on(&beat(0, false), start);
        assert_eq!(read(&path).phase, RankPhase::Preparing);
        pulse.on(&beat(1, true), start);
        assert_eq!(
            (read(&path).phase, read(&path).progress),
            (RankPhase::Stepping, 1)
        );
        pulse.on(&beat(2, true), start + PERIOD / 2);
        assert_eq!(read(&path).progress, 1);
        pulse.on(&beat(3, true), start + PERIOD);
        assert_eq!(read(&path).progress, 3);
    }

    #[test]
    fn a_rank_that_waits_moves_as_long_as_it_is_awake() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pulse");
        let (mut pulse, start) = (pulse(&path), now());
        let beat = Beat {
            moves: 9,
            arrived: true,
            ..Beat::default()
        };
        pulse.on(&beat, start);
        let first = read(&path);
        pulse.on(&beat, start + PERIOD);
        let second = read(&path);
        assert_eq!(first.phase, RankPhase::Waiting);
        assert!(second.progress > first.progress);
    }
}
