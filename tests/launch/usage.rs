//! Tests of the command line: spellings, defaults from the environment, invalid input.

use serde_json::Value;

use crate::launch::command::Rrun;
use crate::launch::ended::Ended;

/// Returns the plan that a dry run prints for these options.
#[track_caller]
fn planned(rrun: Rrun) -> Value {
    let ended = rrun
        .options(&["--dry-run=json"])
        .program(&["train.py"])
        .succeeds();
    serde_json::from_str(&ended.stdout).expect("a plan is JSON")
}

/// Checks that these options are refused with this exit code, and that nothing was started.
#[track_caller]
fn refused(code: i32, options: &[&str]) -> Ended {
    refused_with(Rrun::new(), code, options)
}

#[track_caller]
fn refused_with(rrun: Rrun, code: i32, options: &[&str]) -> Ended {
    let ended = rrun
        .options(options)
        .sh("touch started")
        .fails_with(code)
        .stdout_is("");
    assert!(!ended.has_file("started"));
    assert_eq!(ended.entries("tmp"), [""; 0], "a log folder was made");
    ended
}

#[test]
fn both_spellings_of_every_option_mean_the_same() {
    let spelled = |separator: &str| {
        let text = "--nproc-per-node=2 --rdzv-backend=static --rdzv-endpoint=127.0.0.1:29411 --rdzv-id=u1 \
                    --rdzv-conf=timeout=30 --max-restarts=1 --monitor-interval=0.2 --start-method=spawn \
                    --event-log-handler=null --log-dir=lg --local-ranks-filter=0 --duplicate-stdout-filters=a \
                    --duplicate-stderr-filters=b --node-rank=0 --master-addr=127.0.0.1 --master-port=29411 \
                    --local-addr=127.0.0.1 --signals-to-handle=SIGTERM --shutdown-timeout=7 --run-path \
                    --virtual-local-rank --log-line-prefix-template=x";
        let words: Vec<String> = text
            .split_whitespace()
            .map(|word| format!("--{}", word.trim_start_matches('-').replace('-', separator)))
            .collect();
        planned(Rrun::new().options(&words.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    assert_eq!(spelled("-"), spelled("_"));
    assert_eq!(spelled("-")["ranks"].as_array().map(Vec::len), Some(2));
}

#[test]
fn values_may_be_glued_or_follow() {
    let plan = |words: &[&str]| {
        planned(
            Rrun::new()
                .options(&["--rdzv-id", "x", "--master-port", "29411"])
                .options(words),
        )
    };
    let apart = plan(&["--nproc-per-node", "2", "-r", "3", "-t", "1"]);
    assert_eq!(plan(&["--nproc-per-node=2", "-r3", "-t1"]), apart);
    assert_eq!(
        plan(&["--nproc_per_node=2", "--redirects=3", "--tee=1"]),
        apart
    );
}

#[test]
fn options_may_be_shortened_and_the_last_one_counts() {
    let rrun = Rrun::new().options(&["--standal", "--nnode", "1", "--max-r", "1", "--max-r", "2"]);
    assert_eq!(planned(rrun)["max_restarts"], 2);
}

#[test]
fn two_dashes_before_the_program_are_dropped() {
    let script = "import sys; print(sys.argv)";
    let rrun = Rrun::new()
        .file("script.py", script)
        .options(&["--"])
        .program(&["script.py", "--y"]);
    rrun.succeeds().stdout_is("['script.py', '--y']\n");
}

#[test]
fn variables_are_defaults_and_the_command_line_wins() {
    let pet = || {
        Rrun::new()
            .env("PET_NPROC_PER_NODE", "3")
            .env("PET_ROLE", "pet")
            .env("PET_MAX_RESTARTS", "4")
    };
    pet()
        .sh("echo $ROLE_NAME $WORLD_SIZE $TORCHELASTIC_MAX_RESTARTS")
        .succeeds()
        .prints(&["pet 3 4"; 3]);
    pet()
        .nproc(1)
        .options(&["--role", "cli"])
        .sh("echo $ROLE_NAME $WORLD_SIZE")
        .succeeds()
        .prints(&["cli 1"]);
}

#[test]
fn flags_in_variables_are_numbers() {
    Rrun::new()
        .env("PET_NO_PYTHON", "1")
        .program(&["echo", "ran"])
        .succeeds()
        .stdout_is("ran\n");
    Rrun::new()
        .env("PET_MODULE", "0")
        .python("print('ran')")
        .succeeds()
        .stdout_is("ran\n");
    refused_with(Rrun::new().env("PET_STANDALONE", "yes"), 1, &[]).stderr_has("PET_STANDALONE");
}

#[test]
fn a_wrong_value_in_a_variable_is_a_usage_error() {
    refused_with(Rrun::new().env("PET_MASTER_PORT", "abc"), 2, &[])
        .stderr_has("argument --master-port/--master_port: invalid int value: 'abc'");
}

#[test]
fn without_a_program_the_usage_is_shown() {
    let ended = Rrun::new()
        .fails_with(2)
        .stdout_is("")
        .stderr_has("Usage: rrun [OPTIONS] PROGRAM");
    ended.stderr_has(
        "rrun: error: the following arguments are required: training_script, training_script_args",
    );
}

#[test]
fn an_unknown_option_is_a_usage_error() {
    refused(2, &["--bogus"]).stderr_has("unrecognized arguments: --bogus");
}

#[test]
fn values_of_a_wrong_type_are_usage_errors() {
    refused(2, &["--max-restarts", "a"])
        .stderr_has("argument --max-restarts/--max_restarts: invalid int value: 'a'");
    refused(2, &["--monitor-interval", "x"]).stderr_has("invalid float value: 'x'");
    refused(2, &["--start-method", "foo"]).stderr_has("invalid choice: 'foo'");
    refused(2, &["--numa-binding", "zz"]).stderr_has("invalid choice: 'zz'");
    refused(2, &["--log-format", "xml"])
        .stderr_has("invalid choice: 'xml' (choose from 'text', 'json')");
    refused(2, &["--failure-policy", "all"])
        .stderr_has("invalid choice: 'all' (choose from 'isolate', 'torchrun')");
    refused(2, &["--node-rank", "x"]).stderr_has("invalid int value: 'x'");
}

#[test]
fn an_ambiguous_option_is_a_usage_error() {
    refused(2, &["--rdzv", "x"]).stderr_has("ambiguous option: --rdzv could match --rdzv-");
}

#[test]
fn values_that_cannot_be_are_refused_in_one_line() {
    refused(1, &["--nproc-per-node", "abc"])
        .stderr_is("rrun: error: Unsupported nproc_per_node value: abc\n");
    refused(1, &["--nproc-per-node", "0"]).stderr_has("nproc_per_node must be between 1 and");
    refused(1, &["--nnodes", "2:1"]).stderr_has("min_nodes must be > 0 and <= max_nodes");
    refused(1, &["--max-restarts", "-1"]).stderr_has("max_restarts must be >= 0");
    refused(1, &["--monitor-interval", "0"]).stderr_has("monitor_interval must be > 0");
    refused(1, &["--tee", "4"]).stderr_has("4 does not match: <^[0123]$>");
    refused(1, &["--local-ranks-filter", "x"])
        .stderr_has("must be a comma-separated list of integers");
    refused(1, &["--rdzv-backend", "foo"])
        .stderr_has("The rendezvous backend 'foo' is not registered");
    refused(1, &["-m"]).stderr_has("Don't use both the '--no-python' flag and the '--module' flag");
}

#[test]
fn a_log_folder_that_is_a_file_is_refused() {
    refused_with(Rrun::new().file("taken", ""), 1, &["--log-dir", "taken"])
        .stderr_has("log_dir: taken is a file");
}

#[test]
fn help_names_every_option_of_torchrun_and_starts_nothing() {
    let ended = Rrun::new().options(&["--help"]).succeeds().stderr_is("");
    let options = "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone max-restarts \
                   monitor-interval start-method event-log-handler role module no-python run-path log-dir redirects \
                   tee local-ranks-filter duplicate-stdout-filters duplicate-stderr-filters node-rank master-addr \
                   master-port local-addr logs-specs numa-binding signals-to-handle virtual-local-rank";
    let missing: Vec<&str> = options
        .split_whitespace()
        .filter(|option| !ended.stdout.contains(&format!("--{option}")))
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn as_many_ranks_as_cpus_can_be_asked_for() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let plan = planned(Rrun::new().options(&["--nproc-per-node", "cpu"]));
    assert_eq!(plan["ranks"].as_array().map(Vec::len), Some(cpus));
}
