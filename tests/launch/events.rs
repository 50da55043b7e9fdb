//! Tests of `--event-log-handler`, `--rusage` and `--print-completion`: the launcher's output for
//! programs.

use serde_json::Value;

use crate::launch::command::Rrun;

/// Returns the events in a text of JSON lines.
fn events(text: &str) -> Vec<Value> {
    text.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

/// Returns `SOURCE name` of each event.
fn names(events: &[Value]) -> Vec<String> {
    let word = |value: &Value| value.as_str().expect("a string").to_owned();
    events
        .iter()
        .map(|event| format!("{} {}", word(&event["source"]), word(&event["name"])))
        .collect()
}

#[test]
fn a_file_of_events_tells_the_whole_launch() {
    let rrun = Rrun::new()
        .max_restarts(1)
        .options(&["--event-log-handler", "json:events.jsonl"]);
    let ended = rrun
        .sh("exit $((1 - TORCHELASTIC_RESTART_COUNT))")
        .succeeds();
    let events = events(&ended.text("events.jsonl"));
    let status = |source: &str, what: &str| format!("{source} torchelastic.worker.status.{what}");
    let attempt = |end: &str| {
        [
            "AGENT RENDEZVOUS",
            "AGENT ASSIGN_WORKER_RANKS",
            "WORKER START",
            end,
        ]
        .map(str::to_owned)
    };
    let told: Vec<String> = [attempt("WORKER FAILED"), attempt("WORKER SUCCEEDED")].concat();
    let told = told.iter().map(|line| {
        line.split_once(' ')
            .map(|(source, what)| status(source, what))
            .unwrap()
    });
    let told: Vec<String> = told.chain([status("AGENT", "SUCCEEDED")]).collect();
    assert_eq!(names(&events), told);
    let failed = &events[3]["metadata"];
    assert_eq!(
        (
            &failed["exit_code"],
            &failed["state"],
            &failed["rdzv_backend"]
        ),
        (&1.into(), &"FAILED".into(), &"static".into())
    );
    assert!(
        failed["usage"]["max_rss"]
            .as_u64()
            .is_some_and(|bytes| bytes > 0),
        "{failed}"
    );
    assert_eq!(events[8]["metadata"]["agent_restarts"], 1);
    ended.stderr_lacks("torchelastic.worker");
}

#[test]
fn events_on_the_console_are_lines_of_stderr() {
    let ended = Rrun::new()
        .nproc(2)
        .options(&["--event-log-handler", "console"])
        .sh("true")
        .succeeds()
        .stdout_is("");
    let names = names(&events(&ended.stderr));
    assert_eq!(
        names
            .iter()
            .filter(|name| name.ends_with("worker.status.START"))
            .count(),
        2,
        "{names:?}"
    );
    assert!(
        names
            .last()
            .is_some_and(|name| name == "AGENT torchelastic.worker.status.SUCCEEDED"),
        "{names:?}"
    );
}

#[test]
fn an_event_handler_that_nobody_knows_starts_nothing() {
    let ended = Rrun::new()
        .options(&["--event-log-handler", "kafka"])
        .sh("touch started")
        .fails_with(1);
    assert!(!ended.stderr_has("kafka").has_file("started"));
}

#[test]
fn a_file_of_events_that_cannot_be_written_does_not_end_the_launch() {
    let ended = Rrun::new()
        .options(&["--event-log-handler", "json:no/such/folder/e"])
        .sh("echo ran")
        .succeeds();
    ended
        .prints(&["ran"])
        .stderr_has("cannot write an event into `no/such/folder/e`: ");
}

#[test]
fn what_every_rank_used_is_said_when_it_ends() {
    let ended = Rrun::new()
        .nproc(2)
        .options(&["--rusage"])
        .sh("true")
        .succeeds();
    for rank in ["rank 0", "rank 1"] {
        let line = ended
            .stderr
            .lines()
            .find(|line| line.starts_with(&format!("rrun: {rank} exited with code 0: ")));
        assert!(
            line.is_some_and(|line| line.ends_with(" MiB of memory")),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn completions_are_a_script_that_its_shell_can_read() {
    let script = |shell: &str| {
        Rrun::new()
            .options(&["--print-completion", shell])
            .succeeds()
            .stderr_is("")
            .stdout
    };
    assert!(script("zsh").starts_with("#compdef rrun"));
    assert!(
        script("tcsh").starts_with("complete rrun ") && script("fish").contains("complete -c rrun")
    );
    assert!(script("bash").contains("complete -F _rrun"));
}

#[test]
fn limits_and_ports_that_will_hurt_are_said_before_the_start() {
    let limited = Rrun::new()
        .nproc(2)
        .options(&["--dry-run"])
        .sh("true")
        .start_below("ulimit -n 70; exec \"$@\"");
    limited
        .wait()
        .stderr_has("at most 70 files may be open (ulimit -Hn), 2 ranks may need 80");
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let port = range.split_whitespace().next().unwrap();
    let rrun = Rrun::new()
        .options(&["--dry-run", "--master-port", port])
        .sh("true")
        .succeeds();
    rrun.stderr_has(&format!(
        "port {port} is in the kernel's range for outgoing connections"
    ));
}
