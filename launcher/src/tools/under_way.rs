//! Whether a run is under way, and how far it is.

use std::time::{Duration, Instant};

use jobs::launch::{GONE, LivingLaunch, Pulse};
use jobs::layout::RunFolder;
use jobs::printable::printable;
use report::{Journals, Rates};

/// Interval between two looks at a launch of another machine.
const LOOK: Duration = Duration::from_secs(1);

/// Opens the journals of a folder, and notes which launches are alive.
pub(super) fn journals(folder: &RunFolder) -> anyhow::Result<Journals> {
    // Before the journals: those of a launch that has ended since are then complete.
    let living = living(folder);
    let mut journals = Journals::of(folder)?;
    journals.note_launches(&living);
    Ok(journals)
}

/// Returns the launches that are alive. Waits until that is certain: a launch of another machine, if
/// its lock does not show, touches its file every few seconds.
#[expect(
    clippy::disallowed_methods,
    reason = "watches files of other machines, for a time that has an end"
)]
fn living(folder: &RunFolder) -> Vec<LivingLaunch> {
    let mut pulse = Pulse::default();
    let mut has_said = false;
    loop {
        let living = pulse.look(folder, Instant::now());
        // One node that is alive is enough.
        let doubtful = living.iter().find(|launch| !launch.is_certain);
        let Some(launch) = doubtful.filter(|_| living.iter().all(|one| !one.is_certain)) else {
            return living;
        };
        if !std::mem::replace(&mut has_said, true) {
            let holder = printable(&launch.holder.to_string()).into_owned();
            let seconds = GONE.as_secs();
            eprintln!("rrun: waiting up to {seconds} s to see whether {holder} is still alive");
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns the line that says who writes into the folder, and how far the run is.
pub(super) fn line(writer: &str, so_far: &Rates) -> String {
    let expected = so_far
        .expected
        .map_or_else(|| "?".to_owned(), |expected| expected.to_string());
    let done = so_far.episodes;
    format!("the run is under way: {writer}; {done} of {expected} episodes so far")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_under_way_has_some_of_its_episodes() {
        let mut so_far = Rates {
            episodes: 3,
            expected: Some(12),
            ..Rates::default()
        };
        assert_eq!(
            line("process 7 on node1", &so_far),
            "the run is under way: process 7 on node1; 3 of 12 episodes so far"
        );
        so_far.expected = None;
        assert!(line("x", &so_far).ends_with("; 3 of ? episodes so far"));
    }
}
