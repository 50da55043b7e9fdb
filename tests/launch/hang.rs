//! Tests of hang reports: the stacks of all ranks on request, and when a rank is silent.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::launch::command::Rrun;
use crate::launch::ended::Ended;
use crate::launch::running::Running;

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

/// Returns the text of the only report in `logs`.
fn report(read: impl Fn(&str) -> String, folder: &str) -> String {
    read(&format!("{folder}/hang_1.txt"))
}

/// Asks two ranks that wait what they do, and lets them go on. Returns the report.
fn explained(running: Running) -> (String, Ended) {
    running.wait_for_files(&["up.0", "up.1"]);
    running.signal("USR2");
    running.wait_for_stderr("all stacks: ");
    running.write("go");
    let ended = running.wait().succeeds();
    let text = report(|name| ended.text(name), &ended.only_entry("logs"));
    (text, ended)
}

#[test]
fn sigusr2_writes_the_stacks_and_the_launch_goes_on() {
    let rrun = Rrun::new()
        .nproc(2)
        .options(&["--log-dir", "logs"])
        .file("waiting.py", WAITING)
        .program(&["waiting.py"]);
    let (text, ended) = explained(rrun.start());
    assert!(
        text.contains("`wait_for_the_gripper` (waiting.py:"),
        "{text}"
    );
    assert!(text.contains("ranks 0-1: "), "{text}");
    ended.stderr_has("ranks 0-1: `wait_for_the_gripper` (waiting.py:");
}

#[test]
fn a_silent_rank_is_killed_and_restarted_if_that_is_wanted() {
    let rrun = Rrun::new().nproc(2).max_restarts(1).options(&[
        "--log-dir",
        "logs",
        "--hang-timeout",
        "2",
        "--on-hang",
        "restart",
    ]);
    let ended = rrun.sh(SLEEPER).succeeds();
    ended
        .stderr_has("no output and no CPU time of rank 1 for 2 s")
        .stderr_has(
            "rank 1 made no progress for 2 s (--hang-timeout) and was ended by rrun (SIGKILL)",
        );
}

#[test]
fn a_silent_rank_ends_the_launch_if_that_is_wanted() {
    let rrun = Rrun::new()
        .nproc(2)
        .options(&["--hang-timeout", "2", "--on-hang", "abort"]);
    rrun.sh("exec sleep 10000")
        .fails_with(1)
        .stderr_has("ranks 0-1")
        .stderr_has("--on-hang abort")
        .stderr_has("made no progress for 2 s (--hang-timeout) and was ended by rrun (SIGTERM)")
        .stderr_has("sent by rrun because the rank made no progress for 2 s (--hang-timeout); what all ranks did: /");
}

#[test]
fn without_a_wish_a_silent_rank_is_only_reported() {
    let rrun = Rrun::new().options(&["--hang-timeout", "2"]);
    let running = rrun.sh("until test -s go; do sleep 0.5; done").start();
    running.wait_for_stderr("all stacks: ");
    running.write("go");
    running.wait().succeeds().stderr_lacks("killed");
}

#[test]
fn the_rank_that_skips_a_collective_stands_out() {
    let rrun = Rrun::new()
        .nproc(3)
        .options(&["--log-dir", "logs"])
        .file("deadlock.py", DEADLOCK)
        .program(&["deadlock.py"]);
    let running = rrun.start();
    running.wait_for_files(&["up.0", "up.1", "up.2"]);
    let stands_out = |text: &str| {
        text.contains("rank 1: `skips_the_collective` (deadlock.py:")
            && text.contains("ranks 0, 2: `all_reduce` (")
    };
    // A rank may be asked on its way into the collective, then it is asked again.
    let mut number = 0;
    let deadline = 50;
    while !stands_out(&running.stderr()) && number < deadline {
        number += 1;
        running.signal("USR2");
        running.wait_for_count("all stacks: ", number);
    }
    running.write("go");
    let ended = running.wait().succeeds();
    let folder = ended.path(&ended.only_entry("logs"));
    let last = fs::read_to_string(folder.join(format!("hang_{number}.txt"))).expect("a report");
    assert!(last.contains("gloo::"), "{last}");
}

/// Returns the report of a program whose processes may not trace each other.
fn report_without_ptrace(how: &str, program: &str) -> (String, Ended) {
    let refuse = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/refuse_ptrace.py");
    let rrun = Rrun::new()
        .nproc(2)
        .options(&["--log-dir", "logs"])
        .file("waiting.py", program)
        .program(&["waiting.py"]);
    let refuse = refuse.display();
    let below = format!("exec \"$PYTHON_EXEC\" '{refuse}' {how} \"$@\"");
    explained(rrun.start_below(&below))
}

#[test]
fn where_a_filter_refuses_ptrace_the_report_has_python_frames_and_waits() {
    let (text, ended) = report_without_ptrace("filter", WAITING);
    ended.stderr_has("ranks 0-1: `wait_for_the_gripper` (waiting.py:");
    let missing = "its native stacks cannot be read: ptrace is not permitted here \
                   (kernel.yama.ptrace_scope, a container without SYS_PTRACE, or another debugger); \
                   what its threads do in the kernel is known";
    for wanted in [
        "): waiting in `clock_nanosleep`",
        "What is missing",
        missing,
    ] {
        assert!(text.contains(wanted), "{wanted} is not in {text}");
    }
    assert!(!text.contains("libc.so"), "{text}");
}

#[test]
fn of_a_process_that_nobody_may_look_into_the_report_says_what_is_missing() {
    let undumpable = format!("import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n{WAITING}");
    let (text, ended) = report_without_ptrace("capability", &undumpable);
    ended.stderr_has("ranks 0-1: sleeping");
    for wanted in [
        "(no stack)",
        "its native stacks cannot be read: ptrace is not permitted here",
        "what its threads do in the kernel cannot be read either",
        "its Python frames cannot be read: ",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in {text}");
    }
}

/// Compiles a driver's library into the folder of a launch, which loads it.
fn with_nvml(rrun: Rrun) -> Rrun {
    let library = rrun.path("libnvidia-ml.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/nvml.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    assert!(compiled.expect("a C compiler").success());
    let folder = library.parent().unwrap().to_string_lossy().into_owned();
    rrun.env("LD_LIBRARY_PATH", &folder)
}

#[test]
fn a_rank_that_is_restarted_while_the_report_is_written_is_not_ended_for_its_predecessor() {
    // The report waits five seconds for a driver that hangs, the restart one.
    let script = "echo $$ > pid.$RANK.$TORCHELASTIC_RESTART_COUNT
                  [ $RANK.$TORCHELASTIC_RESTART_COUNT = 1.0 ] && exec sleep 10000
                  until test -s go; do :; done";
    let words = "--log-dir logs --failure-policy isolate --hang-timeout 2 --on-hang restart";
    let words: Vec<&str> = words.split(' ').collect();
    let rrun = with_nvml(Rrun::new().nproc(2).max_restarts(1).options(&words));
    let running = rrun.env("NVML_HANGS", "1").sh(script).start();
    running.wait_for_stderr("the stacks of all ranks are read");
    let pid = running.text("pid.1.0").trim().to_owned();
    let killed = Command::new("kill").args(["-KILL", &pid]).status();
    assert!(killed.unwrap().success());
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
    let rrun = with_nvml(Rrun::new().options(&["--log-dir", "logs"]));
    let running = rrun.sh("echo up > up; await go").start();
    running.wait_for_files(&["up"]);
    running.signal("USR2");
    running.wait_for_stderr("all stacks: ");
    running.write("go");
    let ended = running.wait().succeeds();
    let text = report(|name| ended.text(name), &ended.only_entry("logs"));
    let gpu = "GPU 1: 37 % busy, 3.0 of 8.0 GiB in use; 2 other processes";
    assert!(text.contains(gpu), "{text}");
}

#[test]
fn a_wrong_timeout_is_refused() {
    for (options, why) in [
        (["--hang-timeout", "0"], "--hang-timeout must be"),
        (["--on-hang", "abort"], "--on-hang needs --hang-timeout"),
    ] {
        Rrun::new()
            .options(&options)
            .sh("true")
            .fails_with(1)
            .stderr_has(why);
    }
}
