use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::{CliRequest, Environment, parse};
use crate::hang::plan::TimerPlan;
use crate::node::{Node, NodeGpu};
use crate::plan::error::PlanError;
use crate::plan::rendezvous::{Backend, RendezvousPlan};
use crate::plan::{LaunchPlan, RankPlan, Streams};

const UUID: &str = "0f0e0d0c-0b0a-4908-8706-050403020100";

fn node() -> Node {
    let executable = "/nonexistent/rrun".into();
    Node {
        cpus: 4,
        gpus: vec![NodeGpu::default(); 2],
        gpu_memory: None,
        open_files: None,
        connection_ports: None,
        called_as: PathBuf::new(),
        memory: None,
        executable,
        full_name: String::new(),
        uuid: UUID.to_owned(),
    }
}

fn plan_with(line: &str, variables: &[(&str, &str)]) -> Result<LaunchPlan, PlanError> {
    let base = [("PYTHON_EXEC", "py"), ("PATH", "/usr/bin:/bin")];
    let variables = base.into_iter().chain(variables.iter().copied());
    let env = variables.fold(Environment::default(), |env, (name, value)| {
        env.with(name, value)
    });
    match parse(line.split(' ').map(OsString::from).collect(), &env).unwrap() {
        CliRequest::Launch(cli) => LaunchPlan::new(&cli, &env, &node()),
        other => panic!("no launch but {other:?}"),
    }
}

fn plan(line: &str) -> LaunchPlan {
    plan_with(line, &[]).unwrap()
}

fn refused(line: &str) -> String {
    plan_with(line, &[]).unwrap_err().to_string()
}

fn argv(rank: &RankPlan) -> String {
    rank.argv.join(" ".as_ref()).into_string().unwrap()
}

fn address(line: &str) -> (String, Option<u16>, String) {
    let plan = plan(line);
    (plan.store.master_addr, plan.store.port, plan.run_id)
}

fn at(host: &str, port: impl Into<Option<u16>>, run_id: &str) -> (String, Option<u16>, String) {
    (host.to_owned(), port.into(), run_id.to_owned())
}

#[test]
fn without_options_one_rank_meets_itself_where_torchrun_does() {
    let plan = plan("train.py --lr 1");
    assert_eq!(
        (plan.nnodes, plan.ranks.len(), plan.title.as_str()),
        (1, 1, "train.py")
    );
    assert_eq!(
        (plan.role.as_str(), plan.max_restarts, plan.shutdown_timeout),
        ("default", 0, Duration::from_secs(30))
    );
    let store = (
        plan.store.master_addr.as_str(),
        plan.store.port,
        plan.store.may_move,
    );
    assert_eq!(
        (store, plan.run_id.as_str()),
        (("127.0.0.1", Some(29500), true), "none")
    );
    assert_eq!(
        (argv(&plan.ranks[0]).as_str(), plan.ranks[0].shown),
        ("py -u train.py --lr 1", true)
    );
    assert_eq!(plan.signals.numbers, [15, 2, 1, 3]);
    assert!(plan.notes.is_empty());
}

#[test]
fn programs_are_run_as_torchrun_runs_them() {
    assert_eq!(
        argv(&plan("-m pkg.mod --a").ranks[0]),
        "py -u -m pkg.mod --a"
    );
    assert_eq!(argv(&plan("--no-python sh -c x").ranks[0]), "sh -c x");
    assert_eq!(plan("--no-python sh").title, "sh");
    let run_path = plan("--run-path --no-python -m s.py a");
    assert_eq!(
        (run_path.title.as_str(), &run_path.ranks[0].argv[..2]),
        ("run_script_path", &["py".into(), "-c".into()][..])
    );
    assert_eq!(run_path.ranks[0].argv[3..], ["s.py", "a"]);
}

#[test]
fn the_local_rank_is_filled_into_arguments_but_not_into_an_executable_s_name() {
    let plan = plan("--nproc-per-node 2 s${local_rank}.py $local_rank $$");
    assert_eq!(argv(&plan.ranks[1]), "py -u s1.py 1 $");
    assert_eq!(
        refused("--no-python $$ x"),
        "No such file or directory: '$$'"
    );
}

#[test]
fn a_program_that_is_nowhere_is_refused() {
    assert_eq!(
        refused("--no-python /nonexistent"),
        "No such file or directory: '/nonexistent'"
    );
    let both = "Don't use both the '--no-python' flag and the '--module' flag at the same time.";
    assert_eq!(refused("--no-python -m json.tool"), both);
}

#[test]
fn built_in_programs_are_plain_words() {
    assert!(refused("eval --jobs j.json").contains("`/nonexistent/rrun-rank` is missing"));
    assert!(refused("serve --policy gr00t").contains("`/nonexistent/rrun-rank` is missing"));
    assert_eq!(argv(&plan("./eval x").ranks[0]), "py -u ./eval x");
    assert_eq!(argv(&plan("-m eval x").ranks[0]), "py -u -m eval x");
}

#[test]
fn eval_runs_the_binary_beside_rrun_with_its_words_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("rrun-rank");
    fs::write(&binary, "").unwrap();
    let node = Node {
        executable: folder.path().join("rrun"),
        ..node()
    };
    let words = ["--nproc-per-node", "2", "eval", "--jobs", "${local_rank}$$"].map(OsString::from);
    let env = Environment::default();
    let CliRequest::Launch(cli) = parse(words.to_vec(), &env).unwrap() else {
        panic!("no launch")
    };
    let program = crate::plan::decide::program::Program::new(&cli, &env, &node).unwrap();
    assert_eq!(program.title(), "eval");
    assert_eq!(
        program.argv(1),
        [
            binary.as_os_str(),
            "eval".as_ref(),
            "--jobs".as_ref(),
            "${local_rank}$$".as_ref()
        ]
    );
}

#[test]
fn ranks_are_counted_by_number_or_by_device() {
    let counts =
        ["3", "gpu", "cpu", "auto"].map(|n| plan(&format!("--nproc-per-node {n} x")).ranks.len());
    assert_eq!(counts, [3, 2, 4, 2]);
    let one = plan_with("--nproc-per-node gpu x", &[("CUDA_VISIBLE_DEVICES", "1")]).unwrap();
    assert_eq!(one.ranks.len(), 1);
}

fn meeting(line: &str) -> RendezvousPlan {
    plan(line).rendezvous.unwrap()
}

#[test]
fn several_static_nodes_meet_at_the_endpoint() {
    let met = meeting(
        "--nnodes 1:3 --node-rank 2 --master-addr node0 --master-port 1234 --rdzv-conf timeout=7 x",
    );
    assert_eq!(
        (met.backend, met.host.as_str(), met.port, met.min, met.max),
        (Backend::Static, "node0", 1234, 3, 3)
    );
    assert_eq!(
        (met.node_rank, met.timeout, met.join_timeout),
        (2, Duration::from_secs(7), Duration::from_secs(7))
    );
    assert_eq!(
        (meeting("--nnodes 2 x").host, meeting("--nnodes 2 x").port),
        ("127.0.0.1".to_owned(), 29500)
    );
    assert_eq!(
        (
            plan("--nnodes 2 x").run_id.as_str(),
            plan("--nnodes 2 x").nnodes
        ),
        ("none", 2)
    );
}

#[test]
fn several_elastic_nodes_meet_at_the_endpoint() {
    let line = "--nnodes 1:4 --rdzv-backend c10d --rdzv-endpoint [fe80::1] --local-addr [::1] --rdzv-conf is_host=0 x";
    let met = meeting(line);
    assert_eq!(
        (met.backend, met.host.as_str(), met.port, met.min, met.max),
        (Backend::C10d, "fe80::1", 29400, 1, 4)
    );
    assert_eq!(
        (met.local_addr.as_deref(), met.hosts, met.keep_alive()),
        (Some("::1"), Some(false), Duration::from_secs(15))
    );
}

#[test]
fn nodes_that_could_not_find_each_other_are_refused() {
    assert!(plan("--nnodes 1:2 --standalone x").rendezvous.is_none());
    assert_eq!(
        refused("--nnodes 2 --standalone x"),
        "--standalone is for one node, --nnodes is 2"
    );
    assert_eq!(
        refused("--master-port 1 --node-rank 1 x"),
        "--node-rank is 1, expected 0 with --nnodes 1"
    );
    assert_eq!(
        refused("--nnodes 2 --node-rank -1 x"),
        "--node-rank is -1, expected 0 to 1 with --nnodes 2"
    );
    assert!(refused("--nnodes 2 --master-port 0 x").starts_with("port 0 in endpoint 127.0.0.1:0"));
    assert!(
        refused("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:0 x")
            .starts_with("port 0 in endpoint h:0")
    );
    let file = "--nnodes 2 --rdzv-backend c10d --rdzv-conf store_type=file x";
    assert!(refused(file).starts_with("store_type=file with several nodes needs a file"));
}

#[test]
fn the_static_backend_listens_where_it_is_told() {
    assert_eq!(
        address("--master-port 2000 x"),
        at("127.0.0.1", 2000, "none")
    );
    assert_eq!(
        address("--master-addr [::1] --master-port 2000 --rdzv-id a x"),
        at("::1", 2000, "a")
    );
    let both = "--rdzv-endpoint localhost:3000 --master-addr 10.1.2.3 --master-port 1 --local-addr 10.0.0.1 x";
    assert_eq!(address(both), at("localhost", 3000, "none"));
    assert_eq!(address("--master-port 0 x"), at("127.0.0.1", None, "none"));
    let text = "port is missing in endpoint: localhost. Try to specify --master-port";
    assert_eq!(refused("--rdzv-endpoint localhost x"), text);
    assert!(
        refused("--master-port 70000 x")
            .contains("'127.0.0.1:70000' must be an integer between 0 and 65536")
    );
}

#[test]
fn without_a_port_it_takes_torchrun_s_if_that_is_free() {
    assert_eq!(
        address("--rdzv-id job-7 x"),
        at("127.0.0.1", 29500, "job-7")
    );
    assert_eq!(address("--master-addr node1 x"), at("node1", 29500, "none"));
    assert_eq!(
        address("--local-addr 10.0.0.1 x"),
        at("127.0.0.1", 29500, "none")
    );
    let may_move = |line| plan(line).store.may_move;
    let lines = [
        "x",
        "--master-addr n1 x",
        "--master-port 29500 x",
        "--rdzv-endpoint 127.0.0.1:29500 x",
    ];
    assert_eq!(lines.map(may_move), [true, true, false, false]);
}

#[test]
fn standalone_ignores_what_else_is_said_about_meeting() {
    let line = "--standalone --rdzv-id a --rdzv-backend foo --rdzv-endpoint b:1 --master-port 5 x";
    assert_eq!(address(line), at("127.0.0.1", None, UUID));
    assert_eq!(
        address("--standalone --local-addr [::1] x"),
        at("::1", None, UUID)
    );
}

#[test]
fn c10d_on_one_node_s_loopback_takes_a_free_port_under_its_id() {
    assert_eq!(
        address("--rdzv-backend c10d --rdzv-endpoint localhost:29400 --rdzv-id a x"),
        at("127.0.0.1", None, "a")
    );
    assert_eq!(
        meeting("--rdzv-backend c10d --rdzv-endpoint n:29400 x").max,
        1
    );
    assert_eq!(
        meeting("--rdzv-backend c10d --rdzv-endpoint localhost:1 --rdzv-conf is_host=0 x").port,
        1
    );
    assert_eq!(
        address("--rdzv-backend c10d --local-addr n1 x"),
        at("n1", None, "none")
    );
    let file = "--rdzv-backend c10d --rdzv-endpoint /tmp/f --rdzv-conf store_type=file x";
    assert_eq!(meeting(file).file, Some("/tmp/f".into()));
    assert_eq!(
        address("--rdzv-backend c10d --rdzv-conf store_type=file x"),
        at("127.0.0.1", None, "none")
    );
    assert!(
        refused("--rdzv-backend c10d --rdzv-endpoint /tmp/f x")
            .contains("The hostname of the rendezvous endpoint")
    );
}

#[test]
fn other_backends_are_refused() {
    let text = "The rendezvous backend 'foo' is not registered. Did you forget to call `register`?";
    assert_eq!(refused("--rdzv-backend foo x"), text);
    assert!(refused("--rdzv-backend etcd-v2 x").contains("'etcd-v2' is not available"));
}

#[test]
fn a_teed_stream_goes_to_a_file_too() {
    let plan = plan("--nproc-per-node 3 -r 0:1,1:3 -t 0:2 --local-ranks-filter 0,2,9 x");
    let streams = |stdout, stderr| Streams { stdout, stderr };
    let of = |rank: &RankPlan| (rank.redirect, rank.tee, rank.shown);
    assert_eq!(
        of(&plan.ranks[0]),
        (streams(true, true), streams(false, true), true)
    );
    assert_eq!(
        of(&plan.ranks[1]),
        (streams(true, true), streams(false, false), false)
    );
    assert_eq!(
        of(&plan.ranks[2]),
        (streams(false, false), streams(false, false), true)
    );
}

#[test]
fn dev_null_switches_files_off_and_says_so() {
    let plan = plan("--log-dir /dev/null -t3 x");
    assert!(plan.logs.disabled && plan.logs.dir.is_none());
    assert_eq!(
        (plan.ranks[0].redirect, plan.ranks[0].tee),
        (Streams::default(), Streams::default())
    );
    assert_eq!(
        plan.notes,
        ["-r and -t have no effect with --log-dir /dev/null"]
    );
}

#[test]
fn a_log_folder_that_is_a_file_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display();
    assert_eq!(
        refused(&format!("--log-dir {path} x")),
        format!("log_dir: {path} is a file")
    );
}

#[test]
fn filters_and_prefix_are_taken_from_the_command_line_first() {
    let variables = [("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "env")];
    let template = |line| plan_with(line, &variables).unwrap().logs.prefix_template;
    assert_eq!(template("x").as_deref(), Some("env"));
    assert_eq!(
        template("--log-line-prefix-template cli x").as_deref(),
        Some("cli")
    );
    assert_eq!(
        plan("--duplicate-stdout-filters a,b x")
            .logs
            .duplicate_stdout,
        ["a", "b"]
    );
}

#[test]
fn the_grace_comes_from_option_variable_or_torchrun() {
    let grace = |line, value| {
        let env = [("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", value)];
        plan_with(line, &env)
            .map(|plan| plan.shutdown_timeout)
            .map_err(|err| err.to_string())
    };
    assert_eq!(grace("x", "5"), Ok(Duration::from_secs(5)));
    assert_eq!(grace("--shutdown-timeout 0 x", "5"), Ok(Duration::ZERO));
    assert!(
        grace("x", "soon")
            .unwrap_err()
            .starts_with("TORCH_ELASTIC_SHUTDOWN_TIMEOUT: ")
    );
    assert!(refused("--shutdown-timeout -1 x").starts_with("--shutdown-timeout: "));
}

#[test]
fn numbers_out_of_range_are_refused() {
    assert_eq!(
        refused("--max-restarts -1 x"),
        "max_restarts must be >= 0, got -1"
    );
    for interval in ["0", "-1", "nan"] {
        assert!(
            refused(&format!("--monitor-interval {interval} x"))
                .starts_with("monitor_interval must be > 0")
        );
    }
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    assert_eq!(
        refused("--numa-binding node x"),
        "--numa-binding node: the bus address of GPU 0 is not known"
    );
    assert!(refused("--logs-specs s x").starts_with("--logs-specs s: "));
    assert_eq!(argv(&plan("--logs-specs default x").ranks[0]), "py -u x");
    assert!(refused("--event-log-handler foo x").contains("unknown event log handler 'foo'"));
}

#[test]
fn what_has_no_effect_is_said() {
    let notes = plan("--standalone --master-port 1 --node-rank 2 x").notes;
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].starts_with("master_addr is only used for static rdzv_backend"));
}

#[test]
fn a_file_timer_is_asked_for_as_of_torch() {
    let timer = |variables: &[(&str, &str)]| plan_with("x", variables).unwrap().hang.timer;
    let on = ("TORCHELASTIC_ENABLE_FILE_TIMER", "1");
    let path = |path: Option<&str>| {
        Some(TimerPlan {
            path: path.map(PathBuf::from),
        })
    };
    assert_eq!(timer(&[on]), path(None));
    let file = ("TORCHELASTIC_TIMER_FILE", "/run/timer");
    assert_eq!(timer(&[on, file]), path(Some("/run/timer")));
    assert_eq!(timer(&[file]), None);
    assert_eq!(timer(&[("TORCHELASTIC_ENABLE_FILE_TIMER", "true")]), None);
}

#[test]
fn a_missing_signal_is_noted_and_the_list_passed_on() {
    let plan = plan("--signals-to-handle SIGTERM,SIGFOO x");
    assert_eq!(
        (plan.signals.spec.as_str(), &plan.signals.numbers[..]),
        ("SIGTERM,SIGFOO", &[15][..])
    );
    assert!(plan.notes[0].contains("SIGFOO"));
}

#[test]
fn several_ranks_have_one_thread_each() {
    let plan = plan("--nproc-per-node 2 x");
    assert_eq!(plan.env["OMP_NUM_THREADS"], "1");
    assert!(plan.notes[0].contains(
        "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default"
    ));
}

#[test]
fn virtual_ranks_have_one_gpu_each() {
    let env = [("CUDA_VISIBLE_DEVICES", "3,5")];
    let ranks = plan_with("--nproc-per-node 2 --virtual-local-rank x", &env)
        .unwrap()
        .ranks;
    assert_eq!(
        (
            ranks[1].local_rank,
            &*ranks[1].env["LOCAL_RANK"],
            &*ranks[1].env["CUDA_VISIBLE_DEVICES"]
        ),
        (1, "0", "5")
    );
    let err = plan_with("--nproc-per-node 3 --virtual-local-rank x", &env).unwrap_err();
    assert_eq!(
        err.to_string(),
        "local_rank 2 exceeds available GPUs in CUDA_VISIBLE_DEVICES=3,5"
    );
}

#[test]
fn the_plan_prints_as_json() {
    let json = serde_json::to_value(plan("--nproc-per-node 2 train.py")).unwrap();
    assert_eq!(json["ranks"][1]["argv"][2], "train.py");
    assert_eq!(
        (&json["store"]["port"], &json["store"]["may_move"]),
        (&29500.into(), &true.into())
    );
}
