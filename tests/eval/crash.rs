//! Tests of crashes: they cost the episodes under way, but no finished one.

use std::path::Path;
use std::sync::OnceLock;

use jobs::job::Status;
use rig::process::{alive, send};
use serde_json::{Value, json};

use crate::eval::command::{Eval, Signal, job, until};
use crate::eval::given::{Gate, named, printed, toy};
use crate::eval::results::{recorded, replay};
use rig::disk::SmallDisk;

/// How many episodes of [`stopping`] are finished for certain while the gate is closed.
const FREE: usize = 12;

/// Returns an evaluation on two ranks that both stop at the gate.
fn stopping(gate: &Gate) -> Eval {
    let other = named("other", 4, toy(json!({"num_envs": 1})));
    Eval::new(&[job("reach", 12, 2), gate.job(4), gate.before(3..4, other)]).nproc(2)
}

/// Returns the same without a disturbance.
fn undisturbed() -> &'static Eval {
    static UNDISTURBED: OnceLock<Eval> = OnceLock::new();
    UNDISTURBED.get_or_init(|| {
        let gate = Gate::new();
        gate.open();
        stopping(&gate).words(&["--export-mode=none"]).finished()
    })
}

/// Checks that every demonstration that an episode of the journals names is in its file, with an
/// action for each step.
pub fn datasets_have_what_the_journal_says(eval: &Eval) {
    let script = "import glob, json, sys, h5py\n\
                  root, files, count = sys.argv[1], {}, 0\n\
                  for journal in glob.glob(root + '/journal/*.jsonl'):\n\
                  \x20   for line in open(journal, 'rb'):\n\
                  \x20       episode = json.loads(line) if line.endswith(b'\\n') else {}\n\
                  \x20       if episode.get('type') != 'episode': continue\n\
                  \x20       count += 1\n\
                  \x20       if episode.get('error'): continue\n\
                  \x20       path = root + '/' + episode['dataset']['file']\n\
                  \x20       if path not in files: files[path] = h5py.File(path)['data']\n\
                  \x20       group = files[path][episode['dataset']['demo']]\n\
                  \x20       assert group['actions'].shape[0] == episode['length'] == group.attrs['num_samples'], episode\n\
                  \x20       assert bool(group.attrs['success']) == episode['success'], episode\n\
                  print(count)";
    let count = printed(script, &[eval.folder().root()]);
    assert_eq!(count, eval.journaled().to_string());
}

#[test]
fn a_killed_rank_costs_its_episodes_under_way_and_the_same_command_goes_on() {
    let gate = Gate::new();
    let eval = stopping(&gate).launcher_words(&["--failure-policy", "torchrun"]);
    let running = eval.start();
    eval.wait_for_episodes(FREE);
    send(running.ranks()[0], Signal::KILL);
    running
        .wait()
        .fails_with(1)
        .stderr_has("Signal 9 (SIGKILL)")
        .stderr_has("report of what was finished");
    let report = eval.report();
    let found = report.overall.episodes as usize;
    assert!(report.partial && found >= FREE && !report.missing.is_empty());
    datasets_have_what_the_journal_says(&eval);
    gate.open();
    let resumed = format!(
        "resuming in `{}`: {found} episodes done",
        eval.folder().root().display()
    );
    eval.run().succeeds().stderr_has(&resumed);
    assert!(eval.report().complete() && eval.report().duplicates.is_empty());
    assert_eq!(eval.outcomes(), undisturbed().outcomes());
}

#[test]
fn a_killed_rank_is_started_again_when_restarts_are_left() {
    let gate = Gate::new();
    let eval = stopping(&gate).launcher_words(&["--max-restarts", "1"]);
    let running = eval.start();
    eval.wait_for_episodes(FREE);
    let killed = running.ranks()[1];
    send(killed, Signal::KILL);
    until("the end of the rank", || !alive(killed));
    gate.open();
    running.wait().succeeds();
    assert!(eval.report().complete());
    assert_eq!(eval.outcomes(), undisturbed().outcomes());
}

#[test]
fn an_interrupt_closes_every_file_and_reports_what_there_is() {
    let gate = Gate::new();
    let eval = stopping(&gate).with_video();
    let running = eval.start();
    eval.wait_for_episodes(FREE);
    let ranks = running.ranks();
    assert_eq!(ranks.len(), 2);
    running.signal(Signal::INT);
    let ended = running.wait().fails_with(1);
    let resume = format!(" eval --resume {}", eval.folder().root().display());
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("rrun: to resume: rrun --nproc-per-node 2 ") && last.ends_with(&resume),
        "{last}"
    );
    assert!(ranks.iter().all(|pid| !alive(*pid)));
    let report = eval.report();
    assert!(report.partial && report.run.stopped.is_some());
    assert_eq!(report.overall.episodes as usize, eval.journaled());
    datasets_have_what_the_journal_says(&eval);
    let video = eval.folder().job("reach");
    let video = std::fs::read(video.join("reach_video_rank0_gpu0_env0.mp4")).unwrap();
    assert_eq!(&video[4..8], b"ftyp");
}

#[test]
fn a_full_disk_is_said_and_what_was_finished_stays() {
    let Some(disk) = SmallDisk::mount("3m") else {
        return;
    };
    let eval = Eval::new(&[job("reach", 100, 4)])
        .nproc(1)
        .with_video()
        .words(&["--record-cameras"]);
    let eval = eval.output(&disk.path().join("out"));
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
        return;
    };
    let mut job = job("reach", 1, 1);
    job.as_object_mut().unwrap().remove("num_episodes");
    job["num_steps"] = json!(1_000_000);
    let eval = Eval::new(&[job]).nproc(1);
    eval.output(&disk.path().join("out"))
        .run()
        .fails_with(1)
        .stderr_has("MB are free, the recording needs")
        .stdout_has("0 of 0 episodes");
}

fn statuses(eval: &Eval) -> Vec<Status> {
    let report = eval.report();
    report.per_job.iter().map(|job| job.status).collect()
}

fn broken() -> Value {
    replay("broken", "reach", Path::new("/nowhere.hdf5"))
}

#[test]
fn a_job_that_fails_stops_the_run() {
    let stopping = Eval::new(&[broken(), job("reach", 2, 1)]).nproc(1);
    let said = stopping.run().fails_with(1);
    said.stderr_has("broken failed, and is tried again: `policy_config_dict.replay_file_path` is `/nowhere.hdf5`");
    let log = std::fs::read_to_string(stopping.folder().log(0)).unwrap();
    assert!(
        log.contains("broken failed: `policy_config_dict.replay_file_path` is `/nowhere.hdf5`"),
        "{log}"
    );
    assert_eq!(stopping.report().overall.episodes, 0);
}

#[test]
fn a_run_that_may_go_on_after_a_failed_job_ends_all_others_and_the_report_has_them() {
    let eval = Eval::new(&[broken(), job("push", 8, 1), job("reach", 2, 1)]);
    let eval = eval.nproc(2).words(&["--continue-on-error"]);
    eval.run().fails_with(1);
    let wanted = [Status::Failed, Status::Completed, Status::Completed];
    assert_eq!(statuses(&eval), wanted);
    let report = eval.report();
    assert_eq!(report.overall.episodes, 10);
    assert_eq!(
        report.run.gathered_by, "store",
        "a rank that failed waits for the others"
    );
}

#[test]
fn a_job_that_failed_is_mended_by_the_same_command_at_another_world_size() {
    let dir = tempfile::tempdir().unwrap();
    let later = dir.path().join("later.hdf5");
    let replay = replay("replay", "push", &later);
    let eval = Eval::new(&[job("reach", 2, 1), replay]).words(&["--continue-on-error"]);
    let eval = eval.nproc(2);
    eval.run().fails_with(1);
    assert_eq!(statuses(&eval), [Status::Completed, Status::Failed]);
    std::fs::copy(recorded(), &later).unwrap();
    let alone = eval.world_of(1).finished();
    assert_eq!(statuses(&alone), [Status::Completed; 2]);
}

#[test]
fn nobody_has_to_read_what_is_printed() {
    let eval = Eval::new(&[job("reach", 4, 1)]).nproc(2);
    eval.run_unread().succeeds();
    assert!(eval.report().complete());
}
