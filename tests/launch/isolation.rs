//! Tests of `--failure-policy isolate`: a rank that fails is restarted alone, and the others go on.

use serde_json::Value;

use crate::launch::command::Rrun;
use crate::launch::ended::Ended;
use crate::launch::running::{Running, alive};

/// Returns a launch whose ranks fail independently of each other.
fn isolated(ranks: usize, restarts: u32) -> Rrun {
    Rrun::new()
        .nproc(ranks)
        .max_restarts(restarts)
        .options(&["--failure-policy", "isolate"])
}

/// Starts a launch of `eval` whose ranks run this script instead of the real binary.
pub fn start_eval(rrun: Rrun, rank: &str) -> Running {
    let rest = r#""arena_env_args": {"environment": "reach"}, "policy_type": "scripted", "num_episodes": 1"#;
    let jobs = ["a", "b", "c"]
        .map(|name| format!("{{\"name\": \"{name}\", {rest}}}"))
        .join(", ");
    let await_file = "await() { until test -s \"$1\"; do sleep 0.01; done; }";
    let rrun = rrun.file("jobs.json", &format!("{{\"jobs\": [{jobs}]}}"));
    let rrun = rrun.executable("bin/rrun-rank", &format!("#!/bin/sh\n{await_file}\n{rank}"));
    let rrun = rrun.program(&["eval", "--jobs", "jobs.json", "--output", "out"]);
    rrun.start_below("cp \"$1\" bin/rrun && shift && exec bin/rrun \"$@\"")
}

fn lines(ended: &Ended, name: &str) -> Vec<String> {
    ended.text(name).lines().map(str::to_owned).collect()
}

#[test]
fn a_rank_that_is_killed_twice_starts_again_alone() {
    let script = "echo $$ >> pids.$RANK; echo $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $RRUN_ROUND \
                  $RRUN_FAILURE_POLICY $MASTER_PORT >> seen.$RANK; \
                  if [ $RANK = 1 ]; then [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && kill -KILL $$; echo > mended; fi; \
                  await mended";
    let ended = isolated(3, 3).sh(script).succeeds();
    assert_eq!(
        ["pids.0", "pids.1", "pids.2"].map(|name| lines(&ended, name).len()),
        [1, 3, 1]
    );
    let seen = lines(&ended, "seen.1");
    let counts: Vec<&str> = seen
        .iter()
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(before, _)| before)
        .collect();
    assert_eq!(counts, ["0 3 0 isolate", "1 3 0 isolate", "2 3 0 isolate"]);
    assert_eq!(
        seen[2].rsplit(' ').next(),
        ended.text("seen.0").trim().rsplit(' ').next(),
        "the store is the same"
    );
    ended
        .stderr_has(
            "rrun: rank 1 was killed by SIGKILL; restart 1 of 3 in 1 s, the other ranks continue\n",
        )
        .stderr_has(
            "rrun: rank 1 was killed by SIGKILL; restart 2 of 3 in 2 s, the other ranks continue\n",
        )
        .stderr_lacks("FAILED");
}

#[test]
fn a_rank_without_restart_is_lost_and_the_others_finish() {
    let script = "echo start >> starts.$RANK; [ $RANK = 1 ] && exit 4; await go; echo done $RANK";
    let running = isolated(3, 1).sh(script).start();
    running.wait_for_stderr(
        "rank 1 exited with code 4; no restart is left, the other ranks \
            continue\n",
    );
    running.write("go");
    let ended = running.wait().fails_with(1).prints(&["done 0", "done 2"]);
    assert_eq!(
        ["starts.0", "starts.1"].map(|name| lines(&ended, name).len()),
        [1, 2]
    );
    assert!(
        ended
            .root_cause()
            .contains("rank      : 1 (local_rank: 1)\n  exitcode  : 4 "),
        "{}",
        ended.stderr
    );
    assert!(
        ended.other_failures().contains("<NO_OTHER_FAILURES>"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_rank_that_has_been_mended_is_no_failure_of_the_launch() {
    let script = "[ $RANK = 0 ] && exit 5; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 6; exit 0";
    let ended = isolated(2, 1).sh(script).fails_with(1);
    assert!(
        ended.root_cause().contains("exitcode  : 5 "),
        "{}",
        ended.stderr
    );
    ended.stderr_lacks("exitcode  : 6");
}

#[test]
fn a_launch_whose_ranks_are_all_lost_ends() {
    let ended = isolated(2, 0)
        .sh("exit 7")
        .fails_with(1)
        .stderr_has("rank 0 exited with code 7; no restart is left");
    ended
        .stderr_has("rank 1 exited with code 7; no restart is left")
        .stderr_has("Root Cause");
}

#[test]
fn what_a_rank_left_behind_ends_before_it_starts_again_and_that_of_others_does_not() {
    let daemon = "( setsid sh -c 'echo $$ > daemon.$RANK.$TORCHELASTIC_RESTART_COUNT; exec sleep 10000' & ); \
                  sleep 10000 & echo $! > child.$RANK.$TORCHELASTIC_RESTART_COUNT; \
                  await daemon.$RANK.$TORCHELASTIC_RESTART_COUNT; ";
    let script = "if [ $RANK = 0 ]; then await mended; exit 0; fi; await daemon.0.0; \
                  [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 1; \
                  for old in daemon.1.0 child.1.0; do kill -0 $(cat $old) 2> /dev/null && touch met; done; \
                  for other in daemon.0.0 child.0.0; do kill -0 $(cat $other) || touch lost; done; echo > mended";
    let ended = isolated(2, 1).sh(&format!("{daemon}{script}")).succeeds();
    assert!(
        !ended.has_file("met") && !ended.has_file("lost"),
        "{}",
        ended.stderr
    );
    assert!(
        !ended
            .pids(&["child.0.0", "child.1.1"])
            .into_iter()
            .any(alive),
        "they end with the launch"
    );
    let daemons = ended.pids(&["daemon.0.0", "daemon.1.1"]);
    assert!(
        daemons.iter().copied().all(alive),
        "those of ranks that succeeded live on"
    );
    std::process::Command::new("kill")
        .args(daemons.iter().map(i32::to_string))
        .status()
        .unwrap();
}

#[test]
fn a_signal_during_a_pause_ends_the_launch_and_nothing_is_started() {
    let script = "[ $RANK = 0 ] && exec sleep 10000; echo start >> starts; exit 1";
    let running = isolated(2, 9).sh(script).start();
    running.wait_for_stderr("restart 3 of 9 in 4 s");
    running.signal("TERM");
    let ended = running
        .wait()
        .fails_with(1)
        .stderr_has("shutting down workers (SIGTERM)")
        .stderr_lacks("FAILED");
    assert_eq!(lines(&ended, "starts").len(), 3);
}

#[test]
fn after_slurm_s_announcement_of_the_end_nothing_is_started_any_more() {
    let script = "if [ $RANK = 0 ]; then trap 'echo saved; exit 0' USR1; echo > up; sleep 10000 & wait; fi; \
                  echo start >> starts; exit 1";
    let rrun = isolated(2, 9)
        .env("ENVIRONMENT", "BATCH")
        .env("SLURM_JOB_ID", "1");
    let running = rrun.sh(script).start();
    running.wait_for_files(&["up"]);
    running.wait_for_stderr("restart 3 of 9 in 4 s");
    running.signal("USR1");
    let ended = running.wait().fails_with(1).prints(&["saved"]);
    assert_eq!(lines(&ended, "starts").len(), 3);
    ended.stderr_has(
        "rank 1 exited with code 1; the end of the launch was announced, the other ranks \
         continue\n",
    );
}

#[test]
fn an_interrupt_while_the_only_rank_pauses_ends_the_launch() {
    let running = isolated(1, 9).sh("echo start >> starts; exit 1").start();
    running.wait_for_stderr("rank 0 exited with code 1; restart 3 of 9 in 4 s\n");
    running.signal("INT");
    assert_eq!(lines(&running.wait().fails_with(1), "starts").len(), 3);
}

#[test]
fn every_attempt_of_a_rank_has_its_log_folder() {
    let script = "echo $RANK of $TORCHELASTIC_RESTART_COUNT; [ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 1; exit 0";
    let rrun = isolated(2, 1).options(&[
        "-t",
        "1",
        "--log-dir",
        "logs",
        "--duplicate-stdout-filters",
        "of",
    ]);
    let ended = rrun.sh(script).succeeds().prints(&[
        "[default0]:0 of 0",
        "[default1]:1 of 0",
        "[default1]:1 of 1",
    ]);
    let run = ended.only_entry("logs");
    assert_eq!(
        ended.entries(&format!("{run}/attempt_0")),
        ["0", "1", "filtered_stdout.log"]
    );
    assert_eq!(
        ended.entries(&format!("{run}/attempt_1")),
        ["1", "filtered_stdout.log"]
    );
    assert_eq!(
        ended.text(&format!("{run}/attempt_0/1/stdout.log")),
        "1 of 0\n"
    );
    assert_eq!(
        ended.text(&format!("{run}/attempt_1/1/stdout.log")),
        "1 of 1\n"
    );
    assert_eq!(
        ended.text(&format!("{run}/attempt_1/filtered_stdout.log")),
        "[default1]:1 of 1\n"
    );
}

#[test]
fn the_report_quotes_the_last_attempt_of_a_lost_rank() {
    let rrun = isolated(2, 1).options(&["-r", "2", "--log-dir", "logs"]);
    let ended = rrun
        .sh("[ $RANK = 0 ] || { echo why $TORCHELASTIC_RESTART_COUNT >&2; exit 2; }")
        .fails_with(1);
    ended
        .stderr_has("/attempt_1/1/stderr.log`:\n  why 1\n")
        .stderr_lacks("why 0");
}

#[test]
fn events_tell_of_restarts_and_losses() {
    let rrun = isolated(2, 1).options(&["--event-log-handler", "json:events.jsonl"]);
    let ended = rrun.sh("exit $RANK").fails_with(1);
    let events: Vec<Value> = lines(&ended, "events.jsonl")
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let own: Vec<&Value> = events
        .iter()
        .filter(|event| {
            event["name"]
                .as_str()
                .is_some_and(|it| it.starts_with("rrun."))
        })
        .collect();
    let of = |event: &Value, field: &str| event["metadata"][field].clone();
    assert_eq!(
        own.iter().map(|event| &event["name"]).collect::<Vec<_>>(),
        ["rrun.rank.restart", "rrun.rank.lost"]
    );
    assert_eq!(
        ["global_rank", "attempt", "restart", "of", "after_s"].map(|field| of(own[0], field)),
        [1; 5]
    );
    assert_eq!(
        of(own[1], "reason"),
        "rank 1 exited with code 1; no restart is left"
    );
}

#[test]
fn other_ranks_find_a_lost_one_in_the_store() {
    let script = "import os, sys, datetime\n\
                  if os.environ['RANK'] == '1': sys.exit(9)\n\
                  from torch.distributed import TCPStore\n\
                  address, port = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n\
                  store = TCPStore(address, port, None, False, timeout=datetime.timedelta(seconds=90))\n\
                  print(store.get('rrun/lost/job-7/0/1').decode())\n";
    let rrun = isolated(2, 0).options(&[
        "--rdzv-id",
        "job-7",
        "--master-port",
        &crate::launch::environment::free_port().to_string(),
    ]);
    rrun.python(script)
        .fails_with(1)
        .prints(&["rank 1 exited with code 9; no restart is left"]);
}

#[test]
fn ranks_of_eval_are_isolated_and_have_six_restarts() {
    let rank = "echo $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS >> seen.$RANK\n\
                test $RANK$TORCHELASTIC_RESTART_COUNT = 10 && exit 1\n\
                test $RANK = 1 && echo > mended\n\
                await mended";
    let ended = start_eval(Rrun::new().nproc(2), rank).wait().succeeds();
    assert_eq!(
        (lines(&ended, "seen.0"), lines(&ended, "seen.1")),
        (
            vec!["0 of 6".into()],
            vec!["0 of 6".into(), "1 of 6".into()]
        )
    );
    ended.stderr_has("rank 1 exited with code 1; restart 1 of 6 in 1 s, the other ranks continue");
}

#[test]
fn a_rank_of_eval_whose_job_has_failed_for_good_is_not_started_again() {
    let rank = "echo start >> starts.$RANK\ntest $RANK = 1 && exit 3\nawait go";
    let running = start_eval(Rrun::new().nproc(2), rank);
    running.wait_for_stderr(
        "rank 1 exited with code 3; a restart would not change that, the other ranks continue\n",
    );
    running.write("go");
    let ended = running.wait().fails_with(1);
    assert_eq!(lines(&ended, "starts.1").len(), 1);
}

#[test]
fn ranks_of_eval_can_share_their_fate_as_under_torchrun() {
    let rank = "test $RANK$TORCHELASTIC_RESTART_COUNT = 10 && { echo > failed; exit 3; }\n\
                echo $TORCHELASTIC_RESTART_COUNT [$RRUN_ROUND$RRUN_FAILURE_POLICY] >> seen.$RANK\n\
                test $TORCHELASTIC_RESTART_COUNT = 1 && exit 0\n\
                exec sleep 10000";
    let rrun = Rrun::new()
        .nproc(2)
        .max_restarts(1)
        .options(&["--failure-policy", "torchrun"]);
    let ended = start_eval(rrun, rank)
        .wait()
        .succeeds()
        .stderr_has("restart 1 of 1");
    assert_eq!(
        (lines(&ended, "seen.0").last(), lines(&ended, "seen.1")),
        (Some(&"1 []".to_owned()), vec!["1 []".to_owned()])
    );
}

#[test]
fn thirty_two_workers_fail_and_return_each_for_itself() {
    // Each rank fails `RANK % 3` times, up to two times.
    let script = "echo $RANK; test $TORCHELASTIC_RESTART_COUNT -ge $((RANK % 3))";
    let ended = isolated(32, 2).sh(script).succeeds();
    let starts = |rank: usize| {
        ended
            .stdout
            .lines()
            .filter(|line| **line == rank.to_string())
            .count()
    };
    let expected: Vec<usize> = (0..32).map(|rank| 1 + rank % 3).collect();
    assert_eq!(
        (0..32).map(starts).collect::<Vec<_>>(),
        expected,
        "{}",
        ended.stderr
    );
}

#[test]
fn a_rank_that_cannot_run_its_program_is_not_started_again() {
    let isolated = || {
        Rrun::new()
            .nproc(2)
            .max_restarts(6)
            .options(&["--failure-policy", "isolate"])
    };
    let ended = isolated()
        .sh("[ $RANK = 0 ] || /nonexistent/program")
        .fails_with(1)
        .stderr_lacks("restart 1 of");
    ended.stderr_has("127: a program, or a library that it needs, was not found); a restart would not change that");
    let restarted = Rrun::new()
        .max_restarts(2)
        .sh("echo ran; exit 127")
        .fails_with(1);
    restarted.stdout_is("ran\nran\nran\n");
}

#[test]
fn eval_starts_no_more_ranks_than_there_is_work_for() {
    let ended = start_eval(Rrun::new().nproc(5000), "echo $WORLD_SIZE > world.$RANK")
        .wait()
        .succeeds();
    ended.stderr_has("5000 ranks requested, but only 3 jobs to run: 3 ranks will be started");
}
