//! Tests of the ranks' output on the console and in files.

use rig::run::Given;

use crate::launch::{log, only_entry, ranks, root_cause};

/// Gives a launch of two ranks with their logs in `logs`, and no message about threads on stderr.
fn logged(words: &str) -> Given {
    let rrun = ranks(2).env("OMP_NUM_THREADS", "1");
    rrun.words("--log-dir logs").words(words)
}

#[test]
fn one_stream_can_be_redirected_by_rank() {
    let ended = logged("-r 0:1,1:2")
        .sh("echo out$RANK; echo err$RANK >&2")
        .succeeds()
        .stdout_is("out1\n")
        .stderr_is("err0\n");
    assert_eq!(log(&ended, "attempt_0/0/stdout.log"), "out0\n");
    assert_eq!(log(&ended, "attempt_0/1/stderr.log"), "err1\n");
    let run = only_entry(&ended, "logs");
    assert_eq!(ended.entries(&format!("{run}/attempt_0/0")), ["stdout.log"]);
}

#[test]
fn nothing_is_lost_of_a_rank_that_prints_ten_thousand_lines_and_dies() {
    let ended = logged("-t 1").sh("seq 10000; kill -KILL $$").fails_with(1);
    let printed = |rank: usize| {
        let prefix = format!("[default{rank}]:");
        let lines = ended.stdout.lines();
        lines
            .filter_map(|line| line.strip_prefix(&prefix)?.parse().ok())
            .collect::<Vec<u32>>()
    };
    let written = |rank: usize| log(&ended, &format!("attempt_0/{rank}/stdout.log"));
    // The first rank that dies ends the other one at any point of its output.
    let first = usize::from(root_cause(&ended).contains("rank      : 1 "));
    assert_eq!(printed(first), (1..=10_000).collect::<Vec<u32>>());
    assert_eq!(written(first).lines().count(), 10_000);
    assert_eq!(printed(1 - first).len(), written(1 - first).lines().count());
}

#[test]
fn a_console_that_nobody_reads_any_more_ends_nothing() {
    let rrun = Given::rrun().below("{ \"$@\"; echo $? > code; } | head -n 1");
    let ended = rrun.words("-t 1").sh("seq 100000; touch done").succeeds();
    assert_eq!(ended.stdout, "[default0]:1\n");
    assert!(ended.has_file("done"));
    assert_eq!(ended.text("code"), "0\n");
}

#[test]
fn a_rank_that_prints_much_delays_no_line_of_another() {
    // Nobody reads the console until all has been written, and a pipe has no room for so much.
    let console = "\"$@\" | { until test -s written; do sleep 0.01; done; cat; }";
    let chatty = "seq 60000; echo > begun; await said; seq 60000; echo > written";
    let other = "await begun; echo here; echo > said";
    let script = format!("if test $RANK = 0; then {chatty}; else {other}; fi");
    let ended = logged("-t 1").below(console).sh(&script).succeeds();
    assert_eq!(ended.stdout.lines().count(), 120_001);
    let after = ended.stdout.split("[default1]:here\n").nth(1).unwrap();
    assert!(after.lines().count() > 60_000, "{}", after.lines().count());
}
