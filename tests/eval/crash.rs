//! Tests of crashes: they cost the episodes under way, but no finished one.

use std::path::{Path, PathBuf};
use std::process::Command;

use jobs::episode::EpisodeOutcome;
use jobs::job::Status;
use serde_json::json;

use crate::eval::command::{Eval, alive, job, signal, wait_until};

/// Returns an evaluation that is long enough to be hit in the middle.
fn long(ranks: usize) -> Eval {
    Eval::new(&[job("reach", 40, 2), job("push", 40, 2)]).nproc(ranks)
}

fn results(eval: &Eval) -> Vec<EpisodeOutcome> {
    eval.episodes()
        .iter()
        .map(|episode| episode.outcome())
        .collect()
}

fn undisturbed() -> Vec<EpisodeOutcome> {
    let eval = long(2).words(&["--no-dataset"]);
    eval.run().succeeds();
    results(&eval)
}

/// Returns how many episodes a resumed run says are done: "resuming in `out`: 7 episodes done".
fn said_done(stderr: &str) -> Option<usize> {
    let (_, said) = stderr.split_once("resuming in `")?;
    let (_, count) = said.split_once("`: ")?;
    count.split(' ').next()?.parse().ok()
}

/// Checks that every demonstration that the journal names is complete in its file.
fn datasets_have_what_the_journal_says(eval: &Eval) {
    let script = "import sys, h5py\n\
                  data = h5py.File(sys.argv[1])['data']\n\
                  print(*(name for name in data if data[name]['actions'].shape[0] == data[name].attrs['num_samples']))";
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/python");
    for line in eval.journal() {
        let jobs::journal::Line::Episode(episode) = line else {
            continue;
        };
        let demo = episode.dataset.expect("datasets are written");
        let file = eval.folder().root().join(demo.file);
        let output = Command::new(&python)
            .args(["-c", script])
            .arg(file)
            .output()
            .unwrap();
        let demos = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            demos.split_whitespace().any(|name| name == demo.demo),
            "{} {demos} {error}",
            demo.demo
        );
    }
}

#[test]
fn a_killed_rank_costs_its_episodes_under_way_and_the_same_command_goes_on() {
    let eval = long(2).launcher_words(&["--failure-policy", "torchrun"]);
    let running = eval.start();
    eval.wait_for_episodes(6);
    signal(running.ranks()[0], "KILL");
    running
        .wait()
        .fails_with(1)
        .stderr_has("Signal 9 (SIGKILL)")
        .stderr_has("report of what was finished");
    let report = eval.report();
    assert!(report.partial && report.overall.episodes >= 6 && !report.missing.is_empty());
    datasets_have_what_the_journal_says(&eval);
    let journaled = eval.journaled();
    let resumed = eval.run().succeeds();
    // The other rank may have finished more of them by the time of this message.
    let done = said_done(&resumed.stderr);
    assert!(
        done.is_some_and(|done| (journaled..80).contains(&done)),
        "{journaled} were there:\n{}",
        resumed.stderr
    );
    assert!(eval.report().complete() && eval.report().duplicates.is_empty());
    assert_eq!(results(&eval), undisturbed());
}

#[test]
fn a_killed_rank_is_started_again_when_restarts_are_left() {
    let eval = long(2).launcher_words(&["--max-restarts", "1"]);
    let running = eval.start();
    eval.wait_for_episodes(6);
    signal(running.ranks()[1], "KILL");
    running.wait().succeeds();
    assert!(eval.report().complete());
    assert_eq!(results(&eval), undisturbed());
}

#[test]
fn a_killed_launcher_takes_its_ranks_along_and_the_same_command_goes_on() {
    let eval = long(2);
    let running = eval.start();
    eval.wait_for_episodes(6);
    let ranks = running.ranks();
    assert_eq!(ranks.len(), 2);
    running.signal("KILL");
    wait_until("the end of the ranks", || {
        ranks.iter().all(|pid| !alive(*pid))
    });
    drop(running);
    datasets_have_what_the_journal_says(&eval);
    eval.run().succeeds();
    assert!(eval.report().complete());
    assert_eq!(results(&eval), undisturbed());
}

#[test]
fn an_interrupt_closes_every_file_and_reports_what_there_is() {
    let eval = long(2).with_video();
    let running = eval.start();
    eval.wait_for_episodes(3);
    let ranks = running.ranks();
    running.signal("INT");
    let ended = running.wait().fails_with(1);
    let resume = format!(" eval --resume {}", eval.folder().root().display());
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("rrun: to resume: rrun --nproc-per-node 2 ") && last.ends_with(&resume),
        "{last}"
    );
    assert!(ranks.iter().all(|pid| !alive(*pid)));
    let report = eval.report();
    assert!(report.partial && report.overall.episodes >= 3 && report.run.stopped.is_some());
    assert_eq!(report.overall.episodes as usize, eval.journaled());
    datasets_have_what_the_journal_says(&eval);
    let video = std::fs::read(
        eval.folder()
            .job("reach")
            .join("reach_video_rank0_gpu0_env0.mp4"),
    )
    .unwrap();
    assert_eq!(&video[4..8], b"ftyp");
}

#[test]
fn a_full_disk_is_said_and_what_was_finished_stays() {
    let Some(disk) = SmallDisk::mount("3m") else {
        eprintln!("skipped: mounting a small tmpfs needs root");
        return;
    };
    let eval = Eval::new(&[job("reach", 100, 4)])
        .nproc(1)
        .with_video()
        .words(&["--record-cameras"]);
    let eval = eval.output(&disk.path.join("out"));
    eval.run()
        .fails_with(1)
        .stderr_has("No space left on device");
    let finished = eval.journaled();
    assert!(finished > 0 && finished < 100, "{finished}");
    datasets_have_what_the_journal_says(&eval);
}

#[test]
fn a_disk_that_cannot_hold_the_recording_is_refused_before_the_first_step() {
    let Some(disk) = SmallDisk::mount("1m") else {
        eprintln!("skipped: mounting a small tmpfs needs root");
        return;
    };
    let mut job = job("reach", 1, 1);
    job.as_object_mut().unwrap().remove("num_episodes");
    job["num_steps"] = json!(1_000_000);
    let eval = Eval::new(&[job]).nproc(1).output(&disk.path.join("out"));
    eval.run()
        .fails_with(1)
        .stderr_has("MB are free, the recording needs")
        .stdout_has("0 of 0 episodes");
}

#[test]
fn a_job_that_fails_stops_the_run_unless_it_may_go_on() {
    let broken = json!({"name": "broken", "arena_env_args": {"environment": "reach"}, "policy_type": "replay_action",
                        "policy_config_dict": {"replay_file_path": "/nowhere.hdf5"}});
    let jobs = [broken, job("reach", 2, 1)];
    let stopping = Eval::new(&jobs).nproc(1);
    let said = stopping.run().fails_with(1);
    said.stderr_has("broken failed, and is tried again: `policy_config_dict.replay_file_path` is `/nowhere.hdf5`");
    let log = std::fs::read_to_string(stopping.folder().log(0)).unwrap();
    assert!(
        log.contains("broken failed: `policy_config_dict.replay_file_path` is `/nowhere.hdf5`"),
        "{log}"
    );
    assert_eq!(stopping.report().overall.episodes, 0);
    let going_on = Eval::new(&jobs).nproc(1).words(&["--continue-on-error"]);
    going_on.run().fails_with(1);
    let report = going_on.report();
    assert_eq!(
        report
            .per_job
            .iter()
            .map(|job| job.status)
            .collect::<Vec<_>>(),
        [Status::Failed, Status::Completed]
    );
    assert_eq!(report.overall.episodes, 2);
}

#[test]
fn ranks_that_failed_wait_for_the_report_of_the_others() {
    let broken = json!({"name": "broken", "arena_env_args": {"environment": "reach"}, "policy_type": "replay_action",
                        "policy_config_dict": {"replay_file_path": "/nowhere.hdf5"}});
    let eval = Eval::new(&[job("push", 8, 1), broken])
        .nproc(2)
        .words(&["--continue-on-error"]);
    eval.run().fails_with(1);
    let report = eval.report();
    assert_eq!(
        (report.overall.episodes, report.per_job[0].status),
        (8, Status::Completed)
    );
    assert_eq!(report.run.gathered_by, "store");
}

#[test]
fn a_job_that_failed_is_mended_by_the_same_command_at_another_world_size() {
    let dir = tempfile::tempdir().unwrap();
    let later = dir.path().join("later.hdf5");
    let recorded = Eval::new(&[job("reach", 2, 1)]).nproc(1);
    recorded.run().succeeds();
    let replay = json!({"name": "replay", "arena_env_args": {"environment": "reach"}, "policy_type": "replay_action",
                        "policy_config_dict": {"replay_file_path": later}});
    let eval = Eval::new(&[job("reach", 2, 1), replay]).words(&["--continue-on-error"]);
    let eval = eval.nproc(2);
    eval.run().fails_with(1);
    assert_eq!(eval.report().per_job[1].status, Status::Failed);
    std::fs::copy(recorded.folder().dataset("reach", 0, 1), &later).unwrap();
    let alone = eval.world_of(1);
    alone.run().succeeds();
    assert_eq!(alone.report().per_job[1].status, Status::Completed);
}

#[test]
fn nobody_has_to_read_what_is_printed() {
    let eval = Eval::new(&[job("reach", 4, 1)]).nproc(2);
    let status = eval.run_unread();
    assert!(status.success(), "{status}");
    assert!(eval.report().complete());
}

/// A small separate file system, which is unmounted on drop.
struct SmallDisk {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&path)
            .output();
        mounted
            .is_ok_and(|output| output.status.success())
            .then_some(Self { path, _dir: dir })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // If the mount stays busy, the folder below it is kept.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
