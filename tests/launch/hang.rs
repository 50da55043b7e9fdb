//! Tests of hang reports: the stacks of all ranks on request, and when a rank is silent.

use std::process::Command;

use rig::need::{Need, need};
use rig::process::send;
use rig::run::{Ended, Given, Running, Signal};

use crate::launch::{log, ranks};

/// Waits in a function of its own until the file `go` exists. A file named by the rank says that it
/// has come so far.
const WAITING: &str = "
import os, pathlib, time

def wait_for_the_gripper():
    pathlib.Path('up.' + os.environ['RANK']).write_text('up')
    while not pathlib.Path('go').exists():
        time.sleep(0.2)

wait_for_the_gripper()
";

/// Rank 1 sleeps in its first attempt.
const SLEEPER: &str = "[ $RANK.$TORCHELASTIC_RESTART_COUNT = 1.0 ] && exec sleep 10000; \
                       [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; \
                       while :; do :; done";

/// All ranks but one enter a collective.
const DEADLOCK: &str = "
import os, pathlib, time
import torch, torch.distributed as dist

def skips_the_collective():
    while not pathlib.Path('go').exists():
        time.sleep(0.2)

def reduces(value):
    dist.all_reduce(value)

dist.init_process_group('gloo')
rank = dist.get_rank()
pathlib.Path('up.%d' % rank).write_text('up')
if rank == 1:
    skips_the_collective()
reduces(torch.ones(2))
dist.barrier()
dist.destroy_process_group()
";

/// Asks two ranks that wait what they do, and lets them go on. Returns the report.
fn explained(running: Running) -> (String, Ended) {
    running.wait_for_files(&["up.0", "up.1"]);
    running.signal(Signal::USR2);
    running.wait_for_stderr("all stacks: ");
    running.write("go");
    let ended = running.wait().succeeds();
    (log(&ended, "hang_1.txt"), ended)
}

#[track_caller]
fn assert_has(report: &str, parts: &[&str]) {
    for part in parts {
        assert!(report.contains(part), "{part} is not in {report}");
    }
}

#[test]
fn sigusr2_writes_the_stacks_and_the_launch_goes_on() {
    let (report, ended) = explained(ranks(2).words("--log-dir logs").python(WAITING).start());
    let place = "ranks 0-1: `wait_for_the_gripper` (script.py:";
    assert_has(
        &report,
        &["ranks 0-1: ", "`wait_for_the_gripper` (script.py:"],
    );
    ended.stderr_has(place);
}

#[test]
fn a_silent_rank_is_killed_and_restarted_if_that_is_wanted() {
    let words = "--log-dir logs --max-restarts 1 --hang-timeout 2 --on-hang restart";
    ranks(2)
        .words(words)
        .sh(SLEEPER)
        .succeeds()
        .stderr_has("no output and no CPU time of rank 1 for 2 s")
        .stderr_has(
            "rank 1 made no progress for 2 s (--hang-timeout) and was ended by rrun (SIGKILL)",
        );
}

#[test]
fn silent_ranks_end_the_launch_if_that_is_wanted() {
    let why = "made no progress for 2 s (--hang-timeout)";
    ranks(2)
        .words("--hang-timeout 2 --on-hang abort")
        .sh("exec sleep 10000")
        .fails_with(1)
        .stderr_has("ranks 0-1")
        .stderr_has("--on-hang abort")
        .stderr_has(&format!("{why} and was ended by rrun (SIGTERM)"))
        .stderr_has(&format!(
            "sent by rrun because the rank {why}; what all ranks did: /"
        ));
}

#[test]
fn without_a_wish_a_silent_rank_is_only_reported() {
    let rrun = Given::rrun().words("--hang-timeout 2");
    let running = rrun.sh("until test -s go; do sleep 0.5; done").start();
    running.wait_for_stderr("all stacks: ");
    running.write("go");
    running.wait().succeeds().stderr_lacks("killed");
}

#[test]
fn the_rank_that_skips_a_collective_stands_out() {
    if !need(Need::Torch) {
        return;
    }
    let running = ranks(3).words("--log-dir logs").python(DEADLOCK).start();
    running.wait_for_files(&["up.0", "up.1", "up.2"]);
    let stands_out = |text: &str| {
        text.contains("rank 1: `skips_the_collective` (script.py:")
            && text.contains("ranks 0, 2: `all_reduce` (")
    };
    // A rank may be asked on its way into the collective, then it is asked again.
    let mut number = 0;
    while !stands_out(&running.stderr()) && number < 50 {
        number += 1;
        running.signal(Signal::USR2);
        running.wait_for_count("all stacks: ", number);
    }
    running.write("go");
    let ended = running.wait().succeeds();
    assert_has(&log(&ended, &format!("hang_{number}.txt")), &["gloo::"]);
}

/// Returns the report of a program whose processes may not trace each other.
fn report_without_ptrace(how: &str, program: &str) -> (String, Ended) {
    let refuse = rig::fixture("refuse_ptrace.py");
    let below = format!("exec \"$PYTHON_EXEC\" '{}' {how} \"$@\"", refuse.display());
    let rrun = ranks(2).words("--log-dir logs").python(program);
    explained(rrun.below(&below).start())
}

#[test]
fn where_a_filter_refuses_ptrace_the_report_has_python_frames_and_waits() {
    let (report, ended) = report_without_ptrace("filter", WAITING);
    ended.stderr_has("ranks 0-1: `wait_for_the_gripper` (script.py:");
    let missing = "its native stacks cannot be read: ptrace is not permitted here \
                   (kernel.yama.ptrace_scope, a container without SYS_PTRACE, or another debugger); \
                   what its threads do in the kernel is known";
    let waits = "): waiting in `clock_nanosleep`";
    assert_has(&report, &[waits, "What is missing", missing]);
    assert!(!report.contains("libc.so"), "{report}");
}

#[test]
fn of_a_process_that_nobody_may_look_into_the_report_says_what_is_missing() {
    let undumpable = format!("import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n{WAITING}");
    let (report, ended) = report_without_ptrace("capability", &undumpable);
    ended.stderr_has("ranks 0-1: sleeping");
    let wanted = [
        "(no stack)",
        "its native stacks cannot be read: ptrace is not permitted here",
        "what its threads do in the kernel cannot be read either",
        "its Python frames cannot be read: ",
    ];
    assert_has(&report, &wanted);
}

/// Compiles a driver's library into the folder of a launch, which loads it.
fn with_nvml(rrun: Given) -> Given {
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([rrun.path("libnvidia-ml.so.1"), rig::fixture("nvml.c")])
        .status();
    assert!(compiled.expect("a C compiler").success());
    let folder = rrun.folder().root().display().to_string();
    rrun.env("LD_LIBRARY_PATH", folder)
}

#[test]
fn a_rank_that_is_restarted_while_the_report_is_written_is_not_ended_for_its_predecessor() {
    // The report waits five seconds for a driver that hangs, the restart one.
    let script = "echo $$ > pid.$RANK.$TORCHELASTIC_RESTART_COUNT
                  [ $RANK.$TORCHELASTIC_RESTART_COUNT = 1.0 ] && exec sleep 10000
                  until test -s go; do :; done";
    let words = "--log-dir logs --failure-policy isolate --max-restarts 1 --hang-timeout 2 \
                 --on-hang restart";
    let rrun = with_nvml(ranks(2).words(words)).env("NVML_HANGS", "1");
    let running = rrun.sh(script).start();
    running.wait_for_stderr("the stacks of all ranks are read");
    send(running.pids(&["pid.1.0"])[0], Signal::KILL);
    running.wait_for_files(&["pid.1.1"]);
    running.wait_for_stderr("all stacks: ");
    running.write("go");
    running
        .wait()
        .succeeds()
        .stderr_has("restart 1 of 1 in 1 s, the other ranks continue")
        .stderr_lacks("was ended by rrun");
}

#[test]
fn the_report_has_the_use_of_the_gpus() {
    let rrun = with_nvml(ranks(2).words("--log-dir logs"));
    let (report, _) = explained(rrun.sh("echo up > up.$RANK; await go").start());
    let gpu = "GPU 1: 37 % busy, 3.0 of 8.0 GiB in use; 2 other processes";
    assert_has(&report, &[gpu]);
}
