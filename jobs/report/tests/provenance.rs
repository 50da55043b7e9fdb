//! A report and a resumed run accept the same journal lines: those of this run and of its jobs as they
//! are now.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use jobs::episode::Episode;
use jobs::journal::{self, Line, Provenance};
use jobs::layout::RunFolder;
use jobs::plan::{RunPlan, fingerprint};
use jobs::rank_env::RankEnv;
use jobs::samples;
use report::merge::Merge;
use report::{Context, Journals, Merged, verify};
use serde_json::json;

/// Returns a plan of one job with this instruction and number of episodes.
fn plan(words: &str, episodes: u64) -> RunPlan {
    let job = samples::job(json!({"num_episodes": episodes, "language_instruction": words}));
    samples::plan(&samples::eval_args(&[]), vec![job])
}

fn env(launch: &str) -> RankEnv {
    RankEnv {
        launch: Some(launch.to_owned()),
        ..RankEnv::read(|_| None).unwrap()
    }
}

fn finished(number: u64) -> Line {
    samples::episode(0, "a", number).into()
}

/// Runs a rank of `launch` that finishes these episodes.
fn run(folder: &Path, plan: RunPlan, launch: &str, episodes: std::ops::Range<u64>) -> RunPlan {
    let folder = RunFolder::new(folder);
    let mut plan = plan.settle(&folder, true).unwrap();
    let mut journal = plan.open_journal(&folder, &env(launch)).unwrap();
    for number in episodes {
        journal.append(&finished(number)).unwrap();
    }
    plan
}

/// Returns the numbers of the accepted episodes, the errors of `verify`, and its notes.
fn read(folder: &Path) -> (Vec<u64>, Vec<String>, Vec<String>) {
    let folder = RunFolder::new(folder);
    let merged = Merged::open(&folder).unwrap();
    let plan = &merged.plan;
    let found = verify::run(&merged);
    let own = journal::read_all(&folder.journals(), &plan.accepted()).unwrap();
    let number = |line: &Line| match line {
        Line::Episode(episode) => Some(episode.episode),
        _ => None,
    };
    let lines = own.iter().flat_map(|contents| &contents.lines);
    let mut resumed: Vec<u64> = lines.filter_map(number).collect();
    resumed.sort_unstable();
    assert_eq!(
        scored(&merged),
        resumed,
        "a report and a resumed run see the same"
    );
    (resumed, found.wrong, found.notes)
}

/// Returns the numbers of the scored episodes of the first job.
fn scored(merged: &Merged) -> Vec<u64> {
    let mut scored = Vec::new();
    let add = |one: Episode| scored.extend(one.is_scored().then_some(one.episode));
    merged.each_episode_of(&merged.plan.jobs[0], add).unwrap();
    scored
}

fn bytes(folder: &Path) -> Vec<u8> {
    std::fs::read(RunFolder::new(folder).journal(0)).unwrap()
}

#[test]
fn every_line_says_of_which_run_launch_and_job_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let plan = run(dir.path(), plan("touch", 4), "launch1", 0..1);
    let text = String::from_utf8(bytes(dir.path())).unwrap();
    let fingerprint = fingerprint(&plan.jobs[0], plan.seed);
    let end = format!(
        ",\"run\":\"{}\",\"launch\":\"launch1\",\"fingerprint\":\"{fingerprint}\"}}\n",
        plan.id
    );
    assert!(text.ends_with(&end), "{text}");
    assert_eq!(plan.provenance.jobs["a"], [fingerprint]);
    assert_eq!(read(dir.path()), (vec![0], vec![], vec![]));
}

#[test]
fn lines_of_another_run_are_a_finding_and_no_results() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(dir.path(), plan("touch", 4), "launch1", 0..2);
    run(other.path(), plan("touch", 4), "launch2", 2..4);
    let mixed = [bytes(dir.path()), bytes(other.path())].concat();
    std::fs::write(RunFolder::new(dir.path()).journal(0), mixed).unwrap();
    let (scored, wrong, _) = read(dir.path());
    assert_eq!(scored, [0, 1]);
    let told = "`journal/journal_rank0.jsonl`: 2 foreign lines (3, 4): of another run, or of a job that has changed since or is not in the plan";
    assert_eq!(wrong, [told]);
}

#[test]
fn lines_of_episodes_that_the_plan_does_not_have_are_a_finding_and_no_results() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), plan("touch", 4), "launch1", 0..5);
    let (scored, wrong, _) = read(dir.path());
    assert_eq!(scored, [0, 1, 2, 3]);
    let told = "`journal/journal_rank0.jsonl`: 1 unplanned line (5): of episodes that are not in \
        the plan";
    assert_eq!(wrong, [told]);
}

#[test]
fn a_rank_that_still_runs_the_job_as_it_was_writes_no_results() {
    let dir = tempfile::tempdir().unwrap();
    let before = run(dir.path(), plan("touch", 4), "launch1", 0..2);
    let now = run(dir.path(), plan("touch it", 4), "launch2", 0..1);
    assert_eq!(before.id, now.id);
    let folder = RunFolder::new(dir.path());
    let late = journal::Journal::open(&folder.journal(0)).unwrap();
    let mut late = late.stamped(before.stamps(Some("launch1")));
    late.append(&finished(3)).unwrap();
    drop(late);
    let (scored, wrong, _) = read(dir.path());
    assert_eq!((scored, wrong.len()), (vec![0], 1));
    assert!(wrong[0].contains("1 foreign line (2)"), "{wrong:?}");
}

#[test]
fn a_job_that_becomes_longer_keeps_its_lines_and_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), plan("touch", 4), "launch1", 0..4);
    run(dir.path(), plan("touch", 6), "launch2", 4..6);
    assert_eq!(read(dir.path()), ((0..6).collect(), vec![], vec![]));
    let text = String::from_utf8(bytes(dir.path())).unwrap();
    let counts = ["launch1", "launch2"].map(|launch| text.matches(launch).count());
    assert_eq!(counts, [4, 2]);
}

#[test]
fn lines_that_do_not_say_of_which_run_they_are_are_a_finding_and_no_results() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), plan("touch", 4), "launch1", 0..1);
    let folder = RunFolder::new(dir.path());
    let mut journal = journal::Journal::open(&folder.journal(0)).unwrap();
    journal.append(&finished(1)).unwrap();
    let (scored, wrong, _) = read(dir.path());
    assert_eq!((scored, wrong.len()), (vec![0], 1));
    assert!(wrong[0].contains("1 foreign line (2)"), "{wrong:?}");
}

#[test]
fn merged_runs_take_the_lines_of_each_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two, out] = ["one", "two", "out"].map(|name| dir.path().join(name));
    run(&one, plan("touch", 4), "launch1", 0..2);
    run(&two, plan("touch", 4), "launch2", 2..4);
    let merge = Merge::of(&[one.clone(), two.clone()], &out).unwrap();
    merge.write(Context::default()).unwrap();
    let folder = RunFolder::new(&out);
    let merged = Merged::open(&folder).unwrap();
    assert_eq!(scored(&merged), [0, 1, 2, 3]);
    assert_eq!(verify::run(&merged).wrong, Vec::<String>::new());
    let stranger = RunPlan {
        id: "0".repeat(32),
        provenance: Provenance::default(),
        ..merged.plan.clone()
    };
    let of_stranger = Merged::new(stranger, Journals::of(&folder).unwrap()).unwrap();
    assert_eq!(scored(&of_stranger), [0; 0]);
}
