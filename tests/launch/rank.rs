//! Tests of what a rank is given: its program, standard input.

use rig::run::Given;

#[test]
fn a_link_in_an_environment_runs_the_interpreter_beside_it() {
    let rrun = Given::rrun()
        .executable("venv/bin/python", "#!/bin/sh\necho venv $@\n")
        .file("venv/pyvenv.cfg", "")
        .without_env("PYTHON_EXEC");
    let rrun = rrun.below("ln -s \"$1\" venv/bin/rrun; shift; exec venv/bin/rrun \"$@\"");
    rrun.python("").succeeds().stdout_is("venv -u script.py\n");
}

#[test]
fn a_run_path_script_is_main_and_may_exit_with_0() {
    let script = "import sys; print(__name__, sys.argv); sys.exit(0)";
    let rrun = Given::rrun().words("--run-path").file("script.py", script);
    rrun.program("script.py -x")
        .succeeds()
        .stdout_is("__main__ ['script.py', '-x']\n");
}

#[test]
fn a_rank_inherits_the_working_folder_and_standard_input() {
    let rrun = Given::rrun().stdin("from outside\n").sh("cat; touch here");
    let ended = rrun.succeeds().stdout_is("from outside\n");
    assert!(ended.has_file("here"));
}
