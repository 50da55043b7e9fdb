//! Tests of the ranks' output: console, files, prefixes.

use crate::launch::command::Rrun;
use crate::launch::ended::Ended;

/// A script that prints one line to each stream.
const BOTH: &str = "echo out$RANK; echo err$RANK >&2";

/// Returns a launch with its logs in `logs`, and no message about threads on stderr.
fn logged(options: &[&str]) -> Rrun {
    Rrun::new()
        .nproc(2)
        .env("OMP_NUM_THREADS", "1")
        .options(&["--log-dir", "logs"])
        .options(options)
}

/// Returns a file below the folder of the only launch in `logs`.
#[track_caller]
fn log(ended: &Ended, name: &str) -> String {
    ended.text(&format!("{}/{name}", ended.only_entry("logs")))
}

#[test]
fn without_options_ranks_print_to_the_console() {
    let ended = Rrun::new()
        .nproc(2)
        .env("OMP_NUM_THREADS", "1")
        .sh(BOTH)
        .succeeds()
        .prints(&["out0", "out1"]);
    assert_eq!(ended.stderr.lines().count(), 2, "{}", ended.stderr);
    let run = ended.only_entry(&ended.only_entry("tmp"));
    assert!(run.starts_with("tmp/torchelastic_"), "{run}");
    assert_eq!(ended.entries(&format!("{run}/attempt_0")), ["0", "1"]);
    assert_eq!(ended.entries(&format!("{run}/attempt_0/0")), [""; 0]);
}

#[test]
fn redirected_streams_go_to_files_only() {
    let ended = logged(&["-r", "3"])
        .sh(BOTH)
        .succeeds()
        .stdout_is("")
        .stderr_is("");
    assert_eq!(log(&ended, "attempt_0/0/stdout.log"), "out0\n");
    assert_eq!(log(&ended, "attempt_0/0/stderr.log"), "err0\n");
    assert_eq!(log(&ended, "attempt_0/1/stdout.log"), "out1\n");
    assert_eq!(log(&ended, "attempt_0/1/stderr.log"), "err1\n");
}

#[test]
fn one_stream_can_be_redirected_by_rank() {
    let ended = logged(&["-r", "0:1,1:2"])
        .sh(BOTH)
        .succeeds()
        .stdout_is("out1\n")
        .stderr_is("err0\n");
    assert_eq!(log(&ended, "attempt_0/0/stdout.log"), "out0\n");
    assert_eq!(log(&ended, "attempt_0/1/stderr.log"), "err1\n");
    let run = ended.only_entry("logs");
    assert_eq!(ended.entries(&format!("{run}/attempt_0/0")), ["stdout.log"]);
}

#[test]
fn teed_lines_go_to_files_and_with_a_prefix_to_the_console() {
    let ended = logged(&["-t", "3"])
        .sh(BOTH)
        .succeeds()
        .prints(&["[default0]:out0", "[default1]:out1"]);
    assert_eq!(log(&ended, "attempt_0/1/stdout.log"), "out1\n");
    assert_eq!(log(&ended, "attempt_0/1/stderr.log"), "err1\n");
    ended
        .stderr_has("[default0]:err0\n")
        .stderr_has("[default1]:err1\n");
}

#[test]
fn the_prefix_can_be_chosen() {
    let template = "<${role_name}|${rank}|$local_rank|${nope}> ";
    let rrun =
        logged(&["-t", "1", "--role", "r"]).env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", template);
    rrun.sh("echo x")
        .succeeds()
        .prints(&["<r|0|0|${nope}> x", "<r|1|1|${nope}> x"]);
}

#[test]
fn teed_lines_are_live() {
    let running = Rrun::new()
        .options(&["-t", "1"])
        .sh("echo first; await seen; echo second")
        .start();
    running.wait_for_stdout("[default0]:first\n");
    running.write("seen");
    running
        .wait()
        .succeeds()
        .stdout_is("[default0]:first\n[default0]:second\n");
}

#[test]
fn nothing_is_lost_of_a_rank_that_prints_ten_thousand_lines_and_dies() {
    let ended = logged(&["-t", "1"])
        .sh("seq 10000; kill -KILL $$")
        .fails_with(1);
    let printed = |rank: usize| {
        let prefix = format!("[default{rank}]:");
        ended
            .stdout
            .lines()
            .filter_map(|line| line.strip_prefix(&prefix)?.parse().ok())
            .collect::<Vec<u32>>()
    };
    let written = |rank: usize| log(&ended, &format!("attempt_0/{rank}/stdout.log"));
    let numbers: Vec<u32> = (1..=10_000).collect();
    // The first rank that dies ends the other one at any point of its output.
    let first = usize::from(ended.root_cause().contains("rank      : 1 "));
    assert_eq!((printed(first).len(), printed(first)), (10_000, numbers));
    assert_eq!(written(first).lines().count(), 10_000);
    assert_eq!(printed(1 - first).len(), written(1 - first).lines().count());
}

#[test]
fn lines_of_several_ranks_are_never_mixed() {
    let line = "x".repeat(200);
    let ended = logged(&["-t", "1"])
        .nproc(4)
        .sh(&format!("yes $RANK-{line} | head -n 2000"))
        .succeeds();
    let of_rank = |rank: usize| {
        let wanted = format!("[default{rank}]:{rank}-{line}");
        ended.stdout.lines().filter(|line| *line == wanted).count()
    };
    assert_eq!([0, 1, 2, 3].map(of_rank), [2000; 4]);
    assert_eq!(ended.stdout.lines().count(), 8000);
}

#[test]
fn an_unterminated_last_line_is_printed() {
    logged(&["-t", "1"])
        .nproc(1)
        .sh("printf 'a\\nb'")
        .succeeds()
        .stdout_is("[default0]:a\n[default0]:b\n");
}

#[test]
fn steps_of_a_progress_bar_are_lines() {
    let ended = logged(&["-t", "1"])
        .nproc(1)
        .sh("printf '1%%\\r2%%\\r\\n'")
        .succeeds();
    ended.stdout_is("[default0]:1%\n[default0]:2%\n");
}

#[test]
fn bytes_that_are_no_text_stay_in_the_file() {
    let ended = logged(&["-t", "1"])
        .nproc(1)
        .sh("printf '\\377\\n'")
        .succeeds();
    let run = ended.only_entry("logs");
    assert_eq!(
        std::fs::read(ended.path(&format!("{run}/attempt_0/0/stdout.log"))).unwrap(),
        b"\xff\n"
    );
    ended.stdout_has("[default0]:");
}

#[test]
fn the_filter_shows_chosen_ranks_only() {
    let ended = logged(&["--local-ranks-filter", "1"])
        .sh(BOTH)
        .succeeds()
        .stdout_is("out1\n");
    ended.stderr_is("err1\n");
}

#[test]
fn the_filter_keeps_the_files_of_teed_ranks() {
    let ended = logged(&["-t", "3", "--local-ranks-filter", "1"])
        .sh(BOTH)
        .succeeds();
    assert_eq!(log(&ended, "attempt_0/0/stdout.log"), "out0\n");
    ended
        .stdout_is("[default1]:out1\n")
        .stderr_is("[default1]:err1\n");
}

#[test]
fn lines_with_chosen_texts_are_duplicated() {
    let rrun = logged(&[
        "-t",
        "3",
        "--duplicate-stdout-filters",
        "apple,o,,x",
        "--duplicate-stderr-filters",
        "pear",
    ]);
    let ended = rrun
        .nproc(1)
        .sh("echo an apple; echo no; echo o,x; echo a pear >&2; echo apple >&2")
        .succeeds();
    assert_eq!(
        log(&ended, "attempt_0/filtered_stdout.log"),
        "[default0]:an apple\n[default0]:o,x\n"
    );
    assert_eq!(
        log(&ended, "attempt_0/filtered_stderr.log"),
        "[default0]:a pear\n"
    );
}

#[test]
fn dev_null_as_log_folder_switches_files_off() {
    let rrun = Rrun::new().options(&["-r", "3", "--log-dir", "/dev/null"]);
    let ended = rrun
        .sh("echo out [$TORCHELASTIC_ERROR_FILE]")
        .succeeds()
        .stdout_is("out []\n");
    assert_eq!(ended.entries("tmp"), [""; 0]);
}

#[test]
fn a_log_folder_is_made_with_its_parents_and_shared_by_launches() {
    let rrun = Rrun::new()
        .options(&["--log-dir", "a/b/logs", "-r", "1"])
        .sh("echo x");
    rrun.succeeds();
    assert_eq!(rrun.succeeds().entries("a/b/logs").len(), 2);
}

#[test]
fn a_console_that_nobody_reads_any_more_ends_nothing() {
    let rrun = Rrun::new()
        .options(&["-t", "1"])
        .sh("seq 100000; touch done");
    let running = rrun.start_below("{ \"$@\"; echo $? > code; } | head -n 1");
    let ended = running.wait().succeeds().stdout_is("[default0]:1\n");
    assert!(ended.has_file("done"));
    assert_eq!(ended.text("code"), "0\n");
}

#[test]
fn a_long_line_is_not_cut_on_the_console() {
    let line = "head -c 3000000 /dev/zero | tr '\\0' x; echo";
    let ended = Rrun::new()
        .nproc(2)
        .options(&["-t", "1", "--log-dir", "logs"])
        .sh(line)
        .succeeds();
    let long = "x".repeat(3_000_000);
    let mut printed: Vec<&str> = ended.stdout.lines().collect();
    printed.sort_unstable();
    assert!(
        printed == [format!("[default0]:{long}"), format!("[default1]:{long}")],
        "each is one line"
    );
}

#[test]
fn a_missing_folder_for_temporary_files_is_named() {
    let ended = Rrun::new()
        .env("TMPDIR", "/nowhere/at-all")
        .sh("true")
        .fails_with(1);
    let wanted = "TMPDIR is `/nowhere/at-all`, which is not a folder";
    assert!(ended.stderr.contains(wanted), "{}", ended.stderr);
}
