//! Tests of `rrun report`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::tools::folder::{Run, job, rrun, rrun_in, rrun_with};

#[test]
fn a_report_is_made_of_plan_and_journals_alone_and_is_the_same_each_time() {
    let run = Run::new(&[job("a", 4), job("b", 2)]);
    run.whole();
    rrun(&["report", run.path()])
        .succeeds()
        .says("METRICS SUMMARY")
        .says("6 of 6 episodes, 83.3 % solved");
    let mut first = run.report();
    assert!(first.complete() && first.run.wall_s == Some(99.0));
    for file in [
        "metrics.json",
        "eval_info.json",
        "episodes.jsonl",
        "final_benchmark_report.json",
    ] {
        assert!(run.folder.root().join(file).is_file(), "{file}");
    }
    rrun(&["report", run.path()]).succeeds();
    let second = run.report();
    first.run.written.clone_from(&second.run.written);
    assert_eq!(first, second);
}

#[test]
fn what_only_the_run_knew_is_kept() {
    let run = Run::new(&[job("a", 4)]);
    run.whole();
    rrun(&["report", run.path()]).succeeds();
    let text = fs::read_to_string(run.folder.report())
        .unwrap()
        .replace("\"argv\": []", "\"argv\": [\"eval\"]");
    fs::write(run.folder.report(), text).unwrap();
    rrun(&["report", run.path()]).succeeds();
    assert_eq!(run.report().run.argv, ["eval"]);
}

#[test]
fn a_report_that_knows_more_than_the_journals_here_is_kept() {
    let run = Run::new(&[job("a", 4)]);
    run.rank(0, (0..2).map(|number| run.episode(0, number, 0)));
    run.rank(1, (2..4).map(|number| run.episode(0, number, 1)));
    rrun(&["report", run.path()]).succeeds();
    fs::remove_file(run.folder.journal(1)).unwrap();
    let refusal = "has 4 episodes and the journals here have 2";
    rrun(&["report", run.path()])
        .fails_with(1)
        .complains(refusal)
        .complains("--force");
    assert_eq!(run.report().overall.episodes, 4);
    rrun(&["report", "--force", run.path()])
        .succeeds()
        .says("2 episodes missing: a 2, a 3");
    assert!(run.report().partial);
}

#[test]
fn a_folder_without_a_plan_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    for (name, refusal) in [
        ("empty", "is not a run folder: it has no plan.json"),
        ("nothing", "does not exist"),
    ] {
        assert_eq!(
            rrun_in(dir.path(), &["report", name])
                .fails_with(1)
                .stderr(),
            format!("rrun: error: `{name}` {refusal}\n")
        );
    }
}

#[test]
fn a_folder_that_cannot_be_written_has_its_report_elsewhere() {
    let run = Run::new(&[job("a", 4)]);
    run.whole();
    fs::create_dir(run.folder.episodes()).unwrap();
    let (path, output) = (run.path(), run.dir.path().join("elsewhere"));
    let done = rrun(&["report", path])
        .fails_with(1)
        .complains(&format!("cannot write the report into `{path}`: "));
    done.complains(&format!(
        "`rrun merge {path} --output DIR` makes it elsewhere"
    ));
    rrun(&["merge", path, "--output", output.to_str().unwrap()]).succeeds();
    assert!(output.join("report.html").is_file());
}

#[test]
fn a_damaged_plan_is_named_with_its_line() {
    let run = Run::new(&[job("a", 4)]);
    fs::write(run.folder.plan(), "{\n\"schema\": 7}").unwrap();
    rrun(&["report", run.path()])
        .fails_with(1)
        .complains("plan.json` is not a plan of rrun")
        .complains("line 2 column 11");
}

#[test]
fn lines_that_mean_nothing_are_told() {
    let run = Run::new(&[job("a", 2)]);
    run.whole();
    let text = fs::read_to_string(run.folder.journal(0)).unwrap();
    fs::write(
        run.folder.journal(0),
        format!("{text}nonsense\n{{\"type\":\"ep"),
    )
    .unwrap();
    let told =
        "`journal/journal_rank0.jsonl`: 1 damaged line (7); the last line is torn (11 bytes)";
    rrun(&["report", run.path()]).succeeds().says(told);
}

#[test]
fn episodes_that_the_plan_does_not_have_are_told_and_not_counted() {
    let run = Run::new(&[job("a", 4)]);
    run.rank(0, (0..5).map(|number| run.episode(0, number, 0)));
    let told = "`journal/journal_rank0.jsonl`: 1 unplanned line (7): of episodes that are not in \
        the plan";
    rrun(&["report", run.path()])
        .succeeds()
        .says("4 of 4 episodes")
        .says(told);
    rrun(&["verify", run.path()])
        .fails_with(1)
        .says(&format!("wrong: {told}"));
}

#[test]
fn a_tool_comes_first() {
    let told = "`report` is a tool and takes no launch options: write it first, for example `rrun \
        report --help`";
    rrun(&["--nproc-per-node", "2", "report", "x"])
        .fails_with(1)
        .complains(told);
    rrun(&["report", "--help"])
        .succeeds()
        .says("Recreate the report of a run from its plan and journals")
        .says("rrun report [OPTIONS] <DIR>");
    rrun(&["report"]).fails_with(2).complains("<DIR>");
}

#[test]
fn the_page_is_shown_by_xdg_open() {
    let run = Run::new(&[job("a", 2)]);
    run.whole();
    let page = format!("{}/report.html", run.path());
    rrun(&["report", "--html", run.path()])
        .succeeds()
        .says(&format!("page:   {page}"));
    assert!(
        fs::read_to_string(&page)
            .unwrap()
            .starts_with("<!DOCTYPE html>")
    );
    let bin = run.dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let with = |script: &str| {
        fs::write(bin.join("xdg-open"), script).unwrap();
        fs::set_permissions(bin.join("xdg-open"), fs::Permissions::from_mode(0o755)).unwrap();
        rrun_with(
            &[("PATH", bin.to_str().unwrap())],
            &["report", "--open", run.path()],
        )
    };
    with("#!/bin/sh\necho opened $1\n")
        .succeeds()
        .says(&format!("opened {page}"));
    with("#!/bin/sh\nexit 3\n")
        .fails_with(1)
        .complains("`xdg-open` cannot show")
        .complains("exit status: 3");
    fs::remove_file(bin.join("xdg-open")).unwrap();
    let done = rrun_with(
        &[("PATH", bin.to_str().unwrap())],
        &["report", "--open", run.path()],
    );
    done.fails_with(1)
        .complains("cannot start `xdg-open`")
        .complains(&page);
}
