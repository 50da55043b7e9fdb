mod both_spellings;
mod documented;
mod examples;

use std::path::PathBuf;

use super::*;

fn request(words: &[&str], env: &Environment) -> Result<CliRequest, CliError> {
    parse(words.iter().map(OsString::from).collect(), env)
}

fn cli_with<const N: usize>(words: &[&str], variables: [(&str, &str); N]) -> Cli {
    match request(words, &Environment::from(variables)).unwrap() {
        CliRequest::Launch(cli) => *cli,
        other => panic!("no launch but {other:?}"),
    }
}

fn cli(words: &[&str]) -> Cli {
    cli_with(words, [])
}

fn refused(words: &[&str]) -> String {
    match request(words, &Environment::default()) {
        Err(CliError::Usage(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_options_everything_has_torchrun_s_default() {
    let cli = cli(&["train.py"]);
    assert_eq!(
        (
            cli.nnodes.as_str(),
            cli.nproc_per_node.as_str(),
            cli.node_rank
        ),
        ("1:1", "1", 0)
    );
    assert_eq!(
        (cli.rdzv_backend.as_str(), cli.rdzv_endpoint.as_str()),
        ("static", "")
    );
    assert_eq!(
        (
            cli.rdzv_id.as_str(),
            cli.rdzv_conf.as_str(),
            cli.role.as_str()
        ),
        ("none", "", "default")
    );
    assert_eq!(
        (cli.max_restarts, cli.monitor_interval, cli.shutdown_timeout),
        (0, 0.1, None)
    );
    assert_eq!(
        (cli.start_method.as_str(), cli.event_log_handler.as_str()),
        ("spawn", "null")
    );
    assert_eq!(
        (
            cli.redirects.as_str(),
            cli.tee.as_str(),
            cli.local_ranks_filter.as_str()
        ),
        ("0", "0", "")
    );
    assert_eq!(
        (
            cli.master_addr,
            cli.master_port,
            cli.local_addr,
            cli.log_dir
        ),
        (None, None, None, None)
    );
    assert_eq!(
        (
            cli.logs_specs,
            cli.numa_binding,
            cli.log_line_prefix_template
        ),
        (None, None, None)
    );
    assert_eq!(cli.signals_to_handle, "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
    assert!(
        !(cli.standalone
            || cli.module
            || cli.no_python
            || cli.run_path
            || cli.virtual_local_rank
            || cli.dry_run.is_some())
    );
}

#[test]
fn program_and_arguments_are_verbatim() {
    let args = [
        "--nproc-per-node",
        "9",
        "-t",
        "3",
        "--standalone",
        "--x=1",
        "-",
        "a b",
        "",
        "--",
        "é",
        "--help",
    ];
    let words: Vec<&str> = ["-r3", "s.py"].into_iter().chain(args).collect();
    let cli = cli(&words);
    assert_eq!(
        (cli.program.to_str(), cli.nproc_per_node.as_str()),
        (Some("s.py"), "1")
    );
    assert_eq!(cli.args, args);
}

#[test]
fn a_double_dash_beside_the_program_is_the_launcher_s() {
    assert_eq!(cli(&["s.py", "--", "x"]).args, ["x"]);
    assert_eq!(cli(&["s.py", "--", "--", "x"]).args, ["--", "x"]);
    let cli = cli(&["--", "--weird.py", "--", "x"]);
    assert_eq!(
        (cli.program.to_str(), cli.args),
        (Some("--weird.py"), vec!["--".into(), "x".into()])
    );
}

#[test]
fn the_last_of_repeated_options_wins() {
    let cli = cli(&[
        "--role",
        "a",
        "--standalone",
        "--role=b",
        "-r1",
        "--standalone",
        "--redirects",
        "3",
        "x",
    ]);
    assert_eq!(
        (cli.role.as_str(), cli.redirects.as_str(), cli.standalone),
        ("b", "3", true)
    );
}

#[test]
fn an_empty_value_is_a_value() {
    assert_eq!(
        (cli(&["--role=", "x"]).role, cli(&["--role", "", "x"]).role),
        (String::new(), String::new())
    );
    assert_eq!(cli(&["--log-dir=", ""]).log_dir, Some(PathBuf::new()));
}

#[test]
fn no_program_is_refused() {
    let text = "the following arguments are required: training_script, training_script_args";
    assert_eq!(refused(&[]), text);
    assert_eq!(refused(&["--bogus"]), text);
    assert_eq!(refused(&["--standalone", "--"]), text);
}

#[test]
fn unknown_options_are_refused_by_name() {
    assert_eq!(
        refused(&["--bogus", "-x", "s.py", "--y"]),
        "unrecognized arguments: --bogus -x"
    );
}

#[test]
fn wrong_types_and_choices_are_refused_in_argparse_s_words() {
    let table = [
        (
            ["--max-restarts", "a"],
            "argument --max-restarts/--max_restarts: invalid int value: 'a'",
        ),
        (
            ["--max_restarts", ""],
            "argument --max-restarts/--max_restarts: invalid int value: ''",
        ),
        (
            ["--node-rank", "1.0"],
            "argument --node-rank/--node_rank: invalid int value: '1.0'",
        ),
        (
            ["--master-port", "x"],
            "argument --master-port/--master_port: invalid int value: 'x'",
        ),
        (
            ["--monitor-interval", "x"],
            "argument --monitor-interval/--monitor_interval: invalid float value: 'x'",
        ),
        (
            ["--start-method", "foo"],
            "argument --start-method/--start_method: invalid choice: 'foo' (choose from 'spawn', 'fork', 'forkserver')",
        ),
        (
            ["--numa-binding", "zz"],
            "argument --numa-binding/--numa_binding: invalid choice: 'zz' (choose from 'node', 'socket', 'exclusive', \
             'core-complex')",
        ),
    ];
    for ([option, value], text) in table {
        assert_eq!(refused(&[option, value, "s.py"]), text);
    }
}

#[test]
fn a_wrong_value_is_found_before_a_missing_program() {
    assert_eq!(
        refused(&["--max-restarts", "a"]),
        "argument --max-restarts/--max_restarts: invalid int value: 'a'"
    );
}

#[test]
fn abbreviations_work_over_the_real_options() {
    let cli = cli(&[
        "--standal",
        "--nnode",
        "1",
        "--max-r",
        "2",
        "--nproc-p",
        "2",
        "--local-r",
        "0",
        "--virtual-l",
        "x",
    ]);
    assert_eq!(
        (
            cli.max_restarts,
            cli.nproc_per_node.as_str(),
            cli.local_ranks_filter.as_str()
        ),
        (2, "2", "0")
    );
    assert!(cli.standalone && cli.virtual_local_rank);
    let text = "ambiguous option: --rdzv could match --rdzv-backend, --rdzv_backend, --rdzv-endpoint, --rdzv_endpoint, \
                --rdzv-id, --rdzv_id, --rdzv-conf, --rdzv_conf";
    assert_eq!(refused(&["--rdzv", "x", "s.py"]), text);
}

#[test]
fn the_command_line_beats_the_environment() {
    let cli = cli_with(
        &["--role", "cli", "x"],
        [("PET_ROLE", "pet"), ("PET_NPROC_PER_NODE", "3")],
    );
    assert_eq!(
        (cli.role.as_str(), cli.nproc_per_node.as_str()),
        ("cli", "3")
    );
}

#[test]
fn a_bad_default_counts_only_if_the_option_is_not_given() {
    let env = Environment::from([("PET_MASTER_PORT", "abc")]);
    let text = "argument --master-port/--master_port: invalid int value: 'abc'";
    assert_eq!(
        request(&["x"], &env).unwrap_err(),
        CliError::Usage(text.to_owned())
    );
    assert_eq!(
        cli_with(&["--master-port", "1", "x"], [("PET_MASTER_PORT", "abc")]).master_port,
        Some(1)
    );
}

#[test]
fn flags_and_short_options_have_variables() {
    let variables = [
        ("PET_STANDALONE", "1"),
        ("PET_NO_PYTHON", "1"),
        ("PET_REDIRECTS", "3"),
        ("PET_TEE", "1"),
        ("PET_MODULE", "0"),
    ];
    let cli = cli_with(&["x"], variables);
    assert!(cli.standalone && cli.no_python && !cli.module);
    assert_eq!((cli.redirects.as_str(), cli.tee.as_str()), ("3", "1"));
}

#[test]
fn variables_are_not_held_to_choices() {
    assert_eq!(
        cli_with(&["x"], [("PET_START_METHOD", "zz")]).start_method,
        "spawn"
    );
}

#[test]
fn a_flag_s_variable_that_is_no_number_exits_with_one() {
    let err = request(&["x"], &Environment::from([("PET_STANDALONE", "yes")])).unwrap_err();
    assert_eq!(
        err.to_string(),
        "PET_STANDALONE: invalid literal for int() with base 10: 'yes'"
    );
    assert_eq!(
        (err.exit_code(), CliError::Usage(String::new()).exit_code()),
        (1, 2)
    );
}

#[test]
fn it_is_known_which_options_were_given() {
    let cli = cli_with(
        &["--nnodes=1:1", "-r3", "x", "--role", "a"],
        [("PET_RDZV_ID", "none")],
    );
    let given: Vec<&str> = cli.given.iter().map(String::as_str).collect();
    assert_eq!(given, ["nnodes", "rdzv-id", "redirects"]);
}
