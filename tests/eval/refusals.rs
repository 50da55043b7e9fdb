//! Tests of invalid input, which is refused before anything is started or written.

use crate::eval::command::{Ended, Eval, job};

#[track_caller]
fn refused(eval: &Eval, code: i32, reason: &str) -> Ended {
    let ended = eval.run().fails_with(code).stderr_has(reason);
    assert!(!eval.folder().root().exists(), "nothing is written");
    assert!(
        !ended.stderr.contains("Traceback") && !ended.stderr.contains("panicked"),
        "{}",
        ended.stderr
    );
    ended
}

#[test]
fn a_broken_jobs_file_is_refused_with_its_line() {
    let eval = Eval::new(&[]).nproc(2).jobs_text("{\n  \"jobs\": [,]\n}");
    refused(&eval, 1, "jobs.json` line 2 column 12: expected value");
}

#[test]
fn a_wrong_field_is_refused_by_its_name() {
    let mut entry = job("reach", 2, 1);
    entry["num_episode"] = 3.into();
    let eval = Eval::new(&[entry]).nproc(2);
    refused(
        &eval,
        1,
        "job 0 (reach): unknown field `num_episode`; did you mean `num_episodes`?",
    );
}

#[test]
fn an_environment_that_is_not_there_is_refused_with_the_nearest() {
    let mut entry = job("reach", 2, 1);
    entry["arena_env_args"]["environment"] = "pick_and_plase".into();
    refused(
        &Eval::new(&[entry]).nproc(2),
        1,
        "did you mean `pick_and_place`?",
    );
}

#[test]
fn a_gpu_that_is_not_there_is_refused() {
    let eval = Eval::new(&[job("reach", 2, 1)])
        .nproc(1)
        .words(&["--policy-device-id", "63"]);
    refused(&eval, 1, "--policy-device-id is 63, but ");
}

#[test]
fn a_value_that_an_environment_does_not_take_is_refused() {
    let mut entry = job("reach", 2, 1);
    entry["arena_env_args"]["light_intensity"] = "high".into();
    refused(
        &Eval::new(&[entry]).nproc(2),
        1,
        "`arena_env_args.light_intensity` is \"high\", expected a number from 0 to 10000",
    );
}

#[test]
fn a_page_whose_port_is_taken_is_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let eval = Eval::new(&[job("reach", 2, 1)]).nproc(1);
    let ended = refused(
        &eval.words(&["--page-port", &port]),
        1,
        &format!("cannot serve the page on 127.0.0.1:{port} (--page-port): Address already in use"),
    );
    assert_eq!(ended.stderr.matches("Address already in use").count(), 1);
}

#[test]
fn a_flag_that_is_none_is_a_usage_error() {
    let eval = Eval::new(&[job("reach", 2, 1)])
        .nproc(1)
        .words(&["--vidoe"]);
    refused(&eval, 2, "--vidoe");
}

#[test]
fn a_run_folder_of_other_jobs_is_left_alone() {
    let first = Eval::new(&[job("reach", 1, 1)])
        .nproc(1)
        .words(&["--no-dataset"]);
    first.run().succeeds();
    let report = std::fs::read(first.folder().report()).unwrap();
    let other = Eval::new(&[job("push", 1, 1)])
        .nproc(1)
        .output(first.folder().root());
    other
        .run()
        .fails_with(1)
        .stderr_has("contains a different run:\n  push: new\n  reach: removed\n");
    assert_eq!(std::fs::read(first.folder().report()).unwrap(), report);
}

#[test]
fn a_run_folder_that_cannot_be_made_is_named() {
    let eval = Eval::new(&[job("reach", 1, 1)]).nproc(1);
    let blocked = eval.jobs_file().join("out");
    eval.output(&blocked)
        .run()
        .fails_with(1)
        .stderr_has("cannot use run folder `");
}
