//! Parses `--signals-to-handle`: signal names to numbers.

use crate::plan::{Sender, SignalPlan};
use crate::signals::names::signal_number;

impl SignalPlan {
    /// Returns the signals of a comma-separated list, and a note for each unknown name.
    pub fn new(spec: &str) -> (SignalPlan, Vec<String>) {
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
                sender: Sender::Anyone,
                spec: spec.to_owned(),
                numbers,
            },
            notes,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_numbers_and_the_list_stays_as_it_is() {
        let (plan, notes) = SignalPlan::new("SIGTERM, SIGUSR1,SIGRTMIN,SIGTERM");
        assert_eq!(
            (plan.spec.as_str(), plan.numbers),
            ("SIGTERM, SIGUSR1,SIGRTMIN,SIGTERM", vec![15, 10, 34])
        );
        assert!(notes.is_empty());
    }

    #[test]
    fn an_unknown_name_is_noted_and_left_out() {
        let (plan, notes) = SignalPlan::new("SIGFOO,SIGHUP,TERM");
        assert_eq!(plan.numbers, [1]);
        assert_eq!(notes.len(), 2);
        assert!(
            notes[0].starts_with("Failed to register signal handler for SIGFOO"),
            "{notes:?}"
        );
    }

    #[test]
    fn an_empty_list_handles_none() {
        let (plan, notes) = SignalPlan::new("");
        assert!(plan.numbers.is_empty() && notes.is_empty());
    }
}
