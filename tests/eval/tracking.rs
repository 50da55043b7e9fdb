//! Tests of `--track`: event files of TensorBoard, and trackers that fail.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::eval::command::{Eval, job};
use crate::eval::event_file::{self, Event};

/// Returns the event files of a run, oldest first.
fn event_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("there is a folder of events");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn scalars(events: &[Event]) -> BTreeMap<(u64, &str), f32> {
    events
        .iter()
        .flat_map(|event| {
            let values = event.scalars.iter();
            values.map(|(tag, value)| ((event.step, tag.as_str()), *value))
        })
        .collect()
}

#[test]
fn tensorboard_has_the_rates_of_the_report_and_how_they_came_about() {
    // Enough for a few seconds: ranks tell of their episodes once a second.
    let jobs = [job("reach", 400, 1), job("push", 200, 1)];
    let eval = Eval::new(&jobs)
        .nproc(2)
        .words(&["--track", "tensorboard", "--no-dataset"]);
    let folder = eval.folder().tensorboard();
    eval.run()
        .succeeds()
        .stderr_has(&format!("`tensorboard --logdir {}`", folder.display()));
    let report = eval.report();
    let paths = event_files(&folder);
    assert_eq!(paths.len(), 1, "rank 0 writes for all: {paths:?}");
    let events = event_file::read(&paths[0]);
    assert_eq!(events[0].file_version, "brain.Event:2");
    let scalars = scalars(&events);
    let last = report.overall.episodes;
    let value = |tag: &str| scalars.get(&(last, tag)).copied();
    let rates = [("overall".to_owned(), &report.overall)];
    let of_jobs = report.per_job.iter();
    let of_jobs = of_jobs.map(|job| (format!("tasks/{}", job.name), &job.rates));
    for (place, rates) in rates.into_iter().chain(of_jobs) {
        let [low, high] = rates.wilson95.unwrap();
        for (name, wanted) in [
            ("success_rate", rates.success_rate.unwrap()),
            ("success_rate_low", low),
            ("success_rate_high", high),
            ("episodes", rates.episodes as f64),
            ("errors", rates.errors as f64),
        ] {
            let tag = format!("{place}/{name}");
            assert_eq!(value(&tag), Some(wanted as f32), "{tag}");
        }
    }
    // Before the end, there is at least one point of a part of the episodes.
    let counts: Vec<_> = scalars
        .iter()
        .filter(|((_, tag), _)| *tag == "overall/episodes")
        .collect();
    assert!(counts.len() > 1, "{counts:?}");
    assert!(
        counts
            .iter()
            .all(|((step, _), value)| *step as f32 == **value)
    );
    assert!(scalars.keys().any(|(_, tag)| *tag == "speed/steps_per_s"));
    let texts: BTreeMap<_, _> = events
        .iter()
        .flat_map(|event| &event.texts)
        .map(|(tag, text)| (tag.as_str(), text.as_str()))
        .collect();
    assert!(texts["config"].contains("| world_size | 2 |"), "{texts:?}");
    assert!(texts["tasks"].contains("| push | 200 | "), "{texts:?}");
    assert!(texts["files"].contains("report.html"), "{texts:?}");
}

#[test]
fn a_resumed_run_continues_in_a_second_event_file() {
    let words = ["--track", "tensorboard", "--no-dataset"];
    let begun = Eval::new(&[job("reach", 2, 1)]).nproc(1).words(&words);
    begun.run().succeeds();
    let eval = begun
        .jobs(&[job("reach", 4, 1)])
        .words(&["--accept-changed-jobs"]);
    eval.run().succeeds();
    let paths = event_files(&eval.folder().tensorboard());
    assert_eq!(paths.len(), 2, "{paths:?}");
    let steps = |path: &Path| -> Vec<u64> {
        let events = event_file::read(path).into_iter();
        events
            .filter(|event| !event.scalars.is_empty())
            .map(|event| event.step)
            .collect()
    };
    assert_eq!(steps(&paths[0]).last(), Some(&2));
    let later = steps(&paths[1]);
    assert!(later.iter().all(|step| *step >= 2), "{later:?}");
    assert_eq!(later.last(), Some(&4));
}

/// Makes an interpreter whose package `wandb` is this code.
fn python_with(code: &str, folder: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir(folder.join("wandb")).unwrap();
    std::fs::write(folder.join("wandb/__init__.py"), code).unwrap();
    let python = folder.join("python");
    // The shell writes it: a file that a forked process has open for writing cannot be executed.
    let made = std::process::Command::new("/bin/sh")
        .args([
            "-c",
            r#"printf '#!/bin/sh\nPYTHONPATH=%s exec python3 "$@"\n' "$1" > "$0""#,
        ])
        .args([&python, folder])
        .status();
    assert!(made.unwrap().success());
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    python
}

#[test]
fn a_tracker_that_fails_is_reported_once_and_shows_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let code = "import os\n\
                def init(**_): raise OSError('refused: ' + os.environ['WANDB_API_KEY'])";
    let python = python_with(code, dir.path());
    let eval = Eval::new(&[job("reach", 2, 1), job("push", 2, 1)])
        .nproc(2)
        .words(&["--track", "wandb,tensorboard", "--track-python"])
        .words(&[python.to_str().unwrap()])
        .env("WANDB_API_KEY", "0123456789-secret");
    let ended = eval.run().succeeds();
    let told = "warning: wandb: OSError: refused: ***; the run goes on without it";
    assert_eq!(ended.stderr.matches(told).count(), 1, "{}", ended.stderr);
    assert!(eval.report().complete());
    let files = files_under(eval.folder().root());
    assert!(
        files
            .iter()
            .any(|path| path.ends_with("logs/tracker_wandb.log"))
    );
    for path in files {
        let bytes = std::fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("0123456789-secret"), "{}", path.display());
    }
}

fn files_under(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let files = paths.flat_map(|path| match path.is_dir() {
        true => files_under(&path),
        false => vec![path],
    });
    files.collect()
}

#[test]
fn a_package_that_is_missing_is_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let eval = Eval::new(&[job("reach", 1, 1)])
        .nproc(1)
        .words(&["--track", "wandb", "--track-python"])
        .words(&[python_without_packages(dir.path()).to_str().unwrap()]);
    let refused = eval.run().fails_with(1);
    refused.stderr_has("finds no module `wandb`; `pip install wandb` there");
    assert!(!eval.folder().plan().exists());
}

fn python_without_packages(folder: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let python = folder.join("python");
    let made = std::process::Command::new("/bin/sh")
        .args(["-c", r#"printf '#!/bin/sh\nexec python3 -S "$@"\n' > "$0""#])
        .arg(&python)
        .status();
    assert!(made.unwrap().success());
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    python
}
