//! Tests of the command that is executed for a rank, and of its process.

use crate::launch::command::{PYTHON, Rrun};

/// A script that prints its arguments with a single write: an unbuffered `print` writes each word
/// separately, and the lines of ranks that share a stream would mix.
const SHOW: &str = "import sys; sys.stdout.write(f'{__name__} {sys.argv}\\n')";

#[test]
fn a_script_runs_in_python_and_gets_every_word_after_it() {
    let words = [
        "script.py",
        "--nproc-per-node",
        "9",
        "-t",
        "3",
        "--x=1",
        "-",
        "a b",
        "",
        "--",
        "é",
    ];
    let shown = "__main__ ['script.py', '--nproc-per-node', '9', '-t', '3', '--x=1', '-', 'a b', '', '--', 'é']\n";
    Rrun::new()
        .file("script.py", SHOW)
        .program(&words)
        .succeeds()
        .stdout_is(shown);
}

#[test]
fn python_is_unbuffered() {
    let script = "import os; print(open('/proc/self/cmdline').read().split('\\0')[:-1])";
    Rrun::new()
        .python(script)
        .succeeds()
        .stdout_is(&format!("['{PYTHON}', '-u', 'script.py']\n"));
}

#[test]
fn python_comes_from_the_active_environment() {
    let rrun = Rrun::new()
        .executable("venv/bin/python", "#!/bin/sh\necho venv $@\n")
        .python("");
    let path = format!("{}:/usr/bin:/bin", rrun.path("venv/bin").display());
    rrun.without_env("PYTHON_EXEC")
        .env("PATH", &path)
        .succeeds()
        .stdout_is("venv -u script.py\n");
}

#[test]
fn a_link_in_an_environment_runs_the_interpreter_beside_it() {
    let rrun = Rrun::new()
        .executable("venv/bin/python", "#!/bin/sh\necho venv $@\n")
        .file("venv/pyvenv.cfg", "");
    let rrun = rrun.without_env("PYTHON_EXEC").python("");
    let ended = rrun
        .start_below("ln -s \"$1\" venv/bin/rrun; shift; exec venv/bin/rrun \"$@\"")
        .wait();
    ended.succeeds().stdout_is("venv -u script.py\n");
}

#[test]
fn a_module_is_run_as_one() {
    let rrun = Rrun::new()
        .file("pkgs/shown.py", SHOW)
        .env("PYTHONPATH", "pkgs");
    let ended = rrun
        .options(&["-m"])
        .program(&["shown", "--a", "b"])
        .succeeds();
    assert!(ended.stdout.starts_with("__main__ ["), "{}", ended.stdout);
    ended.stdout_has("pkgs/shown.py', '--a', 'b']\n");
}

#[test]
fn an_executable_is_run_without_python() {
    let rrun = Rrun::new().executable("bin/prog", "#!/bin/sh\necho prog $1 $RANK\n");
    let path = format!("{}:/usr/bin:/bin", rrun.path("bin").display());
    rrun.env("PATH", &path)
        .options(&["--no-python"])
        .program(&["prog", "arg"])
        .succeeds()
        .stdout_is("prog arg 0\n");
}

#[test]
fn a_run_path_script_is_main_and_its_exception_is_recorded() {
    let ran = Rrun::new()
        .options(&["--run-path"])
        .file("script.py", SHOW)
        .program(&["script.py", "-x"]);
    ran.succeeds().stdout_is("__main__ ['script.py', '-x']\n");
    let failed = Rrun::new()
        .options(&["--run-path"])
        .python("raise ValueError('rp-boom')")
        .fails_with(1);
    assert!(
        failed
            .root_cause()
            .contains("Traceback (most recent call last):"),
        "{}",
        failed.stderr
    );
    assert!(
        failed.root_cause().contains("ValueError: rp-boom"),
        "{}",
        failed.stderr
    );
}

#[test]
fn a_run_path_script_that_exits_0_has_succeeded() {
    Rrun::new()
        .options(&["--run-path"])
        .python("import sys; sys.exit(0)")
        .succeeds();
}

#[test]
fn a_file_called_eval_is_reached_by_its_path() {
    let rrun = Rrun::new().file("eval", SHOW).program(&["./eval", "x"]);
    rrun.succeeds().stdout_is("__main__ ['./eval', 'x']\n");
}

#[test]
fn the_local_rank_is_filled_in() {
    let words = [
        "script.py",
        "out-${local_rank}.txt",
        "$local_rank",
        "${rank}",
        "${LOCAL_RANK}",
    ];
    let lines = [
        "__main__ ['script.py', 'out-0.txt', '0', '${rank}', '${LOCAL_RANK}']",
        "__main__ ['script.py', 'out-1.txt', '1', '${rank}', '${LOCAL_RANK}']",
    ];
    Rrun::new()
        .nproc(2)
        .file("script.py", SHOW)
        .program(&words)
        .succeeds()
        .prints(&lines);
}

#[test]
fn two_dollars_become_one_and_a_lone_one_stays() {
    let words = ["script.py", "$$", "$${x}", "$1.00", "a$"];
    Rrun::new()
        .file("script.py", SHOW)
        .program(&words)
        .succeeds()
        .stdout_is("__main__ ['script.py', '$', '${x}', '$1.00', 'a$']\n");
}

#[test]
fn the_macro_reaches_arguments_of_an_executable() {
    let rrun = Rrun::new()
        .nproc(2)
        .options(&["--no-python"])
        .program(&["echo", "${local_rank}$$HOME"]);
    rrun.succeeds().prints(&["0$HOME", "1$HOME"]);
}

#[test]
fn a_rank_leads_its_own_session_below_the_launcher() {
    let running = Rrun::new()
        .nproc(2)
        .sh("cut -d' ' -f4-6 /proc/$$/stat > stat.$RANK; echo $$ > pid.$RANK")
        .start();
    let launcher = running.pid();
    let ended = running.wait().succeeds();
    let [first, second] = ended.pids(&["pid.0", "pid.1"])[..] else {
        panic!("two pids")
    };
    assert_eq!(
        ended.text("stat.0"),
        format!("{launcher} {first} {first}\n")
    );
    assert_eq!(
        ended.text("stat.1"),
        format!("{launcher} {second} {second}\n")
    );
}

#[test]
fn a_rank_inherits_the_working_folder_and_standard_input() {
    let ended = Rrun::new()
        .stdin("from outside\n")
        .sh("cat; touch here")
        .succeeds()
        .stdout_is("from outside\n");
    assert!(ended.has_file("here"));
}

#[test]
fn a_rank_gets_no_descriptor_of_the_launcher() {
    // The fourth descriptor is the folder that `ls` reads.
    let rrun = Rrun::new()
        .nproc(2)
        .options(&["-t", "3"])
        .sh("exec ls -m /proc/self/fd > fds.$RANK");
    let ended = rrun.succeeds();
    assert_eq!(
        ended.text("fds.0") + &ended.text("fds.1"),
        "0, 1, 2, 3\n0, 1, 2, 3\n"
    );
}
