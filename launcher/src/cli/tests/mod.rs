mod documented;
mod examples;

use super::*;
use crate::tests::environment;

/// Reads a line, in which words such as `PET_ROLE=a` come first and are variables.
fn request(line: &str) -> Result<CliRequest, CliError> {
    let is_variable = |word: &&str| word.starts_with("PET_");
    let variables = line.split(' ').take_while(is_variable);
    let env = environment(variables.map(|word| word.split_once('=').unwrap()));
    let words: Vec<&str> = line.split(' ').skip_while(is_variable).collect();
    parse(crate::tests::words(&words.join(" ")), &env)
}

fn cli(line: &str) -> Cli {
    match request(line).unwrap() {
        CliRequest::Launch(cli) => *cli,
        other => panic!("no launch but {other:?}"),
    }
}

/// Returns `option=value … | program argument …` of a line, or its error.
fn read(line: &str) -> String {
    let cli = match request(line) {
        Ok(CliRequest::Launch(cli)) => *cli,
        Ok(other) => return format!("{other:?}"),
        Err(err) => return err.to_string(),
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
    let options = Spelling::of(&Cli::command()).into_iter();
    let launches = |option: &Spelling| {
        !["help", "version", "print-completion", "write-man"].contains(&option.long.as_str())
    };
    for Spelling {
        long, takes_value, ..
    } in options.filter(launches)
    {
        let value = match long.as_str() {
            "start-method" => "fork",
            "numa-binding" => "node",
            "slurm" | "kubernetes" => "off",
            "failure-policy" => "isolate",
            "on-hang" => "abort",
            "log-format" | "dry-run" => "json",
            "monitor-interval" => "0.5",
            _ if takes_value => "7",
            _ => "true",
        };
        let given = match value {
            "true" => String::new(),
            value => format!("={value}"),
        };
        for spelled in [long.clone(), long.replace('-', "_")] {
            let line = format!("--{spelled}{given} x");
            assert_eq!(read(&line), format!("{long}={value} | x"));
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
        ("-r", "argument -r/--redirects: expected one argument"),
        ("-r -- a", "argument -r/--redirects: expected one argument"),
        (
            "--rdzv-id -x",
            "argument --rdzv-id/--rdzv_id: expected one argument",
        ),
        // A flag takes no value.
        (
            "-mx a",
            "argument -m/--module: ignored explicit argument 'x'",
        ),
        (
            "--no-python=1 a",
            "argument --no-python/--no_python: ignored explicit argument '1'",
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
        (
            "--nproc=2 a",
            "ambiguous option: --nproc=2 could match --nproc-per-node, --nproc_per_node",
        ),
        (
            "--rdzv x s.py",
            "ambiguous option: --rdzv could match --rdzv-backend, --rdzv_backend, \
             --rdzv-endpoint, --rdzv_endpoint, --rdzv-id, --rdzv_id, --rdzv-conf, --rdzv_conf",
        ),
        // Our own options do not blur abbreviations.
        ("--vers a", "unrecognized arguments: --vers"),
        ("--dry a", "unrecognized arguments: --dry"),
    ]);
}

#[test]
fn what_torchrun_refuses_is_refused_in_argparse_s_words() {
    let required = "the following arguments are required: training_script, training_script_args";
    let of_int = |name: &str, value| {
        let other = name.replace('-', "_");
        format!("argument --{name}/--{other}: invalid int value: '{value}'")
    };
    are_read(&[
        ("", required),
        ("--bogus", required),
        ("--standalone --", required),
        (
            "--bogus -x -m s.py --y",
            "unrecognized arguments: --bogus -x",
        ),
        ("--max-restarts a s.py", &of_int("max-restarts", "a")),
        ("--max_restarts '' s.py", &of_int("max-restarts", "")),
        ("--node-rank 1.0 s.py", &of_int("node-rank", "1.0")),
        ("--master-port x s.py", &of_int("master-port", "x")),
        // A wrong value is found before a missing program.
        ("--max-restarts a", &of_int("max-restarts", "a")),
        (
            "--monitor-interval x s.py",
            "argument --monitor-interval/--monitor_interval: invalid float value: 'x'",
        ),
        (
            "--start-method foo s.py",
            "argument --start-method/--start_method: invalid choice: 'foo' (choose from 'spawn', \
             'fork', 'forkserver')",
        ),
        (
            "--numa-binding zz s.py",
            "argument --numa-binding/--numa_binding: invalid choice: 'zz' (choose from 'node', \
             'socket', 'exclusive', 'core-complex')",
        ),
    ]);
}

#[test]
fn variables_are_defaults_of_torchrun_s_options() {
    let port = "argument --master-port/--master_port: invalid int value: 'abc'";
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
        ("PET_START_METHOD=zz x", "start-method=spawn | x"),
        (
            "PET_STANDALONE=yes x",
            "PET_STANDALONE: invalid literal for int() with base 10: 'yes'",
        ),
        (
            "PET_MODULE= x",
            "PET_MODULE: invalid literal for int() with base 10: ''",
        ),
    ]);
    let codes =
        ["PET_MODULE=yes x", "--bogus x"].map(|line| request(line).unwrap_err().exit_code());
    assert_eq!(codes, [1, 2], "torchrun's codes");
}
