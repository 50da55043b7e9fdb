//! Tests of invalid input, which is refused before anything is started or written, or by the ranks
//! before the first episode.

use serde_json::Value;

use crate::eval::command::{Ended, Eval, job};
use crate::eval::given::{named, python, root};

/// Returns an evaluation of a job of `reach` after these changes: `field = value` with a value in
/// JSON, or `--option value`.
fn changed(given: &str) -> Eval {
    let fixtures = root().join("tests/fixtures").display().to_string();
    let given = given
        .replace("FIXTURES", &fixtures)
        .replace("PYTHON", &python().display().to_string());
    let mut entry = named("j", 2, job("reach", 2, 1));
    let mut words = vec!["--job-attempts", "1"];
    for line in given.lines() {
        match line.split_once(' ').expect("a line has two parts") {
            (option, value) if option.starts_with("--") => words.extend([option, value]),
            (field, value) => {
                let value = value.strip_prefix("= ").expect("a field is set by =");
                *at(&mut entry, field) = serde_json::from_str(value).expect("a value is JSON");
            }
        }
    }
    Eval::new(&[entry]).nproc(1).with_video().words(&words)
}

/// Returns the place of a field with dots, which is made.
fn at<'a>(entry: &'a mut Value, field: &str) -> &'a mut Value {
    field.split('.').fold(entry, |place, name| &mut place[name])
}

/// Returns a text without the folders of this machine.
fn shown(text: &str, eval: &Eval) -> String {
    let folder = eval.jobs_file().parent().unwrap().display().to_string();
    text.replace(&folder, "FOLDER")
        .replace(&root().display().to_string(), "CHECKOUT")
}

#[track_caller]
fn refused(eval: &Eval, code: i32) -> Ended {
    nothing_began(eval, eval.run().fails_with(code))
}

#[track_caller]
fn nothing_began(eval: &Eval, ended: Ended) -> Ended {
    assert!(!eval.folder().root().exists(), "nothing is written");
    ended
        .stderr_lacks("Traceback")
        .stderr_lacks("panicked")
        .stderr_lacks("[rank ")
}

#[test]
fn what_can_be_known_before_is_refused_before_anything_is_started_or_written() {
    rig::cases::check(root().join("tests/eval/refused.txt"), |given| {
        let eval = changed(given);
        let ended = eval.run();
        let code = ended.code;
        format!(
            "exit code {code}\n{}",
            shown(&nothing_began(&eval, ended).stderr, &eval)
        )
    });
}

#[test]
fn what_only_ranks_can_know_fails_its_job_before_the_first_episode() {
    rig::cases::check(root().join("tests/eval/refused_by_ranks.txt"), |given| {
        let eval = changed(given);
        let _ = eval.run().fails_with(1).stderr_lacks("panicked");
        assert!(eval.episodes().is_empty());
        let error = eval.report().per_job[0].error.clone();
        shown(&error.expect("the job has failed"), &eval)
    });
}

#[test]
fn a_broken_jobs_file_is_refused_with_its_line() {
    let eval = Eval::new(&[]).nproc(2).jobs_text("{\n  \"jobs\": [,]\n}");
    refused(&eval, 1).stderr_has("jobs.json` line 2 column 12: expected value");
}

#[test]
fn a_page_whose_port_is_taken_is_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let eval = Eval::new(&[job("reach", 2, 1)]).words(&["--page", &port]);
    let ended = refused(&eval, 1).stderr_has(&format!(
        "cannot serve the page on 127.0.0.1:{port} (--page): Address already in use"
    ));
    assert_eq!(ended.stderr.matches("Address already in use").count(), 1);
}

#[test]
fn a_flag_that_is_none_is_a_usage_error() {
    let eval = Eval::new(&[job("reach", 2, 1)]).words(&["--vidoe"]);
    refused(&eval, 2).stderr_has("--vidoe");
}

#[test]
fn a_run_folder_of_other_jobs_is_left_alone() {
    let first = Eval::new(&[job("reach", 1, 1)]);
    let first = first.nproc(1).words(&["--export-mode=none"]).finished();
    let report = std::fs::read(first.folder().report()).unwrap();
    let other = Eval::new(&[job("push", 1, 1)]).output(first.folder().root());
    other
        .run()
        .fails_with(1)
        .stderr_has("contains a different run:\n  push: new\n  reach: removed\n");
    assert_eq!(std::fs::read(first.folder().report()).unwrap(), report);
}

#[test]
fn a_run_folder_that_cannot_be_made_is_named() {
    let eval = Eval::new(&[job("reach", 1, 1)]);
    let blocked = eval.jobs_file().join("out");
    eval.output(&blocked)
        .run()
        .fails_with(1)
        .stderr_has("cannot use run folder `");
}
