//! Checks with a time limit, and what is said about their findings.

use std::io::{self, Write as _};
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use jobs::count::counted;
use jobs::finding::{Finding, Grade};
use jobs::format::word;
use jobs::time::now;
use serde_json::{Value, json};

/// Schema of the output of `rrun doctor --json`.
const SCHEMA: &str = "rrun/doctor/1";

/// Time after which a terminal is told what is being checked.
const SOON: Duration = Duration::from_millis(300);

/// Returns to the first column of a terminal and erases the line.
const ERASE: &str = "\r\u{1b}[2K";

/// Columns of a name in front of what was found.
const NAME_WIDTH: usize = 16;

/// What to do about a check that does not end.
const HANGS: &str =
    "a driver, a file system or the kernel does not answer: see `mount` and `dmesg`";

/// A check that is running. A thread that hangs is left behind and ends with the process.
pub(super) struct Running {
    /// Name in messages about the check itself; its findings may have others.
    name: &'static str,
    timeout: Duration,
    deadline: Instant,
    results: Receiver<Vec<Finding>>,
}

impl Running {
    /// Starts a check, which may run for `timeout`.
    pub(super) fn start(
        name: &'static str,
        timeout: Duration,
        examine: impl FnOnce() -> Vec<Finding> + Send + 'static,
    ) -> Self {
        let (sender, results) = channel();
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
            // The receiver is gone after the time limit.
            let _ = sender.send(examine());
        });
        // Without a thread, the channel is closed, which is told as a check that broke off.
        drop(spawned);
        Self {
            name,
            timeout,
            deadline: now() + timeout,
            results,
        }
    }

    /// Waits for the results; a terminal is told what takes time.
    pub(super) fn results(self, is_terminal: bool) -> Vec<Finding> {
        if let Some(results) = self.wait(SOON) {
            return results;
        }
        let tell = |text: &str| {
            if is_terminal {
                // Nothing depends on what a terminal shows meanwhile.
                let _ = write!(io::stderr(), "{ERASE}{text}");
            }
        };
        tell(&format!("checking {} …", self.name));
        let results = self.wait(self.timeout).unwrap_or_default();
        tell("");
        results
    }

    /// Waits for the results at most `patience`; `None` if there are none yet and the time limit
    /// has not passed.
    fn wait(&self, patience: Duration) -> Option<Vec<Finding>> {
        let left = self.deadline.saturating_duration_since(now());
        let (found, remedy) = match self.results.recv_timeout(left.min(patience)) {
            Ok(results) => return Some(results),
            Err(RecvTimeoutError::Timeout) if left > patience => return None,
            Err(RecvTimeoutError::Timeout) => {
                let seconds = self.timeout.as_secs();
                (format!("did not end within {seconds} s"), HANGS)
            }
            Err(RecvTimeoutError::Disconnected) => {
                let found = "the check itself broke off".to_owned();
                (found, "report this as an error of rrun")
            }
        };
        Some(vec![Finding::failed(self.name, found, remedy)])
    }
}

/// Examines all of these at once, and returns what is found in their order.
pub(super) fn at_once<T: Sync>(
    all: &[T],
    examine: impl Fn(&T) -> Vec<Finding> + Sync,
) -> Vec<Finding> {
    let examine = &examine;
    thread::scope(|scope| {
        let start = |one| scope.spawn(move || examine(one));
        let running: Vec<_> = all.iter().map(start).collect();
        let results = running.into_iter().map(|one| one.join());
        let found = results.map(|found| found.unwrap_or_else(|panic| resume_unwind(panic)));
        found.flatten().collect()
    })
}

/// Returns the line about a finding.
pub(super) fn line(finding: &Finding) -> String {
    let Finding {
        name, grade, found, ..
    } = finding;
    let remedy = finding.remedy.as_ref();
    let to_do = remedy.map_or_else(String::new, |remedy| format!("; do: {remedy}"));
    format!("{:<8} {name:<NAME_WIDTH$} {found}{to_do}", word(grade))
}

/// Returns the line about all of them.
pub(super) fn summary(all: &[Finding]) -> String {
    let counts = Grade::ALL.map(|grade| {
        let count = all.iter().filter(|one| one.grade == grade).count();
        match grade {
            Grade::Ok | Grade::Failed => format!("{count} {}", word(grade)),
            Grade::Note | Grade::Warning => counted(count, &word(grade)),
        }
    });
    format!("{}: {}", counted(all.len(), "check"), counts.join(", "))
}

/// Returns all results for programs.
pub(super) fn json(all: &[Finding]) -> Value {
    json!({
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "is_healthy": is_healthy(all),
        "checks": all,
    })
}

/// Returns whether no check has failed.
pub(super) fn is_healthy(all: &[Finding]) -> bool {
    all.iter().all(|one| one.grade != Grade::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn running(
        timeout: Duration,
        examine: impl FnOnce() -> Vec<Finding> + Send + 'static,
    ) -> Running {
        Running::start("disk", timeout, examine)
    }

    #[test]
    fn a_check_that_hangs_is_named_and_fails() {
        let (keep, hang) = channel::<()>();
        let timeout = Duration::from_millis(20);
        let check = running(timeout, move || {
            let _ = hang.recv();
            Vec::new()
        });
        let results = check.wait(LONG).unwrap();
        drop(keep);
        let hangs = Finding::failed("disk", "did not end within 0 s", HANGS);
        assert_eq!(results, [hangs]);
    }

    #[test]
    fn a_slow_check_has_no_results_yet_and_then_those_that_it_returns() {
        let (keep, hang) = channel::<()>();
        let check = running(LONG, move || {
            let _ = hang.recv();
            vec![Finding::ok("disk", "late")]
        });
        assert_eq!(check.wait(Duration::from_millis(5)), None);
        drop(keep);
        assert_eq!(check.wait(LONG).unwrap(), [Finding::ok("disk", "late")]);
    }

    #[test]
    fn a_check_that_panics_fails() {
        let check = running(LONG, || panic!("as the test wants"));
        assert_eq!(check.wait(LONG).unwrap()[0].grade, Grade::Failed);
    }

    fn results() -> Vec<Finding> {
        vec![
            Finding::ok("memory", "16 GiB"),
            Finding::note("SLURM", "not in a job"),
            Finding::failed("EGL", "cannot render", "install libegl1"),
        ]
    }

    #[test]
    fn a_result_is_one_line_with_what_to_do() {
        let lines: Vec<String> = results().iter().map(line).collect();
        assert_eq!(
            lines,
            [
                "ok       memory           16 GiB",
                "note     SLURM            not in a job",
                "failed   EGL              cannot render; do: install libegl1",
            ]
        );
        assert_eq!(
            summary(&results()),
            "3 checks: 1 ok, 1 note, 0 warnings, 1 failed"
        );
    }

    #[test]
    fn json_has_all_results_and_the_verdict() {
        let json = json(&results());
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(json["is_healthy"], false);
        let failed = json!({"name": "EGL", "outcome": "failed",
            "found": "cannot render", "do": "install libegl1"});
        assert_eq!(json["checks"][2], failed);
        assert_eq!(json["checks"][0]["do"], Value::Null);
    }
}
