//! Checks that must hold after every run.

use std::path::Path;
use std::process::Command;

use jobs::episode::EpisodeOutcome;

use crate::chaos::fault::marked;
use crate::chaos::scenario::{Scenario, jobs};
use crate::eval::command::{Eval, binaries, wait_until};

/// The results of an undisturbed run.
pub struct Expected {
    outcomes: Vec<EpisodeOutcome>,
}

fn outcomes(eval: &Eval) -> Vec<EpisodeOutcome> {
    eval.episodes()
        .iter()
        .map(|episode| episode.outcome())
        .collect()
}

impl Expected {
    /// Runs the jobs without any fault.
    pub fn undisturbed() -> Self {
        let eval = Eval::new(&jobs(2)).nproc(2);
        eval.run().succeeds();
        Self {
            outcomes: outcomes(&eval),
        }
    }
}

/// Checks that no process of the run is left, and no named shared memory.
pub fn nothing_is_left(mark: &str) -> Result<(), String> {
    let patience = std::panic::catch_unwind(|| {
        wait_until("the end of all processes", || marked(mark).is_empty())
    });
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
pub fn check(eval: &Eval, scenario: &Scenario, expected: &Expected) -> Result<(), String> {
    let report = eval.report();
    if !report.complete() {
        return Err(format!(
            "the launcher succeeded, but the report is not complete: {report:?}"
        ));
    }
    if !report.duplicates.is_empty() {
        return Err(format!("episodes ran twice: {:?}", report.duplicates));
    }
    let found = outcomes(eval);
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
    datasets_are_readable(eval)?;
    let verified = Command::new(binaries().join("rrun"))
        .arg("verify")
        .arg(eval.folder().root())
        .output();
    let verified = verified.map_err(|err| err.to_string())?;
    match verified.status.success() {
        true => Ok(()),
        false => Err(format!(
            "rrun verify ({}): {}{}",
            scenario.mark(),
            String::from_utf8_lossy(&verified.stdout),
            String::from_utf8_lossy(&verified.stderr)
        )),
    }
}

/// Checks that every demonstration that an episode names is in its file, with as many actions as
/// the episode had steps.
fn datasets_are_readable(eval: &Eval) -> Result<(), String> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/python");
    let script = "import json, sys, h5py\n\
                  files = {}\n\
                  for line in open(sys.argv[1] + '/episodes.jsonl'):\n\
                  \x20   episode = json.loads(line)\n\
                  \x20   demo = episode['dataset']\n\
                  \x20   path = sys.argv[1] + '/' + demo['file']\n\
                  \x20   data = files.setdefault(path, None) or h5py.File(path)['data']\n\
                  \x20   files[path] = data\n\
                  \x20   group = data[demo['demo']]\n\
                  \x20   assert group['actions'].shape[0] == episode['length'] == group.attrs['num_samples'], episode\n\
                  \x20   assert bool(group.attrs['success']) == episode['success'], episode\n";
    let output = Command::new(python)
        .args(["-c", script])
        .arg(eval.folder().root())
        .output();
    let output = output.map_err(|err| err.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
