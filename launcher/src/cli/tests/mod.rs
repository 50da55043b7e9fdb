mod documented;

use std::os::unix::ffi::OsStringExt as _;

use proptest::prelude::*;

use super::*;
use crate::tests::environment;

/// Reads a line, in which words such as `PET_ROLE=a` come first and are variables.
fn request(line: &str) -> anyhow::Result<CliRequest> {
    let is_variable = |word: &&str| word.starts_with("PET_");
    let variables = line.split(' ').take_while(is_variable);
    let env = environment(variables.map(|word| word.split_once('=').unwrap()));
    let words: Vec<&str> = line.split(' ').skip_while(is_variable).collect();
    parse(&crate::tests::words(&words.join(" ")), &env)
}

fn cli(line: &str) -> Cli {
    match request(line).unwrap() {
        CliRequest::Launch(cli) => *cli,
        other => panic!("no launch but {other:?}"),
    }
}

/// Returns the first paragraph of an error.
fn told(err: &anyhow::Error) -> String {
    let text = err.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    first.trim_start_matches("error: ").replace("\n  [", " [")
}

/// Returns `option=value … | program argument …` of a line, or its error.
fn read(line: &str) -> String {
    let cli = match request(line) {
        Ok(CliRequest::Launch(cli)) => *cli,
        Ok(other) => return format!("{other:?}"),
        Err(err) => return told(&err),
    };
    let fields = format!("{cli:#?}")
        .replace("(\n        ", "(")
        .replace(",\n    )", ")");
    let option = |name: &String| {
        let field = format!("    {}: ", name.replace('-', "_"));
        let value = fields.lines().find_map(|line| line.strip_prefix(&field));
        let value = value.unwrap_or_else(|| panic!("no field {field}: {fields}"));
        let value = value.trim_end_matches(',').replace('"', "");
        let inner = value.strip_prefix("Some(").unwrap_or(&value);
        format!("{name}={}", inner.trim_end_matches(')'))
    };
    let options: Vec<String> = cli.given.iter().map(option).collect();
    let program: Vec<String> = [&cli.program]
        .into_iter()
        .chain(&cli.args)
        .map(|word| match word.is_empty() {
            true => "''".to_owned(),
            false => word.to_string_lossy().replace(' ', "␣"),
        })
        .collect();
    let line = format!("{} | {}", options.join(" "), program.join(" "));
    line.trim_start().to_owned()
}

#[track_caller]
fn are_read(table: &[(&str, &str)]) {
    for (line, wanted) in table {
        assert_eq!(read(line), *wanted, "{line}");
    }
}

#[test]
fn without_options_everything_has_torchrun_s_default() {
    let defaults = r#"
        nproc_per_node: "1", nnodes: "1:1", node_rank: 0, role: "default",
        virtual_local_rank: false, numa_binding: None,
        module: false, no_python: false, run_path: false, start_method: "spawn",
        standalone: false, master_addr: None, master_port: None, local_addr: None,
        rdzv_backend: "static", rdzv_endpoint: "", slurm: "auto", kubernetes: "auto",
        rdzv_id: "none", rdzv_conf: "",
        max_restarts: 0, failure_policy: None, shutdown_timeout: None, hang_timeout: None,
        on_hang: None, signals_to_handle: "SIGTERM,SIGINT,SIGHUP,SIGQUIT", monitor_interval: 0.1,
        log_dir: None, redirects: "0", tee: "0", local_ranks_filter: "",
        duplicate_stdout_filters: "", duplicate_stderr_filters: "",
        log_line_prefix_template: None, logs_specs: None, event_log_handler: "null","#;
    let defaults: Vec<&str> = defaults.split_whitespace().collect();
    let found = format!("{:?}", cli("train.py"));
    assert!(found.contains(&defaults.join(" ")), "{found}");
}

#[test]
fn every_option_is_read_in_both_spellings() {
    let no_launch = ["help", "version", "print-completion", "write-man"];
    for option in Cli::command().get_arguments() {
        let Some(long) = option.get_long().filter(|long| !no_launch.contains(long)) else {
            continue;
        };
        let known = option.get_possible_values();
        let value = match known.last() {
            _ if matches!(option.get_action(), ArgAction::SetTrue) => None,
            Some(known) => Some(known.get_name()),
            None => Some("7"),
        };
        let given = value.map(|value| format!("={value}")).unwrap_or_default();
        for spelled in [long.to_owned(), long.replace('-', "_")] {
            let read = read(&format!("--{spelled}{given} x")).replace("7.0", "7");
            let value = value.unwrap_or("true").replace('-', "").to_lowercase();
            let wanted = format!("{long}={value} | x");
            assert_eq!(read.to_lowercase(), wanted, "--{spelled}");
        }
    }
}

#[test]
fn values_stand_beside_options_as_in_argparse() {
    are_read(&[
        ("--nproc-per-node 2 a", "nproc-per-node=2 | a"),
        ("--nproc_per_node=2 a", "nproc-per-node=2 | a"),
        ("--rdzv-conf=a=1,b=2 a", "rdzv-conf=a=1,b=2 | a"),
        ("--rdzv-conf= a", "rdzv-conf= | a"),
        ("--role '' a", "role= | a"),
        ("--log-dir= ''", "log-dir= | ''"),
        // Short options are glued, joined or apart.
        ("-r3 a", "redirects=3 | a"),
        ("-r=2 a", "redirects=2 | a"),
        ("-r 1 a", "redirects=1 | a"),
        ("-mr3 a", "module=true redirects=3 | a"),
        // A value may be negative or have blanks, but is no option.
        ("--node-rank -1 a", "node-rank=-1 | a"),
        ("--rdzv-id -a␣b a", "rdzv-id=-a b | a"),
        ("--rdzv-id - a", "rdzv-id=- | a"),
        (
            "-r",
            "a value is required for '--redirects <STREAMS>' but none was supplied",
        ),
        (
            "-r -- a",
            "a value is required for '--redirects <STREAMS>' but none was supplied",
        ),
        ("--rdzv-id -x", "unexpected argument '-x' found"),
        // A flag takes no value.
        ("-mx a", "unexpected argument '-x' found"),
        (
            "--no-python=1 a",
            "unexpected value '1' for '--no-python' found; no more were expected",
        ),
        // The word after an optional value is the program.
        ("--dry-run a", "dry-run=table | a"),
        ("--dry-run json", "dry-run=table | json"),
        ("--dry_run=json a", "dry-run=json | a"),
        ("--dry-run -r 3 a", "dry-run=table redirects=3 | a"),
        // The last of repeated options counts.
        (
            "--role a --standalone --role=b -r1 --standalone --redirects 3 x",
            "redirects=3 role=b standalone=true | x",
        ),
    ]);
}

#[test]
fn everything_after_the_program_is_verbatim_but_for_one_double_dash_beside_it() {
    are_read(&[
        (
            "-r3 s.py --nproc-per-node 9 -t 3 --standalone --x=1 - a␣b '' -- é --help",
            "redirects=3 | s.py --nproc-per-node 9 -t 3 --standalone --x=1 - a␣b '' -- é --help",
        ),
        ("-m a -m -- --nproc ''", "module=true | a -m -- --nproc ''"),
        ("- x", "| - x"),
        // The first double dash ends the options.
        ("-m -- --weird -- x", "module=true | --weird -- x"),
        // Right after the program it is dropped, unless one came before.
        ("a -- --lr 3", "| a --lr 3"),
        ("-m a -- -- x", "module=true | a -- x"),
        ("-- a -- x", "| a -- x"),
        ("a x -- y", "| a x -- y"),
    ]);
}

#[test]
fn abbreviations_are_clear_or_refused() {
    are_read(&[
        (
            "--standal --nnode 1 --max-r 2 --nproc-p 2 --local-r 0 --virtual-l x",
            "local-ranks-filter=0 max-restarts=2 nnodes=1 nproc-per-node=2 standalone=true \
             virtual-local-rank=true | x",
        ),
        ("--nproc_ 2 a", "nproc-per-node=2 | a"),
        ("--mod a", "module=true | a"),
        ("--nproc=2 a", "nproc-per-node=2 | a"),
        ("--rdzv x s.py", "unexpected argument '--rdzv' found"),
        // Our own options do not blur abbreviations of torchrun's.
        ("--ru --v a", "run-path=true virtual-local-rank=true | a"),
        ("--dry a", "dry-run=table | a"),
    ]);
}

#[test]
fn what_torchrun_refuses_is_refused() {
    let required = "the following arguments are required: training_script, training_script_args";
    let of_int = |name: &str, value: &str| {
        format!("invalid value '{value}' for '--{name}': expected a whole number")
    };
    are_read(&[
        ("", required),
        ("--standalone --", required),
        (
            "--bogus -x -m s.py --y",
            "unexpected argument '--bogus' found",
        ),
        ("--max-restarts a s.py", &of_int("max-restarts <N>", "a")),
        ("--max_restarts '' s.py", &of_int("max-restarts <N>", "")),
        ("--node-rank 1.0 s.py", &of_int("node-rank <N>", "1.0")),
        ("--master-port x s.py", &of_int("master-port <PORT>", "x")),
        // A wrong value is found before a missing program.
        ("--max-restarts a", &of_int("max-restarts <N>", "a")),
        (
            "--monitor-interval x s.py",
            "invalid value 'x' for '--monitor-interval <SECONDS>': expected a number",
        ),
        (
            "--start-method foo s.py",
            "invalid value 'foo' for '--start-method <METHOD>' \
             [possible values: spawn, fork, forkserver]",
        ),
        (
            "--numa-binding zz s.py",
            "invalid value 'zz' for '--numa-binding <MODE>' \
             [possible values: node, socket, exclusive, core-complex]",
        ),
    ]);
}

#[test]
fn variables_are_defaults_of_torchrun_s_options() {
    let port = "invalid value 'abc' for '--master-port <PORT>': expected a whole number";
    are_read(&[
        (
            "PET_ROLE=pet PET_NPROC_PER_NODE=3 --role cli x",
            "nproc-per-node=3 role=cli | x",
        ),
        ("PET_RDZV_ID= x", "rdzv-id= | x"),
        (
            "PET_STANDALONE=2 PET_REDIRECTS=3 PET_TEE=1 PET_MODULE=0 x",
            "redirects=3 standalone=true tee=1 | x",
        ),
        ("PET_NUMA_BINDING=node x", "| x"),
        // A bad one counts only if the option is not given.
        ("PET_MASTER_PORT=abc x", port),
        ("PET_MASTER_PORT=abc --master-port 1 x", "master-port=1 | x"),
        // They are not held to choices.
        ("PET_START_METHOD=zz x", "| x"),
        (
            "PET_STANDALONE=yes x",
            "PET_STANDALONE: invalid literal for int() with base 10: 'yes'",
        ),
        (
            "PET_MODULE= x",
            "PET_MODULE: invalid literal for int() with base 10: ''",
        ),
    ]);
    let usage = |line| request(line).unwrap_err().downcast::<clap::Error>().ok();
    assert!(
        usage("PET_MODULE=yes x").is_none(),
        "torchrun's exit code is 1"
    );
    assert_eq!(usage("--bogus x").unwrap().exit_code(), 2);
}

proptest! {
    #[test]
    fn no_command_line_makes_it_panic_and_the_program_s_words_survive(
        words in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..12), 0..8)
    ) {
        let words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
        let _ = parse(&words, &Environment::default());
        let line = [&["-m".into(), "program".into()], &words[..]].concat();
        let request = parse(&line, &Environment::default()).unwrap();
        let CliRequest::Launch(cli) = request else {
            panic!("no launch but {request:?}")
        };
        let dropped = usize::from(words.first().is_some_and(|word| word == "--"));
        prop_assert_eq!(&cli.args, &words[dropped..]);
    }
}
