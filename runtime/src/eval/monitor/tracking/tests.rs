//! Trackers as processes: one that does what it should, and those that hang, die or flood.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use jobs::eval_args::EvalArgs;
use jobs::job::JobIndex;
use jobs::plan::RunPlan;
use jobs::tracking::TrackingArgs;
use report::{Context, Journals, Merged};
use rig::wait::until;
use serde_json::{Value, json};

use super::*;
use crate::eval::monitor::beat::{Beat, JobTally};
use crate::eval::monitor::view::{EarlierResults, RunView};

/// A package `wandb` that writes what it is told to `calls.jsonl`.
const RECORDER: &str = r#"
import json, os
CALLS = os.path.join(os.path.dirname(__file__), "calls.jsonl")
def call(name, /, *args, **kwargs):
    with open(CALLS, "a") as file: file.write(json.dumps([name, args, kwargs]) + "\n")
class Run:
    url = "https://wandb.example/me/rrun/runs/1"
    summary = {}
    def __getattr__(self, name): return lambda *args, **kwargs: call(name, *args, **kwargs)
def init(**kwargs):
    call("init", **kwargs)
    return Run()
def Table(**kwargs): return kwargs
"#;

/// A run of one job with the tracker wandb, whose package is `code`.
struct Tracked {
    dir: tempfile::TempDir,
    plan: RunPlan,
    args: TrackingArgs,
}

impl Tracked {
    fn new(code: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let package = dir.path().join("wandb");
        std::fs::create_dir(&package).unwrap();
        std::fs::write(package.join("__init__.py"), code).unwrap();
        let python = dir.path().join("python");
        wrapper(&python, dir.path());
        let words = ["--jobs", "a.json", "--track", "wandb", "--track-python"];
        let words = words
            .iter()
            .map(Into::into)
            .chain([python.into_os_string()]);
        let args = EvalArgs::parse_words(&words.collect::<Vec<_>>()).unwrap();
        Self {
            plan: RunPlan {
                id: "ab".repeat(16),
                jobs: crate::eval::tests::jobs([json!({})]),
                ..RunPlan::default()
            },
            args: args.tracking,
            dir,
        }
    }

    fn folder(&self) -> RunFolder {
        RunFolder::new(&self.dir.path().join("tonight"))
    }

    fn start(&self) -> Tracking {
        Tracking::start(&TrackedRun {
            args: &self.args,
            plan: &self.plan,
            folder: &self.folder(),
            world_size: 2,
        })
    }

    /// Logs one point and ends, with `limit` for the end; returns what the user is told.
    fn run(&self, limit: Duration) -> Vec<String> {
        let mut tracking = self.start();
        tracking.limit = limit;
        let mut said = tracking.on(&snapshot(), now());
        said.extend(self.finish(tracking, &StopRequest::default()));
        said
    }

    fn finish(&self, tracking: Tracking, stop: &StopRequest) -> Vec<String> {
        let merged = Merged::new(self.plan.clone(), Journals::default()).unwrap();
        let report = Report::of(&merged, Context::default()).unwrap();
        tracking.finish(&report, &self.folder(), stop)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder().tracker_log("wandb")).unwrap_or_default()
    }
}

/// Writes an interpreter that finds the packages in `folder` first.
fn wrapper(path: &Path, folder: &Path) {
    // The script is renamed into place: a file that a forked process has open for writing cannot be
    // executed.
    let made = std::process::Command::new("/bin/sh")
        .args([
            "-c",
            r#"printf '#!/bin/sh\nPYTHONPATH=%s exec python3 "$@"\n' "$1" > "$0""#,
        ])
        .args([path, folder])
        .status();
    assert!(made.unwrap().success());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn snapshot() -> RunSnapshot {
    let tally = JobTally {
        ended: 2,
        solved: 1,
    };
    let beat = Beat {
        ended: 2,
        ended_solved: 1,
        by_job: Some([(JobIndex(0), tally)].into()),
        ..Beat::default()
    };
    RunView::new(EarlierResults::default(), 1).on(&[beat], now())
}

/// Longer than any step takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);

#[test]
fn a_tracker_is_told_the_start_the_points_and_the_end() {
    let tracked = Tracked::new(RECORDER);
    let said = tracked.run(LONG);
    assert_eq!(said, [URL]);
    let calls = std::fs::read_to_string(tracked.dir.path().join("wandb/calls.jsonl")).unwrap();
    let calls: Vec<Value> = calls
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let init = &calls[0][2];
    let identity = ["project", "name", "id", "resume"].map(|name| init[name].as_str().unwrap());
    assert_eq!(identity, ["rrun", "tonight", &"ab".repeat(16), "allow"]);
    assert_eq!(init["config"]["world_size"], 2);
    let logged: Vec<_> = calls.iter().filter(|call| call[0] == "log").collect();
    assert_eq!(logged[0][1][0]["episodes"], 2);
    assert_eq!(logged[0][1][0]["tasks/a/success_rate"], 0.5);
    assert_eq!(
        logged[1][1][0]["overall/episodes"], 0.0,
        "the report has none"
    );
    assert_eq!(
        *calls.last().unwrap(),
        json!(["finish", [], {"exit_code": 1}])
    );
}

#[test]
fn a_tracker_that_hangs_is_given_up_at_the_end_and_killed() {
    let code = "import os, subprocess, time\n\
                open(__file__ + '.pid', 'w').write(str(os.getpid()))\n\
                time.sleep(10000)";
    let tracked = Tracked::new(code);
    let mut tracking = tracked.start();
    let pid = tracked.dir.path().join("wandb/__init__.py.pid");
    let pid = until("its pid", || {
        let pid = std::fs::read_to_string(&pid).ok();
        pid.filter(|pid| !pid.is_empty())
    });
    tracking.limit = Duration::from_millis(300);
    let begun = now();
    let said = tracked.finish(tracking, &StopRequest::default());
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(
        said,
        ["warning: wandb: it has not taken everything in time; the run goes on without it"]
    );
    assert!(!PathBuf::from(format!("/proc/{pid}")).exists(), "it lives");
}

/// The address that [`RECORDER`] gives.
const URL: &str = "wandb: https://wandb.example/me/rrun/runs/1";

#[test]
fn a_tracker_that_dies_gives_up_or_floods_is_reported_once_and_the_run_goes_on() {
    let dies = "import os, sys\n\
                def init(**_):\n    print('out of luck', file=sys.stderr)\n    os._exit(7)";
    let is_killed = "import os\ndef init(**_): os.kill(os.getpid(), 9)";
    let gives_up = "def init(**_): raise PermissionError('no API key\\nlog in first')";
    let fails = format!(
        "{RECORDER}\n\
         def fail(self, values):\n    if 'tasks' not in values: raise OSError('gone\\nfor now')\n\
         Run.log = fail"
    );
    let floods = format!(
        "{RECORDER}\n\
         import sys, threading\n\
         def flood():\n    while True: print('x' * 1000, flush=True)\n\
         threading.Thread(target=flood, daemon=True).start()"
    );
    let exit = "its process exited with code 7; its last line: out of luck";
    let lost = |why: &str| vec![format!("warning: wandb: {why}; the run goes on without it")];
    let left_out = "warning: wandb: a point was left out: OSError: gone";
    for (code, wanted) in [
        (dies, lost(exit)),
        (is_killed, lost("its process was killed by SIGKILL")),
        (gives_up, lost("it raised PermissionError: no API key")),
        (&fails, [URL, left_out].map(str::to_owned).to_vec()),
        (&floods, vec![URL.to_owned()]),
    ] {
        let tracked = Tracked::new(code);
        assert_eq!(tracked.run(LONG), wanted);
        let log = tracked.log();
        assert!(log.len() < 2 << 20, "{}", log.len());
        assert!(code != gives_up || log.contains("Traceback"), "{log}");
    }
}

#[test]
fn an_interpreter_or_folder_that_cannot_be_used_is_reported() {
    let mut tracked = Tracked::new("");
    tracked.args.track_python = Some("/no/python".into());
    let said = tracked.run(LONG);
    assert!(
        said[0].starts_with("warning: wandb: `/no/python`: "),
        "{said:?}"
    );
    assert!(
        said[0].ends_with("; the run goes on without it"),
        "{said:?}"
    );
    tracked.args.track = vec![Tracker::Tensorboard];
    std::fs::create_dir_all(tracked.folder().root()).unwrap();
    std::fs::write(tracked.folder().tensorboard(), "no folder").unwrap();
    let said = tracked.run(LONG);
    assert!(said[0].starts_with("warning: tensorboard: "), "{said:?}");
}

#[test]
fn a_run_that_is_stopped_does_not_wait_long_and_one_that_fails_not_at_all() {
    let hangs = Tracked::new("import time\ntime.sleep(10000)");
    let mut stop = StopRequest::default();
    stop.call_off("the test stops it".to_owned());
    let begun = now();
    let said = hangs.finish(hangs.start(), &stop);
    assert!(said[0].contains("not taken everything in time"), "{said:?}");
    assert!(begun.elapsed() < END_LIMIT);
    let begun = now();
    drop(hangs.start());
    assert!(begun.elapsed() < STOP_LIMIT);
}

#[test]
fn a_tracker_that_is_too_slow_gets_the_newest_points_and_the_end() {
    let tracked = Tracked::new("import time\ntime.sleep(10000)");
    // 512 points may wait, with 256,000 values. The second ones have more than a packet holds; the
    // report is one more point.
    for (values, left_out) in [(400, 89), (700, 601 - 366)] {
        let mut tracking = tracked.start();
        let values = (0..values).map(|task| (format!("tasks/{task}"), 0.0));
        let mut point = Point {
            values: values.collect(),
            ..Point::default()
        };
        (0..600).for_each(|step| {
            point.step = step;
            tracking.log(&point);
        });
        tracking.limit = Duration::ZERO;
        let said = tracked.finish(tracking, &StopRequest::default());
        let wanted = format!("warning: wandb was too slow for {left_out} points");
        assert_eq!(said[0], wanted);
    }
}
