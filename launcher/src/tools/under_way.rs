//! Whether a run is under way, as far as that can be seen from this machine.

use jobs::launch;
use jobs::layout::RunFolder;
use report::{Journals, Rates};

/// Returns who writes into the folder, if anybody does.
pub(super) fn writer(folder: &RunFolder, journals: &Journals) -> Option<String> {
    let launch = launch::holder(folder).map(|holder| holder.to_string());
    launch.or_else(|| journals.in_use().then(|| "a rank is running".to_owned()))
}

/// Returns the line that says so, and how far the run is.
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
