//! Tests of `--track`: event files of TensorBoard, and trackers that fail. `tests/trackers` reads
//! what is logged with the trackers' own packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::eval::command::{Eval, job, until};
use crate::eval::given::Gate;

/// Returns the event files of a run, oldest first.
fn event_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Returns how often a file has this text.
fn count(path: &Path, text: &str) -> usize {
    let bytes = std::fs::read(path).unwrap();
    String::from_utf8_lossy(&bytes).matches(text).count()
}

#[test]
fn tensorboard_has_the_rates_of_all_ranks_while_they_run_and_at_the_end() {
    let gate = Gate::new();
    let eval = Eval::new(&[job("reach", 6, 1), gate.job(2)]).nproc(2);
    let eval = eval.words(&["--track", "tensorboard", "--export-mode=none"]);
    let folder = eval.folder().tensorboard();
    let running = eval.start();
    let points = || {
        let files = event_files(&folder);
        files
            .iter()
            .map(|path| count(path, "overall/episodes"))
            .sum::<usize>()
    };
    until("a point of a part of the episodes", || points() > 0);
    gate.open();
    running
        .wait()
        .succeeds()
        .stderr_has(&format!("`tensorboard --logdir {}`", folder.display()));
    let files = event_files(&folder);
    assert_eq!(files.len(), 1, "rank 0 writes for all: {files:?}");
    assert!(points() > 1);
    for text in [
        "brain.Event:2",
        "overall/success_rate_low",
        "tasks/reach/success_rate",
        "tasks/gated/errors",
        "speed/steps_per_s",
        "| world_size | 2 |",
        "| gated | 2 | ",
        "report.html",
    ] {
        assert!(count(&files[0], text) > 0, "{text}");
    }
}

#[test]
fn a_resumed_run_continues_in_a_second_event_file() {
    let words = ["--track", "tensorboard", "--export-mode=none"];
    let begun = Eval::new(&[job("reach", 2, 1)])
        .nproc(1)
        .words(&words)
        .finished();
    let eval = begun.jobs(&[job("reach", 4, 1)]);
    let eval = eval.words(&["--accept-changed-jobs"]).finished();
    let files = event_files(&eval.folder().tensorboard());
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(files.iter().all(|path| count(path, "overall/episodes") > 0));
}

/// Makes an interpreter whose package `wandb` is this code.
fn python_with(code: &str, folder: &Path) -> PathBuf {
    std::fs::create_dir(folder.join("wandb")).unwrap();
    std::fs::write(folder.join("wandb/__init__.py"), code).unwrap();
    let python = folder.join("python");
    // The shell writes it: a file that a forked process has open for writing cannot be executed.
    let script =
        r#"printf '#!/bin/sh\nPYTHONPATH=%s exec python3 "$@"\n' "$1" > "$0"; chmod +x "$0""#;
    let made = Command::new("/bin/sh")
        .args(["-c", script])
        .args([&python, folder])
        .status();
    assert!(made.unwrap().success());
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
    let told = "warning: wandb: it raised OSError: refused: *** (";
    assert_eq!(ended.stderr.matches(told).count(), 1, "{}", ended.stderr);
    assert!(eval.report().complete());
    let root = eval.folder().root().to_owned();
    assert!(root.join("logs/tracker_wandb.log").is_file());
    let found = Command::new("grep")
        .arg("-rl")
        .arg("0123456789-secret")
        .arg(root)
        .output();
    assert_eq!(String::from_utf8_lossy(&found.unwrap().stdout), "");
}
