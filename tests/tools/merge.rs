//! Tests of `rrun merge`.

use std::fs;
use std::path::Path;

use jobs::episode::Episode;
use jobs::layout::RunFolder;

use crate::tools::folder::{Run, job, report, rrun_in};

#[test]
fn workers_are_merged_as_s002_wants_them() {
    let dir = tempfile::tempdir().unwrap();
    let jobs = [job("a", 4), job("b", 2)];
    let worker =
        |number: usize| Run::at(&dir.path().join(format!("outputs/worker_{number}")), &jobs);
    let (first, second) = (worker(0), worker(1));
    first.rank(0, (0..4).map(|number| first.recorded(0, number, 0)));
    second.rank(0, (0..2).map(|number| second.recorded(1, number, 0)));
    for run in [&first, &second] {
        let name = if run.path().ends_with('0') { "a" } else { "b" };
        fs::create_dir(run.folder.job(name)).unwrap();
        fs::write(run.folder.dataset(name, 0, 2), "data").unwrap();
    }
    let merge = || rrun_in(dir.path(), &["merge", "outputs"]).succeeds();
    merge()
        .says("outputs/worker_1: 2 jobs")
        .says("6 of 6 episodes, 83.3 % solved")
        .says("METRICS SUMMARY");
    let merged = RunFolder::new(&dir.path().join("outputs/merged"));
    assert!(merged.final_benchmark_report().is_file() && report(&merged).complete());
    let episodes = fs::read_to_string(merged.episodes()).unwrap();
    for line in episodes.lines() {
        let file = serde_json::from_str::<Episode>(line)
            .unwrap()
            .dataset
            .unwrap()
            .file;
        assert_eq!(
            fs::read_to_string(merged.root().join(&file)).unwrap(),
            "data",
            "{file}"
        );
    }
    // Merge again, although the output is inside the merged folder.
    merge();
    assert_eq!(fs::read_to_string(merged.episodes()).unwrap(), episodes);
    assert_eq!(report(&merged).run.gathered_by, "merge");
}

#[test]
fn episodes_that_came_out_differently_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["x", "y"].map(|name| Run::at(&dir.path().join(name), &[job("a", 2)]));
    first.whole();
    let longer = (0..2).map(|number| Episode {
        length: 50 + number,
        ..second.episode(0, number, 0)
    });
    second.rank(0, longer.skip(1));
    let done = rrun_in(dir.path(), &["merge", "x", "y", "--output", "z"]).succeeds();
    done.says("1 episode ran more than once; the first result of each counts")
        .says("conflict: a 1 came out differently");
}

#[test]
fn lines_of_another_run_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["x", "y"].map(|name| Run::at(&dir.path().join(name), &[job("a", 2)]));
    first.whole();
    second.whole();
    let foreign = fs::read_to_string(second.folder.journal(0)).unwrap();
    let foreign = foreign
        .lines()
        .filter(|line| line.contains("\"type\":\"episode\""))
        .map(|line| {
            format!(
                "{},\"run\":\"{}\"}}\n",
                line.strip_suffix('}').unwrap(),
                "0".repeat(32)
            )
        });
    let text = fs::read_to_string(first.folder.journal(0)).unwrap() + &foreign.collect::<String>();
    fs::write(first.folder.journal(0), text).unwrap();
    let done = rrun_in(dir.path(), &["merge", "x", "--output", "z"]).succeeds();
    done.says("2 of 2 episodes")
        .says("2 foreign lines (7, 8): of another run, or of a job that has changed since");
}

#[test]
fn what_cannot_be_merged_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    Run::at(&dir.path().join("x"), &[job("a", 2)]).whole();
    Run::at(&dir.path().join("y"), &[job("a", 3)]).whole();
    let refused = rrun_in(dir.path(), &["merge", "x", "y"]).fails_with(1);
    assert!(
        refused
            .complains("ran different jobs under the same names:\n  a: num_episodes 2 → 3")
            .stdout()
            .is_empty()
    );
    rrun_in(dir.path(), &["merge", "x", "--output", "y"])
        .fails_with(1)
        .complains("y` contains another run: choose another");
    rrun_in(dir.path(), &["merge"])
        .fails_with(2)
        .complains("<DIR>");
    assert!(!Path::new(&dir.path().join("outputs")).exists());
}
