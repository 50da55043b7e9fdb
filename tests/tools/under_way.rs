//! Tests of reports that are made while a run is under way, here or elsewhere.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use jobs::journal::{JobStart, Journal, Line, RankEnd, RankStart};
use jobs::launch::LaunchLock;
use report::HowEnded;
use rig::process::send;
use rig::run::{Ended, Given, Running, Signal};
use serde_json::json;

use crate::tools::runs::{Run, at, job};

const LAUNCH: &str = "0a1b";

/// Appends lines to the journal of rank 0, without the syncs of a rank.
fn append(run: &Run, lines: &[Line]) {
    let mut text = String::new();
    for line in lines {
        let mut line = serde_json::to_value(line).unwrap();
        line["run"] = json!(run.plan.id);
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
        job: "a".to_owned(),
        started: at(2),
        ..JobStart::default()
    };
    append(run, &[Line::Rank(Box::new(start)), Line::JobStart(job)]);
}

fn episode(run: &Run, number: u64) -> Line {
    Line::Episode(Box::new(run.episode(0, number, 0)))
}

/// Gives a tool and a run.
fn tool(words: &str, run: &Run) -> Given {
    Given::rrun().words(words).words([run.path()])
}

fn report(run: &Run) -> Ended {
    tool("report", run).succeeds()
}

/// Returns whether a process has a file open.
fn has_open(pid: i32, path: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd"));
    let mut files = open.into_iter().flatten().flatten();
    files.any(|file| fs::read_link(file.path()).is_ok_and(|file| file == path))
}

/// Starts `rrun report`, and stops it while it reads the journal of rank 0.
fn stopped_while_reading(run: &Run) -> Running {
    let root = run.folder.root().canonicalize().unwrap();
    let journal = run.folder.journal(0).canonicalize().unwrap();
    for _ in 0..50 {
        let late = tool("report", run).start();
        while late.is_running() && !has_open(late.pid(), &journal) {
            std::thread::yield_now();
        }
        if late.is_running() {
            send(late.pid(), Signal::STOP);
            let is_writing = has_open(late.pid(), &root.join("plan.lock"));
            if !is_writing && has_open(late.pid(), &journal) {
                return late;
            }
            send(late.pid(), Signal::CONT);
        }
        late.wait();
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
    let late = stopped_while_reading(&run);

    let end = RankEnd {
        ended: at(99),
        ..RankEnd::default()
    };
    append(&run, &[episode(&run, 0), Line::RankEnd(end)]);
    report(&run);
    assert_eq!(run.report().overall.episodes, EPISODES);
    send(late.pid(), Signal::CONT);
    late.wait().succeeds();
    assert_eq!(run.report().overall.episodes, EPISODES);
}

/// Writes the lock of a launch on another machine, whose locks do not show here.
fn lock_of_another_machine(run: &Run) -> PathBuf {
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
    // As its launch does, as long as it is there.
    let lock = lock_of_another_machine(&run).display().to_string();
    let touching =
        format!("while test -e {lock}; do touch -c {lock}; sleep 0.05; done & exec \"$@\"");
    let report = tool("report", &run).below(&touching);
    report
        .succeeds()
        .stdout_has("the run is under way: process 7 on node7 (user u), launch 0a1b since")
        .stdout_has("1 of 4 episodes so far");
    let rank = &run.report().per_rank[0];
    assert_eq!((rank.deaths, rank.lives[0].end), (0, HowEnded::Running));
}

#[test]
fn a_run_that_has_ended_on_another_machine_is_over_once_its_lock_is_gone() {
    let run = Run::new(&[job("a", 4)]);
    begin(&run, "node7");
    append(&run, &[episode(&run, 0)]);
    fs::remove_file(lock_of_another_machine(&run)).unwrap();
    report(&run).stdout_lacks("under way");
    let rank = &run.report().per_rank[0];
    assert_eq!((rank.deaths, rank.lives[0].end), (1, HowEnded::Died));
}

#[test]
fn a_run_that_is_under_way_in_another_pid_namespace_has_no_deaths() {
    let run = Run::new(&[job("a", 4)]);
    begin(&run, &jobs::host::name());
    append(&run, &[episode(&run, 0)]);
    let _launch = LaunchLock::take(&run.folder, LAUNCH, |_| ()).unwrap();
    let _rank = Journal::open(&run.folder.journal(0)).unwrap();
    // There it sees no lock of any other process.
    let unshare = "unshare --user --map-root-user --pid --fork --mount-proc";
    let ended = tool("report", &run).under(unshare).run();
    if ended.stderr.contains("unshare") {
        return eprintln!(
            "skipped, this user cannot have a PID namespace: {}",
            ended.stderr
        );
    }
    ended
        .succeeds()
        .stdout_has("the run is under way: process ");
    let rank = &run.report().per_rank[0];
    assert_eq!((rank.deaths, rank.lives[0].end), (0, HowEnded::Running));
}

#[test]
fn a_run_that_is_under_way_is_looked_at_without_being_in_its_way() {
    let run = Run::new(&[job("a", 2)]);
    run.solve(0, 0..1);
    let lock = LaunchLock::take(&run.folder, "launch1", |_| ()).unwrap();
    tool("verify", &run)
        .succeeds()
        .stdout_has("the run is under way: process ")
        .stdout_has("note: unfinished: a: episode 1 is missing")
        .stdout_has("has no findings so far")
        .stdout_lacks("is all there");
    tool("certify --rerun 0 --partial", &run)
        .fails_with(2)
        .stderr_has("cannot be certified: the run is under way: process ");
    drop(lock);
    let journal = Journal::open(&run.folder.journal(0)).unwrap();
    let running = "the run is under way: a rank is running";
    tool("verify", &run).succeeds().stdout_has(running);
    let under_way = format!("{running}; 1 of 2 episodes so far\n");
    report(&run).stdout_has(&under_way);
    tool("report --output merged", &run)
        .succeeds()
        .stdout_has(&under_way);
    drop(journal);
    tool("verify", &run)
        .fails_with(1)
        .stdout_has("wrong: a: episode 1 is missing")
        .stdout_lacks("under way");
}
