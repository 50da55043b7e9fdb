//! Tests of `--log-format`, `--quiet` and `RUST_LOG`: the launcher's own lines on stderr.

use serde_json::Value;

use crate::launch::command::Rrun;
use crate::launch::isolation::start_eval;

/// Parses every line of stderr, each of which must be a JSON object.
fn objects(stderr: &str) -> Vec<Value> {
    stderr
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().expect(field)
}

#[test]
fn every_line_for_programs_is_an_object() {
    let rrun =
        Rrun::new()
            .nproc(2)
            .options(&["--log-format", "json", "-r", "2", "--log-dir", "logs"]);
    let ended = rrun
        .env("RUST_LOG", "debug")
        .sh("echo why >&2; [ $RANK = 0 ] || exit 7")
        .fails_with(1);
    let lines = objects(&ended.stderr);
    assert!(
        lines
            .iter()
            .all(|line| text(line, "time").ends_with('Z') && !text(line, "level").is_empty())
    );
    let of = |message: &str| {
        let found = lines
            .iter()
            .find(|line| text(line, "message").starts_with(message));
        found.unwrap_or_else(|| panic!("{message}: {}", ended.stderr))
    };
    assert_eq!(text(of("Setting OMP_NUM_THREADS"), "level"), "info");
    let failed = of("rank 1 exited with code 7");
    assert_eq!(
        (
            text(failed, "level"),
            &failed["rank"],
            failed["pid"].is_u64()
        ),
        ("error", &1.into(), true)
    );
    assert!(text(of("rank 1: end of `"), "message").ends_with("/attempt_0/1/stderr.log`:\n  why"));
    assert!(text(of("====="), "message").contains("Root Cause (first observed failure):"));
    assert!(
        lines
            .iter()
            .any(|line| line["level"] == "debug" && line["target"] == "rrun"),
        "{}",
        ended.stderr
    );
}

#[test]
fn restarts_and_losses_name_the_rank_for_programs() {
    let options = ["--log-format=json", "--failure-policy", "isolate"];
    let ended = Rrun::new()
        .nproc(2)
        .max_restarts(1)
        .options(&options)
        .sh("exit $RANK")
        .fails_with(1);
    let lines = objects(&ended.stderr);
    let of_rank: Vec<_> = lines
        .iter()
        .filter(|line| line["rank"] == 1)
        .map(|line| text(line, "level"))
        .collect();
    assert_eq!(
        of_rank,
        ["warning", "error", "error"],
        "restart, loss and root cause: {}",
        ended.stderr
    );
}

#[test]
fn a_refusal_is_an_object_too() {
    let rrun = Rrun::new().options(&["--log-format", "json", "--nproc-per-node", "abc"]);
    let ended = rrun.sh("true").fails_with(1);
    let lines = objects(&ended.stderr);
    assert_eq!(
        (lines.len(), text(&lines[0], "message")),
        (1, "Unsupported nproc_per_node value: abc")
    );
}

#[test]
fn who_wants_quiet_hears_of_failures_only() {
    let quiet = || Rrun::new().nproc(2).options(&["--quiet"]);
    quiet().sh("true").succeeds().stderr_is("");
    let ended = quiet()
        .sh("[ $RANK = 0 ] && exit 7; exec sleep 10000")
        .fails_with(1);
    ended
        .stderr_has("rrun: rank 0 exited with code 7\n")
        .stderr_has("FAILED\n")
        .stderr_lacks("closing signal");
    // Requested output is not suppressed.
    quiet()
        .options(&["--rusage"])
        .sh("true")
        .succeeds()
        .stderr_has("rank 1 exited with code 0: ");
    quiet()
        .options(&["-t", "1", "--log-dir", "/dev/null"])
        .sh("true")
        .succeeds()
        .stderr_has("-t have no effect");
}

#[test]
fn ranks_of_eval_are_told_how_to_speak() {
    let rank = "echo [$RRUN_LOG_FORMAT $RRUN_QUIET] > told.$RANK";
    let told = |options: &[&str]| {
        start_eval(Rrun::new().options(options), rank)
            .wait()
            .succeeds()
            .text("told.0")
    };
    assert_eq!(told(&["--log-format", "json", "--quiet"]), "[json 1]\n");
    assert_eq!(told(&[]), "[ ]\n");
    let foreign = Rrun::new().options(&["--log-format", "json", "--quiet"]);
    foreign
        .sh("echo [$RRUN_LOG_FORMAT $RRUN_QUIET]")
        .succeeds()
        .stdout_is("[ ]\n");
}

#[test]
fn traces_are_asked_for_by_either_variable() {
    let traced = |name| {
        Rrun::new()
            .env(name, "debug")
            .options(&["--dry-run"])
            .sh("true")
            .succeeds()
            .stderr
    };
    assert!(
        traced("RUST_LOG").contains("DEBUG rrun: plan=")
            && traced("RRUN_LOG").contains("DEBUG rrun: plan=")
    );
    let ours_first = Rrun::new()
        .env("RUST_LOG", "debug")
        .env("RRUN_LOG", "error")
        .options(&["--dry-run"]);
    ours_first.sh("true").succeeds().stderr_lacks("DEBUG");
}
