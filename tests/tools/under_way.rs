//! Tests of reports that are made while a run is under way, here or elsewhere.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use jobs::journal::{JobStart, Journal, Line, RankEnd, RankStart};
use jobs::launch::LaunchLock;
use report::HowEnded;
use serde_json::json;

use crate::tools::folder::{Run, at, job, rrun};

const LAUNCH: &str = "0a1b";

/// Appends lines to the journal of rank 0, without the syncs of a rank.
fn append(run: &Run, lines: &[Line]) {
    let mut text = String::new();
    for line in lines {
        let mut line = serde_json::to_value(line).unwrap();
        line["launch"] = json!(LAUNCH);
        text.push_str(&format!("{line}\n"));
    }
    fs::create_dir_all(run.folder.journals()).unwrap();
    let path = run.folder.journal(0);
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

/// Starts rank 0 on `host`, and its first job.
fn begin(run: &Run, host: &str) {
    let start = RankStart {
        world_size: 1,
        host: host.to_owned(),
        started: at(1),
        ..RankStart::default()
    };
    let job = JobStart {
        started: at(2),
        ..JobStart::default()
    };
    append(run, &[Line::Rank(Box::new(start)), Line::JobStart(job)]);
}

fn episode(run: &Run, number: u64) -> Line {
    Line::Episode(Box::new(run.episode(0, number, 0)))
}

/// Sends a signal by its name.
fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(sent.unwrap().success(), "{name}");
}

/// Returns whether a process has a file open.
fn has_open(child: &Child, path: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", child.id()));
    let mut files = open.into_iter().flatten().flatten();
    files.any(|file| fs::read_link(file.path()).is_ok_and(|file| file == path))
}

/// Starts `rrun report`, and stops it while it reads the journal of rank 0.
fn stopped_while_reading(run: &Run) -> Child {
    let root = run.folder.root().canonicalize().unwrap();
    let journal = run.folder.journal(0).canonicalize().unwrap();
    for _ in 0..50 {
        let mut child = Command::new(rig::rrun())
            .args(["report", run.path()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while child.try_wait().unwrap().is_none() && !has_open(&child, &journal) {
            std::thread::yield_now();
        }
        if child.try_wait().unwrap().is_none() {
            signal(&child, "STOP");
            let is_writing = has_open(&child, &root.join("plan.lock"));
            if !is_writing && has_open(&child, &journal) {
                return child;
            }
            signal(&child, "CONT");
            child.wait().unwrap();
        }
    }
    panic!("`rrun report` was never seen to read");
}

#[test]
fn a_report_that_was_read_before_the_end_does_not_replace_that_of_the_end() {
    const EPISODES: u64 = 3000;
    let run = Run::new(&[job("a", EPISODES)]);
    begin(&run, "node0");
    let first: Vec<_> = (1..EPISODES).map(|number| episode(&run, number)).collect();
    append(&run, &first);
    let mut late = stopped_while_reading(&run);

    let end = RankEnd {
        ended: at(99),
        ..RankEnd::default()
    };
    append(&run, &[episode(&run, 0), Line::RankEnd(end)]);
    rrun(&["report", run.path()]).succeeds();
    assert_eq!(run.report().overall.episodes, EPISODES);
    signal(&late, "CONT");
    assert!(late.wait().unwrap().success());
    assert_eq!(run.report().overall.episodes, EPISODES);
}

/// Touches a file as the lock of a launch is, until it is dropped.
struct Touching {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Touching {
    fn new(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                file.set_modified(SystemTime::now()).unwrap();
                std::thread::park_timeout(Duration::from_millis(50));
            }
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Touching {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Writes the lock of a launch on another machine, whose locks do not show here.
fn lock_of_another_machine(run: &Run) -> std::path::PathBuf {
    let holder = json!({"launch": LAUNCH, "host": "node7", "pid": 7, "user": "u", "boot": "another",
                        "is_locked": true, "since": at(0)});
    fs::create_dir_all(run.folder.launches()).unwrap();
    let path = run.folder.launches().join("0a1b-node7-7.json");
    fs::write(&path, holder.to_string()).unwrap();
    path
}

#[test]
fn a_run_that_is_under_way_on_another_machine_has_no_deaths() {
    let run = Run::new(&[job("a", 4)]);
    begin(&run, "node7");
    append(&run, &[episode(&run, 0)]);
    let lock = lock_of_another_machine(&run);
    let _touching = Touching::new(&lock);
    rrun(&["report", run.path()])
        .succeeds()
        .says("the run is under way: process 7 on node7 (user u), launch 0a1b since")
        .says("1 of 4 episodes so far");
    let rank = &run.report().per_rank[0];
    assert_eq!((rank.deaths, rank.lives[0].end), (0, HowEnded::Running));
}

#[test]
fn a_run_that_has_ended_on_another_machine_is_over_once_its_lock_is_gone() {
    let run = Run::new(&[job("a", 4)]);
    begin(&run, "node7");
    append(&run, &[episode(&run, 0)]);
    fs::remove_file(lock_of_another_machine(&run)).unwrap();
    let done = rrun(&["report", run.path()]).succeeds();
    assert!(!done.stdout().contains("under way"), "{}", done.stdout());
    let rank = &run.report().per_rank[0];
    assert_eq!((rank.deaths, rank.lives[0].end), (1, HowEnded::Died));
}

/// Returns `rrun report` in a PID namespace of its own, which sees no lock of any other process.
fn report_in_another_namespace(run: &Run) -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
    ]);
    command.args([rig::rrun(), "report", run.path()]);
    command
}

#[test]
fn a_run_that_is_under_way_in_another_pid_namespace_has_no_deaths() {
    let run = Run::new(&[job("a", 4)]);
    begin(&run, &jobs::host::name());
    append(&run, &[episode(&run, 0)]);
    let _launch = LaunchLock::take(&run.folder, LAUNCH, |_| ()).unwrap();
    let _rank = Journal::open(&run.folder.journal(0)).unwrap();
    let output = report_in_another_namespace(&run).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("unshare") {
        eprintln!("skipped, because this user cannot have a PID namespace: {errors}");
        return;
    }
    assert!(output.status.success(), "{errors}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("the run is under way: process "), "{said}");
    let rank = &run.report().per_rank[0];
    assert_eq!((rank.deaths, rank.lives[0].end), (0, HowEnded::Running));
}
