//! Tests of a rank's environment variables: torchrun's contract.

use std::collections::BTreeMap;
use std::net::TcpListener;

use crate::launch::command::Rrun;
use crate::launch::ended::Ended;
use crate::launch::running::wait_until;

type Variables = BTreeMap<String, String>;

/// Makes every rank print its environment to its log file.
fn printing(rrun: Rrun) -> Rrun {
    rrun.options(&["--no-python", "-r", "1", "--log-dir", "logs"])
        .program(&["env"])
}

fn parse(text: &str) -> Variables {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[track_caller]
fn of_rank(ended: &Ended, local_rank: usize) -> Variables {
    let run = ended.only_entry("logs");
    parse(&ended.text(&format!("{run}/attempt_0/{local_rank}/stdout.log")))
}

/// Returns the environment of each rank of a launch that succeeds.
#[track_caller]
fn environments<const N: usize>(rrun: Rrun) -> [Variables; N] {
    let ended = printing(rrun.nproc(N)).succeeds();
    std::array::from_fn(|local_rank| of_rank(&ended, local_rank))
}

#[track_caller]
fn assert_has(variables: &Variables, wanted: &[(&str, &str)]) {
    let found: Vec<(&str, &str)> = wanted
        .iter()
        .map(|(name, _)| {
            (
                *name,
                variables.get(*name).map_or("(not set)", String::as_str),
            )
        })
        .collect();
    assert_eq!(found, wanted);
}

fn port(variables: &Variables) -> u16 {
    variables["MASTER_PORT"].parse().expect("a port")
}

#[test]
fn a_rank_knows_who_it_is() {
    let [first, second, third] = environments(Rrun::new());
    let common = [
        ("GROUP_RANK", "0"),
        ("ROLE_NAME", "default"),
        ("LOCAL_WORLD_SIZE", "3"),
        ("WORLD_SIZE", "3"),
        ("GROUP_WORLD_SIZE", "1"),
        ("ROLE_WORLD_SIZE", "3"),
    ];
    assert_has(
        &first,
        &[
            &[("LOCAL_RANK", "0"), ("RANK", "0"), ("ROLE_RANK", "0")][..],
            &common,
        ]
        .concat(),
    );
    assert_has(
        &second,
        &[
            &[("LOCAL_RANK", "1"), ("RANK", "1"), ("ROLE_RANK", "1")][..],
            &common,
        ]
        .concat(),
    );
    assert_has(
        &third,
        &[
            &[("LOCAL_RANK", "2"), ("RANK", "2"), ("ROLE_RANK", "2")][..],
            &common,
        ]
        .concat(),
    );
}

#[test]
fn a_rank_knows_its_launch() {
    let [rank] = environments(Rrun::new());
    let fixed = [
        ("TORCHELASTIC_RESTART_COUNT", "0"),
        ("TORCHELASTIC_MAX_RESTARTS", "0"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        (
            "TORCHELASTIC_SIGNALS_TO_HANDLE",
            "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        ),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("TORCHELASTIC_RUN_ID", "none"),
    ];
    assert_has(&rank, &fixed);
    assert!(port(&rank) > 1023);
}

#[test]
fn options_reach_the_variables() {
    let rrun = Rrun::new().options(&[
        "--role",
        "trainer",
        "--rdzv-id",
        "job-7",
        "--max-restarts",
        "3",
    ]);
    let [rank] = environments(rrun.options(&["--signals-to-handle", "SIGTERM,SIGUSR1"]));
    let wanted = [
        ("ROLE_NAME", "trainer"),
        ("TORCHELASTIC_RUN_ID", "job-7"),
        ("TORCHELASTIC_MAX_RESTARTS", "3"),
        ("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGUSR1"),
    ];
    assert_has(&rank, &wanted);
}

#[test]
fn nothing_but_the_contract_is_added() {
    let [rank] = environments(Rrun::new());
    let names: Vec<&str> = rank.keys().map(String::as_str).collect();
    let given = ["PATH", "PYTHON_EXEC", "TMPDIR"];
    let mut wanted = [
        &given[..],
        &[
            "GROUP_RANK",
            "GROUP_WORLD_SIZE",
            "LOCAL_RANK",
            "LOCAL_WORLD_SIZE",
            "MASTER_ADDR",
            "MASTER_PORT",
            "RANK",
        ],
        &[
            "ROLE_NAME",
            "ROLE_RANK",
            "ROLE_WORLD_SIZE",
            "WORLD_SIZE",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        ],
        &[
            "TORCHELASTIC_ERROR_FILE",
            "TORCHELASTIC_MAX_RESTARTS",
            "TORCHELASTIC_RESTART_COUNT",
        ],
        &[
            "TORCHELASTIC_RUN_ID",
            "TORCHELASTIC_SIGNALS_TO_HANDLE",
            "TORCHELASTIC_USE_AGENT_STORE",
        ],
    ]
    .concat();
    wanted.sort_unstable();
    assert_eq!(names, wanted);
}

#[test]
fn the_error_file_is_in_the_ranks_log_folder() {
    let ended = printing(Rrun::new().nproc(2)).succeeds();
    let run = ended.path(&ended.only_entry("logs"));
    let error_file = |rank: usize| of_rank(&ended, rank)["TORCHELASTIC_ERROR_FILE"].clone();
    assert_eq!(
        error_file(0),
        run.join("attempt_0/0/error.json").to_string_lossy()
    );
    assert_eq!(
        error_file(1),
        run.join("attempt_0/1/error.json").to_string_lossy()
    );
    let id = &of_rank(&ended, 0)["TORCHELASTIC_RUN_ID"];
    assert!(
        run.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with(&format!("{id}_"))
    );
}

#[test]
fn several_ranks_have_one_thread_each_and_a_warning() {
    let ended = printing(Rrun::new().nproc(2))
        .succeeds()
        .stderr_has("Setting OMP_NUM_THREADS environment variable");
    assert_has(&of_rank(&ended, 0), &[("OMP_NUM_THREADS", "1")]);
    assert_has(&of_rank(&ended, 1), &[("OMP_NUM_THREADS", "1")]);
}

#[test]
fn one_rank_keeps_all_threads() {
    let ended = printing(Rrun::new().nproc(1)).succeeds().stderr_is("");
    assert!(!of_rank(&ended, 0).contains_key("OMP_NUM_THREADS"));
}

#[test]
fn a_chosen_number_of_threads_stays() {
    let ended = printing(Rrun::new().nproc(2).env("OMP_NUM_THREADS", "5"))
        .succeeds()
        .stderr_is("");
    assert_has(&of_rank(&ended, 1), &[("OMP_NUM_THREADS", "5")]);
    let empty = printing(Rrun::new().nproc(2).env("OMP_NUM_THREADS", ""))
        .succeeds()
        .stderr_is("");
    assert_has(&of_rank(&empty, 1), &[("OMP_NUM_THREADS", "")]);
}

#[test]
fn what_the_user_has_set_is_inherited() {
    let rrun = Rrun::new()
        .env("CUDA_VISIBLE_DEVICES", "3,5")
        .env("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3");
    let [rank] = environments(rrun.env("MINE", "a = b"));
    let wanted = [
        ("CUDA_VISIBLE_DEVICES", "3,5"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"),
        ("MINE", "a = b"),
    ];
    assert_has(&rank, &wanted);
}

#[test]
fn the_variables_of_an_outer_launch_are_replaced() {
    let outer = Rrun::new()
        .env("RANK", "7")
        .env("WORLD_SIZE", "64")
        .env("MASTER_PORT", "1")
        .env("LOCAL_RANK", "3");
    let [rank] = environments(outer.env("TORCHELASTIC_RESTART_COUNT", "2"));
    let wanted = [
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("LOCAL_RANK", "0"),
        ("TORCHELASTIC_RESTART_COUNT", "0"),
    ];
    assert_has(&rank, &wanted);
    assert_ne!(port(&rank), 1);
}

#[test]
fn a_virtual_local_rank_sees_its_own_gpu_alone() {
    let rrun = Rrun::new()
        .options(&["--virtual-local-rank"])
        .env("CUDA_VISIBLE_DEVICES", "3, 5");
    let [first, second] = environments(rrun);
    assert_has(
        &first,
        &[
            ("LOCAL_RANK", "0"),
            ("RANK", "0"),
            ("CUDA_VISIBLE_DEVICES", "3"),
        ],
    );
    assert_has(
        &second,
        &[
            ("LOCAL_RANK", "0"),
            ("RANK", "1"),
            ("CUDA_VISIBLE_DEVICES", "5"),
        ],
    );
    assert!(second["TORCHELASTIC_ERROR_FILE"].ends_with("/attempt_0/1/error.json"));
}

#[test]
fn virtual_local_ranks_without_a_list_count_gpus() {
    let [first, second] = environments(Rrun::new().options(&["--virtual-local-rank"]));
    assert_has(
        &first,
        &[("LOCAL_RANK", "0"), ("CUDA_VISIBLE_DEVICES", "0")],
    );
    assert_has(
        &second,
        &[("LOCAL_RANK", "0"), ("CUDA_VISIBLE_DEVICES", "1")],
    );
}

#[test]
fn virtual_local_ranks_without_enough_gpus_are_refused() {
    let rrun = Rrun::new()
        .nproc(2)
        .options(&["--virtual-local-rank"])
        .env("CUDA_VISIBLE_DEVICES", "3");
    let ended = rrun.sh("touch started").fails_with(1);
    assert!(
        !ended
            .stderr_has("local_rank 1 exceeds available GPUs in CUDA_VISIBLE_DEVICES=3")
            .has_file("started")
    );
}

#[test]
fn two_launches_side_by_side_have_a_port_each() {
    let rrun = || Rrun::new().sh("echo $MASTER_PORT > port; await go");
    let (one, other) = (rrun().start(), rrun().start());
    one.wait_for_files(&["port"]);
    other.wait_for_files(&["port"]);
    one.write("go");
    other.write("go");
    assert_ne!(
        one.wait().succeeds().text("port"),
        other.wait().succeeds().text("port")
    );
}

/// Returns a free port outside the range of the other tests' ports (32768 and up).
pub fn free_port() -> u16 {
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    (first..32_000)
        .find(|&port| TcpListener::bind(("0.0.0.0", port)).is_ok())
        .unwrap()
}

#[test]
fn a_given_port_is_the_port() {
    let free = free_port().to_string();
    let [rank] =
        environments(Rrun::new().options(&["--master-addr", "localhost", "--master-port", &free]));
    assert_has(
        &rank,
        &[
            ("MASTER_ADDR", "localhost"),
            ("MASTER_PORT", &free),
            ("TORCHELASTIC_RUN_ID", "none"),
        ],
    );
}

/// Binds torchrun's port for the tests of this file; waits until no other launch on this machine
/// has it.
fn torchrun_s_port() -> TcpListener {
    let mut taken = None;
    wait_until("port 29500 is free", || {
        taken = TcpListener::bind("0.0.0.0:29500").ok();
        taken.is_some()
    });
    taken.unwrap()
}

#[test]
fn without_options_ranks_meet_at_torchrun_s_port_or_say_where() {
    let held = torchrun_s_port();
    let moved = Rrun::new().sh("echo $MASTER_PORT > port; await go").start();
    moved.wait_for_files(&["port"]);
    let port = moved.text("port").trim().to_owned();
    let pid = std::process::id();
    moved.wait_for_stderr(&format!(
        "(pid {pid}): the ranks meet at port {port} (MASTER_PORT)"
    ));
    assert_ne!(port, "29500");
    moved.write("go");
    moved.wait().succeeds();
    drop(held);
    // Other launches may take the port first, but not for ever.
    wait_until("a launch has the port", || {
        Rrun::new().sh("echo $MASTER_PORT").succeeds().stdout == "29500\n"
    });
}

#[test]
fn a_port_that_is_taken_is_refused_and_nothing_starts() {
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ended = Rrun::new()
        .options(&["--master-port", &port])
        .sh("touch started")
        .fails_with(1);
    assert!(!ended.stderr_has(&port).has_file("started"));
}

#[test]
fn a_store_of_the_ranks_own_is_announced() {
    let rrun = || Rrun::new().env("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1");
    let [rank] = environments(rrun());
    assert_has(&rank, &[("TORCHELASTIC_USE_AGENT_STORE", "True")]);
    let [rank] = environments(rrun().options(&["--standalone"]));
    assert_has(&rank, &[("TORCHELASTIC_USE_AGENT_STORE", "False")]);
    assert!(TcpListener::bind(("127.0.0.1", port(&rank))).is_ok());
}
