//! Checks that must hold after every run.

use jobs::episode::EpisodeOutcome;

use crate::chaos::scenario::jobs;
use crate::eval::command::{Eval, until};
use crate::eval::crash::datasets_have_what_the_journal_says;
use crate::eval::given::marked;
use crate::eval::given::tool;

/// The results of an undisturbed run.
pub struct Expected {
    outcomes: Vec<EpisodeOutcome>,
}

impl Expected {
    /// Runs the jobs without any fault.
    pub fn undisturbed() -> Self {
        let eval = Eval::new(&jobs(2)).nproc(2).finished();
        Self {
            outcomes: eval.outcomes(),
        }
    }
}

/// Checks that no process of the run is left, and no named shared memory.
pub fn nothing_is_left(mark: &str) -> Result<(), String> {
    let patience =
        std::panic::catch_unwind(|| until("the end of all processes", || marked(mark).is_empty()));
    patience.map_err(|_| format!("processes {:?} live on", marked(mark)))?;
    let shared = std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten();
    match shared
        .map(|entry| entry.file_name())
        .find(|name| name.to_string_lossy().contains("rrun"))
    {
        Some(name) => Err(format!("/dev/shm/{} is left", name.display())),
        None => Ok(()),
    }
}

/// Checks a finished run: every episode exists once, with the result of an undisturbed run, and
/// every file is readable.
pub fn check(eval: &Eval, expected: &Expected) -> Result<(), String> {
    let report = eval.report();
    if !report.complete() {
        return Err(format!(
            "the launcher succeeded, but the report is not complete: {report:?}"
        ));
    }
    if !report.duplicates.is_empty() {
        return Err(format!("episodes ran twice: {:?}", report.duplicates));
    }
    let found = eval.outcomes();
    if found != expected.outcomes {
        let other = found
            .iter()
            .zip(&expected.outcomes)
            .find(|(found, expected)| found != expected);
        return Err(format!(
            "{} of {} results, first difference: {other:?}",
            found.len(),
            expected.outcomes.len()
        ));
    }
    datasets_have_what_the_journal_says(eval);
    match tool(&["verify", &eval.folder().root().to_string_lossy()]) {
        (Some(0), _) => Ok(()),
        (_, text) => Err(format!("rrun verify: {text}")),
    }
}
