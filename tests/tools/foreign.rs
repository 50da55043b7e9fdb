//! Tests of the tools on a malicious run folder of another user.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::Command;

use jobs::episode::{DemoRef, Episode, VideoRef};
use serde_json::{Value, json};

use crate::tools::folder::{Run, job, rrun};

/// HDF5 groups that contain themselves, and dimensions without a limit; see `make_hostile.py`
/// beside it.
const HOSTILE: &[u8] = include_bytes!("../fixtures/tools/hostile.hdf5");

/// Returns a run with `value` at one place of its plan.
fn planned(pointer: &str, value: Value) -> Run {
    let run = Run::new(&[job("a", 2)]);
    run.whole();
    let mut plan: Value = serde_json::from_slice(&fs::read(run.folder.plan()).unwrap()).unwrap();
    *plan.pointer_mut(pointer).unwrap() = value;
    fs::write(run.folder.plan(), plan.to_string()).unwrap();
    run
}

/// Returns a run of one episode with these files.
fn recorded(dataset: &str, video: &str) -> Run {
    let run = Run::new(&[job("a", 1)]);
    let dataset = Some(DemoRef {
        file: dataset.to_owned(),
        demo: "demo_0".to_owned(),
    });
    let video = Some(VideoRef {
        file: video.to_owned(),
        first_frame: 0,
        frames: 1,
        fps: None,
    });
    run.rank(
        0,
        [Episode {
            dataset,
            video,
            ..run.episode(0, 0, 0)
        }],
    );
    fs::create_dir(run.folder.job("a")).unwrap();
    run
}

fn fifo(path: &std::path::Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn every_tool_refuses_a_job_whose_name_leads_out_of_the_folder() {
    let run = planned("/jobs/0/name", json!("../EVIL"));
    let merged = run.dir.path().join("merged").display().to_string();
    for words in [
        &["report", run.path()][..],
        &["verify", run.path()],
        &["compare", run.path(), run.path()],
    ] {
        rrun(words)
            .fails_with(1)
            .complains("`../EVIL` cannot be a file name");
    }
    rrun(&["merge", run.path(), "--output", &merged])
        .fails_with(1)
        .complains("`../EVIL` cannot be a file name");
    assert!(!run.folder.root().parent().unwrap().join("EVIL").exists());
}

#[test]
fn a_plan_of_a_million_million_episodes_is_refused() {
    let run = planned("/jobs/0/length/episodes", json!(1_000_000_000_000_u64));
    rrun(&["report", run.path()])
        .fails_with(1)
        .complains("num_episodes: found 1000000000000");
}

#[test]
fn verify_waits_for_no_fifo_and_reads_no_device() {
    let run = recorded("a/a.hdf5", "a/a.mp4");
    fifo(&run.folder.job("a").join("a.hdf5"));
    symlink("/dev/zero", run.folder.job("a").join("a.mp4")).unwrap();
    let done = rrun(&["verify", run.path()]).fails_with(1);
    done.says("`a/a.hdf5` cannot be read: I/O error: it is a FIFO")
        .says("`a/a.mp4` cannot be read: it is a device");
}

#[test]
fn a_fifo_among_the_journals_is_told() {
    let run = recorded("a/a.hdf5", "a/a.mp4");
    fifo(&run.folder.journal(1));
    for tool in ["report", "verify"] {
        rrun(&[tool, run.path()])
            .fails_with(1)
            .complains("journal_rank1.jsonl`: it is a FIFO, expected a regular file");
    }
}

#[test]
fn a_plan_that_is_no_regular_file_is_told() {
    let run = recorded("a/a.hdf5", "a/a.mp4");
    let plan = run.folder.plan();
    let output = run.dir.path().join("merged").display().to_string();
    let is_told = |found: &str| {
        let told = format!(
            "cannot read `{}`: it is {found}, expected a regular file",
            plan.display()
        );
        rrun(&["report", run.path()]).fails_with(1).complains(&told);
        rrun(&["verify", run.path()]).fails_with(1).complains(&told);
        rrun(&["compare", run.path(), run.path()])
            .fails_with(1)
            .complains(&told);
        rrun(&["merge", run.path(), "--output", &output])
            .fails_with(1)
            .complains("plan.json`: it is ");
    };
    fs::remove_file(&plan).unwrap();
    fifo(&plan);
    is_told("a FIFO");
    fs::remove_file(&plan).unwrap();
    fs::create_dir(&plan).unwrap();
    is_told("a folder");
}

#[test]
fn a_terabyte_of_nothing_is_read_by_no_tool() {
    let run = recorded("a/a.hdf5", "a/a.mp4");
    let grow = |path: &std::path::Path| {
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(1 << 40)
            .unwrap()
    };
    grow(&run.folder.journal(0));
    rrun(&["report", run.path()])
        .fails_with(1)
        .complains("the file has 1099511627776 bytes");
    File::options()
        .write(true)
        .open(run.folder.journal(0))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    rrun(&["report", run.path()])
        .fails_with(1)
        .complains("it has a line of more than 16777216 bytes");
    grow(&run.folder.plan());
    rrun(&["report", run.path()])
        .fails_with(1)
        .complains("the file has 1099511627776 bytes");
}

#[test]
fn a_dataset_of_groups_within_themselves_and_of_endless_dimensions_comes_to_an_end() {
    let run = recorded("a/a.hdf5", "a/a.mp4");
    fs::write(run.folder.job("a").join("a.hdf5"), HOSTILE).unwrap();
    rrun(&["verify", run.path()])
        .fails_with(1)
        .says("`a/a.hdf5` episode 0 is not whole: ");
}

#[test]
fn what_a_journal_says_does_nothing_to_the_terminal() {
    let run = Run::new(&[job("a", 1)]);
    let error = Some("\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}".to_owned());
    let dataset = Some(DemoRef {
        file: "a/x\nwrong: \u{1b}[31m.hdf5".to_owned(),
        demo: "d".to_owned(),
    });
    let broken = Episode {
        error,
        success: None,
        dataset,
        ..run.episode(0, 0, 0)
    };
    run.rank(0, [broken]);
    for done in [
        rrun(&["report", run.path()]),
        rrun(&["verify", run.path()]).fails_with(1),
    ] {
        let text = done.stdout() + &done.stderr();
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
    }
    let done = rrun(&["verify", run.path()]);
    assert!(!done.stdout().contains("\nwrong: \\"), "{}", done.stdout());
}
