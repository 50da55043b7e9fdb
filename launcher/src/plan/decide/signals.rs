//! Parses `--signals-to-handle`: signal names to numbers.

use crate::plan::{Sender, SignalPlan};
use crate::signals::names::signal_number;

impl SignalPlan {
    /// Returns the signals of a comma-separated list, and a note for each unknown name.
    pub fn new(spec: &str, sender: Sender) -> (SignalPlan, Vec<String>) {
        let (mut numbers, mut notes) = (Vec::new(), Vec::new());
        for name in spec
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            match signal_number(name) {
                Some(number) if numbers.contains(&number) => {}
                Some(number) => numbers.push(number),
                None => notes.push(format!(
                    "Failed to register signal handler for {name}: there is no such signal"
                )),
            }
        }
        (
            SignalPlan {
                sender,
                spec: spec.to_owned(),
                numbers,
            },
            notes,
        )
    }
}
