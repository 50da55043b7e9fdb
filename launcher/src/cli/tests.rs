use std::path::PathBuf;

use clap::CommandFactory as _;
use jobs::eval_args::EvalArgs;
use jobs::serve_args::ServeArgs;

use super::*;
use crate::plan::decide::failure::RESTARTS;

fn request(words: &[&str], env: &Environment) -> Result<CliRequest, CliError> {
    parse(words.iter().map(OsString::from).collect(), env)
}

fn cli_with<const N: usize>(words: &[&str], variables: [(&str, &str); N]) -> Cli {
    match request(words, &Environment::from(variables)).unwrap() {
        CliRequest::Launch(cli) => *cli,
        CliRequest::Print(text) => panic!("no launch but {text}"),
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
            || cli.dry_run)
    );
}

#[test]
fn every_option_with_a_value_is_read_in_both_spellings() {
    let values = [
        ("nnodes", "2"),
        ("nproc-per-node", "3"),
        ("rdzv-backend", "c10d"),
        ("rdzv-endpoint", "h:1"),
        ("rdzv-id", "i"),
        ("rdzv-conf", "a=b"),
        ("max-restarts", "4"),
        ("monitor-interval", "0.5"),
        ("start-method", "fork"),
        ("event-log-handler", "console"),
        ("role", "r"),
        ("log-dir", "l"),
        ("redirects", "1"),
        ("tee", "2"),
        ("local-ranks-filter", "0"),
        ("duplicate-stdout-filters", "o"),
        ("duplicate-stderr-filters", "e"),
        ("node-rank", "5"),
        ("master-addr", "m"),
        ("master-port", "6"),
        ("local-addr", "n"),
        ("logs-specs", "s"),
        ("numa-binding", "core-complex"),
        ("signals-to-handle", "SIGTERM"),
        ("shutdown-timeout", "7"),
        ("log-line-prefix-template", "t"),
        ("slurm", "off"),
        ("failure-policy", "isolate"),
        ("log-format", "json"),
    ];
    for join in ["-", "_"] {
        let words: Vec<String> = values
            .iter()
            .flat_map(|(name, value)| {
                [
                    format!("--{}", name.replace('-', join)),
                    (*value).to_owned(),
                ]
            })
            .collect();
        let words: Vec<&str> = words
            .iter()
            .map(String::as_str)
            .chain(["train.py"])
            .collect();
        let cli = cli(&words);
        assert_eq!(
            (
                cli.nnodes.as_str(),
                cli.nproc_per_node.as_str(),
                cli.node_rank
            ),
            ("2", "3", 5)
        );
        assert_eq!(
            (cli.rdzv_backend.as_str(), cli.rdzv_endpoint.as_str()),
            ("c10d", "h:1")
        );
        assert_eq!(
            (
                cli.rdzv_id.as_str(),
                cli.rdzv_conf.as_str(),
                cli.role.as_str()
            ),
            ("i", "a=b", "r")
        );
        assert_eq!(
            (cli.max_restarts, cli.monitor_interval, cli.shutdown_timeout),
            (4, 0.5, Some(7))
        );
        assert_eq!(
            (cli.start_method.as_str(), cli.event_log_handler.as_str()),
            ("fork", "console")
        );
        assert_eq!(
            (
                cli.redirects.as_str(),
                cli.tee.as_str(),
                cli.local_ranks_filter.as_str()
            ),
            ("1", "2", "0")
        );
        assert_eq!(
            (
                cli.duplicate_stdout_filters.as_str(),
                cli.duplicate_stderr_filters.as_str()
            ),
            ("o", "e")
        );
        assert_eq!(
            (cli.master_addr.as_deref(), cli.master_port),
            (Some("m"), Some(6))
        );
        assert_eq!(
            (cli.local_addr.as_deref(), cli.log_dir),
            (Some("n"), Some(PathBuf::from("l")))
        );
        assert_eq!(
            (cli.logs_specs.as_deref(), cli.numa_binding.as_deref()),
            (Some("s"), Some("core-complex"))
        );
        assert_eq!(
            (
                cli.signals_to_handle.as_str(),
                cli.log_line_prefix_template.as_deref()
            ),
            ("SIGTERM", Some("t"))
        );
        assert_eq!(cli.slurm, "off");
    }
}

#[test]
fn every_flag_is_read_in_both_spellings() {
    for flags in [
        "--no-python --run-path --virtual-local-rank",
        "--no_python --run_path --virtual_local_rank",
    ] {
        let words: Vec<&str> = flags
            .split(' ')
            .chain(["--standalone", "-m", "--dry-run", "x"])
            .collect();
        let cli = cli(&words);
        assert!(
            cli.no_python
                && cli.run_path
                && cli.virtual_local_rank
                && cli.standalone
                && cli.module
                && cli.dry_run
        );
    }
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
fn help_is_as_in_the_file() {
    let CliRequest::Print(text) =
        request(&["-r3", "-h", "--bogus"], &Environment::default()).unwrap()
    else {
        panic!("no help")
    };
    assert_eq!(
        text,
        include_str!("help.txt"),
        "if the change is meant: rrun --help > launcher/src/cli/help.txt"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn help_has_every_option_of_torchrun_and_its_short_form() {
    let text = help();
    for spelling in &Spelling::of(&Cli::command()) {
        assert!(
            text.contains(&format!("--{}", spelling.long)),
            "{}",
            spelling.long
        );
    }
    assert!(
        ["-m,", "-r,", "-t,"]
            .iter()
            .all(|short| text.contains(short))
    );
}

#[test]
fn every_word_that_is_built_in_is_in_the_usage_and_the_help() {
    for name in built_in::names() {
        let lines = [format!("rrun {name} "), format!("rrun [OPTIONS] {name} ")];
        let is_in = |text: String| lines.iter().any(|line| text.contains(line));
        assert!(is_in(usage()) && is_in(help()), "{name}");
    }
}

/// Returns a page of the documentation, with runs of blanks collapsed.
fn page(path: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path);
    squeezed(&std::fs::read_to_string(path).unwrap())
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn help_and_docs_tell_the_restarts_of_a_built_in_program() {
    assert!(squeezed(&help()).contains(&format!(
        "[default: 0; for eval and serve with isolate {RESTARTS}]"
    )));
    assert!(page("docs/launch.md").contains(&format!(
        "0 if it is not given, {RESTARTS} for `eval` and `serve`"
    )));
    assert!(page("docs/launch.md").contains(&format!("restart 1 of {RESTARTS} in 1 s")));
    assert!(page("docs/resume.md").contains(&format!("while `--max-restarts` ({RESTARTS}) lasts")));
}

/// Returns options and the numbers after them, as in "`--job-attempts`, 2)" and
/// "`--max-connections` (1024".
fn defaults_in(page: &str) -> Vec<(String, String)> {
    let behind = |piece: &str| {
        let (name, rest) = piece.split_once('`')?;
        let number = rest
            .strip_prefix(" (")
            .or_else(|| rest.strip_prefix(", "))?;
        let end = number.find(|letter: char| !letter.is_ascii_digit())?;
        let is_closed = rest.starts_with(" (") || number[end..].starts_with(')');
        (end > 0 && is_closed).then(|| (name.to_owned(), number[..end].to_owned()))
    };
    page.split("`--").skip(1).filter_map(behind).collect()
}

#[test]
fn defaults_in_the_docs_are_those_of_the_options() {
    let commands = [Cli::command(), EvalArgs::command(), ServeArgs::command()];
    let default = |name: &str| {
        let mut options = commands.iter().flat_map(clap::Command::get_arguments);
        let option = options.find(|option| {
            option.get_long() == Some(name) && !option.get_default_values().is_empty()
        });
        Some(
            option?.get_default_values()[0]
                .to_string_lossy()
                .into_owned(),
        )
    };
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let pages = std::fs::read_dir(docs)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages = pages
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/{name}"));
    let mut compared = 0;
    for name in pages {
        for (option, told) in defaults_in(&page(&name))
            .into_iter()
            .filter(|(option, _)| option != "max-restarts")
        {
            assert_eq!(Some(told), default(&option), "{name}: --{option}");
            compared += 1;
        }
    }
    assert!(
        compared >= 3,
        "the docs name defaults: {compared} were found"
    );
}

#[test]
fn the_version_is_printed_on_demand() {
    let CliRequest::Print(text) = request(&["-V"], &Environment::default()).unwrap() else {
        panic!("no version")
    };
    assert_eq!(text, concat!("rrun ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn completions_are_printed_without_a_program() {
    let CliRequest::Print(text) =
        request(&["--print-completion", "bash"], &Environment::default()).unwrap()
    else {
        panic!("no script")
    };
    assert!(text.contains("complete -F _rrun"), "{text}");
    let text = "argument --print-completion/--print_completion: invalid choice: 'ksh' (choose from 'bash', 'zsh', \
                'tcsh', 'fish')";
    assert_eq!(refused(&["--print-completion=ksh", "x"]), text);
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
