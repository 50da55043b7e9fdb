//! Tests of what the launcher says itself: `--log-format`, `--quiet`, `--rusage`, `RUST_LOG`,
//! `--event-log-handler`.

use rig::run::Given;
use serde_json::Value;

use crate::launch::{eval, ranks};

/// Parses every line, each of which must be a JSON object.
fn objects(text: &str) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).expect(line);
    text.lines().map(parse).collect()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().expect(field)
}

#[test]
fn every_line_for_programs_is_an_object() {
    let words = "--log-format json -r 2 --log-dir logs --failure-policy isolate --max-restarts 1";
    let rrun = ranks(2).words(words).env("RUST_LOG", "debug");
    let ended = rrun
        .sh("echo why >&2; [ $RANK = 0 ] || exit 7")
        .fails_with(1);
    let lines = objects(&ended.stderr);
    for line in &lines {
        assert!(text(line, "time").ends_with('Z'), "{line}");
        assert!(!text(line, "level").is_empty(), "{line}");
    }
    let of = |message: &str| {
        let mut found = lines.iter();
        let found = found.find(|line| text(line, "message").starts_with(message));
        found.unwrap_or_else(|| panic!("{message}: {}", ended.stderr))
    };
    assert_eq!(text(of("Setting OMP_NUM_THREADS"), "level"), "info");
    assert!(of("rank 1 exited with code 7")["pid"].is_u64());
    assert!(text(of("rank 1: end of `"), "message").ends_with("/attempt_1/1/stderr.log`:\n  why"));
    assert!(text(of("====="), "message").contains("Root Cause (first observed failure):"));
    let is_debug = |line: &&Value| line["level"] == "debug" && line["target"] == "rrun";
    assert!(lines.iter().any(|line| is_debug(&line)), "{}", ended.stderr);
    let of_rank = lines
        .iter()
        .filter(|line| line["rank"] == 1 && line["level"] != "debug");
    let levels: Vec<&str> = of_rank.map(|line| text(line, "level")).collect();
    let wanted = ["warning", "error", "error", "error"];
    assert_eq!(
        levels, wanted,
        "restart, loss, root cause and last words: {}",
        ended.stderr
    );
}

#[test]
fn who_wants_quiet_hears_of_failures_and_of_what_was_asked_for() {
    let quiet = || ranks(2).words("--quiet");
    quiet().sh("true").succeeds().stderr_is("");
    let words = "--rusage -t 1 --log-dir /dev/null";
    let ended = quiet()
        .words(words)
        .sh("[ $RANK = 0 ] && exit 7; exec sleep 10000")
        .fails_with(1)
        .stderr_has("rrun: rank 0 exited with code 7")
        .stderr_has("FAILED\n")
        .stderr_has("-t have no effect")
        .stderr_lacks("closing signal");
    let mut lines = ended.stderr.lines();
    let used = lines.find(|line| line.starts_with("rrun: rank 1 was killed by SIGTERM: "));
    let used = used.unwrap_or_else(|| panic!("{}", ended.stderr));
    assert!(used.ends_with(" MiB of memory"), "{used}");
}

#[test]
fn ranks_of_eval_are_told_how_to_speak_and_others_are_not() {
    let script = "echo [$RRUN_LOG_FORMAT $RRUN_QUIET]";
    let words = "--nproc-per-node 1 --log-format json --quiet";
    let told = |rrun: Given| rrun.words(words).succeeds().stdout;
    assert_eq!(told(eval(script, None)), "[json 1]\n");
    assert_eq!(told(Given::rrun().sh(script)), "[ ]\n");
}

/// Returns `SOURCE name` of each event, without the beginning of the name.
fn names(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| {
        let name = text(event, "name");
        let short = name.strip_prefix("torchelastic.worker.status.");
        format!("{} {}", text(event, "source"), short.unwrap_or(name))
    };
    events.iter().map(name).collect()
}

#[test]
fn a_file_of_events_tells_the_whole_launch() {
    let rrun = Given::rrun().words("--max-restarts 1 --event-log-handler json:events.jsonl");
    let ended = rrun
        .sh("exit $((1 - TORCHELASTIC_RESTART_COUNT))")
        .succeeds();
    let events = objects(&ended.text("events.jsonl"));
    let start = [
        "AGENT RENDEZVOUS",
        "AGENT ASSIGN_WORKER_RANKS",
        "WORKER START",
    ];
    let ends = [
        &["WORKER FAILED"][..],
        &["WORKER SUCCEEDED", "AGENT SUCCEEDED"],
    ];
    assert_eq!(names(&events), [&start, ends[0], &start, ends[1]].concat());
    let failed = &events[3]["metadata"];
    assert_eq!(failed["exit_code"], 1);
    assert_eq!(failed["state"], "FAILED");
    assert_eq!(failed["rdzv_backend"], "static");
    assert!(failed["usage"]["max_rss"].as_u64() > Some(0), "{failed}");
    assert_eq!(events[8]["metadata"]["agent_restarts"], 1);
    ended.stderr_lacks("torchelastic.worker");
}

#[test]
fn events_on_the_console_are_lines_of_stderr() {
    let rrun = ranks(2).words("--event-log-handler console");
    let ended = rrun.sh("true").succeeds().stdout_is("");
    let events: String = ended
        .stderr
        .split_inclusive('\n')
        .filter(|line| line.starts_with('{'))
        .collect();
    let names = names(&objects(&events));
    assert_eq!(
        names.iter().filter(|name| *name == "WORKER START").count(),
        2,
        "{names:?}"
    );
    assert_eq!(names.last().unwrap(), "AGENT SUCCEEDED");
}

#[test]
fn a_file_of_events_that_cannot_be_written_does_not_end_the_launch() {
    let rrun = Given::rrun().words("--event-log-handler json:no/such/folder/e");
    rrun.sh("true")
        .succeeds()
        .stderr_has("cannot write an event into `no/such/folder/e`: ");
}
