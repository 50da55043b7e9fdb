//! A line of a file timer. Pure.

use jobs::printable::printable_line;
use serde::Deserialize;

/// Characters of a scope that are kept, for messages.
const MAX_SCOPE: usize = 200;

/// The highest number of a signal that is not a real-time signal.
const HIGHEST_SIGNAL: i32 = 31;

/// What a process asks of the timers.
#[derive(Clone, Debug, PartialEq)]
pub struct TimerRequest {
    /// The process that has to be done in time.
    pub pid: i32,
    /// What it does; timers of one process differ by it.
    pub scope: String,
    /// When it has to be done, in seconds since 1970; `None` if it is done.
    pub expires: Option<f64>,
    /// The signal that it gets if it is not done; zero and below for none.
    pub signal: i32,
}

/// A line as torch writes it.
#[derive(Deserialize)]
struct Line {
    pid: i32,
    scope_id: String,
    expiration_time: f64,
    signal: i32,
}

impl TimerRequest {
    /// Parses a line without its end.
    ///
    /// # Errors
    /// Returns in words what is wrong with it.
    pub fn parse(line: &[u8]) -> Result<TimerRequest, String> {
        let line: Line = serde_json::from_slice(line).map_err(|err| err.to_string())?;
        if line.pid <= 0 {
            return Err(format!("pid is {}, expected a number > 0", line.pid));
        }
        if line.signal > HIGHEST_SIGNAL {
            return Err(format!(
                "signal is {}, expected {HIGHEST_SIGNAL} at most",
                line.signal
            ));
        }
        let short: String = line.scope_id.chars().take(MAX_SCOPE).collect();
        Ok(TimerRequest {
            pid: line.pid,
            scope: printable_line(&short).into_owned(),
            expires: (line.expiration_time >= 0.0).then_some(line.expiration_time),
            signal: line.signal,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_lines_of_torch_are_understood() {
        let acquire = br#"{"version": 1, "pid": 7, "scope_id": "train.py#12", "expiration_time": 1700000000.25, "signal": 9}"#;
        let wanted = TimerRequest {
            pid: 7,
            scope: "train.py#12".to_owned(),
            expires: Some(1_700_000_000.25),
            signal: 9,
        };
        assert_eq!(TimerRequest::parse(acquire), Ok(wanted.clone()));
        let release =
            br#"{"version": 1, "pid": 7, "scope_id": "train.py#12", "expiration_time": -1, "signal": 0}"#;
        let released = TimerRequest {
            expires: None,
            signal: 0,
            ..wanted
        };
        assert_eq!(TimerRequest::parse(release), Ok(released));
    }

    #[test]
    fn what_is_no_request_is_refused_with_a_reason() {
        for (line, why) in [
            ("", "EOF"),
            ("stop", "expected"),
            (r#"{"pid": 1}"#, "scope_id"),
            (
                r#"{"pid": 0, "scope_id": "a", "expiration_time": 1, "signal": 9}"#,
                "pid is 0",
            ),
            (
                r#"{"pid": 1, "scope_id": "a", "expiration_time": 1, "signal": 32}"#,
                "signal is 32",
            ),
            (
                r#"{"pid": 1, "scope_id": "a", "expiration_time": NaN, "signal": 9}"#,
                "expected",
            ),
        ] {
            let err = TimerRequest::parse(line.as_bytes()).expect_err(line);
            assert!(err.contains(why), "{line}: {err}");
        }
    }

    proptest! {
        #[test]
        fn a_request_is_of_a_process_and_of_a_signal_that_exist(
            pid: i64, scope: String, expires: f64, signal: i64,
        ) {
            let line = serde_json::json!({
                "pid": pid, "scope_id": scope, "expiration_time": expires, "signal": signal,
            });
            if let Ok(request) = TimerRequest::parse(line.to_string().as_bytes()) {
                prop_assert!(request.pid > 0);
                prop_assert!(request.signal <= 31);
                prop_assert!(request.expires.is_none_or(|time| time >= 0.0));
                prop_assert!(!request.scope.contains('\n'));
            }
        }
    }
}
