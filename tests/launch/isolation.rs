//! Tests of `--failure-policy isolate`: a rank that fails is restarted alone, and the others go on.

use rig::process::{alive, send};
use rig::run::{Given, Signal};
use serde_json::Value;

use crate::launch::{assert_gone, eval, lines, log, only_entry, other_failures, ranks, root_cause};

/// Gives a launch whose ranks fail independently of each other.
fn isolated(count: usize, restarts: u32) -> Given {
    let words = format!("--failure-policy isolate --max-restarts {restarts}");
    ranks(count).words(words.as_str())
}

#[test]
fn a_rank_that_is_killed_starts_again_alone() {
    let script = "echo $$ >> pids.$RANK; echo $TORCHELASTIC_RESTART_COUNT \
                  $TORCHELASTIC_MAX_RESTARTS $RRUN_ROUND $RRUN_FAILURE_POLICY > seen.$RANK; \
                  echo $MASTER_PORT > port.$RANK; \
                  if [ $RANK = 1 ]; then [ $TORCHELASTIC_RESTART_COUNT = 0 ] && kill -KILL $$; \
                  echo > mended; fi; await mended";
    let ended = isolated(3, 3).sh(script).succeeds();
    let starts = ["pids.0", "pids.1", "pids.2"].map(|name| lines(&ended, name).len());
    assert_eq!(starts, [1, 2, 1]);
    assert_eq!(ended.text("seen.1"), "1 3 0 isolate\n");
    assert_eq!(
        ended.text("port.1"),
        ended.text("port.0"),
        "the store is the same"
    );
    let said =
        "rrun: rank 1 was killed by SIGKILL; restart 1 of 3 in 1 s, the other ranks continue\n";
    ended.stderr_has(said).stderr_lacks("FAILED");
}

#[test]
fn a_rank_without_restart_is_lost_and_the_others_finish() {
    let script = "echo $RANK of $TORCHELASTIC_RESTART_COUNT; [ $RANK = 2 ] && \
                  [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 6; \
                  [ $RANK = 1 ] && { echo why $TORCHELASTIC_RESTART_COUNT >&2; exit 4; }; await go";
    let words = "-t 1 -r 2 --log-dir logs --duplicate-stdout-filters of \
                 --event-log-handler json:events.jsonl";
    let running = isolated(3, 1).words(words).sh(script).start();
    let lost = "rank 1 exited with code 4; no restart is left, the other ranks continue\n";
    running.wait_for_stderr(lost);
    running.write("go");
    let ended = running.wait().fails_with(1).prints(&[
        "[default0]:0 of 0",
        "[default1]:1 of 0",
        "[default1]:1 of 1",
        "[default2]:2 of 0",
        "[default2]:2 of 1",
    ]);
    let root = root_cause(&ended);
    assert!(
        root.contains("rank      : 1 (local_rank: 1)\n  exitcode  : 4 "),
        "{root}"
    );
    let others = other_failures(&ended);
    assert!(
        others.contains("<NO_OTHER_FAILURES>"),
        "who was mended is none: {others}"
    );

    // Each attempt of a rank has its own log folder, and the report quotes the last one.
    let run = only_entry(&ended, "logs");
    let of = |attempt: usize| ended.entries(&format!("{run}/attempt_{attempt}"));
    assert_eq!(of(0), ["0", "1", "2", "filtered_stdout.log"]);
    assert_eq!(of(1), ["1", "2", "filtered_stdout.log"]);
    assert_eq!(log(&ended, "attempt_1/1/stdout.log"), "1 of 1\n");
    let quoted = "/attempt_1/1/stderr.log`:\n  why 1\n";
    let ended = ended.stderr_has(quoted).stderr_lacks("why 0");

    let events = lines(&ended, "events.jsonl");
    let events = events
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_rank_1 = events.filter(|event| {
        let name = event["name"].as_str().unwrap();
        name.starts_with("rrun.") && event["metadata"]["global_rank"] == 1
    });
    let [restart, lost] = &of_rank_1.collect::<Vec<_>>()[..] else {
        panic!(
            "a restart and a loss of rank 1: {}",
            ended.text("events.jsonl")
        )
    };
    assert_eq!(restart["name"], "rrun.rank.restart");
    let numbers = ["attempt", "restart", "of", "after_s"].map(|name| &restart["metadata"][name]);
    assert_eq!(numbers, [1; 4]);
    assert_eq!(lost["name"], "rrun.rank.lost");
    assert_eq!(
        lost["metadata"]["reason"],
        "rank 1 exited with code 4; no restart is left"
    );
}

#[test]
fn what_a_rank_left_behind_ends_before_it_starts_again_and_that_of_others_does_not() {
    let daemon = "attempt=$RANK.$TORCHELASTIC_RESTART_COUNT; \
                  ( setsid sh -c 'echo $$ > daemon.'$attempt'; exec sleep 10000' & ); \
                  sleep 10000 & echo $! > child.$attempt; await daemon.$attempt; ";
    let script = "if [ $RANK = 0 ]; then await mended; exit 0; fi; await daemon.0.0; \
                  [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 1; \
                  for old in daemon.1.0 child.1.0; do \
                  kill -0 $(cat $old) 2> /dev/null && touch met; done; \
                  for other in daemon.0.0 child.0.0; do \
                  kill -0 $(cat $other) || touch lost; done; echo > mended";
    let ended = isolated(2, 1).sh(&format!("{daemon}{script}")).succeeds();
    assert!(
        !ended.has_file("met") && !ended.has_file("lost"),
        "{}",
        ended.stderr
    );
    assert_gone(&ended, &["child.0.0", "child.1.1"]);
    for daemon in ended.pids(&["daemon.0.0", "daemon.1.1"]) {
        assert!(alive(daemon), "those of ranks that succeeded live on");
        send(daemon, Signal::KILL);
    }
}

#[test]
fn after_slurm_s_announcement_of_the_end_nothing_is_started_any_more() {
    let script = "if [ $RANK = 0 ]; then trap 'echo saved; exit 0' USR1; echo > up; \
                  sleep 10000 & wait; fi; echo start >> starts; exit 1";
    let rrun = isolated(2, 9)
        .env("ENVIRONMENT", "BATCH")
        .env("SLURM_JOB_ID", "1");
    let running = rrun.sh(script).start();
    running.wait_for_files(&["up"]);
    running.wait_for_stderr("restart 3 of 9 in 4 s");
    running.signal(Signal::USR1);
    let ended = running.wait().fails_with(1).prints(&["saved"]);
    assert_eq!(lines(&ended, "starts").len(), 3);
    ended.stderr_has(
        "rank 1 exited with code 1; the end of the launch was announced, the other ranks \
         continue\n",
    );
}

#[test]
fn other_ranks_find_a_lost_one_in_the_store() {
    let script = "import os, sys\n\
                  if os.environ['RANK'] == '1': sys.exit(9)\n\
                  sys.path.append(os.environ['CONFORMANCE'])\n\
                  from ministore import Client\n\
                  client = Client('127.0.0.1', int(os.environ['MASTER_PORT']))\n\
                  print(client.get('rrun/lost/job-7/0/1', 90).decode())\n";
    let rrun = isolated(2, 0)
        .words([
            "--rdzv-id",
            "job-7",
            "--master-port",
            &rig::net::port().to_string(),
        ])
        .env(
            "CONFORMANCE",
            rig::root().join("tests/conformance").display(),
        );
    rrun.python(script)
        .fails_with(1)
        .prints(&["rank 1 exited with code 9; no restart is left"]);
}

#[test]
fn ranks_of_eval_are_isolated_until_a_restart_would_not_change_a_thing() {
    let rank = "echo $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS >> seen.$RANK\n\
                test $RANK = 1 && exit $((1 + 2 * TORCHELASTIC_RESTART_COUNT))\n\
                await go";
    let running = eval(rank, None).words("--nproc-per-node 2").start();
    let restarted = "rank 1 exited with code 1; restart 1 of 6 in 1 s, the other ranks continue";
    running.wait_for_stderr(restarted);
    let lost = "rank 1 exited with code 3; a restart would not change that, the other ranks \
                continue\n";
    running.wait_for_stderr(lost);
    running.write("go");
    let ended = running.wait().fails_with(1);
    assert_eq!(lines(&ended, "seen.0"), ["0 of 6"]);
    assert_eq!(lines(&ended, "seen.1"), ["0 of 6", "1 of 6"]);
}

#[test]
fn ranks_of_eval_can_share_their_fate_as_under_torchrun() {
    let rank = "test $RANK$TORCHELASTIC_RESTART_COUNT = 10 && exit 3\n\
                echo $TORCHELASTIC_RESTART_COUNT [$RRUN_ROUND$RRUN_FAILURE_POLICY] > seen.$RANK\n\
                test $TORCHELASTIC_RESTART_COUNT = 1 && exit 0\n\
                exec sleep 10000";
    let words = "--nproc-per-node 2 --max-restarts 1 --failure-policy torchrun";
    let ended = eval(rank, None)
        .words(words)
        .succeeds()
        .stderr_has("restart 1 of 1");
    assert_eq!(
        ["seen.0", "seen.1"].map(|name| ended.text(name)),
        ["1 []\n"; 2]
    );
}

#[test]
fn a_rank_that_cannot_run_its_program_is_not_started_again() {
    let rrun = isolated(2, 6).sh("[ $RANK = 0 ] || /nonexistent/program");
    rrun.fails_with(1)
        .stderr_has("or a library that it needs, was not found); a restart would not change that")
        .stderr_lacks("restart 1 of");
}

#[test]
fn a_rank_that_cannot_be_started_again_is_said_to_be_that() {
    let rrun = isolated(1, 2).words("--no-python --event-log-handler json:events.jsonl");
    let rrun = rrun.executable("prog", "#!/bin/sh\nrm prog\nkill -KILL $$\n");
    let ended = rrun
        .program("./prog")
        .fails_with(1)
        .stderr_has("rrun: rank 0 was killed by SIGKILL; restart 1 of 2 in 1 s\n")
        .stderr_has("rrun: rank 0 could not be started; restart 2 of 2 in 2 s\n")
        .stderr_has("rrun: rank 0 could not be started; no restart is left\n")
        .stderr_has("root cause: rank 0 (local_rank 0, pid ");
    let reason = "\"reason\":\"rank 0 could not be started; no restart is left\"";
    assert!(ended.text("events.jsonl").contains(reason));
}
