//! Prints the results: one line each, as soon as a check ends, or everything as JSON.

use std::io::{self, Write as _};
use std::time::Duration;

use jobs::count::counted;
use serde::Serialize;

use crate::tools::doctor::check::Running;
use crate::tools::doctor::diagnosis::{Diagnosis, Health, is_healthy};
use crate::tools::{print_json, print_line};

/// Schema of the output of `rrun doctor --json`.
const SCHEMA: &str = "rrun/doctor/1";

/// Time after which a terminal is told what is being checked.
const SOON: Duration = Duration::from_millis(300);

/// Returns to the first column of a terminal and erases the line.
const ERASE: &str = "\r\u{1b}[2K";

/// Columns of a name in front of what was found.
const NAME_WIDTH: usize = 16;

/// Prints results and keeps them.
pub(super) struct Lines {
    is_silent: bool,
    /// Whether standard error is a terminal, which is told what takes time.
    is_terminal: bool,
    all: Vec<Diagnosis>,
}

impl Lines {
    pub(super) fn new(is_terminal: bool) -> Self {
        Self {
            is_silent: false,
            is_terminal,
            all: Vec::new(),
        }
    }

    /// Returns an output that keeps results without printing them.
    pub(super) fn silent() -> Self {
        Self {
            is_silent: true,
            ..Self::new(false)
        }
    }

    /// Waits for a check, and prints its results.
    pub(super) fn show(&mut self, check: Running) -> io::Result<()> {
        for diagnosis in self.results(&check) {
            if !self.is_silent {
                print_line(line(&diagnosis))?;
            }
            self.all.push(diagnosis);
        }
        Ok(())
    }

    /// Returns whether a check has failed so far.
    pub(super) fn has_failed(&self, name: &str) -> bool {
        let mut failed = self.all.iter().filter(|one| one.health == Health::Failed);
        failed.any(|one| one.name == name)
    }

    fn results(&self, check: &Running) -> Vec<Diagnosis> {
        if let Some(results) = check.wait(SOON) {
            return results;
        }
        self.tell(format_args!("checking {} …", check.name()));
        let results = loop {
            if let Some(results) = check.wait(Duration::from_secs(3600)) {
                break results;
            }
        };
        self.tell(format_args!(""));
        results
    }

    /// Replaces the last line of a terminal.
    fn tell(&self, text: std::fmt::Arguments<'_>) {
        if self.is_terminal {
            // Nothing depends on what a terminal shows meanwhile.
            let _ = write!(io::stderr(), "{ERASE}{text}");
        }
    }

    /// Prints the sum, and returns all results.
    pub(super) fn end(self) -> io::Result<Vec<Diagnosis>> {
        if !self.is_silent {
            print_line("")?;
            print_line(summary(&self.all))?;
        }
        Ok(self.all)
    }
}

fn line(diagnosis: &Diagnosis) -> String {
    let Diagnosis {
        name,
        health,
        found,
        remedy,
    } = diagnosis;
    let to_do = remedy
        .as_ref()
        .map(|remedy| format!("; do: {remedy}"))
        .unwrap_or_default();
    format!("{:<8} {name:<NAME_WIDTH$} {found}{to_do}", health.word())
}

fn summary(all: &[Diagnosis]) -> String {
    let counts = Health::ALL.map(|health| {
        let count = all.iter().filter(|one| one.health == health).count();
        match health {
            Health::Ok | Health::Failed => format!("{count} {}", health.word()),
            Health::Note | Health::Warning => counted(count, health.word()),
        }
    });
    format!("{}: {}", counted(all.len(), "check"), counts.join(", "))
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct DoctorJson<'a> {
    schema: &'static str,
    /// Version of `rrun`.
    version: &'static str,
    is_healthy: bool,
    checks: &'a [Diagnosis],
}

impl<'a> DoctorJson<'a> {
    pub(super) fn new(all: &'a [Diagnosis]) -> Self {
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            is_healthy: is_healthy(all),
            checks: all,
        }
    }

    pub(super) fn print(&self) -> io::Result<()> {
        print_json(&serde_json::to_string_pretty(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Vec<Diagnosis> {
        vec![
            Diagnosis::ok("memory", "16 GiB"),
            Diagnosis::note("SLURM", "not in a job"),
            Diagnosis::failed("EGL", "cannot render", "install libegl1"),
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
        let all = results();
        let json = serde_json::to_value(DoctorJson::new(&all)).unwrap();
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(json["is_healthy"], false);
        let failed = serde_json::json!({"name": "EGL", "outcome": "failed",
            "found": "cannot render", "do": "install libegl1"});
        assert_eq!(json["checks"][2], failed);
        assert_eq!(json["checks"][0]["do"], serde_json::Value::Null);
    }
}
